"""OffsetCommit, API key 8, versions 2-10.

5   the retention time is no longer the client's (KIP-211)
6   leader epochs (KIP-320)
7   static members (KIP-345)
9   member epochs of consumer groups (KIP-848)
10  topic ids instead of names (KIP-848)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kraftlog._kraftlog import PlainOffsetCommit
from kraftlog.api.combined_answer import transform
from kraftlog.api.slices import (
    ENTRIES_PER_SLICE,
    LARGE_ENTRIES,
    PARTITIONS_PER_APPEND,
    Pauses,
    Slices,
    at_once,
    in_slices,
    sliced,
)
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.transport.exchange import PendingResponse
from kraftlog.types import Uuid
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService
    from kraftlog.controller.topic_image import TopicImage
    from kraftlog.coordinator.group.group_shard import GroupShard
    from kraftlog.reply import Reply
    from kraftlog.transport.frame_reader import Frame
    from kraftlog.transport.socket import Output

__all__ = ["handle", "handle_frame"]

TOPIC_ID_VERSION = 10
# A larger request is decoded in slices: 256 partitions may have 8 MiB of metadata.
PLAIN_BYTES_MAX = 64 * 1024

_Topic = OffsetCommitRequest.OffsetCommitRequestTopic
_Partition = OffsetCommitRequest.OffsetCommitRequestPartition
_TopicResult = OffsetCommitResponse.OffsetCommitResponseTopic
_Kept = dict[tuple[Uuid, int], tuple["TopicImage", _Partition]]
_Codes = dict[tuple[str | Uuid, int], int]
"""Error codes by what the request calls a topic, and partition."""


@sliced
def handle(
    context: RequestContext, request: OffsetCommitRequest, *, cluster: ClusterService, groups: GroupService
) -> Slices[OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]]:
    """Store a group's positions; answered once they are committed.

    A request with many partitions is stored in several appends.
    """
    codes: _Codes = {}
    pauses = Pauses()
    kept = yield from _resolve(cluster, context, request, codes, pauses)
    if not kept:
        return (yield from _build(context, request, codes, ErrorCode.NONE))
    try:
        runner = groups.runner(request.group_id)
    except KafkaError as error:
        return (yield from _build(context, request, codes, error.code))

    def ask(part: list[tuple[TopicImage, _Partition]]) -> asyncio.Future[OffsetCommitResponse]:
        resolved = replace(request, topics=_topics(part))
        return runner.ask(
            lambda shard, future, now_ms: shard.commit_offsets(
                future, resolved, now_ms, api_version=context.api_version
            )
        )

    if pauses.total <= LARGE_ENTRIES:
        return transform(
            ask(list(kept.values())),
            lambda answer: at_once(_build(context, request, codes | _codes_of(answer), ErrorCode.NONE)),
            lambda error: at_once(_build(context, request, codes, error.code)),
        )
    rest = iter(kept.values())
    try:
        while part := list(islice(rest, PARTITIONS_PER_APPEND)):
            asked = ask(part)
            yield asked
            codes.update(_codes_of(asked.result()))
    except KafkaError as error:
        return (yield from _build(context, request, codes, error.code))
    return (yield from _build(context, request, codes, ErrorCode.NONE))


def handle_frame(
    api_version: int, frame: Frame, *, cluster: ClusterService, groups: GroupService
) -> PendingResponse | None:
    """Store the positions of a plain request, which stays bytes: no object per field or partition is made of it.

    Returns:
        None for ``handle`` to answer: an older version, a large request, something named twice or unknown, metadata
        that are too large, or a group of another node.
    """
    if len(frame) > PLAIN_BYTES_MAX:
        return None
    commit = PlainOffsetCommit.parse(frame, partitions_max=LARGE_ENTRIES)
    if commit is None:
        return None
    images = cluster.image.topics
    topics: list[tuple[str, Uuid]] = []
    named = commit.topics
    for asked, indexes in named:
        image = images.by_name(asked) if isinstance(asked, str) else images.by_id(Uuid(asked))
        if image is None:
            return None
        partitions = image.partitions
        for index in indexes:
            if index not in partitions:
                return None
        topics.append((image.name, image.topic_id))
    if not topics:
        return None
    try:
        runner = groups.runner(commit.group_id)
    except KafkaError:
        return None
    if not runner.shard.takes_metadata(commit.metadata_units_max):
        return None

    def request(shard: GroupShard, reply: Reply, now_ms: int) -> None:
        each = ((topic[1], index) for topic, (_, indexes) in zip(topics, named, strict=True) for index in indexes)
        shard.commit_encoded_offsets(reply, commit, topics, now_ms, partitions=each, api_version=api_version)

    return PendingResponse(runner.post(request), partial(_encode, commit))


def _encode(commit: PlainOffsetCommit, reply: Reply) -> list[Output]:
    error = reply.exception()
    if error is None:
        return [commit.answer(reply.result())]
    return [commit.answer(error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)]


def _resolve(
    cluster: ClusterService, context: RequestContext, request: OffsetCommitRequest, codes: _Codes, pauses: Pauses
) -> Slices[_Kept]:
    """The partitions that exist, once each, with what was said of it last; the others get their code."""
    topics = cluster.image.topics
    by_id = context.api_version >= TOPIC_ID_VERSION
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    kept: _Kept = {}
    for topic in request.topics:
        if pauses.is_due():
            yield None
        image = topics.by_id(topic.topic_id) if by_id else topics.by_name(topic.name)
        asked = topic.topic_id if by_id else topic.name
        for partition in topic.partitions:
            if pauses.is_due():
                yield None
            index = partition.partition_index
            if image is None:
                codes[asked, index] = unknown
            elif index not in image.partitions:
                codes[asked, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                kept[image.topic_id, index] = (image, partition)
    return kept


def _topics(part: Iterable[tuple[TopicImage, _Partition]]) -> list[_Topic]:
    """The topics of a request to the shard, which have both name and id."""
    by_id: dict[Uuid, tuple[TopicImage, list[_Partition]]] = {}
    for image, partition in part:
        by_id.setdefault(image.topic_id, (image, []))[1].append(partition)
    return [_Topic(name=image.name, topic_id=topic_id, partitions=found) for topic_id, (image, found) in by_id.items()]


def _codes_of(answer: OffsetCommitResponse) -> _Codes:
    codes: _Codes = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            codes[topic.name, partition.partition_index] = partition.error_code
            codes[topic.topic_id, partition.partition_index] = partition.error_code
    return codes


def _build(
    context: RequestContext, request: OffsetCommitRequest, codes: _Codes, code: int
) -> Slices[OffsetCommitResponse]:
    """The code of each partition; ``code`` for those that have none."""
    topics = []
    for number, topic in enumerate(request.topics, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        asked = topic.topic_id if context.api_version >= TOPIC_ID_VERSION else topic.name
        partitions = yield from in_slices(
            OffsetCommitResponse.OffsetCommitResponsePartition(
                partition_index=partition.partition_index,
                error_code=codes.get((asked, partition.partition_index), code),
            )
            for partition in topic.partitions
        )
        topics.append(_TopicResult(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetCommitResponse(topics=topics)
