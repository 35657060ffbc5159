"""How replicas leave this node, by the metadata and by a controller's request: real logs, threads run by hand."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode, LogError
from kraftlog.partition.stop_replica import ReplicaStop
from kraftlog.runtime.replica.fetch_reader import FetchLimits, read_all
from kraftlog.runtime.replica.fetch_session import SessionPartition
from kraftlog.runtime.replica.long_poll import FetchWait
from kraftlog.storage.checkpoints import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
)
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.metadata_records import ConfigRecord, RegisterBrokerRecord
from replica_bench import FIRST, NODE, SECOND, Bench, change
from waiting import until

OTHER = 2
TOPIC = 2
RECORDS = encode_batch([(0, None, b"x", [])])


def stop(index: int = 0, *, epoch: int = -1, deleted: bool = False) -> ReplicaStop:
    return ReplicaStop(TopicPartition("t", index), epoch, deleted)


def register_other(bench: Bench) -> None:
    """A broker that does not answer."""
    end_point = RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0)
    bench.commit(
        RegisterBrokerRecord(
            broker_id=OTHER, incarnation_id=Uuid(b"o" * 16), broker_epoch=2, fenced=False, end_points=[end_point]
        )
    )


def fetch_wait(bench: Bench, topic_id: Uuid = FIRST) -> asyncio.Future[Any]:
    """A consumer's long poll at the end of the log; its future ends with the error codes."""
    limits = FetchLimits(isolation_level=0, max_bytes=99, max_wait_ms=60_000, min_bytes=1, uses_topic_ids=True)
    wanted = [SessionPartition("", topic_id, 0, 99, 0, -1, -1, -1)]
    reads = list(read_all(bench.partitions, wanted, limits))
    assert [read.error_code for read in reads] == [0]
    return FetchWait(bench.partitions, wanted, limits, reads, lambda reads: [read.error_code for read in reads]).future


@pytest.mark.parametrize("is_deleted", [False, True])
def test_fetches_end_before_the_replica_leaves_the_table(run: Any, is_deleted: bool) -> None:
    """STOP-16: fetcher, table, log, in this order; without the flag the log stays where it is."""

    async def test(bench: Bench) -> None:
        register_other(bench)
        bench.create(replicas=(NODE, OTHER), leader=OTHER)
        await bench.settle()
        partition = bench.partitions.get_by_name("t", 0)
        assert partition is not None
        assert bench.manager.fetchers.loops[0].fetcher.leader_epoch((FIRST, 0)) == 0
        seen = []
        leave = bench.partitions.remove

        def remove(removed: Any) -> None:
            seen.append([loop for loop in bench.manager.fetchers.loops if (FIRST, 0) in loop.fetcher])
            assert bench.partitions.get(FIRST, 0) is removed
            leave(removed)

        bench.partitions.remove = remove  # type: ignore[method-assign]
        ended = bench.manager.stop_replica(stop(epoch=0, deleted=is_deleted))
        assert seen == [[]]
        assert bench.partitions.get(FIRST, 0) is None
        assert bench.names() == ["t-0"], "its log is next"
        await bench.settle()
        assert await ended == ErrorCode.NONE
        assert (bench.names() == ["t-0"]) is not is_deleted

    run(test)


def test_stopped_replica_stays_stopped_until_a_higher_leader_epoch(run: Any) -> None:
    """STOP-12, STOP-16: with all its records and what the checkpoints said of it."""

    async def test(bench: Bench) -> None:
        bench.create(leader_epoch=3)
        await bench.settle()
        partition = bench.partitions.get_by_name("t", 0)
        assert partition is not None
        for _ in range(5):
            partition.append_as_leader(RECORDS, acks=1, completed=lambda *_: None)
        ended = bench.manager.stop_replica(stop(epoch=3))
        bench.manager._checkpoints.write_all()
        for name in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT):
            assert TopicPartition("t", 0) in read_offset_checkpoint(bench.paths[0] / name)
        await bench.settle()
        assert (await ended, bench.error()) == (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        bench.commit(ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value="77"))
        bench.commit(change(isr=(NODE,)))
        await bench.settle()
        assert bench.error() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        again = bench.manager.stop_replica(stop(epoch=3))
        assert await again == ErrorCode.NONE
        await bench.manager.wait_until_open(["t"])  # nobody waits for it
        bench.commit(change(leader=NODE))
        await bench.settle()
        partition = bench.partitions.get_by_name("t", 0)
        assert partition is not None
        assert (partition.leader_epoch, partition.log.log_end_offset, partition.high_watermark) == (4, 5, 5)

    run(test)


