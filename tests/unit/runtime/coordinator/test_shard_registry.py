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
        self.count = COUNT
        self.topic_id = 1
        self.asked: list[list[str]] = []
        self.created: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.opened: dict[int, asyncio.Future[None]] = {}
        self.open_partitions: dict[int, Any] = {}

    def by_name(self, name: str) -> Any:
        assert name == TOPIC
        return (
            SimpleNamespace(topic_id=self.topic_id, partitions=dict.fromkeys(range(self.count)))
            if self.exists
            else None
        )

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


def _registry(topics: Topics, tasks: NodeTasks, *, has_fixed_count: bool = False) -> ShardRegistry[ShareStateShard]:
    image: Any = SimpleNamespace(topics=topics)
    return ShardRegistry(
        TOPIC,
        lambda: ShareStateShard(ShareStateConfig(), has_partition=lambda *_: True, has_topic=lambda _: True),
        ShardShell(codec=KeyedRecordCodec("share", "states"), compression="none", now_ms=lambda: 0),
        metadata=SimpleNamespace(image=image),  # type: ignore[arg-type]
        partitions=topics,
        topics=topics,
        tasks=tasks,
        has_fixed_count=has_fixed_count,
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


@pytest.mark.spec("CERR-17")
def test_what_a_request_hears_of_a_coordinator_that_is_not_there() -> None:
    async def story() -> None:
        topics, tasks = Topics(), NodeTasks()
        registry = _registry(topics, tasks)

        def heard() -> int:
            with pytest.raises(KafkaError) as refused:
                registry.runner("a")
            return refused.value.code

        assert heard() == ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is no topic"
        topics.exists = True
        assert heard() == ErrorCode.NOT_COORDINATOR, "another broker leads the partition"
        index = coordinator_partition("a", COUNT)
        _open(registry, topics, index)
        assert heard() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await settle()
        assert registry.runner("a").is_loaded
        topics.open_partitions[index].is_leader = False
        assert heard() == ErrorCode.NOT_COORDINATOR
        await tasks.cancel_all()

    asyncio.run(story())


@pytest.mark.spec("TXNC-06")
def test_coordinator_of_transactions_loads_nothing_once_its_topic_has_grown(caplog: pytest.LogCaptureFixture) -> None:
    """Keys would hash to other partitions: those that are loaded keep their keys. Fails before the fix."""

    async def story() -> None:
        topics, tasks = Topics(), NodeTasks()
        registry = _registry(topics, tasks, has_fixed_count=True)
        topics.exists = True
        assert registry.partition_count() == COUNT
        keys = [f"key {number}" for number in range(64)]
        before = {key: coordinator_partition(key, COUNT) for key in keys}
        for index in range(COUNT - 1):
            _open(registry, topics, index)
        await settle()
        topics.count = COUNT + 3
        with caplog.at_level("ERROR"):
            for index in range(COUNT - 1, COUNT + 3):
                _open(registry, topics, index)
            await settle()
        assert caplog.text.count(f"the topic has {COUNT + 3} partitions instead of {COUNT}") == 4
        assert registry.partition_count() == COUNT
        for key, index in before.items():
            if index < COUNT - 1:
                assert registry.runner(key) is registry.runner_of(index)
            else:
                with pytest.raises(KafkaError) as refused:
                    registry.runner(key)
                assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        topics.topic_id = 2
        assert registry.partition_count() == COUNT + 3, "a topic that was created again"
        await tasks.cancel_all()

    asyncio.run(story())
