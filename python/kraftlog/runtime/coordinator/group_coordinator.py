"""The group coordinator of a node: group shards over ``__consumer_offsets``."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kraftlog import host
from kraftlog.coordinator.group.config import GroupConfig
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.coordinator.group.group_shard import GroupShard
from kraftlog.runtime.coordinator.group_topics import GroupTopics
from kraftlog.runtime.coordinator.record_codec import GroupRecordCodec
from kraftlog.runtime.coordinator.shard_registry import (
    CommittedMetadata,
    PartitionLookup,
    ShardRegistry,
    TaskGroup,
    TopicCreator,
)
from kraftlog.runtime.coordinator.shard_runner import Compression, CoordinatorMeter, ShardRunner, ShardShell
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC, ConfigResourceType

__all__ = ["GroupCoordinatorSettings", "group_coordinator"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorSettings:
    """Settings of the group coordinator.

    Attributes:
        compression: offsets.topic.compression.codec.
        write_timeout_ms: offsets.commit.timeout.ms.
        groups: Limits and times of groups.
    """

    compression: Compression = "none"
    write_timeout_ms: int = 5_000
    groups: GroupConfig = field(default_factory=GroupConfig)


def group_coordinator(
    settings: GroupCoordinatorSettings,
    *,
    now_ms: Callable[[], int],
    metadata: CommittedMetadata,
    partitions: PartitionLookup,
    topics: TopicCreator,
    tasks: TaskGroup,
    on_event: Callable[[ShardRunner[GroupShard], object], None],
    events: GroupEvents,
    meter: CoordinatorMeter,
) -> ShardRegistry[GroupShard]:
    """Make the group coordinator; ``start`` begins its work."""
    group_topics = GroupTopics(metadata)

    def make_shard() -> GroupShard:
        return GroupShard(
            settings.groups,
            rng=random.Random(host.random_bits(64)),
            topics=group_topics,
            group_settings=lambda group_id: metadata.image.configs.get(ConfigResourceType.GROUP, group_id),
            events=events,
        )

    return ShardRegistry(
        CONSUMER_OFFSETS_TOPIC,
        make_shard,
        ShardShell(
            codec=GroupRecordCodec(),
            compression=settings.compression,
            now_ms=now_ms,
            on_event=on_event,
            write_timeout_ms=settings.write_timeout_ms,
            meter=meter,
        ),
        metadata=metadata,
        partitions=partitions,
        topics=topics,
        tasks=tasks,
    )
