"""What this broker does with committed metadata, in Kafka's order: real logs, threads run by hand."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kraftlog._kraftlog import encode_batch
from kraftlog.controller import MetadataImage
from kraftlog.controller.directory import DIRECTORY_UNASSIGNED
from kraftlog.errors import ErrorCode, LogError
from kraftlog.runtime.replica.fetch_reader import FetchLimits, PartitionRead, read_all
from kraftlog.runtime.replica.fetch_session import SessionPartition
from kraftlog.runtime.replica.long_poll import FetchWait
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from replica_bench import FIRST, NODE, SECOND, Bench, change
from waiting import until

OTHER, THIRD = 2, 3
TOPIC = 2
RECORDS = encode_batch([(0, None, b"x", [])])
Test = Callable[[Bench], Coroutine[Any, Any, None]]


def registration(broker_id: int = OTHER, listener: str = "PLAINTEXT") -> RegisterBrokerRecord:
    """A broker that does not answer."""
    end_point = RegisterBrokerRecord.BrokerEndpoint(name=listener, host="127.0.0.1", port=9, security_protocol=0)
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=Uuid(bytes([broker_id] * 16)),
        broker_epoch=broker_id,
        fenced=False,
        end_points=[end_point],
    )


def followed(bench: Bench) -> dict[int, tuple[int, int]]:
    """Leader and epoch of each partition that is fetched, by index."""
    return {
        key[1]: (loop.link.address.broker_id, loop.fetcher.leader_epoch(key))
        for loop in bench.manager.fetchers.loops
        for key in loop.fetcher
    }


def long_poll(bench: Bench, *, epoch: int = -1) -> asyncio.Future[list[PartitionRead]]:
    """A consumer's fetch that waits at the end of partition 0."""
    partition = bench.partitions.get(FIRST, 0)
    assert partition is not None
    limits = FetchLimits(isolation_level=0, max_bytes=999, max_wait_ms=60_000, min_bytes=1, uses_topic_ids=True)
    wanted = [SessionPartition("", FIRST, 0, 999, partition.high_watermark, epoch, -1, -1)]
    reads = list(read_all(bench.partitions, wanted, limits))
    assert [read.error_code for read in reads] == [0]
    return FetchWait(bench.partitions, wanted, limits, reads, lambda reads: reads).future


async def append(bench: Bench, index: int = 0, *, acks: int = 1) -> Any:
    """Append once the beginning of the epoch is written."""
    partition = bench.partitions.get_by_name("t", index)
    assert partition is not None
    await until(lambda: partition.log.latest_epoch == partition.leader_epoch)
    await bench.turns()
    return partition.append_as_leader(RECORDS, acks=acks, completed=lambda *_: None)


@pytest.mark.parametrize(
    ("fields", "leader_epoch"),
    [({"isr": (NODE,)}, 5), ({"leader": NODE}, 6), ({"leader": -1}, 6), ({"replicas": (NODE, OTHER)}, 5)],
)
def test_epochs_of_a_change(fields: dict[str, Any], leader_epoch: int) -> None:
    """RDLT-01: the leader epoch rises with every leader field, also with the same leader or none."""
    image = MetadataImage()
    image.replay(TopicRecord(name="t", topic_id=FIRST))
    image.replay(
        PartitionRecord(
            partition_id=0,
            topic_id=FIRST,
            replicas=(NODE,),
            isr=(NODE,),
            leader=NODE,
            leader_epoch=5,
            partition_epoch=7,
        )
    )
    image.replay(change(**fields))
    partition = image.topics.by_id(FIRST).partitions[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (leader_epoch, 8)


@pytest.mark.parametrize(("name", "epochs"), [("t", [1, 0, 0]), ("", [1, 0, 1])])
def test_cleared_eligible_leader_replicas(name: str, epochs: list[int]) -> None:
    """RDLT-02: of one topic or of all; fails before the fix, without a new partition epoch."""
    image = MetadataImage()
    for topic, topic_id in (("t", FIRST), ("u", SECOND)):
        image.replay(TopicRecord(name=topic, topic_id=topic_id))
    for topic_id, index, elr in ((FIRST, 0, [OTHER]), (FIRST, 1, None), (SECOND, 0, [OTHER])):
        image.replay(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=(NODE, OTHER),
                isr=(NODE,),
                leader=NODE,
                partition_epoch=0,
                eligible_leader_replicas=elr,
            )
        )
    image.replay(ClearElrRecord(topic_name=name))
    first, second = (image.topics.by_id(topic_id).partitions for topic_id in (FIRST, SECOND))
    assert [first[0].partition_epoch, first[1].partition_epoch, second[0].partition_epoch] == epochs
    assert (first[0].elr, second[0].elr) == ((), () if not name else (OTHER,))


