"""OffsetFetch, API key 9, versions 1-10.

2   null topics: all of the group's; an error of the whole answer
5   leader epochs (KIP-320)
7   require_stable (KIP-447): UNSTABLE_OFFSET_COMMIT for an offset that an open transaction may change
8   several groups (KIP-709)
9   member id and epoch of consumer groups (KIP-848)
10  topic ids instead of names (KIP-848)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, in_slices, sliced
from kraftlog.coordinator.offsets import CommittedOffset
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService

__all__ = ["handle"]

GROUP_ERROR_VERSION = 2
GROUPS_VERSION = 8
TOPIC_ID_VERSION = 10
NO_OFFSET = -1
_NONE = CommittedOffset(offset=NO_OFFSET)

_Offsets = Mapping[tuple[str, int], CommittedOffset | None]
"""Offsets by topic and partition; None for one that an open transaction may change."""
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_Topic = OffsetFetchResponse.OffsetFetchResponseTopics
_Partition = OffsetFetchResponse.OffsetFetchResponsePartitions


@sliced
def handle(
    context: RequestContext, request: OffsetFetchRequest, *, cluster: ClusterService, groups: GroupService
) -> Slices[OffsetFetchResponse]:
    """Tell a group's positions; a partition without one has offset -1."""
    if context.api_version >= GROUPS_VERSION:
        fetched: list[_Group] = []
        for number, asked in enumerate(request.groups, 1):
            fetched.append((yield from _fetch(cluster, groups, context, asked, require_stable=request.require_stable)))
            if not number % ENTRIES_PER_SLICE:
                yield None
        return OffsetFetchResponse(groups=fetched)
    # Versions before 8 name topics by the same fields.
    topics: Any = request.topics
    group = yield from _fetch(
        cluster,
        groups,
        context,
        OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics),
        require_stable=request.require_stable,
    )
    code, found = group.error_code, list(group.topics)
    del group
    return (yield from _ungrouped(context, code, found, topics or ()))


def _fetch(
    cluster: ClusterService,
    groups: GroupService,
    context: RequestContext,
    asked: OffsetFetchRequest.OffsetFetchRequestGroup,
    *,
    require_stable: bool,
) -> Slices[_Group]:
    try:
        shard = groups.runner(asked.group_id).shard
        code = shard.fetch_error(asked.group_id, asked.member_id, asked.member_epoch)
        if code:
            raise KafkaError(code)
    except KafkaError as error:
        return _Group(group_id=asked.group_id, error_code=error.code)
    offsets: _Offsets = shard.committed(asked.group_id)
    unstable = shard.pending(asked.group_id) if require_stable else frozenset()
    if asked.topics is None:
        # A partition whose only offset is pending has none yet.
        offsets = {key: None if key in unstable else offset for key, offset in offsets.items()}
        return _Group(group_id=asked.group_id, topics=(yield from _all(cluster, context, offsets)))
    if unstable:
        offsets = {**offsets, **dict.fromkeys(unstable, None)}
    topics: list[_Topic] = []
    for number, topic in enumerate(asked.topics, 1):
        topics.append((yield from _one(cluster, context, topic, offsets)))
        if not number % ENTRIES_PER_SLICE:
            yield None
    return _Group(group_id=asked.group_id, topics=topics)


def _all(cluster: ClusterService, context: RequestContext, offsets: _Offsets) -> Slices[list[_Topic]]:
    by_topic: dict[str, list[int]] = {}
    for name, index in sorted(offsets):
        by_topic.setdefault(name, []).append(index)
    topics = []
    for name, indexes in by_topic.items():
        topic_id = Uuid.ZERO
        if context.api_version >= TOPIC_ID_VERSION:
            image = cluster.image.topics.by_name(name)
            if image is None:
                continue
            topic_id = image.topic_id
        topics.append((yield from _topic(name, topic_id, indexes, offsets)))
    return topics


def _one(
    cluster: ClusterService,
    context: RequestContext,
    asked: OffsetFetchRequest.OffsetFetchRequestTopics,
    offsets: _Offsets,
) -> Slices[_Topic]:
    if context.api_version < TOPIC_ID_VERSION:
        return (yield from _topic(asked.name, Uuid.ZERO, asked.partition_indexes, offsets))
    image = cluster.image.topics.by_id(asked.topic_id)
    if image is not None:
        return (yield from _topic(image.name, asked.topic_id, asked.partition_indexes, offsets))
    unknown = yield from in_slices(_absent(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in asked.partition_indexes)
    return _Topic(topic_id=asked.topic_id, partitions=unknown)


def _topic(name: str, topic_id: Uuid, indexes: Iterable[int], offsets: _Offsets) -> Slices[_Topic]:
    partitions = yield from in_slices(
        _partition(topic_id, index, offsets.get((name, index), _NONE)) for index in indexes
    )
    return _Topic(name=name, topic_id=topic_id, partitions=partitions)


def _partition(topic_id: Uuid, index: int, committed: CommittedOffset | None) -> _Partition:
    if committed is None:
        return _absent(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if committed is _NONE or _is_of_another_topic(committed, topic_id):
        return _absent(index, ErrorCode.NONE)
    return _Partition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _is_of_another_topic(committed: CommittedOffset, topic_id: Uuid) -> bool:
    """Whether the offset was committed for a topic of the same name that is gone."""
    return Uuid.ZERO not in {topic_id, committed.topic_id} and committed.topic_id != topic_id


def _absent(index: int, error_code: int) -> _Partition:
    return _Partition(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error_code)


def _ungrouped(
    context: RequestContext, error_code: int, found: list[Any], asked: Sequence[Any]
) -> Slices[OffsetFetchResponse]:
    """The form before version 8; version 1 has the group's error in each partition.

    Args:
        context: Of the request.
        error_code: Of the group.
        found: The topics of the later form, which are dropped one by one: to free all at once takes too long.
        asked: The topics of the request.
    """
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = []
    if error_code and context.api_version < GROUP_ERROR_VERSION:
        for number, wanted in enumerate(asked, 1):
            if not number % ENTRIES_PER_SLICE:
                yield None
            failed = yield from in_slices(
                _ungrouped_partition(_absent(index, error_code)) for index in wanted.partition_indexes
            )
            topics.append(OffsetFetchResponse.OffsetFetchResponseTopic(name=wanted.name, partitions=failed))
    else:
        for number, topic in enumerate(found, 1):
            if not number % ENTRIES_PER_SLICE:
                found[number - ENTRIES_PER_SLICE : number] = [None] * ENTRIES_PER_SLICE
                yield None
            partitions = yield from in_slices(map(_ungrouped_partition, topic.partitions))
            topics.append(OffsetFetchResponse.OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(error_code=error_code, topics=topics)


def _ungrouped_partition(partition: _Partition) -> OffsetFetchResponse.OffsetFetchResponsePartition:
    return OffsetFetchResponse.OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )
