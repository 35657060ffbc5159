"""kill -9 while a topic is deleted and created again: what the next start serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraftlog._kraftlog import encode_batch
from kraftlog.wire.messages.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from replica_bench import FIRST, NODE, SECOND, Bench
from waiting import until

RECORDS = encode_batch([(0, None, b"of the first topic", [])])


def renewed() -> tuple[object, ...]:
    """The same name with another id."""
    return (
        TopicRecord(name="t", topic_id=SECOND),
        *(
            PartitionRecord(
                partition_id=index, topic_id=SECOND, replicas=(NODE,), isr=(NODE,), leader=NODE, leader_epoch=0
            )
            for index in (0, 1)
        ),
    )


async def killed_after(path: Path, jobs: int) -> bool:
    """Delete and create a topic, and end without a trace after so many jobs of threads; True when there are no more."""
    bench = Bench(path, 2)
    bench.create(partitions=2)
    await bench.settle()
    for partition in bench.partitions:
        await until(lambda partition=partition: partition.log.latest_epoch == 0)
        await bench.turns()
        partition.append_as_leader(RECORDS, acks=1, completed=lambda *_: None)
        partition.log.flush()
    bench.commit(RemoveTopicRecord(topic_id=FIRST), *renewed())
    for _ in range(jobs):
        await bench.turns()
        if not bench.workers.waiting:
            break
        bench.workers.run(1)
    await bench.turns()
    is_over = not bench.workers.waiting
    await bench.manager.fetchers.stop()
    for log_dir in bench.log_dirs:
        log_dir.release()
    return is_over


@pytest.mark.parametrize("knows", ["the new topic", "no topic"])
def test_no_record_of_the_old_topic_is_served_under_the_new_id(tmp_path: Path, knows: str) -> None:
    """RDLT-59: whatever was done when the process ended; a start with older metadata deletes nothing either."""

    async def main() -> int:
        for jobs in range(40):
            path = tmp_path / str(jobs)
            path.mkdir()
            is_over = await killed_after(path, jobs)
            bench = Bench(path, 2)
            for log_dir in bench.log_dirs:
                log_dir.was_clean_shutdown = False
            if knows == "the new topic":
                for record in renewed():
                    bench.image.replay(record)
            loading = asyncio.ensure_future(bench.manager.load())
            await asyncio.sleep(0)
            while not loading.done():
                await bench.turns(3)
                bench.workers.run()
                await asyncio.wait([loading], timeout=0.002)
            await loading
            if knows == "no topic":
                assert len(bench.partitions) == 0
                bench.commit(*renewed())
            await bench.settle()
            found = sorted(
                (partition.index, partition.topic_id, partition.log.log_end_offset) for partition in bench.partitions
            )
            assert found == [(0, SECOND, 0), (1, SECOND, 0)], f"killed after {jobs} jobs"
            await bench.manager.stop()
            for log_dir in bench.log_dirs:
                log_dir.release()
            if is_over:
                return jobs
        raise AssertionError("the topic is never there")

    assert asyncio.run(main()) >= 3