def test_higher_partition_epoch_leaves_the_fetcher_alone(run: Any) -> None:
    """LEPO-33, RDLT-06, RDLT-07, RINV-86: a higher leader epoch of the same leader restarts it."""

    async def test(bench: Bench) -> None:
        bench.commit(registration())
        bench.create(replicas=(NODE, OTHER), leader=OTHER)
        await bench.settle()
        (loop,) = bench.manager.fetchers.loops
        begun: list[Any] = []
        add = loop.add
        loop.add = lambda start: (begun.append(start.leader_epoch), add(start))  # type: ignore[method-assign]
        bench.commit(change(isr=(OTHER,)))
        await bench.settle()
        assert (begun, followed(bench)) == ([], {0: (OTHER, 0)})
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        assert partition.replica.partition_epoch == 1
        bench.commit(change(leader=OTHER))
        await bench.settle()
        assert followed(bench) == {0: (OTHER, 1)}

    run(test)


def test_changes_of_one_commit_are_applied_once(run: Any) -> None:
    """RDLT-08: KAFKA-7164; the last of three epochs has its beginning in the checkpoint."""

    async def test(bench: Bench) -> None:
        bench.create(replicas=(NODE, OTHER))
        await bench.settle()
        await append(bench)
        heard: list[Any] = []
        bench.partitions.add_listener(lambda partition: heard.append(partition.leader_epoch))
        bench.commit(change(leader=OTHER), change(leader=NODE), change(leader=OTHER), change(leader=NODE))
        await bench.settle()
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        await until(lambda: partition.log.epoch_entries() == [(0, 0), (4, 1)])
        assert heard == [4]

    run(test)


def test_order_of_one_commit(run: Any) -> None:
    """RDLT-10, RDLT-11, RDLT-16: what leaves, what this broker leads, what it follows. Fails before the fix."""

    async def test(bench: Bench) -> None:
        bench.commit(registration())
        bench.create(partitions=4, replicas=(NODE, OTHER))
        await bench.settle()
        heard: list[Any] = []

        def listen(partition: Any) -> None:
            gone = bench.partitions.get(FIRST, partition.index) is None
            heard.append((partition.index, "gone" if gone else "leads" if partition.is_leader else "follows"))

        bench.partitions.add_listener(listen)
        bench.commit(
            change(0, leader=OTHER),
            change(1, isr=(NODE,)),
            change(2, replicas=(OTHER,), isr=(OTHER,), leader=OTHER),
            change(3, leader=NODE),
        )
        await bench.settle()
        assert heard == [(2, "gone"), (1, "leads"), (3, "leads"), (0, "follows")]

    run(test)


def test_topic_that_comes_and_goes_in_one_commit_is_nothing(run: Any) -> None:
    """RDLT-12: nor do changes of a topic that the same commit removes."""

    async def test(bench: Bench) -> None:
        bench.create(partitions=2)
        await bench.settle()
        bench.commit(
            change(0, leader=NODE),
            RemoveTopicRecord(topic_id=FIRST),
            TopicRecord(name="u", topic_id=SECOND),
            PartitionRecord(
                partition_id=0, topic_id=SECOND, replicas=(NODE,), isr=(NODE,), leader=NODE, leader_epoch=0
            ),
            RemoveTopicRecord(topic_id=SECOND),
        )
        await bench.settle()
        assert len(bench.partitions) == 0
        assert not any(name.startswith("u") for name in bench.names())
        assert not any(name in {"t-0", "t-1"} for name in bench.names())

    run(test)


def test_changes_of_others_touch_nothing(run: Any) -> None:
    """RDLT-09, RDLT-14: no partition of this broker hears of them."""

    async def test(bench: Bench) -> None:
        bench.create(replicas=(NODE, OTHER))
        await bench.settle()
        heard: list[Any] = []
        bench.partitions.add_listener(heard.append)
        bench.commit(
            TopicRecord(name="u", topic_id=SECOND),
            PartitionRecord(
                partition_id=0, topic_id=SECOND, replicas=(OTHER,), isr=(OTHER,), leader=OTHER, leader_epoch=0
            ),
            change(0, SECOND, replicas=(THIRD,), isr=(THIRD,), leader=THIRD),
        )
        await bench.turns()
        assert not bench.workers.waiting
        await bench.settle()
        assert (heard, bench.names()) == ([], ["t-0"])

    run(test)


