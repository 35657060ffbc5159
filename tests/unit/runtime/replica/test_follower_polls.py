"""A follower's fetch that waits does not hold up partitions which this broker begins to lead."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog.runtime.replica.fetch_reader import FetchLimits
from kraftlog.runtime.replica.fetch_session import SessionPartition
from kraftlog.runtime.replica.follower_polls import FollowerPolls
from kraftlog.runtime.replica.follower_reads import FollowerReader
from kraftlog.runtime.replica.long_poll import FetchWait
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import PartitionChangeRecord
from replica_bench import FIRST, NODE, Bench

TOPIC = Uuid(bytes(15) + b"\x07")
OTHER = 3
LIMITS = FetchLimits(isolation_level=0, max_bytes=1 << 20, max_wait_ms=20_000, min_bytes=1, uses_topic_ids=True)


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def polls(clock):
    return FollowerPolls(clock)


def test_fetches_wait_for_a_short_time_until_the_follower_names_what_is_led(polls):
    assert polls.wait_ms(2, 500) == 500
    polls.leads(TOPIC, 0, [2])
    polls.leads(TOPIC, 1, [2])
    assert polls.wait_ms(OTHER, 500) == 500
    assert [polls.wait_ms(2, 500) for _ in range(3)] == [5, 10, 20]
    polls.arrived(2, [(TOPIC, 0)])
    assert polls.wait_ms(2, 500) == 40
    polls.arrived(2, [(TOPIC, 1), (TOPIC, 5)])
    assert polls.wait_ms(2, 500) == 500


def test_fetch_never_waits_longer_than_it_wants(polls):
    polls.leads(TOPIC, 0, [2])
    assert [polls.wait_ms(2, 8) for _ in range(3)] == [5, 8, 8]
    assert polls.wait_ms(2, 0) == 0


def test_follower_that_names_nothing_is_not_awaited_for_ever(polls, clock):
    polls.leads(TOPIC, 0, [2])
    clock.now_s += 1.9
    assert polls.wait_ms(2, 500) == 5
    clock.now_s += 0.2
    assert polls.wait_ms(2, 500) == 500
    polls.leads(TOPIC, 1, [2])
    polls.arrived(2, [(TOPIC, 1)])  # what was given up does not count any more
    assert polls.wait_ms(2, 500) == 500


def test_fetch_that_waits_is_answered_when_more_is_led(tmp_path):
    async def main():
        bench = Bench(tmp_path)
        try:
            bench.create(partitions=2, replicas=(NODE, 2), leader=NODE)
            bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=1, leader=2))
            await bench.settle()
            polls = bench.partitions.follower_polls
            polls.arrived(2, [(FIRST, 0), (FIRST, 1)])
            wanted = [SessionPartition("", FIRST, 0, 1 << 20, 0, 0, -1, 0)]
            waits = {}
            for broker_id in (2, OTHER):
                reader = FollowerReader(
                    bench.partitions,
                    LIMITS,
                    2,
                    -1,
                    bench.now_ms,
                    lambda *_: None,
                    bench.partitions.leader_quota,
                    NODE,
                    bench.partitions.now_ms,
                )
                reads = list(reader.read_all(wanted))
                waits[broker_id] = FetchWait(bench.partitions, wanted, LIMITS, reads, lambda found: found, reader)
                polls.hold(broker_id, waits[broker_id])
            # A change of the in-sync set is none of the leader.
            bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=0, isr=[NODE, 2]))
            await bench.settle()
            assert not waits[2].future.done()
            bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=1, leader=NODE))
            await bench.settle()
            assert waits[2].future.done()
            assert not waits[OTHER].future.done()
            assert polls.wait_ms(2, 500) == 5
            waits[OTHER].end()
            await bench.turns()
            assert not polls._waiting
        finally:
            await bench.manager.fetchers.stop()
            for log_dir in bench.log_dirs:
                log_dir.release()

    asyncio.run(main())
