"""Replicas that move between the data directories of a node: real logs, the log workers' threads run by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog import host
from kraftlog._kraftlog import encode_batch
from kraftlog.api.handlers import describe_log_dirs
from kraftlog.errors import ErrorCode
from kraftlog.metrics.replica import FetcherCounts
from kraftlog.storage.checkpoints import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
)
from kraftlog.storage.log_dir import LogDir
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftlog.wire.messages.metadata_records import FeatureLevelRecord, PartitionChangeRecord
from replica_bench import FIRST, NODE, Bench, run_on
from waiting import until

KEY = TopicPartition("t", 0)
RECORDS = encode_batch([(0, None, b"x" * 100, [])])


class MovingBench(Bench):
    """A node with three directories and one partition in the first one, which has records."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, directories=3)
        self.assigned: list[Uuid] = []
        self.moves = self.manager.directory_moves
        self.moves._assign = lambda _, directory: self.assigned.append(directory)
        self.ids = [log_dir.directory_id for log_dir in self.log_dirs]

    @property
    def partition(self) -> Any:
        return self.partitions.get_by_name("t", 0)

    async def begin(self, records: int = 20, *, topic_id: Uuid = FIRST) -> None:
        self.commit(FeatureLevelRecord(name="metadata.version", feature_level=30))
        self.create(topic_id, directories=(self.ids[0],))
        await self.settle()
        self.append(records)

    def append(self, count: int) -> None:
        for _ in range(count):
            self.partition.append_as_leader(RECORDS, acks=1, completed=lambda *_: None)

    async def load(self) -> None:
        loading = asyncio.ensure_future(self.manager.load())
        await until(lambda: self.workers.waiting)
        await self.settle()
        await loading

    async def alter(self, number: int, key: TopicPartition = KEY) -> int:
        return await self.moves.alter(key, str(self.paths[number].absolute()))

    async def until(self, is_so: Callable[[], object]) -> None:
        def look() -> object:
            self.workers.run()
            return is_so()

        await until(look)

    def accept(self, number: int) -> None:
        """The controller has the replica in this directory."""
        self.commit(PartitionChangeRecord(partition_id=0, topic_id=FIRST, directories=(self.ids[number],)))

    async def move(self, number: int) -> None:
        assert await self.alter(number) == ErrorCode.NONE
        await self.until(lambda: self.assigned[-1:] == [self.ids[number]])
        self.accept(number)
        await self.until(lambda: self.partition.future is None)

    def inside(self, number: int) -> list[str]:
        return sorted(path.name for path in self.paths[number].iterdir() if path.is_dir())

    def marks(self, number: int) -> list[str]:
        """The names of the directories, without what is drawn by lot."""
        return [
            "-".join([name.partition(".")[0], name.rpartition("-")[2]]) if "." in name else name
            for name in self.inside(number)
        ]


Test = Callable[[MovingBench], Coroutine[Any, Any, None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Test], None]:
    return lambda test: run_on(lambda: MovingBench(tmp_path), test)


def described(bench: MovingBench) -> list[list[tuple[int, bool, int]]]:
    """Of each directory: index, whether it is a future replica, and its lag."""
    request = DescribeLogDirsRequest(topics=None)
    cluster: Any = SimpleNamespace(image=bench.manager.directory_moves._image())
    response = describe_log_dirs.handle(
        None,  # type: ignore[arg-type]
        request,
        cluster=cluster,
        replicas=bench.partitions,
        log_dirs=bench.log_dirs,
    )
    return [
        [
            (partition.partition_index, partition.is_future_key, partition.offset_lag)
            for topic in result.topics
            for partition in topic.partitions
        ]
        for result in response.results
    ]


