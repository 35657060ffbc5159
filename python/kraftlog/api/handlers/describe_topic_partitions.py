"""DescribeTopicPartitions, API key 75, version 0 (KIP-966): topics page by page, with eligible leader replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from kraftlog.api.cluster_view import (
    TOPIC_OPERATIONS,
    view_partition,
)
from kraftlog.api.slices import ENTRIES_PER_SLICE, LOOKUPS_PER_SLICE, Slices, in_slices, sliced, unique_in_slices
from kraftlog.controller.topic_name import topic_name_problem
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.vocabulary import INTERNAL_TOPICS
from kraftlog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService
    from kraftlog.api.settings import ApiSettings
    from kraftlog.controller.topic_image import TopicImage

__all__ = ["handle"]

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor


@sliced
def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest, *, cluster: ClusterService, settings: ApiSettings
) -> Slices[DescribeTopicPartitionsResponse]:
    """Describe topics in order of their names, from the cursor on, until the limit of partitions is reached."""
    try:
        names = yield from _names(cluster, request)
    except KafkaError as error:
        # The response has no error code of its own; as Kafka's DescribeTopicPartitionsRequest.getErrorResponse.
        refused = yield from in_slices(_Topic(error_code=error.code, name=topic.name) for topic in request.topics)
        return DescribeTopicPartitionsResponse(topics=refused)
    cursor = request.cursor
    configured = settings.max_request_partition_size_limit
    remaining = max(min(configured, request.response_partition_limit), 1)
    topics: list[_Topic] = []
    for number, name in enumerate(names, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        if not remaining:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=_Cursor(topic_name=name))
        topic = cluster.image.topics.by_name(name)
        if topic is None:
            topics.append(_unknown(name))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        indexes = [index for index in sorted(topic.partitions) if index >= start]
        taken = indexes[:remaining]
        topics.append(_describe(cluster, context, topic, taken))
        remaining -= len(taken)
        if len(taken) < len(indexes):
            next_cursor = _Cursor(topic_name=name, partition_index=indexes[len(taken)])
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)
    return DescribeTopicPartitionsResponse(topics=topics)


def _names(cluster: ClusterService, request: DescribeTopicPartitionsRequest) -> Slices[Iterator[str]]:
    """The names to describe, sorted; many are sorted in parts, which are merged as far as they are needed."""
    cursor = request.cursor
    asked = yield from unique_in_slices(topic.name for topic in request.topics)
    names: Iterable[str] = asked or [topic.name for topic in cluster.image.topics.all()]
    if cursor is not None:
        if asked and cursor.topic_name not in asked:
            msg = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, msg)
        if cursor.partition_index < 0:
            msg = f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor.partition_index}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, msg)
        names = (name for name in names if name >= cursor.topic_name)
    parts: list[list[str]] = []
    rest = iter(names)
    while part := sorted(islice(rest, LOOKUPS_PER_SLICE)):
        if parts:
            yield None
        parts.append(part)
    return merge(*parts)


def _unknown(name: str) -> _Topic:
    invalid = topic_name_problem(name) is not None
    return _Topic(
        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _describe(cluster: ClusterService, context: RequestContext, topic: TopicImage, indexes: list[int]) -> _Topic:
    partitions = []
    for index in indexes:
        partition = topic.partitions[index]
        view = view_partition(cluster.image, partition, context.listener_name)
        partitions.append(
            _Partition(
                error_code=view.error_code,
                partition_index=index,
                leader_id=view.leader_id,
                leader_epoch=view.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=partition.elr,
                last_known_elr=partition.last_known_elr,
                offline_replicas=view.offline_replicas,
            )
        )
    return _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