def test_new_topic_has_its_settings_from_the_start(run: Any) -> None:
    """RDLT-18, RDLT-31, RDLT-39: KAFKA-8813; and its id on the disk before it is served."""

    async def test(bench: Bench) -> None:
        bench.commit(
            TopicRecord(name="t", topic_id=FIRST),
            PartitionRecord(partition_id=0, topic_id=FIRST, replicas=(NODE,), isr=(NODE,), leader=NODE, leader_epoch=0),
            ConfigRecord(resource_type=TOPIC, resource_name="t", name="min.insync.replicas", value="2"),
            ConfigRecord(resource_type=TOPIC, resource_name="t", name="file.delete.delay.ms", value="77"),
        )
        seen: list[Any] = []

        def listen(partition: Any) -> None:
            text = (bench.paths[0] / "t-0" / "partition.metadata").read_text()
            seen.append((partition.replica.min_insync_replicas, partition.config.file_delete_delay_ms, text))

        bench.partitions.add_listener(listen)
        await bench.settle()
        assert seen == [(2, 77, f"version: 0\ntopic_id: {FIRST}")]

    run(test)


def state(bench: Bench) -> dict[str, Any]:
    """Roles, epochs, sets, directories and whom this broker fetches from."""
    partitions = {
        str(partition): (
            partition.topic_id,
            partition.is_leader,
            partition.leader_id,
            partition.leader_epoch,
            partition.replica.isr,
            partition.log_dir.path.name,
        )
        for partition in bench.partitions
    }
    return {"partitions": dict(sorted(partitions.items())), "followed": followed(bench)}


def test_one_large_delta_ends_as_many_small_ones(tmp_path: Path) -> None:
    """RDLT-22, RDLT-60."""
    records = [
        registration(),
        registration(THIRD),
        TopicRecord(name="t", topic_id=FIRST),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=FIRST,
                replicas=(NODE, OTHER),
                isr=(NODE, OTHER),
                leader=1 + index % 2,
                leader_epoch=0,
            )
            for index in range(4)
        ),
        change(0, leader=OTHER),
        change(1, leader=NODE),
        change(1, isr=(NODE,)),
        change(2, replicas=(OTHER, THIRD), isr=(OTHER,), leader=OTHER),
        change(3, leader=-1),
        TopicRecord(name="u", topic_id=SECOND),
        PartitionRecord(partition_id=0, topic_id=SECOND, replicas=(NODE,), isr=(NODE,), leader=NODE, leader_epoch=0),
        RemoveTopicRecord(topic_id=SECOND),
        change(0, leader=OTHER),
    ]

    async def main() -> list[dict[str, Any]]:
        states = []
        for name, size in (("one", 1), ("three", 3), ("all", len(records))):
            (tmp_path / name).mkdir()
            bench = Bench(tmp_path / name)
            for start in range(0, len(records), size):
                bench.commit(*records[start : start + size])
                if size != 3:
                    await bench.settle()
            await bench.settle()
            states.append(state(bench))
            await bench.manager.stop()
            bench.log_dirs[0].release()
        return states

    one, three, everything = asyncio.run(main())
    assert one == three == everything
    assert sorted(one["partitions"]) == ["t-0", "t-1", "t-3"]


def test_follower_becomes_leader(run: Any) -> None:
    """LEPO-32, RDLT-23: no fetches, the confirmed set, and the beginning of the epoch before the first append."""

    async def test(bench: Bench) -> None:
        bench.commit(registration())
        bench.create(replicas=(NODE, OTHER), leader=OTHER)
        await bench.settle()
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        assert followed(bench) == {0: (OTHER, 0)}
        appended: list[Any] = []
        entries: list[Any] = []

        def append_at_once(changed: Any) -> None:
            queued = changed.append_as_leader(
                RECORDS, acks=1, completed=lambda *_: entries.append(changed.log.epoch_entries())
            )
            appended.append((queued, followed(bench)))

        bench.partitions.add_listener(append_at_once)
        bench.commit(change(leader=NODE, isr=(NODE,)))
        await until(lambda: entries)
        assert appended == [(None, {})], "behind the beginning of the epoch, and no fetch goes on"
        assert entries == [[(1, 0)]]
        assert (followed(bench), partition.replica.isr) == ({}, [NODE])

    run(test)


