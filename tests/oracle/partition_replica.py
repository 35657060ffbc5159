"""What the state machine of a replica in Rust has to equal: who leads, who is in sync, what is committed, who is told.

Decides and never acts: calls tell it what happened (an append, a flush, a follower's fetch, new metadata), effects say
what the shell has to do. Time arrives as an argument.

The high watermark is the smallest log end offset over the in-sync replicas, where the leader itself counts with its
*flushed* offset when acknowledgements wait for the flush. It never goes back, and it does not advance while the in-sync
set is smaller than ``effective_min_insync_replicas``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from kraftlog.errors import ErrorCode
from kraftlog.partition.assignment import NO_LEADER, Assignment
from oracle.partition_effects import (
    AckCompleted,
    AssignEpochStart,
    Effect,
    FlushLog,
    HighWatermarkAdvanced,
    LeadershipChanged,
)

__all__ = ["PartitionReplica"]


@dataclass(slots=True)
class _Follower:
    """What the leader knows of another replica; -1 means it has not fetched in this epoch."""

    log_end_offset: int = -1
    last_caught_up_ms: int = 0
    last_fetch_ms: int | None = None
    last_fetch_leader_end: int = 0

    def renew(self, *, is_in_sync: bool, leader_end: int, now_ms: int) -> None:
        """The same leader was elected again."""
        self.last_caught_up_ms = now_ms if is_in_sync else 0
        if self.last_fetch_ms is not None:
            self.last_fetch_ms = self.last_caught_up_ms
        self.last_fetch_leader_end = leader_end


@dataclass(slots=True)
class PartitionReplica:
    """The state machine of one replica.

    Args:
        node_id: This node.
        flush_on_ack: Whether the leader's own records count as replicated only once they are durable.
        min_insync_replicas: The topic's min.insync.replicas.
        log_end_offset: Offset the next record gets.
        flushed_offset: Exclusive end of what is durable.
        high_watermark: As the checkpoint had it, at most ``log_end_offset``.
    """

    node_id: int
    flush_on_ack: bool
    min_insync_replicas: int
    log_end_offset: int
    flushed_offset: int
    high_watermark: int
    leader_id: int = NO_LEADER
    leader_epoch: int = -1
    partition_epoch: int = -1
    epoch_start_offset: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    _followers: dict[int, _Follower] = field(default_factory=dict)
    _pending_acks: deque[tuple[int, Any]] = field(default_factory=deque)
    _effects: list[Effect] = field(default_factory=list)

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the partition."""
        return self.leader_id == self.node_id

    @property
    def effective_min_insync_replicas(self) -> int:
        """The smallest in-sync set that may commit: the topic's setting, at most the number of replicas.

        Source: Kafka 4.3.1 ``Partition.effectiveMinIsr``.
        """
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def _is_under_min_isr(self) -> bool:
        return len(self.isr) < self.effective_min_insync_replicas

    def take_effects(self) -> list[Effect]:
        """Hand out and forget what is to be done, in order."""
        effects = self._effects
        if effects:
            self._effects = []
        return effects

    # -- metadata ------------------------------------------------------------------------------------------------

    def handle_assignment(self, assignment: Assignment, now_ms: int) -> None:
        """Follow the metadata; an older partition epoch, or an older leader epoch, changes nothing.

        A higher partition epoch within the same leader epoch keeps what is known of the followers and where the epoch
        started (LEPO-33, LEPO-34).
        """
        if assignment.leader_epoch < self.leader_epoch or (
            assignment.leader_epoch == self.leader_epoch and assignment.partition_epoch < self.partition_epoch
        ):
            return
        is_new_epoch = assignment.leader_epoch > self.leader_epoch
        # Somebody else may have led in an epoch that this broker missed, and followers may have truncated for them.
        is_epoch_missed = assignment.leader_epoch > self.leader_epoch + 1
        leader_changed = assignment.leader_id != self.leader_id
        was_leader = self.is_leader
        self.leader_id = assignment.leader_id
        self.leader_epoch = assignment.leader_epoch
        self.partition_epoch = assignment.partition_epoch
        self.replicas = assignment.replicas
        self.isr = assignment.isr
        if is_new_epoch or leader_changed:
            self._effects.append(LeadershipChanged(self.leader_epoch, self.leader_id))
        if not self.is_leader:
            self._followers.clear()
            if was_leader:
                self._fail_pending_acks(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if is_new_epoch or not was_leader:
            self.epoch_start_offset = self.log_end_offset
            self._effects.append(AssignEpochStart(self.leader_epoch, self.log_end_offset))
        known, self._followers = self._followers, {}
        for replica in self.replicas:
            if replica == self.node_id:
                continue
            is_in_sync = replica in self.isr
            follower = known.get(replica) if was_leader and not is_epoch_missed else None
            if follower is None:
                follower = _Follower(last_caught_up_ms=now_ms if is_in_sync else 0)
            elif is_new_epoch:
                follower.renew(is_in_sync=is_in_sync, leader_end=self.log_end_offset, now_ms=now_ms)
            self._followers[replica] = follower
        if self.flush_on_ack and self.flushed_offset < self.log_end_offset:
            self._effects.append(FlushLog(self.log_end_offset))
        self._advance_high_watermark()

    def update_min_insync_replicas(self, min_insync_replicas: int) -> None:
        """The topic's setting changed; the high watermark follows with the next append, fetch or assignment."""
        self.min_insync_replicas = min_insync_replicas

    # -- checks --------------------------------------------------------------------------------------------------

    def check_leader_epoch(self, current_leader_epoch: int, *, needs_leader: bool = True) -> int:
        """The epoch check of KIP-320: 0, or the error code for the client.

        Args:
            current_leader_epoch: What the client believes; -1 when it does not say.
            needs_leader: Whether a follower must refuse. A wrong epoch is told before a wrong role (LEPO-05).
        """
        if current_leader_epoch not in (-1, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if needs_leader and self.leader_id != self.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def check_append(self, acks: int) -> int:
        """Whether a client may append now: 0 or an error code."""
        if self.leader_id != self.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == -1 and self._is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def follower_refusal(self, current_leader_epoch: int) -> int:
        """The error code for a fetch from a broker that may not replicate from here (LEPO-16).

        Args:
            current_leader_epoch: What the broker believes; -1 when it does not say.
        """
        error_code = self.check_leader_epoch(current_leader_epoch)
        if error_code:
            return error_code
        return ErrorCode.UNKNOWN_LEADER_EPOCH if current_leader_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def is_high_watermark_settled(self) -> bool:
        """Whether the high watermark has reached this epoch; before, latest offsets could go back (LEPO-29)."""
        return self.high_watermark >= self.epoch_start_offset

    # -- events --------------------------------------------------------------------------------------------------

    def on_appended(self, log_end_offset: int) -> None:
        """The log of the leader grew."""
        self.log_end_offset = log_end_offset
        if self.flush_on_ack:
            self._effects.append(FlushLog(log_end_offset))
        else:
            self._advance_high_watermark()

    def on_flushed(self, flushed_offset: int) -> None:
        """Everything below ``flushed_offset`` is durable."""
        if flushed_offset > self.flushed_offset:
            self.flushed_offset = flushed_offset
            if self.is_leader:
                self._advance_high_watermark()

    def on_follower_fetch(self, replica_id: int, fetch_offset: int, now_ms: int) -> None:
        """A follower of the current epoch asked for ``fetch_offset``: it has everything below, durably."""
        follower = self._followers[replica_id]
        if fetch_offset >= self.log_end_offset:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)
        elif follower.last_fetch_ms is not None and fetch_offset >= follower.last_fetch_leader_end:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
        follower.log_end_offset = fetch_offset
        follower.last_fetch_ms = now_ms
        follower.last_fetch_leader_end = max(follower.last_fetch_leader_end, self.log_end_offset)
        self._advance_high_watermark()

    def on_truncated_fully(self, start_offset: int) -> None:
        """The log was emptied and starts at ``start_offset``."""
        self.log_end_offset = start_offset
        self.flushed_offset = start_offset
        if self.high_watermark != start_offset:
            self.high_watermark = start_offset
            self._effects.append(HighWatermarkAdvanced(start_offset))

    def on_log_failed(self) -> None:
        """The log takes no more writes: what waits for durability never gets it."""
        self._fail_pending_acks(ErrorCode.KAFKA_STORAGE_ERROR)

    def wait_for_ack(self, end_offset: int, token: Any) -> None:
        """Report with AckCompleted when everything below ``end_offset`` is committed; calls come in offset order."""
        if self.high_watermark >= end_offset:
            self._effects.append(AckCompleted(token, self._committed_error()))
        else:
            self._pending_acks.append((end_offset, token))

    def close(self) -> None:
        """The replica goes away: waiting requests are answered with NOT_LEADER_OR_FOLLOWER."""
        self.leader_id = NO_LEADER
        self._fail_pending_acks(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._effects.append(LeadershipChanged(self.leader_epoch, NO_LEADER))

    # -- decisions -----------------------------------------------------------------------------------------------

    def _advance_high_watermark(self) -> None:
        isr = self.isr
        if self.leader_id != self.node_id or self._is_under_min_isr:
            return
        high_watermark = self.flushed_offset if self.flush_on_ack else self.log_end_offset
        for replica in isr:
            if replica != self.node_id:
                high_watermark = min(high_watermark, self._followers[replica].log_end_offset)
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        self._effects.append(HighWatermarkAdvanced(high_watermark))
        pending_acks = self._pending_acks
        if pending_acks:
            error_code = self._committed_error()
            while pending_acks and pending_acks[0][0] <= high_watermark:
                self._effects.append(AckCompleted(pending_acks.popleft()[1], error_code))

    def _committed_error(self) -> int:
        if self._is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def _fail_pending_acks(self, error_code: int) -> None:
        while self._pending_acks:
            self._effects.append(AckCompleted(self._pending_acks.popleft()[1], error_code))
