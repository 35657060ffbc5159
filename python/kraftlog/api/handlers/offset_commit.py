"""OffsetCommit, API key 8, versions 2-10.

5   the retention time is no longer the client's (KIP-211)
6   leader epochs (KIP-320)
7   static members (KIP-345)
9   member epochs of consumer groups (KIP-848)
10  topic ids instead of names (KIP-848)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.api.slices import ENTRIES_PER_SLICE, LARGE_ENTRIES, Slices, at_once, in_slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService
    from kraftlog.controller.topic_image import TopicImage

__all__ = ["handle"]

TOPIC_ID_VERSION = 10

_Topic = OffsetCommitRequest.OffsetCommitRequestTopic
_TopicResult = OffsetCommitResponse.OffsetCommitResponseTopic
_Key = tuple[str, Uuid, int]


@sliced
def handle(
    context: RequestContext, request: OffsetCommitRequest, *, cluster: ClusterService, groups: GroupService
) -> Slices[OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]]:
    """Store a group's positions; answered once they are committed."""
    errors: dict[_Key, int] = {}
    topics = []
    for number, topic in enumerate(request.topics, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        kept = yield from _resolve(cluster, context, topic, errors)
        if kept is not None:
            topics.append(kept)
    if not topics:
        return (yield from _merge(request, OffsetCommitResponse(), errors))
    resolved = replace(request, topics=topics)
    try:
        runner = groups.runner(request.group_id)
    except KafkaError as error:
        return (yield from _all_failed(request, errors, error.code))
    asked = runner.ask(
        lambda shard, future, now_ms: shard.commit_offsets(future, resolved, now_ms, api_version=context.api_version)
    )
    if len(errors) + sum(len(topic.partitions) for topic in topics) > LARGE_ENTRIES:
        yield asked
        try:
            answer = asked.result()
        except KafkaError as error:
            return (yield from _all_failed(request, errors, error.code))
        return (yield from _merge(request, answer, errors))
    return transform(
        asked,
        lambda answer: at_once(_merge(request, answer, errors)),
        lambda error: at_once(_all_failed(request, errors, error.code)),
    )


def _key(topic: _Topic, index: int) -> _Key:
    return topic.name, topic.topic_id, index


def _resolve(
    cluster: ClusterService, context: RequestContext, topic: _Topic, errors: dict[_Key, int]
) -> Slices[_Topic | None]:
    """The topic with name and id and those of its partitions that exist, once each, with what was said of it last.

    None when nothing is left of the topic.
    """
    topics = cluster.image.topics
    by_id = context.api_version >= TOPIC_ID_VERSION
    image: TopicImage | None = topics.by_id(topic.topic_id) if by_id else topics.by_name(topic.name)
    kept = {}
    for number, partition in enumerate(topic.partitions, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        if image is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors[_key(topic, partition.partition_index)] = code
        elif partition.partition_index not in image.partitions:
            errors[_key(topic, partition.partition_index)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            kept[partition.partition_index] = partition
    if image is None or not kept:
        return None
    return replace(topic, name=image.name, topic_id=image.topic_id, partitions=list(kept.values()))


def _all_failed(
    request: OffsetCommitRequest, errors: Mapping[_Key, int], error_code: int
) -> Slices[OffsetCommitResponse]:
    return (yield from _build(request, lambda key: errors.get(key, error_code)))


def _merge(
    request: OffsetCommitRequest, answer: OffsetCommitResponse, errors: Mapping[_Key, int]
) -> Slices[OffsetCommitResponse]:
    """The shard's answer, and what it was not asked, in the order of the request."""
    codes: dict[tuple[str | Uuid, int], int] = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            codes[topic.name, partition.partition_index] = partition.error_code
            codes[topic.topic_id, partition.partition_index] = partition.error_code

    def code_of(key: _Key) -> int:
        name, topic_id, index = key
        if key in errors:
            return errors[key]
        return codes[name or topic_id, index]

    return (yield from _build(request, code_of))


def _build(request: OffsetCommitRequest, code_of: Callable[[_Key], int]) -> Slices[OffsetCommitResponse]:
    topics = []
    for number, topic in enumerate(request.topics, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        partitions = yield from in_slices(
            OffsetCommitResponse.OffsetCommitResponsePartition(
                partition_index=partition.partition_index,
                error_code=code_of(_key(topic, partition.partition_index)),
            )
            for partition in topic.partitions
        )
        topics.append(_TopicResult(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetCommitResponse(topics=topics)
