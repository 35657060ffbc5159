"""Guards of the requests that show and change topics, as Kafka's ``KafkaApis`` and ``ControllerApis`` check them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kraftlog.api.guards.answers import TEXTS, Handle, followed_by, passed
from kraftlog.api.slices import Slices, in_slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.security.operation import CLUSTER_NAME, Operation, ResourceKind
from kraftlog.types import Uuid
from kraftlog.vocabulary import INTERNAL_TOPICS
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kraftlog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kraftlog.wire.messages.describe_cluster import DescribeClusterResponse
from kraftlog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kraftlog.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.guards.access import Access

__all__ = [
    "create_partitions",
    "create_topics",
    "delete_topics",
    "describe_cluster",
    "describe_topic_partitions",
    "metadata",
]

_TOPIC = ResourceKind.TOPIC
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_UNKNOWN_OPERATIONS: Final = -(2**31)
_TOPIC_STATES_VERSION: Final = 6
_ASKED_BY_ID_VERSION: Final = 12


@sliced
def metadata(access: Access, context: RequestContext, request: MetadataRequest, handle: Handle) -> Slices[Any]:
    """DESCRIBE on each topic; CREATE on it, or on the cluster, if asking would create it.

    Topics that may not be described look like unknown ones: a request for all topics leaves them out, and one that
    names them learns nothing but that they are refused.
    """
    asked = request.topics
    hidden: list[MetadataRequest.MetadataRequestTopic] = []
    uncreatable: list[MetadataRequest.MetadataRequestTopic] = []
    is_all = asked is None or (not asked and context.api_version == 0)
    is_none = False
    if asked and not is_all:
        # Versions 10 and 11 have ids but refuse them; the handler says so.
        if context.api_version < _ASKED_BY_ID_VERSION and any(topic.topic_id != Uuid.ZERO for topic in asked):
            return (yield from passed(handle(request)))
        allowed, hidden = yield from access.split(
            Operation.DESCRIBE,
            _TOPIC,
            asked,
            lambda topic: topic.name if topic.topic_id == Uuid.ZERO else access.topic_name(topic.topic_id),
        )
        if request.allow_auto_topic_creation:
            allowed, uncreatable = yield from _creatable(access, allowed)
        if not allowed and (hidden or uncreatable):
            # An empty list means none since version 1, and all topics before: what comes of those is dropped.
            is_none = True
            answered = handle(replace(request, topics=[]))
        else:
            answered = handle(replace(request, topics=allowed))
    else:
        answered = handle(request)

    def finish(response: MetadataResponse) -> Slices[MetadataResponse]:
        topics = yield from in_slices(
            _with_operations(access, topic)
            for topic in (() if is_none else response.topics)
            if not is_all or access.may(Operation.DESCRIBE, _TOPIC, topic.name or "", log_denied=False)
        )
        refused = yield from in_slices(map(_refused_topic, (*uncreatable, *hidden)))
        operations = response.cluster_authorized_operations
        if operations != _UNKNOWN_OPERATIONS:
            operations = _cluster_operations(access)
        return replace(response, topics=[*topics, *refused], cluster_authorized_operations=operations)

    return (yield from followed_by(answered, finish))


def _creatable(
    access: Access, topics: list[MetadataRequest.MetadataRequestTopic]
) -> Slices[tuple[list[MetadataRequest.MetadataRequestTopic], list[MetadataRequest.MetadataRequestTopic]]]:
    """Topics that exist or may be created, and the others."""
    if access.may_on_cluster(Operation.CREATE, log_denied=False):
        return topics, []

    def to_create(topic: MetadataRequest.MetadataRequestTopic) -> str | None:
        is_new = topic.topic_id == Uuid.ZERO and topic.name is not None and access.topic_id(topic.name) is None
        return topic.name if is_new else None

    return (yield from access.split(Operation.CREATE, _TOPIC, topics, to_create))


def _refused_topic(topic: MetadataRequest.MetadataRequestTopic) -> MetadataResponse.MetadataResponseTopic:
    by_id = topic.topic_id != Uuid.ZERO
    return MetadataResponse.MetadataResponseTopic(
        error_code=_REFUSED,
        name=None if by_id else topic.name,
        topic_id=topic.topic_id,
        is_internal=not by_id and topic.name in INTERNAL_TOPICS,
    )


def _with_operations(access: Access, topic: Any) -> Any:
    """A topic of a response with the operations that the client may do, if they are wanted."""
    if topic.topic_authorized_operations == _UNKNOWN_OPERATIONS:
        return topic
    return replace(topic, topic_authorized_operations=access.operations(_TOPIC, topic.name or ""))


def _cluster_operations(access: Access) -> int:
    if not access.may_on_cluster(Operation.DESCRIBE):
        return 0
    return access.operations(ResourceKind.CLUSTER, CLUSTER_NAME)


@sliced
def describe_cluster(access: Access, context: RequestContext, request: Any, handle: Handle) -> Slices[Any]:
    """Nothing on a broker, ALTER on a controller; the operations shown are the client's own."""
    if context.is_controller_listener and not access.may_on_cluster(Operation.ALTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeClusterResponse(error_code=code, error_message=TEXTS[code])

    def finish(response: Any) -> Slices[Any]:
        yield from ()
        if response.cluster_authorized_operations == _UNKNOWN_OPERATIONS:
            return response
        return replace(response, cluster_authorized_operations=_cluster_operations(access))

    return (yield from followed_by(handle(request), finish))


@sliced
def describe_topic_partitions(
    access: Access, context: RequestContext, request: DescribeTopicPartitionsRequest, handle: Handle
) -> Slices[Any]:
    """DESCRIBE on each topic; a request for all topics goes on as one for those that may be described."""
    is_all = not request.topics
    topic_of = DescribeTopicPartitionsRequest.TopicRequest
    wanted = request.topics
    if is_all:
        wanted = yield from in_slices(
            topic_of(name=name)
            for name in access.topic_names()
            if access.may(Operation.DESCRIBE, _TOPIC, name, log_denied=False)
        )
    allowed, refused = yield from access.split(Operation.DESCRIBE, _TOPIC, wanted, lambda topic: topic.name)
    hidden = yield from in_slices(
        DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(error_code=_REFUSED, name=topic.name)
        for topic in refused
    )
    if not allowed:
        return DescribeTopicPartitionsResponse(topics=hidden)
    cursor = request.cursor
    if is_all and cursor is not None and all(topic.name != cursor.topic_name for topic in allowed):
        # The cursor's topic may be gone; the handler wants it among the named ones.
        first = min((topic.name for topic in allowed if topic.name >= cursor.topic_name), default=None)
        if first is None:
            return DescribeTopicPartitionsResponse()
        cursor = replace(cursor, topic_name=first, partition_index=0)

    def finish(response: DescribeTopicPartitionsResponse) -> Slices[DescribeTopicPartitionsResponse]:
        topics = yield from in_slices(_with_operations(access, topic) for topic in response.topics)
        return replace(response, topics=[*topics, *hidden])

    return (yield from followed_by(handle(replace(request, topics=allowed, cursor=cursor)), finish))


@sliced
def create_topics(access: Access, context: RequestContext, request: CreateTopicsRequest, handle: Handle) -> Slices[Any]:
    """CREATE on the cluster or on each topic; DESCRIBE_CONFIGS to see the settings of the new ones."""
    allowed = list(request.topics)
    refused: list[CreateTopicsRequest.CreatableTopic] = []
    if not access.may_on_cluster(Operation.CREATE, log_denied=False):
        allowed, refused = yield from access.split(Operation.CREATE, _TOPIC, allowed, lambda topic: topic.name)
    results = yield from in_slices(
        CreateTopicsResponse.CreatableTopicResult(
            name=topic.name, error_code=_REFUSED, error_message="Authorization failed."
        )
        for topic in refused
    )
    if not allowed and results:
        return CreateTopicsResponse(topics=results)

    def shown(topic: CreateTopicsResponse.CreatableTopicResult) -> CreateTopicsResponse.CreatableTopicResult:
        if topic.error_code or access.may(Operation.DESCRIBE_CONFIGS, _TOPIC, topic.name, log_denied=False):
            return topic
        return replace(topic, topic_config_error_code=_REFUSED, num_partitions=-1, replication_factor=-1, configs=None)

    def finish(response: CreateTopicsResponse) -> Slices[CreateTopicsResponse]:
        topics = yield from in_slices(map(shown, response.topics))
        return replace(response, topics=[*topics, *results])

    return (yield from followed_by(handle(replace(request, topics=allowed)), finish))


@sliced
def create_partitions(
    access: Access, context: RequestContext, request: CreatePartitionsRequest, handle: Handle
) -> Slices[Any]:
    """ALTER on each topic."""
    allowed, refused = yield from access.split(Operation.ALTER, _TOPIC, request.topics, lambda topic: topic.name)
    results = yield from in_slices(
        CreatePartitionsResponse.CreatePartitionsTopicResult(name=topic.name, error_code=_REFUSED) for topic in refused
    )
    if not allowed and results:
        return CreatePartitionsResponse(results=results)

    def merge(response: CreatePartitionsResponse) -> Slices[CreatePartitionsResponse]:
        yield from ()
        return replace(response, results=[*response.results, *results])

    return (yield from followed_by(handle(replace(request, topics=allowed)), merge))


@sliced
def delete_topics(access: Access, context: RequestContext, request: DeleteTopicsRequest, handle: Handle) -> Slices[Any]:
    """DELETE on the cluster or on each topic; the name behind an id is told to those who may DESCRIBE it."""
    if access.may_on_cluster(Operation.DELETE, log_denied=False):
        return (yield from passed(handle(request)))
    result = DeleteTopicsResponse.DeletableTopicResult
    text = TEXTS[_REFUSED]
    if context.api_version < _TOPIC_STATES_VERSION:
        names, unnamed = yield from access.split(Operation.DELETE, _TOPIC, request.topic_names, lambda name: name)
        refused = [result(name=name, error_code=_REFUSED, error_message=text) for name in unnamed]
        left = replace(request, topic_names=names)
        is_empty = not names
    else:

        def name_of(topic: DeleteTopicsRequest.DeleteTopicState) -> str | None:
            if topic.name is None:
                return access.topic_name(topic.topic_id)
            return topic.name if topic.topic_id == Uuid.ZERO else None  # both are refused by the handler

        def shown_name(topic: DeleteTopicsRequest.DeleteTopicState) -> str | None:
            name = name_of(topic)
            if topic.topic_id == Uuid.ZERO or (name and access.may(Operation.DESCRIBE, _TOPIC, name)):
                return name
            return None

        topics, others = yield from access.split(Operation.DELETE, _TOPIC, request.topics, name_of)
        refused = yield from in_slices(
            result(name=shown_name(topic), topic_id=topic.topic_id, error_code=_REFUSED, error_message=text)
            for topic in others
        )
        left = replace(request, topics=topics)
        is_empty = not topics
    if is_empty and refused:
        return DeleteTopicsResponse(responses=refused)

    def merge(response: DeleteTopicsResponse) -> Slices[DeleteTopicsResponse]:
        yield from ()
        return replace(response, responses=[*response.responses, *refused])

    return (yield from followed_by(handle(left), merge))
