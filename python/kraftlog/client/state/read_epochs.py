"""Which leader epochs a consumer has read, and where each began: what a truncated log is compared with (KIP-320)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from kraftlog.client.state.position import OffsetAndEpoch

__all__ = ["ReadEpochs"]

# Of older epochs it is not known where they began.
_KEPT_MAX = 1_000


class ReadEpochs:
    """The leader epochs of records that were read one after the other up to the position, in ascending order."""

    __slots__ = ("_epochs", "_offsets")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        # Each epoch begins at this offset or later: records of several epochs may have been read at once.
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._epochs)

    def read(self, offset: int, epoch: int | None) -> None:
        """Records from ``offset`` on were read, the last of which has this epoch; None if it has none."""
        if epoch is None or (self._epochs and epoch < self._epochs[-1]):
            self.clear()
        if epoch is None or (self._epochs and epoch == self._epochs[-1]):
            return
        self._epochs.append(epoch)
        self._offsets.append(offset)
        if len(self._epochs) > _KEPT_MAX:
            del self._epochs[0], self._offsets[0]

    def clear(self) -> None:
        """The position moves to where it has read nothing before."""
        self._epochs.clear()
        self._offsets.clear()

    def go_back(self, position: OffsetAndEpoch) -> None:
        """The position moves: keep what was read before it, if that is among what is known."""
        count = bisect_right(self._epochs, -1 if position.leader_epoch is None else position.leader_epoch)
        if (
            count == 0
            or self._epochs[count - 1] != position.leader_epoch
            or self._offsets[count - 1] >= position.offset
        ):
            self.clear()
        del self._epochs[count:], self._offsets[count:]

    def start_after(self, epoch: int) -> int | None:
        """The offset at which records of later epochs than this one begin; None if no later one was read."""
        count = bisect_right(self._epochs, epoch)
        return self._offsets[count] if count < len(self._epochs) else None

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the record before an offset, or a later one with the same records before it; None if unknown."""
        count = bisect_left(self._offsets, offset)
        return self._epochs[count - 1] if count else None
