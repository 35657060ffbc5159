"""Answers to Fetch: errors, hints and the records that wait for the application (``FetchCollector``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kraftlog.client.state.cluster_metadata import Node
from kraftlog.client.state.core_context import CoreContext
from kraftlog.client.state.fetch_session import FetchSession, FetchTarget
from kraftlog.client.state.position import FetchPosition, LeaderAndEpoch
from kraftlog.client.state.request import ConsumerRequest
from kraftlog.client.state.subscription import FetchState, PartitionState
from kraftlog.errors import CorruptRecordError, ErrorCode, KafkaError, OffsetOutOfRangeError
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.fetch import FetchResponse
from kraftlog.wire.struct import Buffer

__all__ = ["FetchAnswers", "Fetched", "record_bytes"]

_STALE_METADATA = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)


@dataclass(slots=True, eq=False)
class Fetched:
    """The records of one partition in an answer, not all of which the application has.

    Attributes:
        offset: Of the record that is given next.
        leader: The leader that the position was valid for when they were asked for.
        records: Batches as the broker sent them.
        aborted: Producer id and first offset of aborted transactions; None with read_uncommitted.
        decoder: Belongs to the caller.
    """

    partition: TopicPartition
    offset: int
    leader: LeaderAndEpoch
    records: Buffer
    aborted: list[tuple[int, int]] | None
    decoder: Any = field(default=None)


def record_bytes(response: FetchResponse) -> int:
    """Bytes of the batches in an answer."""
    return sum(
        0 if partition.records is None else memoryview(partition.records).nbytes
        for topic in response.responses
        for partition in topic.partitions
    )


class FetchAnswers:
    """Takes answers and hands out their records as long as they fit the positions."""

    def __init__(self, context: CoreContext) -> None:
        self._context = context
        self._waiting: deque[Fetched] = deque()
        self._paused: dict[TopicPartition, int] = {}

    # Records

    def has_records(self, partition: TopicPartition) -> bool:
        """Whether records of a partition wait to be taken."""
        return any(fetched.partition == partition for fetched in self._waiting)

    def take(self) -> Fetched | None:
        """The records that wait longest, of a partition that is not paused; those of old positions are dropped."""
        kept: list[Fetched] = []
        found = None
        while self._waiting and found is None:
            fetched = self._waiting.popleft()
            state = self._state_for(fetched)
            if state is None:
                continue
            kept.append(fetched)
            if not state.is_paused:
                found = fetched
        self._waiting.extendleft(reversed(kept))
        return found

    def _state_for(self, fetched: Fetched) -> PartitionState | None:
        state = self._context.subscription.get(fetched.partition)
        if state is None or state.state is not FetchState.FETCHING or state.position is None:
            return None
        is_same = state.position.offset == fetched.offset and state.position.leader == fetched.leader
        return state if is_same else None

    def advance(self, fetched: Fetched, offset: int, epoch: int | None) -> None:
        """Move the position over records that the application got."""
        state = self._state_for(fetched)
        begin, fetched.offset = fetched.offset, offset
        if state is not None and state.position is not None:
            state.read_epochs.read(begin, epoch)
            state.position = FetchPosition(offset, epoch, state.position.leader)

    def release(self, fetched: Fetched) -> None:
        """Forget records, all of which were given."""
        if fetched in self._waiting:
            self._waiting.remove(fetched)

    def drop(self, partition: TopicPartition) -> None:
        """Forget the records of a partition."""
        self._waiting = deque(fetched for fetched in self._waiting if fetched.partition != partition)

    def drop_unassigned(self) -> None:
        """Forget the records of partitions that are no longer assigned."""
        get = self._context.subscription.get
        self._waiting = deque(fetched for fetched in self._waiting if get(fetched.partition) is not None)

    # Back-off

    def pause(self, partition: TopicPartition, until_ms: int) -> None:
        """Do not fetch a partition before a time."""
        self._paused[partition] = until_ms

    def pause_until_ms(self, partition: TopicPartition) -> int:
        """When a partition may be fetched again; 0 at any time."""
        return self._paused.get(partition, 0)

    # Answers

    def handle(self, request: ConsumerRequest, response: FetchResponse, session: FetchSession, now_ms: int) -> None:
        """Take an answer."""
        context = self._context
        names = session.names_of_ids()
        answers: dict[TopicPartition, FetchResponse.PartitionData] = {}
        is_known = True
        for topic in response.responses:
            name = topic.topic if topic.topic_id == Uuid.ZERO else names.get(topic.topic_id)
            is_known = is_known and name is not None
            for partition in topic.partitions:
                answers[TopicPartition(name or "", partition.partition_index)] = partition
        retry_ms = now_ms + context.options.retry_backoff_ms
        if not session.accept(response, answers) or not is_known:
            if response.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                context.want_metadata(now_ms)
                for partition_name in request.targets:
                    self.pause(partition_name, retry_ms)
            return
        self._take_hints(response, answers)
        for partition_name, answer in answers.items():
            target: FetchTarget | None = request.targets.get(partition_name)
            state = context.subscription.get(partition_name)
            if target is None or state is None or not state.has_valid_position or state.position is None:
                continue
            if state.position.offset != target.fetch_offset:
                continue
            if (-1 if state.position.leader.epoch is None else state.position.leader.epoch) != target.leader_epoch:
                continue
            self._paused.pop(partition_name, None)
            if answer.error_code:
                self._handle_error(partition_name, state, answer.error_code, target, now_ms)
            else:
                self._handle_records(partition_name, state, answer, target, now_ms)

    def _take_hints(
        self, response: FetchResponse, answers: Mapping[TopicPartition, FetchResponse.PartitionData]
    ) -> None:
        leaders = {
            name: (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
            for name, answer in answers.items()
            if answer.current_leader.leader_id >= 0
        }
        if leaders:
            nodes = [Node(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
            self._context.metadata.apply_leaders(leaders, nodes)

    def _handle_records(
        self,
        name: TopicPartition,
        state: PartitionState,
        answer: FetchResponse.PartitionData,
        target: FetchTarget,
        now_ms: int,
    ) -> None:
        context = self._context
        diverging = answer.diverging_epoch
        if diverging.epoch >= 0 or diverging.end_offset >= 0:
            outcome = context.subscription.diverged(name, target.fetch_offset, diverging.end_offset, diverging.epoch)
            context.settle(name, outcome)
            self.pause(name, now_ms + context.options.retry_backoff_ms)
            return
        if answer.high_watermark >= 0:
            state.high_watermark = answer.high_watermark
        if answer.last_stable_offset >= 0:
            state.last_stable_offset = answer.last_stable_offset
        if answer.log_start_offset >= 0:
            state.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica >= 0:
            state.preferred_replica = answer.preferred_read_replica
            state.preferred_until_ms = now_ms + context.options.metadata_max_age_ms
        if answer.records is None or len(memoryview(answer.records)) == 0 or state.position is None:
            return
        aborted = None
        if context.options.is_read_committed:
            aborted = [
                (transaction.producer_id, transaction.first_offset) for transaction in answer.aborted_transactions or ()
            ]
        self._waiting.append(Fetched(name, target.fetch_offset, state.position.leader, answer.records, aborted))

    def _handle_error(
        self, name: TopicPartition, state: PartitionState, code: int, target: FetchTarget, now_ms: int
    ) -> None:
        context = self._context
        self.pause(name, now_ms + context.options.retry_backoff_ms)
        if code in _STALE_METADATA:
            state.preferred_replica = None
            context.want_metadata(now_ms)
        elif code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            pass  # the broker is behind the metadata: it will catch up
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(name, state, target.fetch_offset)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            context.refuse(name.topic, code)
        elif code == ErrorCode.CORRUPT_MESSAGE:
            context.raise_later(
                CorruptRecordError(f"the broker reports a corrupt record at offset {target.fetch_offset} of {name}")
            )
        elif code == ErrorCode.UNKNOWN_SERVER_ERROR:
            context.warnings.append(f"{name}: the broker failed to answer a fetch at offset {target.fetch_offset}")
        else:
            context.raise_later(KafkaError(code, f"a fetch at offset {target.fetch_offset} of {name}"))

    def _out_of_range(self, name: TopicPartition, state: PartitionState, fetch_offset: int) -> None:
        context = self._context
        if state.preferred_replica is not None:
            # A follower may lag behind the position: the leader decides.
            state.preferred_replica = None
            self._paused.pop(name, None)
        elif context.options.reset is None:
            context.raise_later(
                OffsetOutOfRangeError(f"{name}: offset {fetch_offset} is out of range, and auto.offset.reset=none")
            )
        else:
            context.warnings.append(
                f"{name}: offset {fetch_offset} is out of range; the position is reset to {context.options.reset}"
            )
            self._paused.pop(name, None)
            state.request_reset(context.options.reset)
