"""Partitions whose oldest open transaction should have ended long ago."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kraftlog._kraftlog import encode_batch
from replica_bench import FIRST, NODE, Bench

NOW_MS = 1_700_000_000_000
ALLOWED_MS = 900_000 + 300_000


def batch(producer_id: int, sequence: int, at_ms: int) -> bytes:
    return encode_batch(
        [(at_ms, None, b"v", ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


@pytest.mark.spec("PSTA-75")
def test_oldest_open_transaction_of_a_leader_is_late_after_its_longest_time(tmp_path: Path) -> None:
    async def run() -> list[int]:
        bench = Bench(tmp_path)
        found: list[int] = []
        try:
            bench.create(replicas=(NODE,), leader=NODE)
            await bench.settle()
            replica: Any = bench.partitions.get(FIRST, 0).replica  # type: ignore[union-attr]

            def late_at(now_ms: int) -> int:
                return bench.partitions.late_transaction_count(now_ms - ALLOWED_MS)

            found.append(late_at(NOW_MS + 10 * ALLOWED_MS))
            replica.append(batch(7, 0, NOW_MS), acks=1, now_ms=NOW_MS)
            replica.append(batch(8, 0, NOW_MS - 500), acks=1, now_ms=NOW_MS)
            found += [late_at(NOW_MS + ALLOWED_MS), late_at(NOW_MS + ALLOWED_MS + 1)]
            # A write puts it off.
            replica.append(batch(7, 1, NOW_MS + 50), acks=1, now_ms=NOW_MS)
            found += [late_at(NOW_MS + ALLOWED_MS + 50), late_at(NOW_MS + ALLOWED_MS + 51)]
        finally:
            await bench.manager.fetchers.stop()
            for log_dir in bench.log_dirs:
                log_dir.release()
        return found

    assert asyncio.run(run()) == [0, 0, 1, 0, 1]
