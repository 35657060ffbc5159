"""Guards of the requests of share groups (KIP-932), as Kafka's ``KafkaApis`` checks them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kraftlog.api.guards.answers import TEXTS, Handle, followed_by, passed, refused_in_slices
from kraftlog.api.slices import Pauses, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.security.operation import Operation, ResourceKind
from kraftlog.types import Uuid
from kraftlog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from kraftlog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from kraftlog.wire.messages.delete_share_group_state import DeleteShareGroupStateResponse
from kraftlog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kraftlog.wire.messages.initialize_share_group_state import InitializeShareGroupStateResponse
from kraftlog.wire.messages.read_share_group_state import ReadShareGroupStateResponse
from kraftlog.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryResponse
from kraftlog.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kraftlog.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from kraftlog.wire.messages.write_share_group_state import WriteShareGroupStateResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kraftlog.api.context import RequestContext
    from kraftlog.api.guards.access import Access
    from kraftlog.api.guards.answers import Guard

__all__ = [
    "alter_offsets",
    "delete_offsets",
    "delete_state",
    "describe_offsets",
    "initialize_state",
    "read_state",
    "read_state_summary",
    "share_acknowledge",
    "share_fetch",
    "write_state",
]

_GROUP, _TOPIC = ResourceKind.GROUP, ResourceKind.TOPIC
_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@sliced
def share_fetch(access: Access, context: RequestContext, request: ShareFetchRequest, handle: Handle) -> Slices[Any]:
    """READ on the group and on each topic; the handler judges what its session had before."""
    answer = ShareFetchResponse
    if not access.may(Operation.READ, _GROUP, request.group_id or ""):
        return answer(error_code=_REFUSED, error_message=TEXTS[_REFUSED])
    allowed, others = yield from access.split(
        Operation.READ, _TOPIC, request.topics, lambda topic: access.topic_name(topic.topic_id)
    )
    if not others:
        return (yield from passed(handle(request)))
    refused = yield from refused_in_slices(
        others,
        lambda topic: topic.partitions,
        lambda part: answer.PartitionData(
            partition_index=part.partition_index,
            error_code=_TOPIC_REFUSED,
            acknowledge_error_code=_TOPIC_REFUSED if part.acknowledgement_batches else 0,
            records=b"",
        ),
        lambda topic, parts: answer.ShareFetchableTopicResponse(topic_id=topic.topic_id, partitions=parts),
    )

    def merge(response: ShareFetchResponse) -> Slices[ShareFetchResponse]:
        yield from ()
        return response if response.error_code else replace(response, responses=[*response.responses, *refused])

    # An answer with an error need not wait for records.
    left = replace(request, topics=allowed, max_wait_ms=0 if not request.is_renew_ack else request.max_wait_ms)
    return (yield from followed_by(handle(left), merge))


@sliced
def share_acknowledge(
    access: Access, context: RequestContext, request: ShareAcknowledgeRequest, handle: Handle
) -> Slices[Any]:
    """READ on the group and on each topic."""
    answer = ShareAcknowledgeResponse
    if not access.may(Operation.READ, _GROUP, request.group_id or ""):
        return answer(error_code=_REFUSED, error_message=TEXTS[_REFUSED])
    allowed, others = yield from access.split(
        Operation.READ, _TOPIC, request.topics, lambda topic: access.topic_name(topic.topic_id)
    )
    if not others:
        return (yield from passed(handle(request)))
    refused = yield from refused_in_slices(
        others,
        lambda topic: topic.partitions,
        lambda part: answer.PartitionData(partition_index=part.partition_index, error_code=_TOPIC_REFUSED),
        lambda topic, parts: answer.ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=parts),
    )

    def merge(response: ShareAcknowledgeResponse) -> Slices[ShareAcknowledgeResponse]:
        yield from ()
        return response if response.error_code else replace(response, responses=[*response.responses, *refused])

    return (yield from followed_by(handle(replace(request, topics=allowed)), merge))


@sliced
def describe_offsets(
    access: Access, context: RequestContext, request: DescribeShareGroupOffsetsRequest, handle: Handle
) -> Slices[Any]:
    """DESCRIBE on each group and on each topic."""
    answer = DescribeShareGroupOffsetsResponse

    def failed(
        topics: Iterable[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic],
    ) -> Slices[list[Any]]:
        return refused_in_slices(
            topics,
            lambda topic: topic.partitions,
            lambda index: answer.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=-1,
                error_code=_TOPIC_REFUSED,
                error_message=TEXTS[_TOPIC_REFUSED],
            ),
            lambda topic, parts: answer.DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=access.topic_id(topic.topic_name) or Uuid.ZERO,
                partitions=parts,
            ),
        )

    left: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup] = []
    refused: list[list[Any] | None] = []  # of each group: the topics refused, None if all of it is
    pauses = Pauses()
    for group in request.groups:
        if pauses.is_due():
            yield None
        if not access.may(Operation.DESCRIBE, _GROUP, group.group_id):
            refused.append(None)
        elif group.topics is None:
            refused.append([])
            left.append(group)
        else:
            allowed, others = yield from access.split(
                Operation.DESCRIBE, _TOPIC, group.topics, lambda topic: topic.topic_name
            )
            refused.append((yield from failed(others)))
            left.append(replace(group, topics=allowed))

    def merge(response: DescribeShareGroupOffsetsResponse) -> Slices[DescribeShareGroupOffsetsResponse]:
        handled = iter(response.groups)
        groups: list[Any] = []
        pauses = Pauses()
        for group, topics in zip(request.groups, refused, strict=True):
            if pauses.is_due():
                yield None
            if topics is None:
                groups.append(
                    answer.DescribeShareGroupOffsetsResponseGroup(
                        group_id=group.group_id, error_code=_REFUSED, error_message=TEXTS[_REFUSED]
                    )
                )
                continue
            found = next(handled)
            shown = found.topics
            if group.topics is None:
                shown = yield from in_slices(
                    topic
                    for topic in shown
                    if access.may(Operation.DESCRIBE, _TOPIC, topic.topic_name, log_denied=False)
                )
            groups.append(found if found.error_code else replace(found, topics=[*shown, *topics]))
        return replace(response, groups=groups)

    if not left:
        return (yield from merge(answer()))
    return (yield from followed_by(handle(replace(request, groups=left)), merge))


@sliced
def alter_offsets(
    access: Access, context: RequestContext, request: AlterShareGroupOffsetsRequest, handle: Handle
) -> Slices[Any]:
    """READ on the group and on each topic."""
    answer = AlterShareGroupOffsetsResponse
    if not access.may(Operation.READ, _GROUP, request.group_id):
        return answer(error_code=_REFUSED, error_message=TEXTS[_REFUSED])
    allowed, others = yield from access.split(Operation.READ, _TOPIC, request.topics, lambda topic: topic.topic_name)
    refused = yield from refused_in_slices(
        others,
        lambda topic: topic.partitions,
        lambda part: answer.AlterShareGroupOffsetsResponsePartition(
            partition_index=part.partition_index, error_code=_TOPIC_REFUSED, error_message=TEXTS[_TOPIC_REFUSED]
        ),
        lambda topic, parts: answer.AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, topic_id=access.topic_id(topic.topic_name) or Uuid.ZERO, partitions=parts
        ),
    )

    def merge(response: AlterShareGroupOffsetsResponse) -> Slices[AlterShareGroupOffsetsResponse]:
        yield from ()
        return response if response.error_code else replace(response, responses=[*response.responses, *refused])

    return (yield from followed_by(handle(replace(request, topics=allowed)), merge))


@sliced
def delete_offsets(
    access: Access, context: RequestContext, request: DeleteShareGroupOffsetsRequest, handle: Handle
) -> Slices[Any]:
    """DELETE on the group, READ on each topic."""
    answer = DeleteShareGroupOffsetsResponse
    if not access.may(Operation.DELETE, _GROUP, request.group_id):
        return answer(error_code=_REFUSED, error_message=TEXTS[_REFUSED])
    allowed, others = yield from access.split(Operation.READ, _TOPIC, request.topics, lambda topic: topic.topic_name)
    refused = yield from in_slices(
        answer.DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=access.topic_id(topic.topic_name) or Uuid.ZERO,
            error_code=_TOPIC_REFUSED,
            error_message=TEXTS[_TOPIC_REFUSED],
        )
        for topic in others
    )

    def merge(response: DeleteShareGroupOffsetsResponse) -> Slices[DeleteShareGroupOffsetsResponse]:
        yield from ()
        return response if response.error_code else replace(response, responses=[*response.responses, *refused])

    return (yield from followed_by(handle(replace(request, topics=allowed)), merge))


def _state_guard(response_class: Any, topic_class: Callable[..., Any]) -> Guard:
    """CLUSTER_ACTION, for requests between brokers whose answers have errors at each partition only."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    @sliced
    def guard(access: Access, context: RequestContext, request: Any, handle: Handle) -> Slices[Any]:
        if access.may_on_cluster(Operation.CLUSTER_ACTION):
            return (yield from passed(handle(request)))
        results = yield from refused_in_slices(
            request.topics,
            lambda topic: topic.partitions,
            lambda part: response_class.PartitionResult(
                partition=part.partition, error_code=code, error_message=TEXTS[code]
            ),
            lambda topic, parts: topic_class(topic_id=topic.topic_id, partitions=parts),
        )
        return response_class(results=results)

    return guard


initialize_state = _state_guard(
    InitializeShareGroupStateResponse, InitializeShareGroupStateResponse.InitializeStateResult
)
read_state = _state_guard(ReadShareGroupStateResponse, ReadShareGroupStateResponse.ReadStateResult)
write_state = _state_guard(WriteShareGroupStateResponse, WriteShareGroupStateResponse.WriteStateResult)
delete_state = _state_guard(DeleteShareGroupStateResponse, DeleteShareGroupStateResponse.DeleteStateResult)
read_state_summary = _state_guard(
    ReadShareGroupStateSummaryResponse, ReadShareGroupStateSummaryResponse.ReadStateSummaryResult
)
