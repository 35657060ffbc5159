"""Guards of Produce, Fetch and the requests about places in logs, as Kafka's ``KafkaApis`` checks them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kraftlog.api.guards.answers import Handle, followed_by, passed, refused_in_slices
from kraftlog.api.produce_verification import read_transaction
from kraftlog.api.slices import Slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.runtime.replica.fetch_session import FINAL_EPOCH
from kraftlog.security.operation import Operation, ResourceKind
from kraftlog.transport.exchange import CloseConnection
from kraftlog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kraftlog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftlog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kraftlog.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kraftlog.api.context import RequestContext
    from kraftlog.api.guards.access import Access

__all__ = ["delete_records", "describe_producers", "fetch", "list_offsets", "offset_for_leader_epoch", "produce"]

_TOPIC = ResourceKind.TOPIC
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TOPIC_ID_VERSION = 13
# The lowest versions that I/O threads serve.
_PLAIN_PRODUCE_FROM = 9
_PLAIN_FETCH_FROM = 12


def _with_topics(refused: Sequence[Any]) -> Callable[[Any], Slices[Any]]:
    """Appends refused topics to a response."""

    def merge(response: Any) -> Slices[Any]:
        yield from ()
        return replace(response, topics=[*response.topics, *refused])

    return merge


@sliced
def produce(access: Access, context: RequestContext, request: ProduceRequest, handle: Handle) -> Slices[Any]:
    """WRITE on the transactional id of transactional batches, then on each topic."""
    is_plain = context.api_version >= _PLAIN_PRODUCE_FROM
    transaction = yield from read_transaction(context.api_version, request)
    if transaction is not None and (
        request.transactional_id is None
        or not access.may_write_in_transaction(request.transactional_id, is_plain=is_plain)
    ):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        responses = yield from _refused_produce(request.topic_data, code)
        return _unless_silent(request, ProduceResponse(responses=responses))
    has_ids = context.api_version >= _TOPIC_ID_VERSION
    allowed, refused = yield from access.split_topics(
        Operation.WRITE,
        request.topic_data,
        lambda topic: topic.topic_id if has_ids else topic.name,
        is_plain=is_plain,
    )
    if not refused:
        return (yield from passed(handle(request)))
    responses = yield from _refused_produce(refused, _REFUSED)
    if not allowed:
        return _unless_silent(request, ProduceResponse(responses=responses))
    if request.acks == 0:
        yield from followed_by(handle(replace(request, topic_data=allowed)), passed)
        return _unless_silent(request, None)

    def merge(response: Any) -> Slices[Any]:
        yield from ()
        return replace(response, responses=[*response.responses, *responses])

    return (yield from followed_by(handle(replace(request, topic_data=allowed)), merge))


def _unless_silent(request: ProduceRequest, response: ProduceResponse | None) -> ProduceResponse | CloseConnection:
    """Without an answer the end of the connection tells of the error, as in Kafka."""
    if request.acks == 0 or response is None:
        return CloseConnection("Produce with acks=0 is not allowed on each of its topics")
    return response


def _refused_produce(topics: Iterable[ProduceRequest.TopicProduceData], code: int) -> Slices[list[Any]]:
    answer = ProduceResponse
    return refused_in_slices(
        topics,
        lambda topic: topic.partition_data,
        lambda data: answer.PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1),
        lambda topic, parts: answer.TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=parts
        ),
    )


@sliced
def fetch(access: Access, context: RequestContext, request: FetchRequest, handle: Handle) -> Slices[Any]:
    """CLUSTER_ACTION for replicas, READ on each topic for consumers.

    A session names its partitions once, and ACLs may change while it lasts. Consumers therefore get no session here:
    each of their fetches names what it wants and is judged. The sessions of I/O threads end when the ACLs change.
    """
    is_replica = max(request.replica_id, request.replica_state.replica_id) >= 0
    has_ids = context.api_version >= _TOPIC_ID_VERSION
    if context.is_controller_listener:
        if access.may_on_cluster(Operation.CLUSTER_ACTION):
            return (yield from passed(handle(request)))
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        named = () if has_ids else request.topics
        return FetchResponse(error_code=code, responses=(yield from _refused_fetch(named, code)))
    is_plain = context.api_version >= _PLAIN_FETCH_FROM
    if is_replica and access.may_replicate(is_plain=is_plain):
        return (yield from passed(handle(request)))
    if request.session_id and request.session_epoch != FINAL_EPOCH:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    allowed: list[FetchRequest.FetchTopic] = []
    refused: Sequence[FetchRequest.FetchTopic] = request.topics
    if not is_replica:
        allowed, refused = yield from access.split_topics(
            Operation.READ,
            request.topics,
            lambda topic: topic.topic_id if has_ids else topic.topic,
            is_plain=is_plain,
        )
    responses = yield from _refused_fetch(refused, _REFUSED)
    if not allowed and responses:
        return FetchResponse(responses=responses)
    left = replace(request, topics=allowed, session_id=0, session_epoch=FINAL_EPOCH, forgotten_topics_data=())
    if not responses:
        return (yield from passed(handle(left)))

    def merge(response: Any) -> Slices[Any]:
        yield from ()
        return replace(response, responses=[*response.responses, *responses])

    return (yield from followed_by(handle(left), merge))


def _refused_fetch(topics: Iterable[FetchRequest.FetchTopic], code: int) -> Slices[list[Any]]:
    answer = FetchResponse
    return refused_in_slices(
        topics,
        lambda topic: topic.partitions,
        lambda part: answer.PartitionData(
            partition_index=part.partition, error_code=code, high_watermark=-1, records=b""
        ),
        lambda topic, parts: answer.FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=parts
        ),
    )


@sliced
def list_offsets(access: Access, context: RequestContext, request: ListOffsetsRequest, handle: Handle) -> Slices[Any]:
    """DESCRIBE on each topic."""
    answer = ListOffsetsResponse
    allowed, refused = yield from access.split(Operation.DESCRIBE, _TOPIC, request.topics, lambda topic: topic.name)
    if not refused:
        return (yield from passed(handle(request)))
    topics = yield from refused_in_slices(
        refused,
        lambda topic: topic.partitions,
        lambda part: answer.ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=_REFUSED),
        lambda topic, parts: answer.ListOffsetsTopicResponse(name=topic.name, partitions=parts),
    )
    return (yield from followed_by(handle(replace(request, topics=allowed)), _with_topics(topics)))


@sliced
def offset_for_leader_epoch(
    access: Access, context: RequestContext, request: OffsetForLeaderEpochRequest, handle: Handle
) -> Slices[Any]:
    """CLUSTER_ACTION, or DESCRIBE on each topic."""
    answer = OffsetForLeaderEpochResponse
    if access.may_on_cluster(Operation.CLUSTER_ACTION, log_denied=False):
        return (yield from passed(handle(request)))
    allowed, refused = yield from access.split(Operation.DESCRIBE, _TOPIC, request.topics, lambda topic: topic.topic)
    topics = yield from refused_in_slices(
        refused,
        lambda topic: topic.partitions,
        lambda part: answer.EpochEndOffset(partition=part.partition, error_code=_REFUSED),
        lambda topic, parts: answer.OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts),
    )
    return (yield from followed_by(handle(replace(request, topics=allowed)), _with_topics(topics)))


@sliced
def delete_records(
    access: Access, context: RequestContext, request: DeleteRecordsRequest, handle: Handle
) -> Slices[Any]:
    """DELETE on each topic."""
    answer = DeleteRecordsResponse
    allowed, refused = yield from access.split(Operation.DELETE, _TOPIC, request.topics, lambda topic: topic.name)
    topics = yield from refused_in_slices(
        refused,
        lambda topic: topic.partitions,
        lambda part: answer.DeleteRecordsPartitionResult(
            partition_index=part.partition_index, low_watermark=-1, error_code=_REFUSED
        ),
        lambda topic, parts: answer.DeleteRecordsTopicResult(name=topic.name, partitions=parts),
    )
    return (yield from followed_by(handle(replace(request, topics=allowed)), _with_topics(topics)))


@sliced
def describe_producers(
    access: Access, context: RequestContext, request: DescribeProducersRequest, handle: Handle
) -> Slices[Any]:
    """READ on each topic."""
    answer = DescribeProducersResponse
    allowed, refused = yield from access.split(Operation.READ, _TOPIC, request.topics, lambda topic: topic.name)
    topics = yield from refused_in_slices(
        refused,
        lambda topic: topic.partition_indexes,
        lambda index: answer.PartitionResponse(partition_index=index, error_code=_REFUSED),
        lambda topic, parts: answer.TopicResponse(name=topic.name, partitions=parts),
    )
    return (yield from followed_by(handle(replace(request, topics=allowed)), _with_topics(topics)))
