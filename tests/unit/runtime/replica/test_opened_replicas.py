"""Replicas whose logs are opened: what fails alone, and what a log alone is enough for."""

from __future__ import annotations

import asyncio
from typing import Any

from kraftlog.errors import ErrorCode, LogError
from replica_bench import FIRST, NODE, Bench, change
from unit.runtime.replica.test_metadata_deltas import (
    OTHER,
    RECORDS,
    append,
    followed,
    long_poll,
    old_log,
    registration,
)
from waiting import until


def test_follower_whose_log_cannot_be_opened_is_offline_alone(run: Any) -> None:
    """RDLT-33: the others are fetched, and the partition is not."""

    async def test(bench: Bench) -> None:
        bench.commit(registration())
        bench.create(partitions=3, replicas=(NODE, OTHER), leader=OTHER)
        await bench.turns()
        bench.workers.fail(LogError("not a log"))
        await bench.settle()
        assert sorted(followed(bench)) == [1, 2]
        assert bench.error(0) == ErrorCode.KAFKA_STORAGE_ERROR

    run(test)


def test_sole_replica_that_lost_its_high_watermark_serves_its_end(run: Any) -> None:
    """ISR-91: the position of a consumer that had read everything is no offset out of range."""

    async def test(bench: Bench) -> None:
        old_log(bench.paths[0], "t-0", FIRST)
        bench.create()
        await bench.settle()
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        await until(lambda: partition.high_watermark == 1)
        fetch = long_poll(bench)
        await append(bench)
        async with asyncio.timeout(30):
            (read,) = await fetch
        assert (read.error_code, read.size_bytes) == (0, len(RECORDS))

    run(test)


def test_leader_that_recovers_is_recovered_at_once(run: Any) -> None:
    """RDLT-24: there is no recovery step; the next AlterPartition says RECOVERED, as each one does (ISR-37)."""

    async def test(bench: Bench) -> None:
        bench.create(replicas=(NODE, OTHER))
        await bench.settle()
        bench.commit(change(leader=NODE, isr=(NODE,), leader_recovery_state=1))
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        await append(bench)
        await until(lambda: partition.high_watermark == 1)
        assert (partition.is_leader, partition.leader_epoch) == (True, 1)

    run(test)
