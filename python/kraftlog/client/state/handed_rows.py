"""The rows of the last poll, which the application may still be working on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from kraftlog.client.state.position import FetchPosition, OffsetAndMetadata
from kraftlog.client.state.subscription import PartitionState, Subscription
from kraftlog.errors import CommitFailedError, KafkaError
from kraftlog.types import TopicPartition

__all__ = ["HandedRows"]


class HandedRows:
    """Rows belong to the application from a poll to the next one.

    The position is behind them at once. A commit that the application did not ask for leaves them out: an
    application that crashes with rows in hand has to find them again. Kafka's consumer commits automatically within
    ``poll`` alone, to the same end; this one goes on between polls.

    Partitions that the group takes away between two polls are remembered until the next one: a commit after the loss
    would leave out what the application read of them, and say nothing.

    Args:
        subscription: The positions.

    Attributes:
        on_done: Called when the application may be done with the rows.
        loss_count: How often the group took partitions away without waiting for the application.
    """

    def __init__(self, subscription: Subscription) -> None:
        self.on_done: Callable[[], None] = lambda: None
        self._subscription = subscription
        self._rows: tuple[TopicPartition, PartitionState, FetchPosition] | None = None
        self._lost: dict[TopicPartition, KafkaError] = {}
        self._is_polling = False
        self.loss_count = 0

    @property
    def are_in_use(self) -> bool:
        """Whether the application may still be working on rows that it has not committed."""
        if self._rows is None:
            return False
        name, state, before = self._rows
        is_read = self._subscription.get(name) is state and state.position is not None
        return is_read and state.position is not None and before.offset < state.position.offset

    @contextmanager
    def polling(self) -> Iterator[None]:
        """The application polls within the block: it is done with the rows before, and hears of losses there."""
        self.take_back()
        self._lost.clear()
        self._is_polling = True
        try:
            yield
        finally:
            self._is_polling = False

    def note_lost(self, partitions: Collection[TopicPartition], error: KafkaError) -> None:
        """The group took partitions away without waiting for the application.

        Args:
            partitions: Which.
            error: Why.
        """
        self.loss_count += 1
        if not self._is_polling:
            self._lost.update(dict.fromkeys(partitions, error))

    def forget_lost(self) -> None:
        """The application ended its subscription: it has nothing to commit."""
        self._lost.clear()

    def check_not_lost(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Refuse to commit what was read of partitions that were lost since the last poll.

        Args:
            partitions: Whose offsets the application commits; None for all that it read.

        Raises:
            CommitFailedError: Some were lost.
        """
        lost = [name for name in self._lost if partitions is None or name in partitions]
        if lost:
            error = self._lost[lost[0]]
            names = ", ".join(map(str, lost))
            text = f"{names}: lost since the last poll ({error}); another member may have read the records again"
            raise CommitFailedError(error.code, text, lost)

    def hand_over(self, partition: TopicPartition, before: FetchPosition | None) -> None:
        """The application gets rows of a partition, whose position was ``before`` them."""
        state = self._subscription.get(partition)
        self._rows = None if state is None or before is None else (partition, state, before)

    def take_back(self, partition: TopicPartition | None = None) -> None:
        """The application polls again, or seeks in a partition: it is done with the rows, or with those of that one."""
        if partition is None or (self._rows is not None and self._rows[0] == partition):
            self._rows = None
            self.on_done()

    def note_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The application committed offsets itself: it is done with the rows before them."""
        if self._rows is not None and self._rows[0] in offsets:
            name, state, _ = self._rows
            self._rows = (name, state, FetchPosition(offsets[name].offset, offsets[name].leader_epoch))
            self.on_done()

    def positions(self, *, with_handed: bool) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit of each partition that has a position.

        Args:
            with_handed: Whether the rows that the application has count as done.
        """
        found = {
            name: OffsetAndMetadata(state.position.offset, state.position.offset_epoch)
            for name, state in self._subscription.items()
            if state.position is not None
        }
        if self._rows is not None and not with_handed:
            name, state, before = self._rows
            # A partition that was given up meanwhile and came back has another state.
            if self._subscription.get(name) is state and name in found:
                found[name] = OffsetAndMetadata(before.offset, before.offset_epoch)
        return found
