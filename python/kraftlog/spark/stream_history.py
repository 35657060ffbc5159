"""Whether a log still holds the records that an offset was taken from, by its leader epochs (KIP-320).

Each epoch has one leader, and what it wrote at an offset is the same in every replica. So a log that still has the
record of epoch E before offset O has all records before O as they were; one that was truncated and written on has
another epoch there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from kraftlog.errors import LogTruncatedError
from kraftlog.spark.stream_offsets import NO_EPOCH, Position

__all__ = ["EpochHistory", "check_position", "epoch_before"]

# Pairs of a leader epoch and its first offset, both rising: the lines of leader-epoch-checkpoint.
EpochHistory = Sequence[tuple[int, int]]


def epoch_before(history: EpochHistory, offset: int) -> int:
    """The leader epoch of the last offset before ``offset``, -1 where the history does not reach so far back."""
    place = bisect_left(history, offset, key=lambda entry: entry[1])
    return history[place - 1][0] if place else NO_EPOCH


def check_position(
    name: str, position: Position, *, history: EpochHistory, log_start_offset: int, log_end_offset: int | None
) -> None:
    """That the records before ``position`` are those of when it was noted.

    Args:
        name: Of the partition and its directory, for the error.
        position: What was noted then. Nothing is known of one without an epoch but that it is not after the end.
        history: The log's epochs now. Retention cuts them at the front, truncation at the end.
        log_start_offset: Now. What is before it is gone and nothing is said about it.
        log_end_offset: Now; None leaves out that the log reaches so far.

    Raises:
        LogTruncatedError: The log was cut below ``position.offset``; names the offset and both epochs.
    """
    offset, epoch = position.offset, position.epoch
    if log_end_offset is not None and offset > log_end_offset:
        message = (
            f"{name} was truncated: offset {offset} of leader epoch {_text(epoch)} was there,"
            f" the log ends at {log_end_offset} of leader epoch {_text(epoch_before(history, log_end_offset))} now"
        )
        raise LogTruncatedError(message)
    if epoch == NO_EPOCH or offset <= log_start_offset:
        return
    found = epoch_before(history, offset)
    if found == epoch or (found == NO_EPOCH and history and epoch < history[0][0]):
        return
    later = [start for other, start in history if other > epoch]
    end = min([*later, offset])
    message = (
        f"{name} was truncated: the record before offset {offset} was of leader epoch {epoch}"
        f" and is of leader epoch {_text(found)} now; what was read from offset {end} on may be other records"
    )
    raise LogTruncatedError(message)


def _text(epoch: int) -> str:
    return "unknown" if epoch == NO_EPOCH else str(epoch)
