"""Throttled replicas on both sides: which are left out, which are answered without records, and what counts."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog._kraftlog import encode_batch
from kraftlog.partition.replication_quota import UNLIMITED
from kraftlog.runtime.replica.fetch_reader import FetchLimits, is_enough
from kraftlog.runtime.replica.fetch_session import SessionPartition
from kraftlog.runtime.replica.follower_reads import FollowerReader
from kraftlog.runtime.replica.long_poll import FetchWait
from kraftlog.wire.messages.metadata_records import ConfigRecord, PartitionChangeRecord, RegisterBrokerRecord
from replica_bench import FIRST, NODE, Bench
from waiting import until

NOW_MS = 1_700_000_000_000
LIMITS = FetchLimits(isolation_level=0, max_bytes=1 << 20, max_wait_ms=20_000, min_bytes=1, uses_topic_ids=True)


def config(name, value, *, kind=2, resource="t"):
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


class Leader:
    """Node 1 leads two partitions; replica 2 is in sync with the second one only; the first one is throttled."""

    def __init__(self, bench):
        self.bench = bench
        self.quota = bench.partitions.leader_quota
        self.partitions = [bench.partitions.get(FIRST, index) for index in (0, 1)]

    def reader(self):
        return FollowerReader(
            self.bench.partitions,
            LIMITS,
            2,
            -1,
            NOW_MS,
            lambda *_: None,
            self.quota,
            NODE,
            self.bench.partitions.now_ms,
        )

    def append(self, index=0):
        records = encode_batch([(NOW_MS, None, b"x" * 100, [])])
        self.partitions[index].replica.append(records, acks=1, now_ms=NOW_MS)

    @staticmethod
    def asks(index=0, offset=0):
        return SessionPartition("", FIRST, index, 1 << 20, offset, 0, -1, 0)


@pytest.fixture
def run(tmp_path):
    def run(test, *records):
        async def main():
            bench = Bench(tmp_path)
            try:
                bench.create(partitions=2, replicas=(NODE, 2))
                bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=0, isr=[NODE]), *records)
                await bench.settle()
                async with asyncio.timeout(20):
                    await test(bench)
            finally:
                await bench.manager.fetchers.stop()
                for log_dir in bench.log_dirs:
                    log_dir.release()

        asyncio.run(main())

    return run


THROTTLED = config("leader.replication.throttled.replicas", "*")


def test_replica_that_is_not_in_sync_gets_no_records_while_the_rate_is_exceeded(run):
    """RFET-75, RFET-76, RINV-90: one in sync is never held; both count; its position is recorded all the same."""

    async def test(bench):
        one = Leader(bench)
        one.append(0)
        one.append(1)
        reads = [one.reader().read(one.asks(index), 1 << 20, is_first=True) for index in (0, 1)]
        assert all(read.size_bytes for read in reads)
        one.reader().count(reads)
        counted = one.quota.rate(NOW_MS)
        assert counted == sum(read.size_bytes for read in reads)
        one.quota.bytes_per_second = 10
        held, in_sync = (
            one.reader().read(one.asks(index), 1 << 20, is_first=True, is_arrival=True) for index in (0, 1)
        )
        assert (held.error_code, held.size_bytes, held.log_start_offset) == (0, 0, 0)
        assert held.high_watermark >= 0
        assert in_sync.size_bytes > 0
        one.reader().count([held, in_sync])
        assert one.quota.rate(NOW_MS) == counted + in_sync.size_bytes

    run(test, THROTTLED)


def test_replica_that_nobody_throttles_is_not_held_and_not_counted(run):
    """RFET-72: the entries name other replicas."""

    async def test(bench):
        one = Leader(bench)
        one.quota.bytes_per_second = 10
        one.quota.record(1_000_000, NOW_MS)
        before = one.quota.rate(NOW_MS)
        one.append(0)
        read = one.reader().read(one.asks(), 1 << 20, is_first=True)
        one.reader().count([read])
        assert (read.size_bytes > 0, one.quota.rate(NOW_MS)) == (True, before)

    run(test, config("leader.replication.throttled.replicas", "0:2,1:1"))


def test_waiting_fetch_is_not_ended_early_by_a_throttled_partition(run):
    """RFET-77."""

    async def test(bench):
        one = Leader(bench)
        one.quota.bytes_per_second = 10
        one.quota.record(1_000_000, NOW_MS)
        wanted = [one.asks(0), one.asks(1)]
        reader = one.reader()
        reads = list(reader.read_all(wanted))
        assert not is_enough(reads, LIMITS)
        wait = FetchWait(bench.partitions, wanted, LIMITS, reads, lambda found: found, reader)
        one.append(0)
        bench.manager.inbox.take()
        await bench.turns()
        assert not wait.future.done()
        one.append(1)
        bench.manager.inbox.take()
        held, in_sync = await wait.future
        assert (held.size_bytes, in_sync.size_bytes > 0) == (0, True)

    run(test, THROTTLED)


def test_rates_are_those_of_the_metadata(run, caplog):
    """RFET-73: dynamic settings of the broker, without a limit by default."""

    async def test(bench):
        leader, follower = bench.partitions.leader_quota, bench.partitions.follower_quota
        assert leader.bytes_per_second == follower.bytes_per_second == UNLIMITED
        bench.commit(
            config("leader.replication.throttled.rate", "1000", kind=4, resource="1"),
            config("follower.replication.throttled.rate", "2000", kind=4, resource=""),
        )
        assert (leader.bytes_per_second, follower.bytes_per_second) == (1000, 2000)
        bench.commit(config("leader.replication.throttled.rate", None, kind=4, resource="1"))
        bench.commit(config("follower.replication.throttled.rate", "x", kind=4, resource=""))
        assert leader.bytes_per_second == follower.bytes_per_second == UNLIMITED
        assert "follower.replication.throttled.rate=x is not a number" in caplog.text

    run(test)


def test_follower_leaves_out_throttled_partitions_that_are_behind(run, monkeypatch):
    """RFET-74: until the rate allows it; another partition is fetched meanwhile."""
    rounds = []

    async def test(bench):
        bench.partitions.follower_quota.bytes_per_second = 10
        bench.partitions.follower_quota.record(1_000_000, NOW_MS)
        bench.commit(
            RegisterBrokerRecord(
                broker_id=2,
                end_points=[RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9)],
                fenced=False,
            ),
            *(PartitionChangeRecord(topic_id=FIRST, partition_id=index, leader=2, isr=[2]) for index in (0, 1)),
        )
        await bench.settle()
        (loop,) = bench.manager.fetchers.loops
        assert loop._held() == {(FIRST, 0)}
        await until(lambda: rounds)
        assert [[asked.key[1] for asked in found.partitions] for found in rounds] == [[1]]
        fetcher = loop.fetcher
        fetcher._partitions[FIRST, 0].lag = 0
        found = fetcher.next_round(10**9, loop._held())
        assert sorted(asked.key[1] for asked in found.partitions) == [0, 1], "caught up, it is never left out"
        fetcher._partitions[FIRST, 0].lag = 3
        assert fetcher.next_round(10**9, loop._held()).forgotten == ()
        bench.partitions.follower_quota.bytes_per_second = UNLIMITED
        assert loop._held() == set()

    async def never(_self, _message, **_options):
        await asyncio.Event().wait()

    from kraftlog.runtime.replica.fetcher_loop import FetcherLoop
    from kraftlog.runtime.replica.leader_link import LeaderLink

    request = FetcherLoop._request

    def noted(self, fetch_round):
        rounds.append(fetch_round)
        return request(self, fetch_round)

    monkeypatch.setattr(LeaderLink, "request", never)
    monkeypatch.setattr(FetcherLoop, "_request", noted)
    run(test, config("follower.replication.throttled.replicas", "0:1,1:2"))


class Traffic:
    """Bytes in and out, each with those of a reassignment."""

    def __init__(self):
        self.counted = {name: [0, 0] for name in ("in", "out")}

    def on_replicated_in(self, size_bytes, *, is_reassignment):
        self._add("in", size_bytes, is_reassignment)

    def on_replicated_out(self, size_bytes, *, is_reassignment):
        self._add("out", size_bytes, is_reassignment)

    def _add(self, name, size_bytes, is_reassignment):
        self.counted[name][0] += size_bytes
        self.counted[name][1] += size_bytes * is_reassignment


def test_bytes_of_a_replica_that_is_being_added_count_twice(run):
    """RFET-80: as replication, and as reassignment until the replica is no longer being added."""

    async def test(bench):
        traffic = bench.partitions.traffic = Traffic()
        one = Leader(bench)
        one.append(0)

        def answered():
            reader = FollowerReader(
                *(
                    getattr(one.reader(), name)
                    for name in FollowerReader.__dataclass_fields__
                    if name != "replicated_out"
                ),
                bench.partitions.replicated_out,
            )
            read = reader.read(one.asks(0), 1 << 20, is_first=True)
            reader.count([read])
            return read.size_bytes

        size_bytes = answered()
        assert size_bytes
        assert traffic.counted["out"] == [size_bytes, 0]
        bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=0, adding_replicas=[2]))
        await bench.settle()
        answered()
        assert traffic.counted["out"] == [2 * size_bytes, size_bytes]
        bench.partitions.replicated_in(one.partitions[0], NODE, 7)
        bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=0, adding_replicas=[NODE, 2]))
        await bench.settle()
        bench.partitions.replicated_in(one.partitions[0], NODE, 7)
        assert traffic.counted["in"] == [14, 7]
        bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=0, adding_replicas=[]))
        await bench.settle()
        answered()
        assert traffic.counted["out"] == [3 * size_bytes, size_bytes]

    run(test)
