"""Invariants of the logs of replicated partitions (docs/behaviours, area 29)."""

from __future__ import annotations

from collections import Counter, deque
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kraftlog.errors import PoisonedLogError
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.committed_batches import CommittedBatches
from kraftlog.testing.world.compacted_records import CompactedRecords
from kraftlog.testing.world.followed_log import FollowedLog, LogRules, ScannedBatch, Written, batches_in

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from kraftlog.testing.world.node_machine import NodeMachine

__all__ = ["PartitionLogChecker", "ReplicaLog", "ReplicaState"]

_RULES: Final = LogRules(order="RINV-16", matching="RINV-15")
_READ_BYTES: Final = 1024 * 1024

ReplicaState: TypeAlias = tuple[int, int, bool, int, int]
"""High watermark, leader epoch, whether it leads, log start offset and log end offset."""


class ReplicaLog:
    """What was read of one replica's log.

    Attributes:
        followed: None before the first look, and of a compacted partition.
        uncommitted: Batches that the replica does not call committed.
        compared_offset: Of a compacted partition: what lies below was compared.
    """

    __slots__ = ("compared_offset", "followed", "uncommitted")

    def __init__(self) -> None:
        self.followed: FollowedLog | None = None
        self.uncommitted: deque[ScannedBatch] = deque()
        self.compared_offset = -1


