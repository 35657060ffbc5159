"""One shard of the share coordinator: the share partitions whose records live in one ``__share_group_state`` partition.

A record changes the state when it is written; if its append fails, the state is computed anew from what is committed
and what is still on its way.

Source: ``org.apache.kafka.coordinator.share.ShareCoordinatorShard`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kraftlog.coordinator.effects import CoordinatorRecord, Effect, TransactionEnd
from kraftlog.coordinator.share.share_key import ShareKey
from kraftlog.coordinator.share.state_batches import StateBatch, combine
from kraftlog.coordinator.write_log import WriteLog
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.delete_share_group_state import DeleteShareGroupStateResponse
from kraftlog.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from kraftlog.wire.messages.read_share_group_state import ReadShareGroupStateResponse
from kraftlog.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryResponse
from kraftlog.wire.messages.share_coordinator_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from kraftlog.wire.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse

__all__ = ["PruneLog", "ShareState", "ShareStateConfig", "ShareStateShard", "StateWritten"]

_UNCHECKED: Final = -1
_UNINITIALIZED_WRITE: Final = "Write operation on uninitialized share partition not allowed."
_UNINITIALIZED_READ: Final = "Read operation on uninitialized share partition not allowed."
_NEGATIVE_PARTITION: Final = "The partition id cannot be a negative number."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStateConfig:
    """Settings of the share coordinator.

    Attributes:
        updates_per_snapshot: share.coordinator.snapshot.update.records.per.snapshot.
        cold_interval_ms: share.coordinator.cold.partition.snapshot.interval.ms.
        prune_interval_ms: share.coordinator.state.topic.prune.interval.ms.
    """

    updates_per_snapshot: int = 500
    cold_interval_ms: int = 300_000
    prune_interval_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class PruneLog:
    """An event for the shell: no record below ``offset`` is needed any more."""

    offset: int


@dataclass(frozen=True, slots=True)
class StateWritten:
    """An event for the shell: a state was stored, or could not be.

    ``begun_ms`` is the wall clock of its request; None for the new leader epoch that a read stores.
    """

    begun_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """State of one share partition as its records give it.

    Attributes:
        start_offset: First offset that is not ended; -1 until the leader of the partition has chosen one.
        complete_count: Records from ``start_offset`` on whose delivery is complete; -1 when unknown.
        create_ms, write_ms: When the snapshot was made, and when the state last changed.
        update_count: Updates since the last snapshot.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    create_ms: int
    write_ms: int
    batches: tuple[StateBatch, ...]
    update_count: int = 0


class _Pending:
    """A record on its way to the log."""

    __slots__ = ("key", "now_ms", "record")

    def __init__(self, key: ShareKey, record: CoordinatorRecord, now_ms: int) -> None:
        self.key = key
        self.record = record
        self.now_ms = now_ms


