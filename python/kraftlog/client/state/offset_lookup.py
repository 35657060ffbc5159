"""Resets by ListOffsets and validations by OffsetsForLeaderEpoch, grouped by leader (``OffsetFetcher``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kraftlog.client.state.core_context import CoreContext
from kraftlog.client.state.position import FetchPosition, ResetStrategy
from kraftlog.client.state.request import ConsumerRequest, RequestKind
from kraftlog.client.state.subscription import FetchState, Truncation
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftlog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

__all__ = ["EARLIEST", "LATEST", "OffsetLookups", "list_offsets_request"]

LATEST = -1
EARLIEST = -2
CONSUMER = -1  # replica id


def list_offsets_request(
    targets: Mapping[TopicPartition, tuple[int, int]], *, is_read_committed: bool, timeout_ms: int
) -> ListOffsetsRequest:
    """A request for timestamps (or EARLIEST, LATEST) with the leader epoch of each partition, -1 for none."""
    topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
    for name, (timestamp, epoch) in targets.items():
        topics.setdefault(name.topic, []).append(
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=name.partition, current_leader_epoch=epoch, timestamp=timestamp
            )
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=int(is_read_committed),
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
        timeout_ms=timeout_ms,
    )


class OffsetLookups:
    """The questions about positions that are under way, at most one of each kind per node."""

    def __init__(self, context: CoreContext) -> None:
        self._context = context

    def requests(self, now_ms: int) -> list[ConsumerRequest]:
        """What to ask now."""
        return [*self._resets(now_ms), *self._validations(now_ms)]

    def _by_leader(
        self, kind: RequestKind, targets: Iterable[tuple[TopicPartition, Any]]
    ) -> Mapping[int, dict[TopicPartition, Any]]:
        context = self._context
        by_leader: dict[int, dict[TopicPartition, Any]] = {}
        for name, target in targets:
            leader = context.metadata.leader_of(name)
            if leader.leader_id is None:
                context.metadata.is_update_wanted = True
            elif kind not in context.node(leader.leader_id).lookup_kinds:
                by_leader.setdefault(leader.leader_id, {})[name] = target
        return by_leader

    def _resets(self, now_ms: int) -> Iterable[ConsumerRequest]:
        context = self._context
        waiting = [(name, found.reset) for name, found in context.subscription.in_state(FetchState.AWAIT_RESET, now_ms)]
        for node_id, targets in self._by_leader(RequestKind.RESET, waiting).items():
            asked = {}
            for name, strategy in targets.items():
                epoch = context.metadata.leader_of(name).epoch
                asked[name] = (_timestamp(strategy, now_ms), -1 if epoch is None else epoch)
            message = list_offsets_request(
                asked,
                is_read_committed=context.options.is_read_committed,
                timeout_ms=context.options.request_timeout_ms,
            )
            yield self._sent(ConsumerRequest(RequestKind.RESET, node_id, message, targets), now_ms)

    def _validations(self, now_ms: int) -> Iterable[ConsumerRequest]:
        context = self._context
        waiting = [
            (name, found.position) for name, found in context.subscription.in_state(FetchState.AWAIT_VALIDATION, now_ms)
        ]
        for node_id, targets in self._by_leader(RequestKind.VALIDATION, waiting).items():
            can_validate = context.can_validate(node_id)
            if can_validate is None:
                yield self._sent(ConsumerRequest(RequestKind.CONNECT, node_id, None, targets), now_ms)
            elif can_validate:
                message = _validation_request(targets)
                yield self._sent(ConsumerRequest(RequestKind.VALIDATION, node_id, message, targets), now_ms)
            else:
                for name, position in targets.items():
                    found = context.subscription.get(name)
                    if found is not None:
                        found.seek_validated(position)

    def _sent(self, request: ConsumerRequest, now_ms: int) -> ConsumerRequest:
        context = self._context
        context.node(request.node_id or 0).lookup_kinds.add(request.kind)
        self._retry(request.targets, now_ms + context.options.request_timeout_ms)
        return request

    def _retry(self, partitions: Iterable[TopicPartition], at_ms: int) -> None:
        for name in partitions:
            found = self._context.subscription.get(name)
            if found is not None and found.state is not FetchState.FETCHING:
                found.next_retry_ms = at_ms

    # Answers

    def handle(self, request: ConsumerRequest, response: Any, now_ms: int) -> None:
        """Take an answer."""
        context = self._context
        context.node(request.node_id or 0).lookup_kinds.discard(request.kind)
        if request.kind is RequestKind.CONNECT:
            self._retry(request.targets, now_ms)
        elif request.kind is RequestKind.RESET:
            self._reset_answer(request, response, now_ms)
        else:
            self._validation_answer(request, response, now_ms)

    def fail(self, request: ConsumerRequest, now_ms: int) -> None:
        """No answer will come."""
        context = self._context
        context.node(request.node_id or 0).lookup_kinds.discard(request.kind)
        self._retry(request.targets, now_ms + context.options.retry_backoff_ms)

    def _reset_answer(self, request: ConsumerRequest, response: ListOffsetsResponse, now_ms: int) -> None:
        context = self._context
        retry: dict[TopicPartition, None] = dict.fromkeys(request.targets)
        refused: list[TopicPartition] = []
        for topic in response.topics:
            for answer in topic.partitions:
                name = TopicPartition(topic.name, answer.partition_index)
                if name not in retry:
                    continue
                strategy: ResetStrategy = request.targets[name]
                if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    refused.append(name)
                elif answer.error_code == 0 and answer.offset >= 0:
                    del retry[name]
                    if answer.leader_epoch >= 0:
                        context.metadata.note_epoch(name, answer.leader_epoch)
                    context.subscription.complete_reset(name, strategy, answer.offset, context.metadata.leader_of(name))
                elif answer.error_code == 0:
                    # Every record is older than the duration: begin with what comes.
                    found = context.subscription.get(name)
                    if found is not None and found.state is FetchState.AWAIT_RESET and found.reset == strategy:
                        found.request_reset("latest")
                        del retry[name]
        self._finish(request, retry, refused, now_ms)

    def _validation_answer(self, request: ConsumerRequest, response: OffsetForLeaderEpochResponse, now_ms: int) -> None:
        context = self._context
        retry: dict[TopicPartition, None] = dict.fromkeys(request.targets)
        refused: list[TopicPartition] = []
        for topic in response.topics:
            for answer in topic.partitions:
                name = TopicPartition(topic.topic, answer.partition)
                if name not in retry:
                    continue
                if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    refused.append(name)
                elif answer.error_code == 0:
                    del retry[name]
                    asked: FetchPosition = request.targets[name]
                    outcome = context.subscription.complete_validation(
                        name, asked, answer.end_offset, answer.leader_epoch
                    )
                    context.settle(name, outcome)
                    if isinstance(outcome, Truncation):  # each poll raises it until the application seeks
                        self._retry([name], now_ms + context.options.retry_backoff_ms)
        self._finish(request, retry, refused, now_ms)

    def _finish(
        self,
        request: ConsumerRequest,
        retry: Iterable[TopicPartition],
        refused: list[TopicPartition],
        now_ms: int,
    ) -> None:
        context = self._context
        retry = list(retry)
        if refused:
            topics = ", ".join(sorted({name.topic for name in refused}))
            context.raise_later(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topics))
        if retry:
            context.want_metadata(now_ms)
            self._retry(retry, now_ms + context.options.retry_backoff_ms)


def _timestamp(strategy: ResetStrategy, now_ms: int) -> int:
    if strategy == "earliest":
        return EARLIEST
    if strategy == "latest":
        return LATEST
    return max(now_ms - int(strategy), 0)


def _validation_request(targets: Mapping[TopicPartition, FetchPosition]) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]] = {}
    for name, position in targets.items():
        topics.setdefault(name.topic, []).append(
            OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=name.partition,
                current_leader_epoch=-1 if position.leader.epoch is None else position.leader.epoch,
                leader_epoch=-1 if position.offset_epoch is None else position.offset_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=CONSUMER,
        topics=[
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )
