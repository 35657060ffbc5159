"""Guards of the requests to transaction coordinators, as Kafka's ``KafkaApis`` checks them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraftlog.api.guards.answers import Handle, followed_by, passed, refused_in_slices
from kraftlog.api.slices import Slices, in_slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.operation import Operation, ResourceKind
from kraftlog.vocabulary import INTERNAL_TOPICS
from kraftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kraftlog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kraftlog.wire.messages.end_txn import EndTxnRequest
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from kraftlog.wire.messages.list_transactions import ListTransactionsResponse
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kraftlog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraftlog.api.context import RequestContext
    from kraftlog.api.guards.access import Access

__all__ = [
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "describe_transactions",
    "end_txn",
    "init_producer_id",
    "list_transactions",
    "txn_offset_commit",
    "write_txn_markers",
]

_ID, _TOPIC, _GROUP = ResourceKind.TRANSACTIONAL_ID, ResourceKind.TOPIC, ResourceKind.GROUP
_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_BROKER_VERSION: Final = 4


def init_producer_id(access: Access, context: RequestContext, request: InitProducerIdRequest, handle: Handle) -> Any:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""
    if request.transactional_id is not None:
        if not access.may(Operation.WRITE, _ID, request.transactional_id):
            raise KafkaError(_REFUSED)
    elif not (
        access.may_on_cluster(Operation.IDEMPOTENT_WRITE, log_denied=False)
        or access.may_on_any(Operation.WRITE, _TOPIC)
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return handle(request)


@sliced
def add_partitions_to_txn(
    access: Access, context: RequestContext, request: AddPartitionsToTxnRequest, handle: Handle
) -> Slices[Any]:
    """From clients WRITE on the transactional id and on each topic; from brokers, since version 4, CLUSTER_ACTION.

    Nothing is added if one topic is refused: the others are OPERATION_NOT_ATTEMPTED.
    """
    answer = AddPartitionsToTxnResponse
    if context.api_version >= _BROKER_VERSION:
        if not access.may_on_cluster(Operation.CLUSTER_ACTION):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return (yield from passed(handle(request)))
    topics = request.v3_and_below_topics
    codes: list[int]
    if not access.may(Operation.WRITE, _ID, request.v3_and_below_transactional_id):
        codes = [_REFUSED] * len(topics)
    else:
        is_refused = yield from in_slices(
            topic.name not in INTERNAL_TOPICS and not access.may(Operation.WRITE, _TOPIC, topic.name)
            for topic in topics
        )
        if not any(is_refused):
            return (yield from passed(handle(request)))
        codes = [_TOPIC_REFUSED if refused else ErrorCode.OPERATION_NOT_ATTEMPTED for refused in is_refused]
    results: list[Any] = []
    for topic, code in zip(topics, codes, strict=True):
        results += yield from refused_in_slices(
            (topic,),
            lambda topic: topic.partitions,
            partial(_partition_result, code),
            lambda topic, parts: answer.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=parts),
        )
        yield None
    return answer(results_by_topic_v3_and_below=results)


def _partition_result(code: int, index: int) -> AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
        partition_index=index, partition_error_code=code
    )


def add_offsets_to_txn(access: Access, context: RequestContext, request: AddOffsetsToTxnRequest, handle: Handle) -> Any:
    """WRITE on the transactional id, then READ on the group."""
    if not access.may(Operation.WRITE, _ID, request.transactional_id):
        raise KafkaError(_REFUSED)
    if not access.may(Operation.READ, _GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return handle(request)


def end_txn(access: Access, context: RequestContext, request: EndTxnRequest, handle: Handle) -> Any:
    """WRITE on the transactional id."""
    if not access.may(Operation.WRITE, _ID, request.transactional_id):
        raise KafkaError(_REFUSED)
    return handle(request)


@sliced
def txn_offset_commit(
    access: Access, context: RequestContext, request: TxnOffsetCommitRequest, handle: Handle
) -> Slices[Any]:
    """WRITE on the transactional id, READ on the group, READ on each topic."""
    answer = TxnOffsetCommitResponse

    def failed(topics: Iterable[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic], code: int) -> Slices[list[Any]]:
        return refused_in_slices(
            topics,
            lambda topic: topic.partitions,
            lambda part: answer.TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code),
            lambda topic, parts: answer.TxnOffsetCommitResponseTopic(name=topic.name, partitions=parts),
        )

    if not access.may(Operation.WRITE, _ID, request.transactional_id):
        return answer(topics=(yield from failed(request.topics, _REFUSED)))
    if not access.may(Operation.READ, _GROUP, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer(topics=(yield from failed(request.topics, code)))
    allowed, others = yield from access.split(Operation.READ, _TOPIC, request.topics, lambda topic: topic.name)
    if not others:
        return (yield from passed(handle(request)))
    refused = yield from failed(others, _TOPIC_REFUSED)
    if not allowed:
        return answer(topics=refused)

    def merge(response: TxnOffsetCommitResponse) -> Slices[TxnOffsetCommitResponse]:
        yield from ()
        return replace(response, topics=[*response.topics, *refused])

    return (yield from followed_by(handle(replace(request, topics=allowed)), merge))


@sliced
def write_txn_markers(
    access: Access, context: RequestContext, request: WriteTxnMarkersRequest, handle: Handle
) -> Slices[Any]:
    """ALTER or CLUSTER_ACTION on the cluster."""
    answer = WriteTxnMarkersResponse
    if access.may_on_cluster(Operation.ALTER, log_denied=False) or access.may_on_cluster(Operation.CLUSTER_ACTION):
        return (yield from passed(handle(request)))
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    markers: list[Any] = []
    for marker in request.markers:
        refused = yield from refused_in_slices(
            marker.topics,
            lambda topic: topic.partition_indexes,
            lambda index: answer.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code),
            lambda topic, parts: answer.WritableTxnMarkerTopicResult(name=topic.name, partitions=parts),
        )
        markers.append(answer.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=refused))
        yield None
    return answer(markers=markers)


@sliced
def describe_transactions(
    access: Access, context: RequestContext, request: DescribeTransactionsRequest, handle: Handle
) -> Slices[Any]:
    """DESCRIBE on each transactional id; of its topics only those are shown that may be described."""
    state = DescribeTransactionsResponse.TransactionState
    allowed, others = yield from access.split(Operation.DESCRIBE, _ID, request.transactional_ids, lambda name: name)
    refused = yield from in_slices(state(transactional_id=name, error_code=_REFUSED) for name in others)
    if not allowed and refused:
        return DescribeTransactionsResponse(transaction_states=refused)

    def shown(found: DescribeTransactionsResponse.TransactionState) -> DescribeTransactionsResponse.TransactionState:
        topics = [topic for topic in found.topics if access.may(Operation.DESCRIBE, _TOPIC, topic.topic)]
        return found if len(topics) == len(found.topics) else replace(found, topics=topics)

    def finish(response: DescribeTransactionsResponse) -> Slices[DescribeTransactionsResponse]:
        states = yield from in_slices(map(shown, response.transaction_states))
        return replace(response, transaction_states=[*states, *refused])

    return (yield from followed_by(handle(replace(request, transactional_ids=allowed)), finish))


@sliced
def list_transactions(access: Access, context: RequestContext, request: Any, handle: Handle) -> Slices[Any]:
    """Transactional ids that may not be described are left out."""

    def finish(response: ListTransactionsResponse) -> Slices[ListTransactionsResponse]:
        states = yield from in_slices(
            state
            for state in response.transaction_states
            if access.may(Operation.DESCRIBE, _ID, state.transactional_id, log_denied=False)
        )
        return replace(response, transaction_states=states)

    return (yield from followed_by(handle(request), finish))