def test_stopped_replica_goes_when_the_metadata_says_so(run: Any) -> None:
    """STOP-10, STOP-21: its log is closed, and deleted all the same."""

    async def test(bench: Bench) -> None:
        bench.create(partitions=2)
        await bench.settle()
        first = bench.manager.stop_replica(stop(0))
        bench.delete()
        await bench.settle()
        assert await first == ErrorCode.NONE
        assert bench.names() == [] or all(name.endswith("-delete") for name in bench.names())

    run(test)


def test_stop_of_a_log_that_is_being_opened_waits_for_it(run: Any) -> None:
    """STOP-03, STOP-05: then it is compared with what was opened."""

    async def test(bench: Bench) -> None:
        bench.create(partitions=2, leader_epoch=5)
        await bench.turns()
        assert await bench.manager.stop_replica(stop(0, epoch=4)) == ErrorCode.FENCED_LEADER_EPOCH
        newer = bench.manager.stop_replica(stop(1, epoch=6, deleted=True))
        await bench.turns()
        assert not newer.done()
        await bench.settle()
        assert await newer == ErrorCode.NONE
        assert bench.partitions.get_by_name("t", 0) is not None
        assert bench.partitions.get_by_name("t", 1) is None
        assert "t-1" not in bench.names()

    run(test)


def test_deleted_replica_is_renamed_at_once_and_removed_later(run: Any) -> None:
    """STOP-17, RDLT-40: without an entry in the checkpoints."""

    async def test(bench: Bench) -> None:
        bench.create()
        bench.commit(ConfigRecord(resource_type=TOPIC, resource_name="t", name="file.delete.delay.ms", value="20"))
        await bench.settle()
        bench.manager._checkpoints.write_all()
        assert read_offset_checkpoint(bench.paths[0] / RECOVERY_POINT_CHECKPOINT) == {TopicPartition("t", 0): 0}
        bench.delete()
        await bench.settle()
        (name,) = bench.names()
        assert name.startswith("t-0.")
        assert name.endswith("-delete")
        assert len(name) == len("t-0.") + 32 + len("-delete")
        bench.manager._checkpoints.write_all()
        for checkpoint in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT):
            assert read_offset_checkpoint(bench.paths[0] / checkpoint) == {}
        await until(lambda: bench.workers.waiting)
        await bench.settle()
        assert bench.names() == []

    run(test)


@pytest.mark.parametrize(
    ("leave", "error_code"),
    [
        (lambda bench: bench.commit(change(replicas=(OTHER,), isr=(OTHER,), leader=OTHER)), "NOT_LEADER_OR_FOLLOWER"),
        (lambda bench: bench.delete(), "UNKNOWN_TOPIC_ID"),
        (lambda bench: bench.manager.stop_replica(stop(epoch=0)), "NOT_LEADER_OR_FOLLOWER"),
    ],
    ids=["moved", "deleted", "stopped"],
)
def test_requests_that_wait_are_answered(run: Any, leave: Callable[[Bench], Any], error_code: str) -> None:
    """STOP-18, RDLT-42: a produce hears that this broker does not lead, a fetch what the metadata says."""

    async def test(bench: Bench) -> None:
        bench.create(replicas=(NODE, OTHER))
        await bench.settle()
        partition = bench.partitions.get_by_name("t", 0)
        assert partition is not None
        fetch = fetch_wait(bench)
        acked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        appended = partition.append_as_leader(RECORDS, acks=-1, completed=lambda *_: None)
        if appended is None:  # behind the beginning of the epoch
            await bench.turns()
            appended = partition.append_as_leader(RECORDS, acks=-1, completed=lambda *_: None)
        assert appended is not None
        partition.wait_for_ack(appended, acked.set_result)
        await bench.turns()
        assert not acked.done()
        assert not fetch.done()
        leave(bench)
        async with asyncio.timeout(30):
            assert await acked == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await fetch == [getattr(ErrorCode, error_code)]
        await bench.settle()

    run(test)