def test_epoch_is_known_before_its_beginning_is_written(run: Any) -> None:
    """LEPO-32: fails before the fix, where the answer depended on a thread."""

    async def test(bench: Bench) -> None:
        bench.create(replicas=(NODE, OTHER), leader_epoch=3)
        await bench.settle()
        await append(bench)
        asked: list[Any] = []

        def ask(partition: Any) -> None:
            asked.append([partition.end_offset_for_epoch(epoch) for epoch in (-1, 2, 3, 4, 5, 6)])

        bench.partitions.add_listener(ask)
        bench.commit(change(leader=OTHER), change(leader=NODE))
        await until(lambda: asked)
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        await until(lambda: partition.log.latest_epoch == 5)
        ask(partition)
        assert asked == [[(-1, -1), (2, 0), (3, 1), (3, 1), (5, 1), (-1, -1)]] * 2

    run(test)


def test_high_watermark_rises_when_the_set_is_one(run: Any) -> None:
    """RDLT-25, RDLT-27: a fetch that waits gets the records."""

    async def test(bench: Bench) -> None:
        bench.create(replicas=(NODE, OTHER))
        await bench.settle()
        await append(bench)
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        assert partition.high_watermark == 0
        fetch = long_poll(bench)
        bench.commit(change(isr=(NODE,), leader=NODE))
        async with asyncio.timeout(30):
            (read,) = await fetch
        assert (read.error_code, read.high_watermark) == (0, 1)
        assert read.size_bytes == len(RECORDS)

    run(test)


def test_leader_whose_log_cannot_be_created_is_offline_alone(run: Any) -> None:
    """RDLT-26."""

    async def test(bench: Bench) -> None:
        bench.create(partitions=3)
        await bench.turns()
        bench.workers.fail(LogError("not a log"))
        await bench.settle()
        assert sorted(partition.index for partition in bench.partitions if partition.is_leader) == [1, 2]
        assert bench.error(0) == ErrorCode.KAFKA_STORAGE_ERROR

    run(test)


@pytest.mark.parametrize("leader", [OTHER, -1])
def test_leader_becomes_follower(run: Any, leader: int) -> None:
    """LEPO-08, LEPO-35, LEPO-36, RDLT-28, RDLT-30: also of nobody; the log stays."""

    async def test(bench: Bench) -> None:
        bench.commit(registration())
        bench.create(replicas=(NODE, OTHER))
        await bench.settle()
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        appended = await append(bench, acks=-1)
        acked: list[int] = []
        partition.wait_for_ack(appended, acked.append)
        fetch = long_poll(bench, epoch=0)
        heard: list[Any] = []
        bench.partitions.add_listener(lambda changed: heard.append(changed.is_leader))
        bench.commit(change(leader=leader))
        async with asyncio.timeout(30):
            (read,) = await fetch
        assert read.error_code == ErrorCode.FENCED_LEADER_EPOCH
        await until(lambda: acked)
        assert acked == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert heard == [False]
        assert followed(bench) == ({0: (OTHER, 1)} if leader == OTHER else {})
        assert partition.replica.isr == []
        assert partition.log.log_end_offset == 1
        with pytest.raises(Exception, match="NOT_LEADER_OR_FOLLOWER"):
            partition.append_as_leader(RECORDS, acks=1, completed=lambda *_: None)

    run(test)


def test_leader_that_cannot_be_reached_is_not_followed(run: Any) -> None:
    """RDLT-29: unknown, or without the listener of brokers; the next leader epoch brings the fetcher."""

    async def test(bench: Bench) -> None:
        bench.commit(registration(THIRD, "CLIENTS"))
        bench.create(replicas=(NODE, OTHER, THIRD), leader=OTHER)
        await bench.settle()
        assert (followed(bench), len(bench.partitions)) == ({}, 1)
        bench.commit(change(leader=THIRD))
        await bench.settle()
        assert (followed(bench), len(bench.partitions)) == ({}, 1)
        bench.commit(registration())
        bench.commit(change(leader=OTHER))
        await bench.settle()
        assert followed(bench) == {0: (OTHER, 2)}

    run(test)


def test_topic_created_again_in_one_commit_begins_anew(run: Any) -> None:
    """RDLT-34, RDLT-43, STOP-22: KAFKA-12257; the old id is unknown, and epochs start at 0 again."""

    async def test(bench: Bench) -> None:
        bench.create(leader_epoch=7)
        await bench.settle()
        await append(bench)
        bench.commit(
            RemoveTopicRecord(topic_id=FIRST),
            TopicRecord(name="t", topic_id=SECOND),
            PartitionRecord(
                partition_id=0, topic_id=SECOND, replicas=(NODE,), isr=(NODE,), leader=NODE, leader_epoch=0
            ),
        )
        await bench.turns()
        assert len([name for name in bench.names() if name.startswith("t-0")]) == 1, "renamed first"
        await bench.settle()
        partition = bench.partitions.get_by_name("t", 0)
        assert partition is not None
        assert (partition.topic_id, partition.leader_epoch, partition.log.log_end_offset) == (SECOND, 0, 0)
        assert bench.partitions.missing_error_by_id(FIRST, 0) == ErrorCode.UNKNOWN_TOPIC_ID

    run(test)


