"""Guards of the requests to group coordinators, as Kafka's ``KafkaApis`` checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kraftlog.api.guards.answers import TEXTS, Guard, Handle, followed_by, passed, refused_in_slices
from kraftlog.api.slices import Pauses, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.operation import Operation, ResourceKind
from kraftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from kraftlog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kraftlog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kraftlog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kraftlog.wire.messages.share_group_describe import ShareGroupDescribeResponse
from kraftlog.wire.messages.streams_group_describe import StreamsGroupDescribeResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.guards.access import Access

__all__ = [
    "consumer_group_describe",
    "delete_groups",
    "describe_groups",
    "find_coordinator",
    "group_heartbeat",
    "list_groups",
    "member",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "share_group_describe",
    "streams_group_describe",
]

_GROUP, _TOPIC = ResourceKind.GROUP, ResourceKind.TOPIC
_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_COMMIT_ID_VERSION: Final = 10
_GROUPS_VERSION: Final = 8
_GROUP_ERROR_VERSION: Final = 2
_BATCHED_VERSION: Final = 4
_SHARE_VERSION: Final = 6
_CONSUMER_HEARTBEAT: Final = 68
_UNKNOWN_OPERATIONS: Final = -(2**31)


def member(access: Access, context: RequestContext, request: Any, handle: Handle) -> Any:
    """READ on the group, for a member of it.

    Raises:
        KafkaError: GROUP_AUTHORIZATION_FAILED.
    """
    if not access.may(Operation.READ, _GROUP, request.group_id):
        raise KafkaError(_REFUSED)
    return handle(request)


@sliced
def group_heartbeat(access: Access, context: RequestContext, request: Any, handle: Handle) -> Slices[Any]:
    """READ on the group, DESCRIBE on each topic that a member of a consumer or share group names.

    Raises:
        KafkaError: GROUP_AUTHORIZATION_FAILED or TOPIC_AUTHORIZATION_FAILED.
    """
    if not access.may(Operation.READ, _GROUP, request.group_id):
        raise KafkaError(_REFUSED, TEXTS[_REFUSED])
    # Kafka looks at the member id of a share group before it looks at the topics.
    names = request.subscribed_topic_names or () if request.member_id or context.api_key == _CONSUMER_HEARTBEAT else ()
    if not (yield from access.may_on_all(Operation.DESCRIBE, _TOPIC, names)):
        raise KafkaError(_TOPIC_REFUSED, TEXTS[_TOPIC_REFUSED])
    return (yield from passed(handle(request)))


@sliced
def offset_commit(access: Access, context: RequestContext, request: OffsetCommitRequest, handle: Handle) -> Slices[Any]:
    """READ on the group, and on each topic."""
    answer = OffsetCommitResponse

    def failed(topics: Iterable[OffsetCommitRequest.OffsetCommitRequestTopic], code: int) -> Slices[list[Any]]:
        return refused_in_slices(
            topics,
            lambda topic: topic.partitions,
            lambda part: answer.OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code),
            lambda topic, parts: answer.OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=parts
            ),
        )

    if not access.may(Operation.READ, _GROUP, request.group_id):
        return answer(topics=(yield from failed(request.topics, _REFUSED)))
    has_ids = context.api_version >= _COMMIT_ID_VERSION
    allowed, refused = yield from access.split(
        Operation.READ,
        _TOPIC,
        request.topics,
        lambda topic: access.topic_name(topic.topic_id) if has_ids else topic.name,
    )
    if not refused:
        return (yield from passed(handle(request)))
    topics = yield from failed(refused, _TOPIC_REFUSED)
    if not allowed:
        return answer(topics=topics)

    def merge(response: OffsetCommitResponse) -> Slices[OffsetCommitResponse]:
        yield from ()
        return replace(response, topics=[*response.topics, *topics])

    return (yield from followed_by(handle(replace(request, topics=allowed)), merge))


@sliced
def offset_fetch(access: Access, context: RequestContext, request: OffsetFetchRequest, handle: Handle) -> Slices[Any]:
    """DESCRIBE on each group and topic; a request for all topics leaves out those that may not be described."""
    if context.api_version >= _GROUPS_VERSION:
        return (yield from _offset_fetch_of_groups(access, context, request, handle))
    answer = OffsetFetchResponse

    def failed(topics: Iterable[OffsetFetchRequest.OffsetFetchRequestTopic], code: int) -> Slices[list[Any]]:
        return refused_in_slices(
            topics,
            lambda topic: topic.partition_indexes,
            lambda index: answer.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            ),
            lambda topic, parts: answer.OffsetFetchResponseTopic(name=topic.name, partitions=parts),
        )

    if not access.may(Operation.DESCRIBE, _GROUP, request.group_id):
        in_topics = () if context.api_version >= _GROUP_ERROR_VERSION else request.topics or ()
        return answer(error_code=_REFUSED, topics=(yield from failed(in_topics, _REFUSED)))
    if request.topics is None:
        return (yield from followed_by(handle(request), lambda response: _described(access, response)))
    allowed, refused = yield from access.split(Operation.DESCRIBE, _TOPIC, request.topics, lambda topic: topic.name)
    topics = yield from failed(refused, _TOPIC_REFUSED)

    def merge(response: OffsetFetchResponse) -> Slices[OffsetFetchResponse]:
        yield from ()
        return response if response.error_code else replace(response, topics=[*response.topics, *topics])

    return (yield from followed_by(handle(replace(request, topics=allowed)), merge))


def _described(access: Access, response: Any) -> Slices[Any]:
    """A response, or a group of one, without the topics that may not be described."""
    topics = yield from in_slices(
        topic for topic in response.topics if access.may(Operation.DESCRIBE, _TOPIC, topic.name, log_denied=False)
    )
    return replace(response, topics=topics)


def _offset_fetch_of_groups(
    access: Access, context: RequestContext, request: OffsetFetchRequest, handle: Handle
) -> Slices[Any]:
    answer = OffsetFetchResponse
    has_ids = context.api_version >= _COMMIT_ID_VERSION

    def failed(topics: Iterable[OffsetFetchRequest.OffsetFetchRequestTopics]) -> Slices[list[Any]]:
        return refused_in_slices(
            topics,
            lambda topic: topic.partition_indexes,
            lambda index: answer.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=_TOPIC_REFUSED
            ),
            lambda topic, parts: answer.OffsetFetchResponseTopics(
                name=topic.name, topic_id=topic.topic_id, partitions=parts
            ),
        )

    left: list[OffsetFetchRequest.OffsetFetchRequestGroup] = []
    refused: list[list[Any] | None] = []  # of each group: the topics refused, None if all of it is
    pauses = Pauses()
    for group in request.groups:
        if pauses.is_due():
            yield None
        if not access.may(Operation.DESCRIBE, _GROUP, group.group_id):
            refused.append(None)
            continue
        if group.topics is None:
            refused.append([])
            left.append(group)
            continue
        allowed, others = yield from access.split(
            Operation.DESCRIBE,
            _TOPIC,
            group.topics,
            lambda topic: access.topic_name(topic.topic_id) if has_ids else topic.name,
        )
        refused.append((yield from failed(others)))
        left.append(replace(group, topics=allowed))

    def merge(response: OffsetFetchResponse) -> Slices[OffsetFetchResponse]:
        handled = iter(response.groups)
        groups: list[Any] = []
        pauses = Pauses()
        for group, topics in zip(request.groups, refused, strict=True):
            if pauses.is_due():
                yield None
            if topics is None:
                groups.append(answer.OffsetFetchResponseGroup(group_id=group.group_id, error_code=_REFUSED))
                continue
            found = next(handled)
            if group.topics is None and not found.error_code:
                found = yield from _described(access, found)
            elif topics and not found.error_code:
                found = replace(found, topics=[*found.topics, *topics])
            groups.append(found)
        return replace(response, groups=groups)

    if not left:
        return (yield from merge(answer()))
    return (yield from followed_by(handle(replace(request, groups=left)), merge))


@sliced
def describe_groups(
    access: Access, context: RequestContext, request: DescribeGroupsRequest, handle: Handle
) -> Slices[Any]:
    """DESCRIBE on each group."""
    described = DescribeGroupsResponse.DescribedGroup
    return (
        yield from _each_group(
            access,
            request,
            handle,
            field="groups",
            refused=lambda name: described(group_id=name, error_code=_REFUSED, group_state="Dead"),
            response_class=DescribeGroupsResponse,
        )
    )


def _each_group(
    access: Access,
    request: Any,
    handle: Handle,
    *,
    field: str,
    refused: Callable[[str], Any],
    response_class: type[Any],
    described_as: Callable[[Any], Any] = lambda group: group,
) -> Slices[Any]:
    """Have the groups described that may be, with the operations allowed on each.

    Args:
        access: What the client may do.
        request: Names the groups.
        handle: Describes what is left of them.
        field: Has the groups' names in the request.
        refused: What stands for a group that may not be described.
        response_class: Of the response; its field ``groups`` has what is described.
        described_as: How a group is shown.
    """
    allowed, others = yield from access.split(Operation.DESCRIBE, _GROUP, getattr(request, field), lambda name: name)
    hidden = yield from in_slices(map(refused, others))
    if not allowed and hidden:
        return response_class(groups=hidden)

    def shown(group: Any) -> Any:
        if group.authorized_operations != _UNKNOWN_OPERATIONS:
            group = replace(group, authorized_operations=access.operations(_GROUP, group.group_id))
        return described_as(group)

    def finish(response: Any) -> Slices[Any]:
        groups = yield from in_slices(map(shown, response.groups))
        return replace(response, groups=[*groups, *hidden])

    return (yield from followed_by(handle(replace(request, **{field: allowed})), finish))


def _with_topics_checked(group_class: Callable[..., Any]) -> Callable[[Access], Callable[[Any], Any]]:
    """Shows a group only to those who may describe each topic that a member subscribes to or has."""

    def for_access(access: Access) -> Callable[[Any], Any]:
        def show(group: Any) -> Any:
            names = set(_topics_of(group.members))
            if all(access.may(Operation.DESCRIBE, _TOPIC, name) for name in names):
                return group
            return group_class(
                group_id=group.group_id,
                error_code=_TOPIC_REFUSED,
                error_message="The group has described topic(s) that the client is not authorized to describe.",
            )

        return show

    return for_access


def _topics_of(members: Sequence[Any]) -> Iterable[str]:
    for each in members:
        yield from each.subscribed_topic_names
        assignments = [each.assignment]
        target = getattr(each, "target_assignment", None)
        if target is not None:
            assignments.append(target)
        for assignment in assignments:
            for topic in assignment.topic_partitions:
                yield topic.topic_name


def _describe_guard(response_class: Any, *, checks_topics: bool) -> Guard:
    group_class = response_class.DescribedGroup
    show = _with_topics_checked(group_class) if checks_topics else None

    @sliced
    def guard(access: Access, context: RequestContext, request: Any, handle: Handle) -> Slices[Any]:
        return (
            yield from _each_group(
                access,
                request,
                handle,
                field="group_ids",
                refused=lambda name: group_class(group_id=name, error_code=_REFUSED),
                response_class=response_class,
                described_as=(lambda group: group) if show is None else show(access),
            )
        )

    return guard


consumer_group_describe = _describe_guard(ConsumerGroupDescribeResponse, checks_topics=True)
share_group_describe = _describe_guard(ShareGroupDescribeResponse, checks_topics=True)
streams_group_describe = _describe_guard(StreamsGroupDescribeResponse, checks_topics=False)


@sliced
def list_groups(access: Access, context: RequestContext, request: ListGroupsRequest, handle: Handle) -> Slices[Any]:
    """DESCRIBE on the cluster shows all groups, else on each group that one."""
    if access.may_on_cluster(Operation.DESCRIBE, log_denied=False):
        return (yield from passed(handle(request)))

    def finish(response: ListGroupsResponse) -> Slices[ListGroupsResponse]:
        groups = yield from in_slices(
            group
            for group in response.groups
            if access.may(Operation.DESCRIBE, _GROUP, group.group_id, log_denied=False)
        )
        return replace(response, groups=groups)

    return (yield from followed_by(handle(request), finish))


@sliced
def delete_groups(access: Access, context: RequestContext, request: DeleteGroupsRequest, handle: Handle) -> Slices[Any]:
    """DELETE on each group."""
    allowed, others = yield from access.split(Operation.DELETE, _GROUP, request.groups_names, lambda name: name)
    result = DeleteGroupsResponse.DeletableGroupResult
    refused = yield from in_slices(result(group_id=name, error_code=_REFUSED) for name in others)

    def merge(response: DeleteGroupsResponse) -> Slices[DeleteGroupsResponse]:
        yield from ()
        return replace(response, results=[*response.results, *refused])

    return (yield from followed_by(handle(replace(request, groups_names=allowed)), merge))


@sliced
def offset_delete(access: Access, context: RequestContext, request: OffsetDeleteRequest, handle: Handle) -> Slices[Any]:
    """DELETE on the group, READ on each topic."""
    answer = OffsetDeleteResponse
    if not access.may(Operation.DELETE, _GROUP, request.group_id):
        return answer(error_code=_REFUSED)
    allowed, others = yield from access.split(Operation.READ, _TOPIC, request.topics, lambda topic: topic.name)
    refused = yield from refused_in_slices(
        others,
        lambda topic: topic.partitions,
        lambda part: answer.OffsetDeleteResponsePartition(
            partition_index=part.partition_index, error_code=_TOPIC_REFUSED
        ),
        lambda topic, parts: answer.OffsetDeleteResponseTopic(name=topic.name, partitions=parts),
    )
    if not allowed and refused:
        return answer(topics=refused)

    def merge(response: OffsetDeleteResponse) -> Slices[OffsetDeleteResponse]:
        yield from ()
        return response if response.error_code else replace(response, topics=[*response.topics, *refused])

    return (yield from followed_by(handle(replace(request, topics=allowed)), merge))


@sliced
def find_coordinator(
    access: Access, context: RequestContext, request: FindCoordinatorRequest, handle: Handle
) -> Slices[Any]:
    """DESCRIBE on the group or the transactional id; CLUSTER_ACTION for the state of share groups."""
    answer = FindCoordinatorResponse
    is_batched = context.api_version >= _BATCHED_VERSION
    keys = request.coordinator_keys if is_batched else [request.key]
    match request.key_type:
        case 0:
            code: int = _REFUSED
            allowed, others = yield from access.split(Operation.DESCRIBE, _GROUP, keys, lambda key: key)
        case 1:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            kind = ResourceKind.TRANSACTIONAL_ID
            allowed, others = yield from access.split(Operation.DESCRIBE, kind, keys, lambda key: key)
        case 2 if context.api_version >= _SHARE_VERSION and not access.may_on_cluster(Operation.CLUSTER_ACTION):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            allowed, others = [], list(keys)
        case _:
            return (yield from passed(handle(request)))
    if not others:
        return (yield from passed(handle(request)))
    if not is_batched:
        return answer(error_code=code, error_message=TEXTS[code], node_id=-1, port=-1)
    refused = yield from in_slices(
        answer.Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=TEXTS[code]) for key in others
    )
    if not allowed:
        return answer(coordinators=refused)

    def merge(response: FindCoordinatorResponse) -> Slices[FindCoordinatorResponse]:
        yield from ()
        return replace(response, coordinators=[*response.coordinators, *refused])

    return (yield from followed_by(handle(replace(request, coordinator_keys=allowed)), merge))
