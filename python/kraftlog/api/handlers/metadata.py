"""Metadata, API key 3, versions 0-13.

    1   controller id, rack, internal flag; an empty list means none (null: all)
    2   cluster id
    4   allow_auto_topic_creation (KIP-204); before, always allowed
    5   offline replicas (KIP-112)
    6   LISTENER_NOT_FOUND for a leader without this listener
    7   leader epoch (KIP-320)
    8   authorised operations of topics and cluster (KIP-430); 11 drops the cluster's
    10  topic ids in the answer; 12 also in the request (KIP-516)
    13  an error of the whole answer, REBOOTSTRAP_REQUIRED (KIP-1102)

Where Kafka answers UNKNOWN_TOPIC_OR_PARTITION and creates the topic meanwhile, this waits until the topic exists and
answers with it: one round trip less for the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from kraftlog.api.cluster_view import (
    CLUSTER_OPERATIONS,
    TOPIC_OPERATIONS,
    reachable_brokers,
    some_broker_id,
)
from kraftlog.api.slices import Slices, in_slices, in_turns, sliced, unique_in_slices
from kraftlog.controller.topic_name import topic_name_problem
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS
from kraftlog.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, TaskService, TopicCreationService
    from kraftlog.api.settings import ApiSettings
    from kraftlog.api.topic_views import TopicViews
    from kraftlog.controller.topic_image import TopicImage

__all__ = ["handle"]

TOPIC_ID_REQUEST_VERSION = 12
UNKNOWN_OPERATIONS = -(2**31)

# Creation failures a client is told about instead of "unknown topic": it cannot mend them by asking again.
_LASTING_ERRORS = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.POLICY_VIOLATION,
    }
)


@sliced
def handle(
    context: RequestContext,
    request: MetadataRequest,
    *,
    cluster: ClusterService,
    topic_views: TopicViews,
    settings: ApiSettings,
    tasks: TaskService,
    topic_creation: TopicCreationService,
) -> Slices[MetadataResponse | asyncio.Future[MetadataResponse]]:
    """Tell a client which brokers there are and who leads the partitions it asks about."""
    asked = request.topics
    if asked is None or (not asked and context.api_version == 0):
        everything = sorted(cluster.image.topics.all(), key=lambda topic: topic.name)
        topics = yield from in_slices(_known(cluster, topic_views, context, request, topic) for topic in everything)
        return _response(cluster, context, request, topics)
    distinct = yield from unique_in_slices(topic.name for topic in asked)
    topic_ids = yield from unique_in_slices(topic.topic_id for topic in asked)
    topic_ids.pop(Uuid.ZERO, None)
    if context.api_version < TOPIC_ID_REQUEST_VERSION and (topic_ids or None in distinct):
        refused = yield from in_slices(
            MetadataResponse.MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in asked
        )
        return MetadataResponse(topics=refused)
    if topic_ids:
        topics = yield from in_slices(
            _by_id(cluster, topic_views, context, request, topic_id) for topic_id in topic_ids
        )
        return _response(cluster, context, request, topics)
    names = [name for name in distinct if name is not None]
    is_creatable = yield from in_slices(_may_be_created(cluster, name) for name in names)
    missing = list(compress(names, is_creatable))
    if not missing or not request.allow_auto_topic_creation or not settings.auto_create_topics_enable:
        topics = yield from in_slices(_by_name(cluster, topic_views, context, request, name, {}) for name in names)
        return _response(cluster, context, request, topics)

    async def create_and_answer() -> MetadataResponse:
        errors = await topic_creation.create(missing)
        created = await in_turns(_by_name(cluster, topic_views, context, request, name, errors) for name in names)
        return _response(cluster, context, request, created)

    return tasks.spawn(create_and_answer())


def _may_be_created(cluster: ClusterService, name: str) -> bool:
    """Whether asking for it brings it about: the coordinators' topics have settings of their own, made elsewhere."""
    if cluster.image.topics.by_name(name) is not None or topic_name_problem(name) is not None:
        return False
    return name not in INTERNAL_TOPICS or name == CONSUMER_OFFSETS_TOPIC


def _response(
    cluster: ClusterService,
    context: RequestContext,
    request: MetadataRequest,
    topics: Sequence[MetadataResponse.MetadataResponseTopic],
) -> MetadataResponse:
    image = cluster.image
    brokers = [
        MetadataResponse.MetadataResponseBroker(
            node_id=reachable_broker.broker_id,
            host=reachable_broker.host,
            port=reachable_broker.port,
            rack=reachable_broker.rack,
        )
        for reachable_broker in reachable_brokers(image, context.listener_name)
    ]
    return MetadataResponse(
        brokers=brokers,
        cluster_id=cluster.cluster_id,
        controller_id=some_broker_id(image, cluster.node_id),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else UNKNOWN_OPERATIONS,
    )


def _by_id(
    cluster: ClusterService, topic_views: TopicViews, context: RequestContext, request: MetadataRequest, topic_id: Uuid
) -> MetadataResponse.MetadataResponseTopic:
    topic = cluster.image.topics.by_id(topic_id)
    if topic is not None:
        return _known(cluster, topic_views, context, request, topic)
    return MetadataResponse.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)


def _by_name(
    cluster: ClusterService,
    topic_views: TopicViews,
    context: RequestContext,
    request: MetadataRequest,
    name: str,
    errors: Mapping[str, int],
) -> MetadataResponse.MetadataResponseTopic:
    topic = cluster.image.topics.by_name(name)
    if topic is not None:
        return _known(cluster, topic_views, context, request, topic)
    error_code: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_problem(name):
        error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif errors.get(name) in _LASTING_ERRORS:
        error_code = errors[name]
    return MetadataResponse.MetadataResponseTopic(
        error_code=error_code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=_topic_operations(request),
    )


def _topic_operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else UNKNOWN_OPERATIONS


def _known(
    cluster: ClusterService,
    topic_views: TopicViews,
    context: RequestContext,
    request: MetadataRequest,
    topic: TopicImage,
) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=topic_views.partitions(cluster.image, topic, context.listener_name, context.api_version),
        topic_authorized_operations=_topic_operations(request),
    )
