"""The share coordinator of a node: shards over ``__share_group_state`` (KIP-932)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kraftlog._kraftlog import read_batches
from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.share.state_shard import ShareStateConfig, ShareStateShard
from kraftlog.runtime.coordinator.record_codec import RecordReader, Replayed, encode_records
from kraftlog.runtime.coordinator.shard_registry import (
    CommittedMetadata,
    PartitionLookup,
    ShardRegistry,
    TaskGroup,
    TopicCreator,
)
from kraftlog.runtime.coordinator.shard_runner import Compression, ShardShell
from kraftlog.types import Uuid
from kraftlog.vocabulary import SHARE_GROUP_STATE_TOPIC
from kraftlog.wire.records import decode_coordinator_key, decode_coordinator_value

__all__ = ["ShareCoordinatorSettings", "ShareRecordCodec", "share_coordinator"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCoordinatorSettings:
    """Settings of the share coordinator.

    Attributes:
        compression: share.coordinator.state.topic.compression.codec.
        states: When snapshots are written.
    """

    compression: Compression = "none"
    states: ShareStateConfig = field(default_factory=ShareStateConfig)


class ShareRecordCodec:
    """Records of ``__share_group_state``."""

    @staticmethod
    def encode(records: Iterable[CoordinatorRecord]) -> list[tuple[bytes, bytes | None]]:
        """Key and value of each as they go into a batch."""
        return encode_records(records)

    @staticmethod
    def reader() -> RecordReader:
        """A new reader for one partition."""
        return ShareRecordReader()


class ShareRecordReader:
    """Decodes batches in order; a kind of key that is unknown is passed over with a warning."""

    @staticmethod
    def read(data: bytes) -> tuple[list[Replayed], int | None]:
        """Decode whole batches: records, and the offset after the last batch if there was one."""
        replayed: list[Replayed] = []
        next_offset: int | None = None
        for batch in read_batches(data):
            next_offset = batch.last_offset + 1
            if batch.is_control:
                continue
            for offset, _, key, value, _ in batch.records():
                kind, decoded_key = decode_coordinator_key("share", key) if key is not None else (-1, None)
                if decoded_key is None:
                    logger.warning("offset %d of the state of share groups has an unknown kind of record", offset)
                elif value is None:
                    replayed.append(CoordinatorRecord(decoded_key, None))
                else:
                    version, decoded_value = decode_coordinator_value("share", kind, value)
                    replayed.append(CoordinatorRecord(decoded_key, decoded_value, version))
        return replayed, next_offset


def share_coordinator(
    settings: ShareCoordinatorSettings,
    *,
    now_ms: Callable[[], int],
    metadata: CommittedMetadata,
    partitions: PartitionLookup,
    topics: TopicCreator,
    tasks: TaskGroup,
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
        ShardShell(codec=ShareRecordCodec(), compression=settings.compression, now_ms=now_ms),
        metadata=metadata,
        partitions=partitions,
        topics=topics,
        tasks=tasks,
    )
