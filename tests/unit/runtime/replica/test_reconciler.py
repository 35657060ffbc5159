"""Partitions follow the metadata while their logs are opened and removed on threads, here by hand."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kraftlog._kraftlog import Log, LogConfig, encode_batch
from kraftlog.errors import ErrorCode, LogError
from kraftlog.runtime.replica import reconciler
from kraftlog.runtime.replica.step_queue import STEPS_PER_TURN
from kraftlog.storage.checkpoints import LOG_START_OFFSET_CHECKPOINT, read_offset_checkpoint, write_offset_checkpoint
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from replica_bench import FIRST, NODE, SECOND, Bench


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  a thread does it
            await asyncio.sleep(0)


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]:
    def run(test: Callable[[Bench], Coroutine[Any, Any, None]], directories: int = 1) -> None:
        async def main() -> None:
            bench = Bench(tmp_path, directories)
            try:
                await test(bench)
            finally:
                for log_dir in bench.log_dirs:
                    log_dir.release()

        asyncio.run(main())

    return run


def test_partition_is_missing_until_its_log_is_open(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create()
        await bench.turns()
        assert bench.error() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bench.names() == []
        waiting = asyncio.ensure_future(bench.manager.wait_until_open(["t"]))
        await bench.turns()
        assert not waiting.done()
        bench.workers.run(1)
        await bench.turns()
        await waiting
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        assert partition is bench.partitions.get_by_name("t", 0)
        assert partition.is_leader
        assert partition.log.epoch_entries() == [(0, 0)]

    run(test)


def test_thousands_of_partitions_come_and_go_in_small_turns(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create(partitions=1000)
        await bench.settle()
        assert len(bench.partitions) == 1000
        bench.delete()
        assert len(bench.partitions) == 1000, "nothing is done in the turn of the commit"
        await bench.settle()
        assert len(bench.partitions) == 0
        assert all(name.endswith("-delete") for name in bench.names()) or bench.names() == []
        assert 0 < bench.manager.steps.largest_turn <= STEPS_PER_TURN

    run(test)


def test_topic_deleted_while_its_log_is_being_opened(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create()
        await bench.turns()
        bench.delete()
        await bench.turns()
        assert bench.error() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await bench.settle()
        assert len(bench.partitions) == 0
        assert all(name.endswith("-delete") for name in bench.names())

    run(test)


def test_topic_created_again_waits_for_the_name_of_the_one_being_opened(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create(FIRST)
        await bench.turns()
        bench.delete(FIRST)
        bench.create(SECOND)
        await bench.turns()
        assert len(bench.workers.waiting) == 1, "one directory, one log"
        await bench.settle()
        partition = bench.partitions.get_by_name("t", 0)
        assert partition is not None
        assert partition.topic_id == SECOND
        assert partition.log.topic_id == bytes(SECOND)

    run(test)


def test_topic_created_again_waits_until_the_old_directory_is_renamed(run: Any) -> None:
    """STOP-22."""

    async def test(bench: Bench) -> None:
        bench.create(FIRST)
        await bench.settle()
        old = bench.partitions.get_by_name("t", 0)
        assert old is not None
        old.log.append_as_leader(encode_batch([(0, None, b"old", [])]), leader_epoch=0, now_ms=0)
        bench.delete(FIRST)
        bench.create(SECOND)
        await bench.turns()
        assert bench.error() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await bench.settle()
        new = bench.partitions.get_by_name("t", 0)
        assert new is not None
        assert (new.topic_id, new.log.log_end_offset) == (SECOND, 0)
        assert [name for name in bench.names() if not name.endswith("-delete")] == ["t-0"]

    run(test)


def test_both_changes_in_one_commit(run: Any) -> None:
    """RDLT-34."""

    async def test(bench: Bench) -> None:
        bench.create(FIRST)
        await bench.settle()
        bench.commit(
            RemoveTopicRecord(topic_id=FIRST),
            TopicRecord(name="t", topic_id=SECOND),
            PartitionRecord(
                partition_id=0, topic_id=SECOND, replicas=(NODE,), isr=(NODE,), leader=NODE, leader_epoch=0
            ),
        )
        await bench.settle()
        partition = bench.partitions.get_by_name("t", 0)
        assert partition is not None
        assert partition.topic_id == SECOND

    run(test)


def test_settings_and_leader_epoch_that_change_while_the_log_is_being_opened(run: Any) -> None:
    """RDLT-19."""

    async def test(bench: Bench) -> None:
        bench.create()
        await bench.turns()
        bench.commit(ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="3"))
        bench.commit(PartitionChangeRecord(partition_id=0, topic_id=FIRST, leader=NODE))
        await bench.turns()
        await bench.settle()
        partition = bench.partitions.get_by_name("t", 0)
        assert partition is not None
        assert (partition.config.min_insync_replicas, partition.replica.min_insync_replicas) == (3, 3)
        assert partition.leader_epoch == 1
        # The epoch is written on a thread of the loop; appends wait behind it.
        await until(lambda: partition.log.latest_epoch == 1)

    run(test)


def test_partition_that_moves_away_while_its_log_is_being_opened(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create()
        await bench.turns()
        bench.commit(PartitionChangeRecord(partition_id=0, topic_id=FIRST, replicas=(2,), isr=(2,), leader=2))
        await bench.settle()
        assert bench.partitions.get_by_name("t", 0) is None
        assert all(name.endswith("-delete") for name in bench.names())

    run(test)


def test_stop_while_logs_are_being_opened_closes_those_that_were(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create(partitions=2)
        await bench.turns()
        bench.workers.run(1)  # opened, but its step has not run
        assert await bench.manager.stop()
        assert bench.workers.is_shut_down
        assert len(bench.partitions) == 0
        assert bench.names() == ["t-0"]
        again = Log.open(bench.paths[0] / "t-0", config=LogConfig(), now_ms=0, clean_shutdown=True)
        assert again.recovery_events == []

    run(test)


def test_stop_before_the_logs_are_loaded_leaves_the_checkpoints_alone(run: Any) -> None:
    async def test(bench: Bench) -> None:
        checkpoint = bench.paths[0] / LOG_START_OFFSET_CHECKPOINT
        write_offset_checkpoint(checkpoint, {TopicPartition("t", 0): 7})
        bench.log_dirs[0].read_state()
        await bench.manager.stop()
        assert read_offset_checkpoint(checkpoint) == {TopicPartition("t", 0): 7}

    run(test)


def test_checkpoints_of_logs_that_are_still_being_opened_are_kept(run: Any) -> None:
    async def test(bench: Bench) -> None:
        checkpoint = bench.paths[0] / LOG_START_OFFSET_CHECKPOINT
        write_offset_checkpoint(checkpoint, {TopicPartition("t", 0): 7})
        bench.log_dirs[0].read_state()
        bench.log_dirs[0].was_clean_shutdown = True
        await bench.manager.load()
        bench.create()
        await bench.turns()
        await bench.manager.stop()
        assert read_offset_checkpoint(checkpoint) == {TopicPartition("t", 0): 7}

    run(test)


def test_stop_releases_those_who_wait_for_a_log(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create()
        waiting = asyncio.ensure_future(bench.manager.wait_until_open(["t"]))
        await bench.turns()
        await bench.manager.stop()
        await asyncio.wait_for(waiting, 30)

    run(test)


def test_directory_that_fails_while_logs_are_being_opened(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create(partitions=3)
        await bench.turns()
        failed = bench.log_dirs[0]
        bench.manager.fail_log_dir(failed, OSError(errno.EIO, "broken"))
        gone = [index for index in range(3) if bench.error(index) == ErrorCode.KAFKA_STORAGE_ERROR]
        assert gone, "offline at once"
        assert bench.fatal != []
        await bench.settle()
        assert len(bench.partitions) == 0

    run(test)


def test_directory_that_fails_leaves_the_logs_of_the_other(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create(partitions=4)
        await bench.turns()
        bench.manager.fail_log_dir(bench.log_dirs[1], OSError(errno.EIO, "broken"))
        await bench.settle()
        assert sorted(partition.index for partition in bench.partitions) == [0, 2]
        assert {bench.error(index) for index in (1, 3)} == {ErrorCode.KAFKA_STORAGE_ERROR}

    run(test, directories=2)


def test_log_that_cannot_be_opened_takes_its_directory_offline(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create()
        await bench.turns()
        bench.workers.fail(OSError(errno.EIO, "broken"))
        await bench.turns()
        assert bench.error() == ErrorCode.KAFKA_STORAGE_ERROR
        assert not bench.log_dirs[0].is_online

    run(test)


def test_damaged_log_is_offline_and_its_directory_is_not(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create(partitions=2)
        await bench.turns()
        bench.workers.fail(LogError("not a log"))
        await bench.settle()
        assert bench.error() == ErrorCode.KAFKA_STORAGE_ERROR
        assert bench.partitions.get_by_name("t", 1) is not None
        assert bench.log_dirs[0].is_online

    run(test)


def test_log_that_finds_no_descriptor_is_opened_later(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "RETRY_S", 0.001)

    async def test(bench: Bench) -> None:
        bench.create()
        await bench.turns()
        bench.workers.fail(OSError(errno.EMFILE, "Too many open files"))
        await bench.turns()
        assert bench.error() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bench.log_dirs[0].is_online
        await until(lambda: bool(bench.workers.waiting))
        await bench.settle()
        assert bench.partitions.get_by_name("t", 0) is not None

    run(test)


def test_appends_wait_for_the_epoch_before_them(run: Any) -> None:
    async def test(bench: Bench) -> None:
        bench.create()
        await bench.settle()
        partition = bench.partitions.get_by_name("t", 0)
        assert partition is not None
        bench.commit(PartitionChangeRecord(partition_id=0, topic_id=FIRST, leader=NODE))
        await until(lambda: partition.leader_epoch == 1)
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        info = partition.append_as_leader(
            encode_batch([(0, None, b"x", [])]), acks=1, completed=lambda info, error: done.set_result((info, error))
        )
        assert info is None, "queued behind the epoch"
        appended, error = await done
        assert (appended.last_offset, error) == (0, None)
        assert partition.log.epoch_entries() == [(1, 0)]

    run(test)


def test_the_partition_that_a_client_waits_for_is_opened_alone_and_the_others_follow(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_HEAD_START_S", 0)

    async def test(bench: Bench) -> None:
        bench.manager.open_first("t", {7, 90})
        bench.create(partitions=50)
        bench.manager.open_first("t", ())
        await bench.turns()
        assert len(bench.workers.waiting) == 1
        waiting = asyncio.ensure_future(bench.manager.wait_until_open(["t"], {7}))
        everything = asyncio.ensure_future(bench.manager.wait_until_open(["t"]))
        bench.workers.run(1)
        await bench.turns()
        await waiting
        assert bench.partitions.get(FIRST, 7) is not None
        assert not everything.done()
        await until(lambda: len(bench.workers.waiting) > 1)
        await bench.settle()
        await everything
        assert len(bench.partitions) == 50

    run(test)