class ShareStateShard:
    """States of share partitions.

    Args:
        config: Limits and times.
        has_partition: Whether a topic of this id has a partition of this index.
        has_topic: Whether there is a topic of this id.
    """

    def __init__(
        self,
        config: ShareStateConfig,
        *,
        has_partition: Callable[[Uuid, int], bool],
        has_topic: Callable[[Uuid], bool],
    ) -> None:
        self._config = config
        self._has_partition = has_partition
        self._has_topic = has_topic
        self._writes = WriteLog()
        self._committed: dict[ShareKey, ShareState] = {}
        self._pending: list[_Pending] = []
        self._next_job_ms: int | None = None
        self._next_prune_ms: int | None = None
        self._snapshot_offsets: dict[ShareKey, int] = {}
        self._appended_offset = -1
        self._end_offset = 0
        self._pruned_to = 0
        self.states: dict[ShareKey, ShareState] = {}

    # -- the contract of shards -----------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord | TransactionEnd, *, now_ms: int) -> None:
        """Take in one record of the partition, in offset order."""
        if isinstance(record, CoordinatorRecord) and isinstance(record.key, ShareSnapshotKey | ShareUpdateKey):
            key = ShareKey(record.key.group_id, record.key.topic_id, record.key.partition)
            self._note_offset(key, record, record.offset)
            _put(self._committed, key, _applied(self._committed.get(key), record, now_ms))

    def finish_loading(self, now_ms: int) -> None:
        """Start the clocks."""
        self.states = dict(self._committed)
        self._next_job_ms = now_ms + self._config.cold_interval_ms
        self._next_prune_ms = now_ms + self._config.prune_interval_ms

    def take_effects(self) -> list[Effect]:
        """Drain answers and appends, in order."""
        return self._writes.take_effects()

    def on_appended(self, append_id: int, error_code: int, last_offset: int = -1) -> None:
        """Take the outcome of an append, which has one record."""
        self._appended_offset = last_offset
        self._writes.on_appended(append_id, error_code)

    def next_timeout_ms(self) -> int | None:
        """When the next look for cold partitions or for records that are not needed is due."""
        due = [at_ms for at_ms in (self._next_job_ms, self._next_prune_ms) if at_ms is not None]
        return min(due, default=None)

    def handle_timeout(self, now_ms: int) -> None:
        """Do the job that is due."""
        if self._next_job_ms is not None and self._next_job_ms <= now_ms:
            self._next_job_ms = now_ms + self._config.cold_interval_ms
            self._refresh_cold(now_ms)
        if self._next_prune_ms is not None and self._next_prune_ms <= now_ms:
            self._next_prune_ms = now_ms + self._config.prune_interval_ms
            self._prune()

    def _prune(self) -> None:
        """Emit the offset below which every record is older than the last snapshot of its share partition."""
        offset = min(self._snapshot_offsets.values(), default=self._end_offset)
        if offset > self._pruned_to:
            self._pruned_to = offset
            self._writes.emit(PruneLog(offset))

    def _note_offset(self, key: ShareKey, record: CoordinatorRecord, offset: int) -> None:
        """Note where a committed record is; offsets that are not known are below all others."""
        self._end_offset = max(self._end_offset, offset + 1)
        if record.value is None:
            self._snapshot_offsets.pop(key, None)
        elif isinstance(record.value, ShareSnapshotValue) or key not in self._snapshot_offsets:
            self._snapshot_offsets[key] = offset

    def _refresh_cold(self, now_ms: int) -> None:
        """Write one new snapshot of each share partition that has not changed for a while."""
        interval_ms = self._config.cold_interval_ms
        for key, state in list(self.states.items()):
            # A cold partition's last snapshot is that much younger than its last change.
            if now_ms - state.write_ms >= interval_ms and state.create_ms - state.write_ms < interval_ms:
                snapshot = replace(state, snapshot_epoch=state.snapshot_epoch + 1, create_ms=now_ms)
                self._append(key, _snapshot_record(key, snapshot), lambda _code: None, now_ms)

    def forget_topics(self, topics: Mapping[str, Uuid]) -> None:
        """Write tombstones for the share partitions of deleted topics."""
        gone = set(topics.values())
        for key in [key for key in self.states if key.topic_id in gone or not self._has_topic(key.topic_id)]:
            self._append(key, _tombstone(key), lambda _code: None, 0)

    # -- requests, one share partition each -------------------------------------------------------------------------

    def initialize(
        self, token: object, key: ShareKey, request: InitializeShareGroupStateRequest.PartitionData, now_ms: int
    ) -> None:
        """Begin a new state; answered with a ``PartitionResult`` of InitializeShareGroupState."""
        result = InitializeShareGroupStateResponse.PartitionResult
        state = self.states.get(key)
        code, text = self._topic_error(key)
        if not code and state is not None and _is_older(request.state_epoch, state.state_epoch):
            code, text = int(ErrorCode.FENCED_STATE_EPOCH), _text(ErrorCode.FENCED_STATE_EPOCH)
        if code:
            return self._writes.respond(token, result(partition=key.partition, error_code=code, error_message=text))
        fresh = ShareState(
            snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
            state_epoch=request.state_epoch,
            leader_epoch=0 if state is None else state.leader_epoch,
            start_offset=request.start_offset,
            complete_count=-1 if request.start_offset == -1 else 0,
            create_ms=now_ms,
            write_ms=now_ms,
            batches=(),
        )
        return self._answer_append(token, key, _snapshot_record(key, fresh), result, now_ms)

    def read(self, token: object, key: ShareKey, leader_epoch: int, now_ms: int) -> None:
        """Read the state for the leader of a partition; answered with a ``PartitionResult`` of ReadShareGroupState.

        Another leader epoch is stored before the answer.
        """
        result = ReadShareGroupStateResponse.PartitionResult
        state = self.states.get(key)
        code, text = self._topic_error(key)
        if not code and state is None:
            code, text = int(ErrorCode.INVALID_REQUEST), _UNINITIALIZED_READ
        if not code and state is not None and _is_older(leader_epoch, state.leader_epoch):
            code, text = int(ErrorCode.FENCED_LEADER_EPOCH), _text(ErrorCode.FENCED_LEADER_EPOCH)
        if code or state is None:
            return self._writes.respond(token, result(partition=key.partition, error_code=code, error_message=text))
        answer = result(
            partition=key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                ReadShareGroupStateResponse.StateBatch(
                    first_offset=batch.first,
                    last_offset=batch.last,
                    delivery_state=batch.state,
                    delivery_count=batch.delivery_count,
                )
                for batch in state.batches
            ],
        )

        unchanged = {_UNCHECKED, state.leader_epoch}

        def then(error_code: int) -> None:
            if leader_epoch not in unchanged:
                self._writes.emit(StateWritten(None))
            failed = result(partition=key.partition, error_code=error_code, error_message=_text(error_code))
            self._writes.respond(token, failed if error_code else answer)

        if leader_epoch in unchanged:
            return self._writes.after_pending(then)
        update = WriteShareGroupStateRequest.PartitionData(
            partition=key.partition,
            state_epoch=state.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.complete_count,
        )
        return self._append(key, self._state_record(key, state, update, now_ms), then, now_ms)

    def write(
        self, token: object, key: ShareKey, request: WriteShareGroupStateRequest.PartitionData, now_ms: int
    ) -> None:
        """Store changed states; answered with a ``PartitionResult`` of WriteShareGroupState once committed."""
        result = WriteShareGroupStateResponse.PartitionResult
        state = self.states.get(key)
        code, text = self._topic_error(key)
        if not code and state is None:
            code, text = int(ErrorCode.INVALID_REQUEST), _UNINITIALIZED_WRITE
        if not code and state is not None:
            if _is_older(request.leader_epoch, state.leader_epoch):
                code, text = int(ErrorCode.FENCED_LEADER_EPOCH), _text(ErrorCode.FENCED_LEADER_EPOCH)
            elif _is_older(request.state_epoch, state.state_epoch):
                code, text = int(ErrorCode.FENCED_STATE_EPOCH), _text(ErrorCode.FENCED_STATE_EPOCH)
        if code or state is None:
            return self._writes.respond(token, result(partition=key.partition, error_code=code, error_message=text))
        record = self._state_record(key, state, request, now_ms)
        return self._answer_append(token, key, record, result, now_ms, event=StateWritten(now_ms))

    def delete(self, token: object, key: ShareKey, now_ms: int) -> None:
        """Forget a state; answered with a ``PartitionResult`` of DeleteShareGroupState. An unknown one is no error."""
        result = DeleteShareGroupStateResponse.PartitionResult
        code, text = self._topic_error(key)
        if code or key not in self.states:
            return self._writes.respond(token, result(partition=key.partition, error_code=code, error_message=text))
        return self._answer_append(token, key, _tombstone(key), result, now_ms)

    def summarize(self, token: object, key: ShareKey) -> None:
        """Read epochs and offsets; answered with a ``PartitionResult`` of ReadShareGroupStateSummary."""
        result = ReadShareGroupStateSummaryResponse.PartitionResult
        code, text = self._topic_error(key)
        state = self.states.get(key)
        if code:
            answer = result(partition=key.partition, error_code=code, error_message=text)
        elif state is None:
            answer = result(partition=key.partition, start_offset=-1)
        else:
            answer = result(
                partition=key.partition,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.complete_count,
            )
        self._writes.after_pending(lambda _code: self._writes.respond(token, answer))

    # -- inside -------------------------------------------------------------------------------------------------

    def _topic_error(self, key: ShareKey) -> tuple[int, str | None]:
        if key.partition < 0:
            return int(ErrorCode.INVALID_REQUEST), _NEGATIVE_PARTITION
        if not self._has_partition(key.topic_id, key.partition):
            return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), _text(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return 0, None

    def _state_record(
        self, key: ShareKey, state: ShareState, request: WriteShareGroupStateRequest.PartitionData, now_ms: int
    ) -> CoordinatorRecord:
        newer = [
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in request.state_batches
        ]
        if state.update_count < self._config.updates_per_snapshot:
            value = ShareUpdateValue(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=request.leader_epoch,
                start_offset=request.start_offset,
                delivery_complete_count=request.delivery_complete_count,
                state_batches=[
                    ShareUpdateValue.StateBatch(
                        first_offset=batch.first,
                        last_offset=batch.last,
                        delivery_state=batch.state,
                        delivery_count=batch.delivery_count,
                    )
                    for batch in combine((), newer, request.start_offset)
                ],
            )
            update_key = ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
            return CoordinatorRecord(update_key, value)
        start_offset = state.start_offset if request.start_offset == -1 else request.start_offset
        snapshot = ShareState(
            snapshot_epoch=state.snapshot_epoch + 1,
            state_epoch=state.state_epoch if request.state_epoch == -1 else request.state_epoch,
            leader_epoch=state.leader_epoch if request.leader_epoch == -1 else request.leader_epoch,
            start_offset=start_offset,
            complete_count=request.delivery_complete_count,
            create_ms=now_ms,
            write_ms=now_ms,
            batches=combine(state.batches, newer, start_offset),
        )
        return _snapshot_record(key, snapshot)

    def _answer_append(
        self,
        token: object,
        key: ShareKey,
        record: CoordinatorRecord,
        result: Any,
        now_ms: int,
        *,
        event: StateWritten | None = None,
    ) -> None:
        def then(error_code: int) -> None:
            if event is not None:
                self._writes.emit(event)
            text = _text(error_code) if error_code else None
            self._writes.respond(token, result(partition=key.partition, error_code=error_code, error_message=text))

        self._append(key, record, then, now_ms)

    def _append(self, key: ShareKey, record: CoordinatorRecord, then: Callable[[int], None], now_ms: int) -> None:
        pending = _Pending(key, record, now_ms)
        self._pending.append(pending)
        _put(self.states, key, _applied(self.states.get(key), record, now_ms))

        def on_appended(error_code: int) -> None:
            self._pending.remove(pending)
            if error_code:
                self._compute_anew(key)
            else:
                self._note_offset(key, record, self._appended_offset)
                _put(self._committed, key, _applied(self._committed.get(key), record, now_ms))
            then(error_code)

        self._writes.append((record,), on_appended)

    def _compute_anew(self, key: ShareKey) -> None:
        state = self._committed.get(key)
        for later in self._pending:
            if later.key == key:
                state = _applied(state, later.record, later.now_ms)
        _put(self.states, key, state)

    def __iter__(self) -> Iterator[ShareKey]:
        return iter(self.states)


def _put(states: dict[ShareKey, ShareState], key: ShareKey, state: ShareState | None) -> None:
    if state is None:
        states.pop(key, None)
    else:
        states[key] = state


def _applied(state: ShareState | None, record: CoordinatorRecord, now_ms: int) -> ShareState | None:
    """The state after a record; None when it is a tombstone."""
    value = record.value
    if value is None:
        return None
    newer = [StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in value.state_batches]
    if isinstance(value, ShareSnapshotValue):
        return ShareState(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            complete_count=value.delivery_complete_count,
            create_ms=value.create_timestamp,
            write_ms=value.write_timestamp,
            batches=tuple(newer),
        )
    if state is None:
        # Its snapshot was compacted away or never written: what the update says is all there is.
        state = ShareState(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=0,
            leader_epoch=-1,
            start_offset=-1,
            complete_count=-1,
            create_ms=now_ms,
            write_ms=now_ms,
            batches=(),
        )
    start_offset = state.start_offset if value.start_offset == -1 else value.start_offset
    return replace(
        state,
        leader_epoch=state.leader_epoch if value.leader_epoch == -1 else value.leader_epoch,
        start_offset=start_offset,
        complete_count=value.delivery_complete_count,
        write_ms=now_ms,
        batches=combine(state.batches, newer, start_offset),
        update_count=state.update_count + 1,
    )


def _snapshot_record(key: ShareKey, state: ShareState) -> CoordinatorRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp=state.create_ms,
        write_timestamp=state.write_ms,
        state_batches=[
            ShareSnapshotValue.StateBatch(
                first_offset=batch.first,
                last_offset=batch.last,
                delivery_state=batch.state,
                delivery_count=batch.delivery_count,
            )
            for batch in state.batches
        ],
    )
    return CoordinatorRecord(
        ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value
    )


def _tombstone(key: ShareKey) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), None
    )


def _is_older(asked: int, stored: int) -> bool:
    return asked != _UNCHECKED and stored > asked


def _text(error_code: int) -> str:
    return ErrorCode.name_of(error_code)