class PartitionLogChecker:
    """Reads what appears in the logs of replicas, and compares it.

    Args:
        looked: Counts how often each rule had something to look at.
    """

    def __init__(self, looked: Counter[str]) -> None:
        self._looked = looked
        self._batches = CommittedBatches()
        self._records = CompactedRecords()
        self._written: Written = {}

    def forget(self, key: Hashable) -> None:
        """Nothing that was committed of a partition is promised any more, by the operator's leave."""
        self._batches.forget(key)
        self._records.forget(key)

    def check(
        self,
        machine: NodeMachine,
        partition: Any,
        log: ReplicaLog,
        name: str,
        before: ReplicaState | None,
        state: ReplicaState,
    ) -> None:
        """Look at a replica whose state changed.

        Args:
            machine: Of the replica.
            partition: Of the broker.
            log: What was read of it.
            name: For messages.
            before: Its state at the last look; None at the first.
            state: Its state now.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        if machine.has_bad_disk:
            return
        try:
            if _is_compacted(partition):
                self._check_compacted(partition, log, name, before, state)
            else:
                self._check(partition, log, name, before, state)
        except PoisonedLogError:
            return  # a flush failed: nothing is read from this log any more
        except OSError:
            if not machine.is_disk_failing:
                raise
            # The checker itself ran into the fault; it reads there again.

    def _check(
        self, partition: Any, log: ReplicaLog, name: str, before: ReplicaState | None, state: ReplicaState
    ) -> None:
        """Batches are written in order, and those that are committed are the same on every replica."""
        high_watermark, leader_epoch, leads, log_start, log_end = state
        key = (partition.topic_id, partition.index)
        followed = log.followed
        if followed is None:
            followed = log.followed = FollowedLog(name, key, partition.log, _RULES, self._written)
        elif before is not None and before[1] != leader_epoch:
            # It may have been truncated and grown since the last look.
            followed.cut(min(before[0], high_watermark))
        uncommitted, last_epoch = log.uncommitted, followed.last_epoch
        if before is not None and log_start > before[4]:
            # The leader's log begins behind the end of this one, which has begun anew there (RFET-61).
            uncommitted.clear()
            followed.begin(log_start)
        elif before is not None and _is_truncated(before, state):
            self._looked["RINV-17"] += 1
            if log_end < before[0] or any(
                batch.end_offset > log_end and self._batches.has(key, batch) for batch in uncommitted
            ):
                _fail("RINV-17", f"{name}: truncated from {before[4]} to {log_end}, which cuts committed records")
        followed.cut(log_end)
        while uncommitted and uncommitted[-1].end_offset > followed.end_offset:
            uncommitted.pop()
        uncommitted.extend(followed.follow(log_start, log_end))
        if before is None or followed.last_epoch != last_epoch or log_end < before[4]:
            self._looked["RINV-16"] += 1
            followed.check_epochs(partition.log.epoch_entries(), log_start)
        while not leads and uncommitted and uncommitted[0].end_offset <= log_start:
            # One answer of the leader moved the log start and the high watermark past it: no reader could get it.
            uncommitted.popleft()
        while uncommitted and uncommitted[0].end_offset <= high_watermark:
            self._looked["RINV-14"] += 1
            self._batches.check(key, name, uncommitted.popleft())

    def _check_compacted(
        self, partition: Any, log: ReplicaLog, name: str, before: ReplicaState | None, state: ReplicaState
    ) -> None:
        """Each replica cleans its own log: records are compared instead of batches."""
        high_watermark, _, _, log_start, log_end = state
        if before is not None and _is_truncated(before, state):
            self._looked["RINV-17"] += 1
            if log_end < before[0]:
                _fail(
                    "RINV-17", f"{name}: truncated from {before[4]} to {log_end}, below its high watermark {before[0]}"
                )
        offset = max(log.compared_offset, log_start)
        while offset < high_watermark:
            data = partition.log.read(offset, max_bytes=_READ_BYTES, end_offset=high_watermark).read()
            self._looked["RINV-14"] += 1
            end_offset = self._records.check((partition.topic_id, partition.index), name, data)
            if end_offset is None:
                break
            offset = end_offset
        log.compared_offset = max(log.compared_offset, high_watermark)

    def check_served(self, partition: Any, name: str, data: bytes) -> None:
        """A consumer gets batches: they are those that are committed there.

        Args:
            partition: Of the broker.
            name: For messages.
            data: The batches; the last one may be a part.

        Raises:
            InvariantViolationError: They are other ones.
        """
        key = (partition.topic_id, partition.index)
        if _is_compacted(partition):
            self._records.check(key, name, data)
            return
        for batch in batches_in(data):
            self._batches.check_served(key, name, batch)

    def check_kept(self, partition: Any, name: str) -> None:
        """Look through a whole log for what has to be there for good, if the partition is compacted.

        Raises:
            InvariantViolationError: The newest record of a key is missing.
        """
        if not _is_compacted(partition):
            return
        self._looked["RINV-01"] += 1
        key = (partition.topic_id, partition.index)
        self._records.check_kept(key, name, partition.log.log_start_offset, _committed_bytes(partition))

    def check_alike(self, replicas: Sequence[tuple[str, Any]]) -> None:
        """Compare the whole logs of the replicas of a partition that is not compacted, from where all of them begin.

        Args:
            replicas: Name and partition of each.

        Raises:
            InvariantViolationError: Two of them differ (RINV-30).
        """
        start = max(partition.log.log_start_offset for _, partition in replicas)
        known: list[ScannedBatch] | None = None
        for name, partition in replicas:
            if _is_compacted(partition):
                return
            self._looked["RINV-30"] += 1
            batches = [batch for batch in batches_in(_committed_bytes(partition)) if batch.end_offset > start]
            if known is not None and batches != known:
                differing = [pair for pair in zip_longest(known, batches) if pair[0] != pair[1]]
                _fail("RINV-30", f"{name} and {replicas[0][0]} differ: {differing[0]}")
            known = batches


def _committed_bytes(partition: Any) -> bytes:
    """The batches of a log up to its high watermark."""
    offset, end_offset, parts = partition.log.log_start_offset, partition.high_watermark, []
    while offset < end_offset:
        data = partition.log.read(offset, max_bytes=_READ_BYTES, end_offset=end_offset).read()
        if not data:
            break
        parts.append(data)
        offset = [*batches_in(data)][-1].end_offset
    return b"".join(parts)


def _is_compacted(partition: Any) -> bool:
    return "compact" in partition.config.cleanup_policy


def _is_truncated(before: ReplicaState, state: ReplicaState) -> bool:
    """Whether a log was cut, and does not begin anew where the leader's begins."""
    return state[4] < before[4] and not state[3] == state[4] > before[3]


def _fail(identifier: str, reason: str) -> None:
    raise InvariantViolationError(identifier, reason)