def test_replica_moves_with_all_that_belongs_to_it(run: Any) -> None:
    """RFET-84, RFET-86: promoted once the controller has accepted; checkpoints, epochs and metadata go along."""

    async def test(bench: MovingBench) -> None:
        await bench.begin()
        partition, replica = bench.partition, bench.partition.replica
        moved: list[Any] = []
        waiter = type("Waiter", (), {"partition_moved": lambda _, found: moved.append(found)})()
        partition.add_waiter(waiter)
        assert await bench.alter(1) == ErrorCode.NONE
        await bench.until(lambda: bench.assigned == [bench.ids[1]])
        assert bench.marks(1) == ["t-0-future"]
        bench.append(5)
        await bench.until(lambda: partition.future.log.log_end_offset == 25)
        assert bench.marks(0) == ["t-0"], "not before the controller has accepted"
        bench.accept(1)
        bench.append(5)
        await bench.until(lambda: partition.future is None)
        assert (bench.partition, partition.replica, partition.log_dir) == (partition, replica, bench.log_dirs[1])
        assert (bench.marks(0), bench.inside(1)) == (["t-0-delete"], ["t-0"])
        assert Path(partition.log.path) == bench.paths[1] / "t-0"
        assert partition.log.log_end_offset == partition.high_watermark == 30
        assert partition.log.topic_id == bytes(FIRST)
        assert partition.log.epoch_entries() == [(0, 0)]
        moved.clear()
        bench.append(1)
        await bench.until(lambda: moved == [partition])
        await bench.settle()
        for name in (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
            assert KEY not in read_offset_checkpoint(bench.paths[0] / name)
            assert read_offset_checkpoint(bench.paths[1] / name)[KEY] >= 30
        assert bench.assigned == [bench.ids[1]]

    run(test)


def test_both_directories_list_a_replica_that_moves(run: Any) -> None:
    """RFET-82: OffsetLag of the future one is the distance between the two ends."""

    async def test(bench: MovingBench) -> None:
        await bench.begin()
        bench.moves.quota.bytes_per_second = 1
        assert described(bench) == [[(0, False, 0)], [], []]
        assert await bench.alter(1) == ErrorCode.NONE
        bench.moves.quota.record(10_000_000, bench.partitions.now_ms())
        assert described(bench) == [[(0, False, 0)], [(0, True, 20)], []]
        bench.moves.quota.bytes_per_second = 2**63 - 1
        await bench.until(lambda: bench.assigned)
        assert described(bench) == [[(0, False, 0)], [(0, True, 0)], []]
        bench.append(3)
        bench.accept(1)
        await bench.until(lambda: bench.partition.future is None)
        assert described(bench) == [[], [(0, False, 0)], []]

    run(test)


def test_metrics_of_moves(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``ReplicaAlterLogDirsManager``: how far copies are behind, how fast they are filled, which have failed."""

    async def test(bench: MovingBench) -> None:
        clock_s = [1000.0]
        monkeypatch.setattr(host, "monotonic_s", lambda: clock_s[0])
        moves = bench.moves
        assert moves.counts == FetcherCounts()
        await bench.begin()
        moves.quota.bytes_per_second = 1
        assert await bench.alter(1) == ErrorCode.NONE
        moves.quota.record(10_000_000, bench.partitions.now_ms())
        assert moves.counts == FetcherCounts(max_lag=20)
        moves.quota.bytes_per_second = 2**63 - 1
        await bench.until(lambda: bench.assigned)
        clock_s[0] += 5
        counts = moves.counts
        assert (counts.max_lag, counts.failed_partitions, counts.dead_loops) == (0, 0, 0)
        assert counts.min_fetch_rate > 0
        monkeypatch.setattr(moves, "_copy", None)  # a defect of this program
        await bench.until(lambda: moves.counts.dead_loops)
        assert (moves.counts.failed_partitions, moves.counts.dead_loops) == (1, 1)

    run(test)


def test_answers_to_a_request(run: Any) -> None:
    """RFET-81."""

    async def test(bench: MovingBench) -> None:
        await bench.begin()
        alter = bench.moves.alter
        there = str(bench.paths[1].absolute())
        assert await alter(KEY, str(bench.paths[0].absolute())) == ErrorCode.NONE, "it is there"
        assert await alter(KEY, "/elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await alter(KEY, "d1") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await alter(TopicPartition("u", 0), there) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(TopicPartition("t" * 249, 0), there) == ErrorCode.INVALID_TOPIC_EXCEPTION
        bench.log_dirs[1].is_cordoned = bench.log_dirs[2].is_cordoned = True
        assert await bench.alter(1) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await alter(TopicPartition("u", 0), there) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        bench.manager.fail_log_dir(bench.log_dirs[2], OSError(5, "broken"))
        assert await bench.alter(2) == ErrorCode.KAFKA_STORAGE_ERROR
        assert bench.inside(1) == []
        assert bench.inside(2) == []

    run(test)


def test_replica_that_is_not_here_yet_is_created_in_the_wanted_directory(run: Any) -> None:
    """RFET-81, RDLT-45: the wish of an operator counts more than the assigned directory."""

    async def test(bench: MovingBench) -> None:
        bench.commit(FeatureLevelRecord(name="metadata.version", feature_level=30))
        bench.create(replicas=(NODE + 1,), leader=NODE + 1, directories=(bench.ids[2],))
        assert await bench.alter(1) == ErrorCode.REPLICA_NOT_AVAILABLE
        bench.create(directories=(bench.ids[0],))
        await bench.settle()
        assert bench.partition.log_dir is bench.log_dirs[1]

    run(test)


def test_request_for_another_directory_replaces_the_copy(run: Any) -> None:
    """RFET-85: and the original directory is assigned again."""

    async def test(bench: MovingBench) -> None:
        await bench.begin()
        assert await bench.alter(1) == ErrorCode.NONE
        await bench.until(lambda: bench.assigned == [bench.ids[1]])
        assert await bench.alter(1) == ErrorCode.NONE, "goes on"
        assert bench.marks(1) == ["t-0-future"]
        assert await bench.alter(2) == ErrorCode.NONE
        assert bench.assigned[:2] == [bench.ids[1], bench.ids[0]]
        assert (bench.marks(1), bench.marks(2)) == (["t-0-delete"], ["t-0-future"])
        await bench.until(lambda: bench.assigned[-1] == bench.ids[2])
        assert await bench.alter(0) == ErrorCode.NONE, "back"
        assert bench.assigned[-1] == bench.ids[0]
        assert (bench.marks(0), bench.marks(2)) == (["t-0"], ["t-0-delete"])
        assert bench.partition.future is None
        await bench.move(1)
        assert bench.inside(1)[0] == "t-0"

    run(test)


def test_copy_goes_with_the_partition(run: Any) -> None:
    async def test(bench: MovingBench) -> None:
        await bench.begin()
        assert await bench.alter(1) == ErrorCode.NONE
        bench.delete()
        await bench.until(lambda: bench.marks(1) == ["t-0-delete"])
        assert bench.assigned in ([], [bench.ids[1]])

    run(test)


def test_target_that_fails_ends_the_move(run: Any) -> None:
    """KIP-113: its future replicas are dropped, and the replica stays where it is."""

    async def test(bench: MovingBench) -> None:
        await bench.begin()
        assert await bench.alter(1) == ErrorCode.NONE
        await bench.until(lambda: bench.assigned)
        bench.manager.fail_log_dir(bench.log_dirs[1], OSError(5, "broken"))
        await bench.until(lambda: bench.partition.future is None)
        assert bench.assigned == [bench.ids[1], bench.ids[0]]
        assert bench.marks(1) == ["t-0-future"], "nothing is written there any more"
        bench.append(1)
        assert bench.partition.high_watermark == 21

    run(test)


def test_copy_follows_a_truncation(run: Any) -> None:
    """RFET-83: cut to the same offset at once, or to its own end if that is lower."""

    async def test(bench: MovingBench) -> None:
        await bench.begin()
        partition = bench.partition
        assert await bench.alter(1) == ErrorCode.NONE
        await bench.until(lambda: bench.assigned)
        bench.commit(
            PartitionChangeRecord(
                partition_id=0,
                topic_id=FIRST,
                leader=NODE + 1,
                replicas=(NODE, NODE + 1),
                isr=(NODE, NODE + 1),
                directories=(bench.ids[0], Uuid(b"o" * 16)),
            )
        )
        await bench.until(lambda: not partition.is_leader)
        future = partition.future.log
        for offset, expected in ((18, 18), (19, 18), (7, 7)):
            partition.replica.truncate_as_follower(
                offset, leader_epoch=partition.leader_epoch, now_ms=0, keep_recovery_point=lambda _: None
            )
            assert partition.log.log_end_offset == min(offset, 18)
            assert future.log_end_offset == expected

    run(test)


@pytest.mark.parametrize("phase", ["copying", "accepted", "retired"])
def test_move_goes_on_after_a_restart(tmp_path: Path, phase: str) -> None:
    """RDLT-56: whatever was reached before."""

    async def first() -> None:
        bench = MovingBench(tmp_path)
        await bench.begin()
        assert await bench.alter(1) == ErrorCode.NONE
        await bench.until(lambda: bench.assigned)
        bench.append(0 if phase == "retired" else 5)
        await bench.manager.stop()
        for log_dir in bench.log_dirs:
            log_dir.release()
        if phase == "retired":
            LogDir.mark_directory(bench.log_dirs[0], bench.paths[0] / "t-0", "delete")

    async def second() -> None:
        bench = MovingBench(tmp_path)
        bench.commit(
            FeatureLevelRecord(name="metadata.version", feature_level=30),
        )
        bench.create(directories=(bench.ids[0 if phase == "copying" else 1],))
        bench.manager.steps.pause()
        await bench.load()
        if phase == "copying":
            await bench.until(lambda: bench.assigned == [bench.ids[1]])
            bench.accept(1)
        await bench.until(lambda: bench.partition.log_dir is bench.log_dirs[1])
        assert bench.partition.log.log_end_offset == (20 if phase == "retired" else 25)
        assert bench.inside(1) == ["t-0"]
        assert bench.assigned == ([bench.ids[1]] if phase == "copying" else []), "never the old directory"
        await bench.manager.stop()
        for log_dir in bench.log_dirs:
            log_dir.release()

    asyncio.run(asyncio.wait_for(first(), 60))
    asyncio.run(asyncio.wait_for(second(), 60))


def test_copies_that_nobody_wants_are_kept_under_another_name(run: Any) -> None:
    async def test(bench: MovingBench) -> None:
        for number in (1, 2):
            path = bench.log_dirs[number].new_future(KEY)
            path.mkdir()
            (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {FIRST}")
        unknown = bench.log_dirs[1].new_future(TopicPartition("gone", 0))
        unknown.mkdir()
        bench.commit(FeatureLevelRecord(name="metadata.version", feature_level=30))
        bench.create(directories=(bench.ids[0],))
        bench.manager.steps.pause()
        await bench.load()
        assert bench.marks(1) == ["gone-0-stray", "t-0-future"]
        assert bench.marks(2) == ["t-0-stray"]
        await bench.until(lambda: bench.assigned)

    run(test)
