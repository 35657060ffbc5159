"""The shards of a coordinator: the creation of its topic, and who waits for what."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.coordinator.share.state_shard import ShareStateConfig, ShareStateShard
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.partitioner import coordinator_partition
from kraftlog.runtime.coordinator.record_codec import KeyedRecordCodec
from kraftlog.runtime.coordinator.shard_registry import ShardRegistry
from kraftlog.runtime.coordinator.shard_runner import ShardRunner, ShardShell
from kraftlog.runtime.tasks import NodeTasks
from waiting import settle

TOPIC = "__share_group_state"
COUNT = 4


class Topics:
    """Creates and opens when a test says so."""

    def __init__(self) -> None:
        self.exists = False
        self.asked: list[list[str]] = []
        self.created: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.opened: dict[int, asyncio.Future[None]] = {}
        self.open_partitions: dict[int, Any] = {}

    def by_name(self, name: str) -> Any:
        assert name == TOPIC
        return SimpleNamespace(topic_id=1, partitions=dict.fromkeys(range(COUNT))) if self.exists else None

    async def create_for(self, name: str, keys: Any) -> int:
        assert name == TOPIC
        self.asked.append(list(keys))
        return await self.created

    async def wait_until_open(self, _names: Any, indexes: Any = None) -> None:
        for index in range(COUNT) if indexes is None else indexes:
            if index not in self.open_partitions:
                await asyncio.shield(self.opened.setdefault(index, asyncio.get_running_loop().create_future()))

    def get_by_name(self, _name: str, index: int) -> Any:
        return self.open_partitions.get(index)


def _registry(topics: Topics, tasks: NodeTasks) -> ShardRegistry[ShareStateShard]:
    image: Any = SimpleNamespace(topics=topics)
    return ShardRegistry(
        TOPIC,
        lambda: ShareStateShard(ShareStateConfig(), has_partition=lambda *_: True, has_topic=lambda _: True),
        ShardShell(codec=KeyedRecordCodec("share", "states"), compression="none", now_ms=lambda: 0),
        metadata=SimpleNamespace(image=image),  # type: ignore[arg-type]
        partitions=topics,
        topics=topics,
        tasks=tasks,
    )


def _open(registry: ShardRegistry[ShareStateShard], topics: Topics, index: int) -> None:
    """A partition was opened: its listeners hear of it, and then those who wait for it."""
    log = SimpleNamespace(log_start_offset=0, log_end_offset=0)
    topics.open_partitions[index] = SimpleNamespace(is_leader=True, leader_epoch=0, log=log)
    registry.follow_partition(registry._metadata.image, index)
    waiting = topics.opened.pop(index, None)
    if waiting is not None:
        waiting.set_result(None)


def test_whoever_needs_a_shard_waits_for_that_shard_alone() -> None:
    """Before, the first client of a group waited until all partitions of the topic were open."""

    async def story() -> None:
        topics, tasks = Topics(), NodeTasks()
        registry = _registry(topics, tasks)
        keys = {coordinator_partition(key, COUNT): key for key in "abcdefgh"}
        index, other = list(keys)[:2]
        first = tasks.spawn(registry.ensure_topic([keys[index]]))
        second = tasks.spawn(registry.ensure_topic([keys[other]]))
        everything = tasks.spawn(registry.ensure_topic())
        await settle()
        assert topics.asked == [[keys[index]]]
        topics.exists = True
        topics.created.set_result(0)
        await settle()
        assert not registry.is_ready
        assert not first.done()
        _open(registry, topics, index)
        await settle()
        assert first.done()
        assert registry.runner(keys[index]).is_loaded
        assert not second.done()
        late = tasks.spawn(registry.ensure_topic([keys[other]]))
        await settle()
        assert not late.done(), "the topic exists, and the partition is still to be opened"
        _open(registry, topics, other)
        await settle()
        assert second.done()
        assert late.done()
        assert not everything.done()
        for left in set(range(COUNT)) - {index, other}:
            _open(registry, topics, left)
        await settle()
        assert everything.done()
        assert registry.is_ready
        assert topics.asked == [[keys[index]]]
        await tasks.cancel_all()

    asyncio.run(story())


def test_a_request_with_several_keys_waits_for_all_their_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, it failed with KeyError if a second shard was loaded while it waited for the first."""

    async def story() -> None:
        topics, tasks, may_load = Topics(), NodeTasks(), asyncio.Event()
        registry = _registry(topics, tasks)
        load = ShardRunner.load

        async def load_late(runner: ShardRunner[Any]) -> None:
            await may_load.wait()
            await load(runner)

        monkeypatch.setattr(ShardRunner, "load", load_late)
        keys = list({coordinator_partition(key, COUNT): key for key in "abcdefgh"}.items())[:3]
        asked = tasks.spawn(registry.ensure_topic([key for _, key in keys]))
        await settle()
        topics.exists = True
        topics.created.set_result(0)
        for index, _ in keys:
            _open(registry, topics, index)
        await settle()
        assert not asked.done()
        may_load.set()
        await asked
        assert all(registry.runner(key).is_loaded for _, key in keys)
        await tasks.cancel_all()

    asyncio.run(story())


def test_a_topic_that_cannot_be_created_is_tried_again_by_the_next_request() -> None:
    async def story() -> None:
        topics, tasks = Topics(), NodeTasks()
        registry = _registry(topics, tasks)
        topics.created.set_result(int(ErrorCode.POLICY_VIOLATION))
        for _ in range(2):
            with pytest.raises(KafkaError) as refused:
                await registry.ensure_topic(["a"])
            assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert topics.asked == [["a"], ["a"]]

    asyncio.run(story())