def test_listeners_hear_of_the_end_once(run: Any) -> None:
    """STOP-19: whether it was deleted or its directory failed."""

    async def test(bench: Bench) -> None:
        bench.create(partitions=4)
        await bench.settle()
        heard: list[tuple[int, bool, bool]] = []

        def listen(partition: Any) -> None:
            key = (partition.topic_id, partition.index)
            heard.append((partition.index, bench.partitions.get(*key) is None, bench.partitions.is_offline(key)))

        bench.partitions.add_listener(listen)
        on_second = [partition.index for partition in bench.partitions if partition.log_dir is bench.log_dirs[1]]
        bench.manager.fail_log_dir(bench.log_dirs[1], OSError(errno.EIO, "broken"))
        assert sorted(heard) == [(index, True, True) for index in sorted(on_second)]
        heard.clear()
        bench.delete()
        await bench.settle()
        assert sorted(heard) == [(index, True, False) for index in range(4) if index not in on_second]

    run(test, directories=2)


@pytest.mark.parametrize("is_asked", [False, True])
def test_directory_whose_rename_fails_goes_offline(run: Any, monkeypatch: pytest.MonkeyPatch, is_asked: bool) -> None:
    """STOP-20: fails before the fix, where the log stayed and its directory with it. The other directory goes on."""

    async def test(bench: Bench) -> None:
        bench.create(partitions=4)
        await bench.settle()
        broken = bench.log_dirs[1]
        lost = {partition.index for partition in bench.partitions if partition.log_dir is broken}
        victim = min(lost)

        def fail(paths: Any, mark: str) -> Any:
            raise LogError(f"cannot rename {paths}") from OSError(errno.EIO, "broken")

        monkeypatch.setattr(broken, "mark_directories", fail)
        if is_asked:
            ended = bench.manager.stop_replica(stop(victim, deleted=True))
        else:
            bench.commit(change(victim, replicas=(OTHER,), isr=(OTHER,), leader=OTHER))
        await bench.settle()
        if is_asked:
            assert await ended == ErrorCode.KAFKA_STORAGE_ERROR
        assert not broken.is_online
        assert {partition.index for partition in bench.partitions} == set(range(4)) - lost
        assert bench.error(max(lost)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert bench.fatal == []

    run(test, directories=2)


@pytest.mark.parametrize("leader", [NODE, OTHER])
def test_replica_that_leaves_the_set_is_deleted(run: Any, leader: int) -> None:
    """STOP-21, RDLT-09: a leader's and a follower's; changes of what this broker never had touch nothing."""

    async def test(bench: Bench) -> None:
        register_other(bench)
        bench.create(partitions=2, replicas=(NODE, OTHER), leader=leader)
        bench.create(SECOND, replicas=(OTHER,), leader=OTHER)
        await bench.settle()
        assert sorted(str(partition) for partition in bench.partitions) == ["t-0", "t-1"]
        bench.commit(
            change(0, replicas=(OTHER, 3), isr=(OTHER,), leader=OTHER),
            change(0, SECOND, replicas=(3,), isr=(3,), leader=3),
        )
        await bench.settle()
        assert [str(partition) for partition in bench.partitions] == ["t-1"]
        assert [name for name in bench.names() if not name.endswith("-delete")] == ["t-1"]
        assert bench.error(0) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


def test_leaving_broker_does_not_follow_what_it_left(run: Any) -> None:
    """STOP-23, RDLT-32: fails before the fix; nothing is deleted, and what it is in sync with is followed on."""

    async def test(bench: Bench) -> None:
        register_other(bench)
        bench.create(partitions=4, replicas=(NODE, OTHER), leader=OTHER)
        await bench.settle()

        def followed() -> list[int]:
            return sorted(key[1] for loop in bench.manager.fetchers.loops for key in loop.fetcher)

        assert followed() == [0, 1, 2, 3]
        bench.manager.fetchers.leave()
        bench.commit(
            change(0, isr=(OTHER,)),
            change(1, isr=(OTHER,), leader=OTHER),
            change(2, leader=-1),
            change(3, leader=OTHER),
        )
        await bench.settle()
        assert followed() == [3]
        assert len(bench.partitions) == 4
        assert bench.names() == ["t-0", "t-1", "t-2", "t-3"]

    run(test)