def test_offline_partition_stays_offline_and_a_new_topic_does_not(run: Any) -> None:
    """RDLT-36, RDLT-37, RDLT-41: KAFKA-16234, KAFKA-16157."""

    async def test(bench: Bench) -> None:
        bench.create(partitions=2)
        await bench.settle()
        lost = next(partition.index for partition in bench.partitions if partition.log_dir is bench.log_dirs[1])
        bench.manager.fail_log_dir(bench.log_dirs[1], OSError(errno.EIO, "broken"))
        bench.commit(change(lost, leader=NODE), change(1 - lost, leader=NODE))
        await bench.settle()
        assert bench.error(lost) == ErrorCode.KAFKA_STORAGE_ERROR
        assert not (bench.paths[0] / f"t-{lost}").exists()
        bench.delete()
        bench.create(SECOND, partitions=2, directories=(DIRECTORY_UNASSIGNED,))
        await bench.settle()
        assert {partition.log_dir for partition in bench.partitions} == {bench.log_dirs[0]}
        assert len(bench.partitions) == 2
        assert (bench.paths[1] / f"t-{lost}").is_dir(), "the next start sets it aside"

    run(test, directories=2)


def old_log(directory: Path, name: str, topic_id: Uuid | None) -> None:
    """A log of an earlier run."""
    path = directory / name
    path.mkdir()
    (path / "00000000000000000000.log").write_bytes(RECORDS)
    if topic_id is not None:
        (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")


def test_logs_that_the_metadata_does_not_place_here_are_set_aside(run: Any, caplog: Any) -> None:
    """RDLT-53, STOP-25: those without a topic id, too, which fails before the fix; no start deletes them."""

    async def test(bench: Bench) -> None:
        bench.create(partitions=3)
        bench.commit(change(1, replicas=(OTHER,), isr=(OTHER,), leader=OTHER))
        bench.manager.steps.pause()
        for name, topic_id in (("t-0", FIRST), ("t-1", FIRST), ("t-2", None), ("gone-0", SECOND), ("t-9", FIRST)):
            old_log(bench.paths[0], name, topic_id)
        with caplog.at_level(logging.WARNING):
            loading = asyncio.ensure_future(bench.manager.load())
            await until(lambda: bench.workers.waiting)
            await bench.settle()
            await loading
        strays = sorted(name.rpartition(".")[0] for name in bench.names() if name.endswith("-stray"))
        assert strays == ["gone-0", "t-1", "t-2", "t-9"]
        assert caplog.text.count("is not in the metadata of this node; kept as") == 4
        ends = {partition.index: partition.log.log_end_offset for partition in bench.partitions}
        assert ends == {0: 1, 2: 0}
        assert not bench.log_dirs[0].deleted_directories()

    run(test)


def test_log_of_a_deleted_topic_is_no_second_one_of_the_next_of_its_name(run: Any) -> None:
    """A directory that was offline when its topic was deleted still has the log; it is set aside, as by Kafka."""

    async def test(bench: Bench) -> None:
        old_log(bench.paths[0], "t-0", SECOND)
        old_log(bench.paths[1], "t-0", FIRST)
        bench.create()
        bench.manager.steps.pause()
        loading = asyncio.ensure_future(bench.manager.load())
        await until(lambda: bench.workers.waiting)
        await bench.settle()
        await loading
        (kept,) = bench.paths[0].glob("t-0*")
        assert kept.name.endswith("-stray")
        assert {partition.log.log_end_offset for partition in bench.partitions} == {1}
        assert (bench.paths[1] / "t-0").is_dir()

    run(test, directories=2)


def test_partition_in_two_directories_stops_the_start(run: Any) -> None:
    """RDLT-55: both are named."""

    async def test(bench: Bench) -> None:
        for directory in bench.paths:
            old_log(directory, "t-0", FIRST)
        bench.create()
        with pytest.raises(LogError, match=r"d0/t-0 and .*d1/t-0 are both of partition t-0"):
            await bench.manager.load()

    run(test, directories=2)
