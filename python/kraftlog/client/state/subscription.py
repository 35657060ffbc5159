"""The assigned partitions of a consumer and what each is waiting for (``SubscriptionState``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from kraftlog.client.state.position import FetchPosition, LeaderAndEpoch, OffsetAndEpoch, ResetStrategy
from kraftlog.client.state.read_epochs import ReadEpochs
from kraftlog.types import TopicPartition

__all__ = ["FetchState", "PartitionState", "Subscription", "Truncation"]


class FetchState(Enum):
    """What a partition is waiting for.

    ============== ============= ==================================================================
    state          has position  left by
    ============== ============= ==================================================================
    INITIALIZING   no            a committed offset, a seek, or a reset
    AWAIT_RESET    maybe old     the answer of ListOffsets, or a seek
    AWAIT_VALIDATION yes         the answer of OffsetsForLeaderEpoch, a reset, or a seek
    FETCHING       yes           a change of the leader, a reset, or a seek
    ============== ============= ==================================================================
    """

    INITIALIZING = "initializing"
    AWAIT_RESET = "await_reset"
    AWAIT_VALIDATION = "await_validation"
    FETCHING = "fetching"


@dataclass(frozen=True, slots=True)
class Truncation:
    """The log of a partition has no longer, or never had, the record before a position.

    Attributes:
        partition: Which partition.
        position: The position, which stays as it is.
        diverging: The first offset that differs, with the epoch of the records before it; None when the leader does
            not know any common epoch.
    """

    partition: TopicPartition
    position: FetchPosition
    diverging: OffsetAndEpoch | None


@dataclass(slots=True)
class PartitionState:
    """One assigned partition.

    Attributes:
        next_retry_ms: Neither reset nor validation is asked for before.
        preferred_replica: Node to fetch from instead of the leader (KIP-392), until ``preferred_until_ms``.
        read_epochs: Of the records that were read up to the position.
    """

    state: FetchState = FetchState.INITIALIZING
    position: FetchPosition | None = None
    is_paused: bool = False
    reset: ResetStrategy | None = None
    next_retry_ms: int = 0
    preferred_replica: int | None = None
    preferred_until_ms: int = 0
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    read_epochs: ReadEpochs = field(default_factory=ReadEpochs)

    def lag(self, *, is_read_committed: bool) -> int | None:
        """Records between the position and the end that the last fetch found; None before it.

        Args:
            is_read_committed: Whether the end is the last stable offset, not the high watermark.
        """
        end = self.last_stable_offset if is_read_committed else self.high_watermark
        return None if end is None or self.position is None else max(end - self.position.offset, 0)

    @property
    def lead(self) -> int | None:
        """Records between the first one that the last fetch found and the position; None before it."""
        start = self.log_start_offset
        return None if start is None or self.position is None else max(self.position.offset - start, 0)

    @property
    def is_fetchable(self) -> bool:
        """Whether records may be fetched now."""
        return self.state is FetchState.FETCHING and not self.is_paused

    @property
    def has_valid_position(self) -> bool:
        """Whether the position is one that the leader confirmed, or that nothing speaks against."""
        return self.state is FetchState.FETCHING

    def seek_validated(self, position: FetchPosition) -> None:
        """Go to a position that needs no validation."""
        self.state = FetchState.FETCHING
        self.position = position
        self.reset = None
        self.next_retry_ms = 0

    def validate(self, position: FetchPosition) -> None:
        """Go to a position and ask its leader, where both epochs are known."""
        self.seek_validated(position)
        if position.offset_epoch is not None and position.leader.epoch is not None:
            self.state = FetchState.AWAIT_VALIDATION

    def request_reset(self, strategy: ResetStrategy) -> None:
        """Forget the position; ListOffsets gives a new one."""
        self.read_epochs.clear()
        self.state = FetchState.AWAIT_RESET
        self.position = None
        self.reset = strategy
        self.next_retry_ms = 0


class Subscription:
    """Positions of the assigned partitions.

    Args:
        reset: What to do about an offset that the log does not have; None raises.
    """

    def __init__(self, reset: ResetStrategy | None) -> None:
        self.default_reset = reset
        self._partitions: dict[TopicPartition, PartitionState] = {}

    # What is assigned

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Replace the assignment; partitions that stay keep their state."""
        self._partitions = {name: self._partitions.get(name) or PartitionState() for name in partitions}

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions."""
        return tuple(self._partitions)

    def get(self, partition: TopicPartition) -> PartitionState | None:
        """The state of a partition, None when it is not assigned."""
        return self._partitions.get(partition)

    def items(self) -> Iterable[tuple[TopicPartition, PartitionState]]:
        """Assigned partitions and their states."""
        return self._partitions.items()

    def in_state(self, state: FetchState, now_ms: int) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Partitions in a state that may be asked about now."""
        for name, found in self._partitions.items():
            if found.state is state and found.next_retry_ms <= now_ms:
                yield name, found

    def next_retry_ms(self) -> int | None:
        """When the first delayed question is due."""
        times = (
            found.next_retry_ms
            for found in self._partitions.values()
            if found.state is not FetchState.FETCHING and found.next_retry_ms
        )
        return min(times, default=None)

    # Validation

    def check_leader(
        self, partition: TopicPartition, leader: LeaderAndEpoch, *, can_validate: bool | None
    ) -> FetchState | None:
        """Compare the leader of a position with that of the metadata; a change asks for validation (KIP-320).

        Args:
            partition: Which.
            leader: By the newest metadata.
            can_validate: Whether the leader has OffsetForLeaderEpoch 3 or later; None while that is not known.

        Returns:
            The state afterwards.
        """
        found = self._partitions.get(partition)
        if found is None:
            return None
        if found.state is FetchState.AWAIT_RESET or leader.leader_id is None:
            return found.state
        if found.position is None or found.position.leader == leader:
            return found.state
        position = replace(found.position, leader=leader)
        found.preferred_replica = None
        if can_validate is False:
            found.seek_validated(position)
        else:
            found.validate(position)
        return found.state

    def complete_validation(
        self, partition: TopicPartition, asked: FetchPosition, end_offset: int, end_epoch: int
    ) -> Truncation | OffsetAndEpoch | None:
        """Take the end offset that a leader has for the epoch of a position.

        Args:
            partition: Which.
            asked: The position when the question was sent; another one now makes the answer void.
            end_offset: Exclusive end of that epoch, -1 when the leader does not know it.
            end_epoch: The epoch that ends there, -1 likewise.

        Returns:
            None when the position is valid, or the answer void, or a reset is under way; the offset at which reading
            goes on when the log was truncated and there is a reset policy, without an epoch if it is not known where
            the log differs; else the truncation.
        """
        found = self._partitions.get(partition)
        if found is None or found.state is not FetchState.AWAIT_VALIDATION or found.position != asked:
            return None
        return self._diverged(partition, found, asked, end_offset, end_epoch)

    def diverged(
        self, partition: TopicPartition, fetch_offset: int, end_offset: int, end_epoch: int
    ) -> Truncation | OffsetAndEpoch | None:
        """Take a diverging epoch of a Fetch answer, in the same way."""
        found = self._partitions.get(partition)
        if found is None or not found.has_valid_position:
            return None
        position = found.position
        if position is None or position.offset != fetch_offset:
            return None
        return self._diverged(partition, found, position, end_offset, end_epoch)

    def _diverged(
        self, partition: TopicPartition, found: PartitionState, asked: FetchPosition, end_offset: int, end_epoch: int
    ) -> Truncation | OffsetAndEpoch | None:
        if end_offset < 0 or end_epoch < 0:
            if self.default_reset is None:
                return Truncation(partition, asked, None)
            found.request_reset(self.default_reset)
            return None
        offset = end_offset
        if asked.offset_epoch is not None and end_epoch < asked.offset_epoch:
            # The leader lacks the epoch of the position, so that other records stand there, even if its log is longer.
            # Kafka's consumer compares the offsets alone, and mixes two histories then.
            lacking = found.read_epochs.start_after(end_epoch)
            if lacking is None and end_offset >= asked.offset:
                return self._diverged_somewhere(partition, found, asked)
            offset = end_offset if lacking is None else min(end_offset, lacking)
        if offset >= asked.offset:
            found.seek_validated(asked)
            return None
        own_epoch = found.read_epochs.epoch_before(offset)
        diverging = OffsetAndEpoch(offset, end_epoch if own_epoch is None else own_epoch)
        if self.default_reset is None:
            return Truncation(partition, asked, diverging)
        found.read_epochs.go_back(diverging)
        position = replace(asked, offset=offset, offset_epoch=diverging.leader_epoch)
        if own_epoch is None:
            found.seek_validated(position)
        else:
            found.validate(position)  # records of that epoch may be gone, too
        return diverging

    def _diverged_somewhere(
        self, partition: TopicPartition, found: PartitionState, asked: FetchPosition
    ) -> Truncation | OffsetAndEpoch:
        """The record before a position is gone; an earlier process has read it, and only that one knew what else."""
        if self.default_reset is None:
            return Truncation(partition, asked, None)
        found.seek_validated(replace(asked, offset_epoch=None))
        return OffsetAndEpoch(asked.offset)

    # Reset

    def complete_reset(
        self, partition: TopicPartition, strategy: ResetStrategy, offset: int, leader: LeaderAndEpoch
    ) -> bool:
        """Take the offset that a reset found; False when the partition no longer waits for this reset."""
        found = self._partitions.get(partition)
        if found is None or found.state is not FetchState.AWAIT_RESET or found.reset != strategy:
            return False
        found.seek_validated(FetchPosition(offset, None, leader))
        return True
