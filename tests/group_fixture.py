"""A group shard with topics, a clock and a log that a test drives by hand."""

from __future__ import annotations

import random
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kraftlog._kraftlog import TopicPattern, xxh3_64
from kraftlog.coordinator.effects import AppendRecords, CoordinatorRecord, Respond
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.coordinator.group.group_shard import GroupShard
from kraftlog.coordinator.group.topics import TopicMetadata
from kraftlog.types import Uuid
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest

__all__ = ["ConsumerShard", "FakeTopics", "Parts", "make_group_shard", "topic_id", "two_members"]


def topic_id(name: str) -> Uuid:
    """An id that depends on the name alone."""
    return Uuid(name.encode().ljust(16, b"\1"))


class FakeTopics:
    """Topics by name with their partition counts; ``set`` adds one or makes it grow."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts = dict(counts or {})
        self.version = 1
        self.created_version = 1

    def set(self, name: str, partition_count: int) -> None:
        self.version += 1
        if name not in self.counts:
            self.created_version = self.version
        self.counts[name] = partition_count

    def delete(self, name: str) -> None:
        self.version += 1
        del self.counts[name]

    def by_name(self, name: str) -> TopicMetadata | None:
        count = self.counts.get(name)
        return None if count is None else TopicMetadata(name, topic_id(name), count)

    def by_id(self, wanted: Uuid) -> TopicMetadata | None:
        return next((self.by_name(name) for name in self.counts if topic_id(name) == wanted), None)

    def names(self) -> Iterable[str]:
        return self.counts

    def group_hash(self, names: Collection[str]) -> int:
        known = sorted(name for name in names if name in self.counts)
        return xxh3_64(b"".join(name.encode() + struct.pack("<i", self.counts[name]) for name in known)) if known else 0

    @staticmethod
    def compile(pattern: str) -> TopicPattern:
        return TopicPattern(pattern)


def make_group_shard(
    config: GroupConfig | None = None,
    *,
    topics: FakeTopics | None = None,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    seed: int = 7,
    events: GroupEvents | None = None,
) -> GroupShard:
    """A shard, empty and not yet loaded."""
    return GroupShard(
        config or GroupConfig(),
        rng=random.Random(seed),
        topics=topics or FakeTopics(),
        group_settings=lambda group_id: (settings or {}).get(group_id, {}),
        events=events or GroupEvents(),
    )


Parts = dict[str, list[int]]
_Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


def _names(partitions: Any, topics: FakeTopics) -> Parts:
    names = {topic_id(name): name for name in topics.counts}
    return {names[p.topic_id]: sorted(p.partitions) for p in partitions}


class ConsumerShard:
    """A shard, a clock, and everything it answered or wrote."""

    def __init__(
        self, topics: dict[str, int] | None = None, *, events: GroupEvents | None = None, **config: Any
    ) -> None:
        self.topics = FakeTopics({"t": 7} if topics is None else topics)
        self.settings: dict[str, dict[str, str]] = {}
        self.config = GroupConfig(**config)
        self.shard = make_group_shard(self.config, topics=self.topics, settings=self.settings, events=events)
        self.shard.finish_loading(0)
        self.now_ms = 0
        self.answers: list[Any] = []
        self.log: list[CoordinatorRecord] = []
        self.append_error = 0
        self.held: list[AppendRecords] | None = None

    def run(self) -> None:
        while effects := self.shard.take_effects():
            for effect in effects:
                if isinstance(effect, Respond):
                    self.answers.append(effect.response)
                elif self.held is not None:
                    self.held.append(effect)
                else:
                    self.finish(effect, self.append_error)

    def finish(self, append: AppendRecords, error_code: int = 0) -> None:
        if not error_code:
            self.log.extend(append.records)
        self.shard.on_appended(append.append_id, error_code)

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.shard.handle_timeout(self.now_ms)
        self.run()

    def beat(self, member_id: str, epoch: int, owned: Parts | None = None, *, version: int = 1, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None
            if owned is None
            else [_Owned(topic_id=topic_id(name), partitions=parts) for name, parts in owned.items()],
            **fields,
        )
        client = ClientInfo("client", "/127.0.0.1", version)
        self.shard.consumer_group_heartbeat("token", request, client, self.now_ms)
        self.run()
        return self.answers[-1] if self.held is None else None

    def join(self, member_id: str, *topics: str, **fields: Any) -> Any:
        defaults: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": topics or ("t",)}
        return self.beat(member_id, 0, {}, **(defaults | fields))

    def got(self, answer: Any) -> tuple[int, Parts | None]:
        assert answer.error_code == 0, answer
        parts = answer.assignment
        return answer.member_epoch, None if parts is None else _names(parts.topic_partitions, self.topics)

    def described(self) -> Any:
        self.shard.describe_consumer_group("token", "g")
        self.run()
        return self.answers[-1]

    def targets(self) -> dict[str, Parts]:
        return {
            member.member_id: {p.topic_name: list(p.partitions) for p in member.target_assignment.topic_partitions}
            for member in self.described().members
        }

    def commit(self, member_id: str, epoch: int, *partitions: int, version: int = 9, topic: str = "t") -> list[int]:
        parts = [
            OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=p, committed_offset=1) for p in partitions
        ]
        request = OffsetCommitRequest(
            group_id="g",
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, topic_id=topic_id(topic), partitions=parts)
            ],
        )
        self.shard.commit_offsets("token", request, self.now_ms, api_version=version)
        self.run()
        return [p.error_code for p in self.answers[-1].topics[0].partitions]


def two_members(events: GroupEvents | None = None) -> ConsumerShard:
    """A on all of t (7), then B, who waits for 4 to 6."""
    s = ConsumerShard(events=events)
    s.join("A")
    s.advance(2_000)
    assert s.got(s.join("B")) == (3, {})
    return s
