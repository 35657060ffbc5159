"""The share coordinator of a node: shards over ``__share_group_state`` (KIP-932)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from kraftlog.coordinator.share.state_shard import PruneLog, ShareStateConfig, ShareStateShard, StateWritten
from kraftlog.errors import KraftlogError
from kraftlog.runtime.coordinator.record_codec import KeyedRecordCodec
from kraftlog.runtime.coordinator.shard_registry import (
    CommittedMetadata,
    PartitionLookup,
    ShardRegistry,
    TaskGroup,
    TopicCreator,
)
from kraftlog.runtime.coordinator.shard_runner import Compression, CoordinatorMeter, ShardRunner, ShardShell
from kraftlog.types import Uuid
from kraftlog.vocabulary import SHARE_GROUP_STATE_TOPIC

__all__ = ["ShareCoordinatorSettings", "ShareStateMeter", "share_coordinator"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCoordinatorSettings:
    """Settings of the share coordinator.

    Attributes:
        compression: share.coordinator.state.topic.compression.codec.
        write_timeout_ms: share.coordinator.write.timeout.ms.
        states: When snapshots are written.
    """

    compression: Compression = "none"
    write_timeout_ms: int = 5_000
    states: ShareStateConfig = field(default_factory=ShareStateConfig)


class ShareStateMeter(Protocol):
    """Counts writes and deletions."""

    def on_write(self, duration_ms: int | None) -> None:
        """A state was written; None when that was part of a read."""
        ...

    def on_pruned(self, partition: int, offset: int) -> None:
        """The records of a partition below ``offset`` were deleted."""
        ...


def share_coordinator(
    settings: ShareCoordinatorSettings,
    *,
    now_ms: Callable[[], int],
    metadata: CommittedMetadata,
    partitions: PartitionLookup,
    topics: TopicCreator,
    tasks: TaskGroup,
    meter: CoordinatorMeter,
    state_meter: ShareStateMeter,
) -> ShardRegistry[ShareStateShard]:
    """Make the share coordinator; ``start`` begins its work."""

    def has_partition(topic_id: Uuid, index: int) -> bool:
        topic = metadata.image.topics.by_id(topic_id)
        return topic is not None and index in topic.partitions

    def make_shard() -> ShareStateShard:
        return ShareStateShard(
            settings.states,
            has_partition=has_partition,
            has_topic=lambda topic_id: metadata.image.topics.by_id(topic_id) is not None,
        )

    return ShardRegistry(
        SHARE_GROUP_STATE_TOPIC,
        make_shard,
        ShardShell(
            codec=KeyedRecordCodec("share", "the state of share groups"),
            compression=settings.compression,
            now_ms=now_ms,
            on_event=partial(_on_event, state_meter, now_ms),
            write_timeout_ms=settings.write_timeout_ms,
            meter=meter,
        ),
        metadata=metadata,
        partitions=partitions,
        topics=topics,
        tasks=tasks,
    )


def _on_event(
    meter: ShareStateMeter, now_ms: Callable[[], int], runner: ShardRunner[ShareStateShard], event: object
) -> None:
    if isinstance(event, StateWritten):
        meter.on_write(None if event.begun_ms is None else now_ms() - event.begun_ms)
    elif isinstance(event, PruneLog) and runner.partition.is_leader:
        try:
            # A new leader may have loaded records that its high watermark has not passed yet.
            offset = min(event.offset, runner.partition.high_watermark)
            runner.partition.delete_records(offset)
            meter.on_pruned(runner.partition.index, offset)
        except KraftlogError:
            # The records stay until the next snapshots move the offset on.
            logger.warning("cannot delete records of %s below offset %d", runner.partition, event.offset, exc_info=True)
