"""How many objects of a partition the garbage collector has to look at."""

from __future__ import annotations

import asyncio
import gc

from kraftlog.broker import Broker
from waiting import until

PARTITIONS = 300


def tracked_objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def test_partition_is_three_tracked_objects_and_leaves_none_while_its_files_wait_for_deletion(tmp_path):
    """A quarter more of them makes the collector look at the whole heap, which stops the loop."""

    async def grown() -> tuple[float, float]:
        async with Broker(tmp_path, log_flush_on_ack=False) as broker:
            replicas = broker._embedded.running.replicas

            async def settle(count: int) -> None:
                await until(lambda: len(replicas.partitions) == count and replicas.is_settled, timeout_s=60)

            await broker.create_topic("warm", partitions=2)
            await settle(2)
            before = tracked_objects()
            await broker.create_topic("many", partitions=PARTITIONS)
            await settle(2 + PARTITIONS)
            created = tracked_objects()
            await broker._embedded.delete_topic("many")
            await settle(2)
            return (created - before) / PARTITIONS, (tracked_objects() - before) / PARTITIONS

    per_created, per_deleted = asyncio.run(grown())
    assert per_created < 4, "and some of the node"
    assert per_deleted < 1
