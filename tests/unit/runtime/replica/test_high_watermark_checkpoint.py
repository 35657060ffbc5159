"""``replication-offset-checkpoint``: what is written, and with what a replica begins."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog._kraftlog import append_fetched, encode_batch
from kraftlog.runtime.replica.log_opener import first_high_watermark
from kraftlog.storage.checkpoints import REPLICATION_OFFSET_CHECKPOINT, read_offset_checkpoint, write_offset_checkpoint
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.metadata_records import PartitionChangeRecord
from replica_bench import FIRST, Bench

NOW_MS = 1_700_000_000_000
KEYS = [TopicPartition("t", 0), TopicPartition("t", 1)]


def fill(bench, index, count, high_watermark):
    records = b"".join(encode_batch([(NOW_MS, None, b"x", [])], base_offset=at) for at in range(count))
    replica = bench.partitions.get(FIRST, index).replica
    ((kind, *_),) = append_fetched([(replica, records, 0, 0, high_watermark, 0)], now_ms=NOW_MS, flush=False)
    assert kind == ""


def run(path, test, directories=1):
    async def main():
        bench = Bench(path, directories)
        try:
            result = test(bench)
            if asyncio.iscoroutine(result):
                await result
        finally:
            for log_dir in bench.log_dirs:
                log_dir.release()

    asyncio.run(main())


def test_checkpoint_has_a_line_for_each_replica_with_any_leader(tmp_path):
    """ISR-84, ISR-85, ISR-87, RINV-74: also with a leader that is down, or without one (KAFKA-1647)."""

    async def test(bench):
        bench.create(partitions=2, replicas=(1, 2), leader=2)
        await bench.settle()
        fill(bench, 0, 5, 3)
        fill(bench, 1, 2, 2)
        bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=1, leader=-1))
        await bench.settle()
        bench.manager._checkpoints.write_all()
        for directory in bench.paths:
            path = directory / REPLICATION_OFFSET_CHECKPOINT
            lines = path.read_text().split("\n")
            assert (lines[0], lines[1], lines[-1]) == ("0", str(len(lines) - 3), "")
            assert not path.with_name(path.name + ".tmp").exists()
        found = {}
        for path in bench.paths:
            found |= read_offset_checkpoint(path / REPLICATION_OFFSET_CHECKPOINT)
        assert found == {KEYS[0]: 3, KEYS[1]: 2}

    run(tmp_path, test, directories=2)


def test_logs_that_are_not_open_yet_keep_their_lines(tmp_path):
    """ISR-88: a start never writes fewer entries than it found."""

    async def test(bench):
        (path,) = bench.paths
        write_offset_checkpoint(path / REPLICATION_OFFSET_CHECKPOINT, {KEYS[0]: 7, KEYS[1]: 9})
        (log_dir,) = bench.log_dirs
        log_dir.high_watermarks = read_offset_checkpoint(path / REPLICATION_OFFSET_CHECKPOINT)
        bench.create(partitions=2, replicas=(1, 2), leader=2)
        await bench.turns()
        assert len(bench.partitions) == 0
        bench.manager._checkpoints.write_all()
        assert read_offset_checkpoint(path / REPLICATION_OFFSET_CHECKPOINT) == {KEYS[0]: 7, KEYS[1]: 9}

    run(tmp_path, test)


@pytest.mark.parametrize(("checkpointed", "expected"), [(0, 2), (2, 2), (5, 5), (9, 9), (11, 9)], ids=str)
def test_high_watermark_begins_within_the_log(tmp_path, checkpointed, expected):
    """ISR-86: that of the checkpoint, 0 without one, between the log's start and its end."""

    async def test(bench):
        bench.create(replicas=(1, 2), leader=2)
        await bench.settle()
        fill(bench, 0, 9, 9)
        partition = bench.partitions.get(FIRST, 0)
        partition.delete_records(2)
        assert first_high_watermark(checkpointed, partition.log) == expected

    run(tmp_path, test)
