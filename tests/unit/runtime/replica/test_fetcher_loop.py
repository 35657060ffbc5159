"""The shell of a replica fetcher against a scripted leader."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kraftlog import host
from kraftlog._kraftlog import append_fetched, encode_batch
from kraftlog.errors import ErrorCode, KafkaError, LogError
from kraftlog.partition.replica_fetcher import FetcherState, FetchStart
from kraftlog.runtime.replica import fetcher_loop, fetchers
from kraftlog.runtime.replica.fetcher_loop import FetcherLoop, FetcherSettings, FetcherShell
from kraftlog.runtime.replica.fetchers import fetcher_index
from kraftlog.runtime.replica.leader_link import BrokerAddress
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftlog.wire.messages.metadata_records import ConfigRecord, PartitionChangeRecord, RegisterBrokerRecord
from replica_bench import FIRST, NODE, Bench
from waiting import until

EPOCH = 5
SETTINGS = FetcherSettings(
    node_id=NODE,
    fetchers_per_leader=1,
    backoff_ms=20,
    wait_max_ms=500,
    min_bytes=1,
    max_bytes=10 << 20,
    partition_max_bytes=1 << 20,
    socket_timeout_ms=30_000,
    flush_on_ack=False,
)


def batch(base_offset, *, epoch=EPOCH):
    return encode_batch([(0, None, b"x", [])], base_offset=base_offset, partition_leader_epoch=epoch)


class Leader:
    """Answers with what the test gives, by partition; a fetch that nothing is left for waits."""

    address = BrokerAddress(2, "127.0.0.1", 9)

    def __init__(self):
        self.asked, self.closed, self.answers, self.ends = [], 0, {}, []
        self.highest = []
        self._cut = asyncio.Event()

    async def request(self, message, *, highest, lowest=0, wait_s=0.0):
        self.asked.append(message)
        self.highest.append(highest)
        if isinstance(message, ListOffsetsRequest):
            partition = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=self.ends.pop(0))
            return ListOffsetsResponse(
                topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[partition])]
            )
        found = []
        for index in list(self.answers):
            fields = self.answers.pop(index)
            if isinstance(fields, Exception):
                raise fields
            found.append(FetchResponse.PartitionData(partition_index=index, **({"high_watermark": 0} | fields)))
        if not found and message.session_epoch:
            await asyncio.get_running_loop().run_in_executor(None, int)
        topic = FetchResponse.FetchableTopicResponse(topic_id=FIRST, partitions=found)
        named = [partition.partition for asked in message.topics for partition in asked.partitions]
        if not message.session_epoch:
            full = [
                next((data for data in found if data.partition_index == index), None)
                or FetchResponse.PartitionData(partition_index=index, high_watermark=0)
                for index in named
            ]
            topic = FetchResponse.FetchableTopicResponse(topic_id=FIRST, partitions=full)
        return FetchResponse(session_id=9, responses=[topic])

    def close(self):
        self.closed += 1

    @property
    def fetches(self):
        return [message for message in self.asked if isinstance(message, FetchRequest)]


class Following:
    """A loop that follows ``count`` partitions."""

    def __init__(self, bench, count, version):
        self.bench, self.leader = bench, Leader()
        self.threads = ThreadPoolExecutor(1)
        shell = FetcherShell(
            settings=SETTINGS,
            partitions=bench.partitions,
            broker_epoch=lambda: 77,
            fetch_version=lambda: version,
            list_offsets_version=lambda: 11,
            keep_recovery_point=lambda _: None,
            threads=self.threads,
        )
        self.loop = FetcherLoop(self.leader, shell, "replica fetcher")
        self.count = count

    def begin(self):
        for index in range(self.count):
            self.loop.add(
                FetchStart(
                    key=(FIRST, index),
                    leader_epoch=EPOCH,
                    log_end_offset=self.log(index).log_end_offset,
                    log_start_offset=0,
                    high_watermark=0,
                    last_epoch=-1,
                )
            )

    def partition(self, index=0):
        return self.bench.partitions.get(FIRST, index)

    def log(self, index=0):
        return self.partition(index).log

    def state(self, index=0):
        return self.loop.fetcher.state((FIRST, index))


@pytest.fixture
def run(tmp_path):
    def run(test, count=1, version=18):
        async def main():
            bench = Bench(tmp_path)
            following = None
            try:
                bench.create(partitions=count, replicas=(NODE, 2), leader=2, leader_epoch=EPOCH)
                await bench.settle()
                following = Following(bench, count, version)
                async with asyncio.timeout(30):
                    await test(following)
            finally:
                if following is not None:
                    await following.loop.stop()
                    following.threads.shutdown()
                for log_dir in bench.log_dirs:
                    log_dir.release()

        asyncio.run(main())

    return run


@pytest.mark.parametrize(("version", "replica_id", "state"), [(14, NODE, (-1, -1)), (15, -1, (NODE, 77))])
def test_request_says_who_fetches(run, version, replica_id, state):
    """RFET-05, RFET-06, RFET-07, RFET-08."""

    async def test(one):
        one.begin()
        await until(lambda: len(one.leader.asked) > 1)
        request, later = one.leader.asked[:2]
        assert (request.replica_id, (request.replica_state.replica_id, request.replica_state.replica_epoch)) == (
            replica_id,
            state,
        )
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_485_760)
        assert (request.isolation_level, request.rack_id) == (0, "")
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert (later.session_id, later.session_epoch) == (9, 1)
        ((asked,),) = [topic.partitions for topic in request.topics]
        assert (asked.fetch_offset, asked.current_leader_epoch, asked.last_fetched_epoch) == (0, EPOCH, -1)
        assert (asked.log_start_offset, asked.partition_max_bytes) == (0, 1_048_576)
        assert set(one.leader.highest) == {version}

    run(test, version=version)


def test_versions_follow_the_metadata_version():
    """RFET-05, RFET-59: Kafka 4.3.1, ``MetadataVersion.fetchRequestVersion`` and ``listOffsetRequestVersion``."""

    def version(table, level):
        return next(found for lowest, found in table if level >= lowest)

    fetch = {27: 18, 26: 17, 21: 17, 20: 16, 19: 16, 18: 15, 10: 15, 9: 14, 8: 13}
    assert {level: version(fetchers._FETCH_VERSIONS, level) for level in fetch} == fetch
    list_offsets = {29: 11, 28: 10, 25: 10, 24: 9, 21: 9, 20: 8}
    assert {level: version(fetchers._LIST_OFFSETS_VERSIONS, level) for level in list_offsets} == list_offsets


def test_divergence_is_settled_without_another_question(run):
    """RFET-43, RFET-44, RFET-54, RINV-50: nothing of that answer but where to cut is used (KAFKA-14704)."""

    async def test(one):
        one.leader.answers = {0: {"records": batch(0, epoch=2) + batch(1, epoch=2) + batch(2, epoch=4)}}
        one.begin()
        await until(lambda: one.log().log_end_offset == 3)
        diverging = FetchResponse.EpochEndOffset(epoch=2, end_offset=1)
        one.leader.answers = {
            0: {"diverging_epoch": diverging, "high_watermark": 3, "log_start_offset": 1, "records": batch(3)}
        }
        await until(lambda: one.log().log_end_offset == 1)
        assert (one.partition().high_watermark, one.log().log_start_offset) == (0, 0)
        one.leader.answers = {0: {"records": batch(1)}}
        await until(lambda: one.log().log_end_offset == 2)
        assert one.log().epoch_entries() == [(2, 0), (EPOCH, 1)]
        assert {type(message) for message in one.leader.asked} == {FetchRequest}

    run(test)


def test_first_fetch_waits_until_what_was_appended_as_leader_is_durable(run):
    """RINV-02."""

    async def test(following):
        replica, log = following.partition().replica, following.log()
        append_fetched([(replica, batch(0, epoch=4), 0, EPOCH, 0, 0)], now_ms=0, flush=False)
        assert (log.log_end_offset, log.recovery_point) == (1, 0)
        following.loop.add(
            FetchStart(
                key=(FIRST, 0),
                leader_epoch=EPOCH,
                log_end_offset=1,
                log_start_offset=0,
                high_watermark=0,
                last_epoch=4,
                is_acknowledgeable=False,
            )
        )
        await until(lambda: following.leader.fetches)
        assert log.recovery_point == 1
        (asked,) = following.leader.fetches[0].topics[0].partitions
        assert (asked.fetch_offset, asked.last_fetched_epoch) == (1, 4)

    run(test)


class Uncut:
    """A replica whose log cannot be cut."""

    def __init__(self, replica):
        self._replica = replica

    def __getattr__(self, name):
        return getattr(self._replica, name)

    def truncate_as_follower(self, *_arguments, **_named):
        raise LogError("no")


def test_log_that_cannot_be_cut_fails_alone(run):
    """RFET-41, RFET-53, RINV-56: KAFKA-10371."""

    async def test(one):
        one.leader.answers = {index: {"records": batch(0, epoch=2) + batch(1, epoch=4)} for index in (0, 1)}
        one.begin()
        await until(lambda: [one.log(index).log_end_offset for index in (0, 1)] == [2, 2])
        one.partition(0).replica = Uncut(one.partition(0).replica)
        diverging = FetchResponse.EpochEndOffset(epoch=2, end_offset=1)
        one.leader.answers = {0: {"diverging_epoch": diverging}, 1: {"records": batch(2)}}
        await until(lambda: one.log(1).log_end_offset == 3)
        one.leader.answers = {1: {"records": batch(3)}}
        await until(lambda: one.log(1).log_end_offset == 4)
        assert (one.log(0).log_end_offset, one.state(0)) == (2, FetcherState.FAILED)

    run(test, count=2)


def hold_appends(monkeypatch):
    """Appends on threads begin, and go on once the second event is set."""
    begun, go_on = threading.Event(), threading.Event()

    def append(fetched, **options):
        begun.set()
        assert go_on.wait(30)
        return append_fetched(fetched, **options)

    monkeypatch.setattr(fetcher_loop, "append_fetched", append)
    return begun, go_on


def large_batch(base_offset, *, epoch=EPOCH):
    """One record, too large to be appended on the loop."""
    return encode_batch([(0, None, b"x" * 100_000, [])], base_offset=base_offset, partition_leader_epoch=epoch)


def test_append_of_an_earlier_epoch_ends_behind_the_position_of_the_next_one(run, monkeypatch):
    """RINV-48: KAFKA-13266; the log does not grow behind the offset that the next epoch's fetches begin at."""

    async def test(one):
        begun, go_on = hold_appends(monkeypatch)
        one.leader.answers = {0: {"records": large_batch(0)}}
        one.begin()
        await until(begun.is_set)
        one.bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=0, leader=2))
        await one.bench.settle()
        one.loop.remove((FIRST, 0))
        one.loop.add(
            FetchStart(
                key=(FIRST, 0),
                leader_epoch=EPOCH + 1,
                log_end_offset=one.log().log_end_offset,
                log_start_offset=0,
                high_watermark=0,
                last_epoch=-1,
            )
        )
        # The new leader never had that record.
        go_on.set()
        await until(lambda: one.leader.fetches[-1].topics)
        one.leader.answers = {0: {"records": batch(0, epoch=EPOCH + 1), "high_watermark": 1}}
        await until(lambda: one.partition().high_watermark == 1)
        assert (one.state(), one.loop.fetcher.failed_count) == (FetcherState.FETCHING, 0)
        assert (one.log().log_end_offset, one.log().epoch_entries()) == (1, [(EPOCH + 1, 0)])

    run(test)


def test_partition_that_is_removed_during_an_append_leaves_the_others_followed(run, monkeypatch):
    """RINV-56: KAFKA-10371."""

    async def test(one):
        begun, go_on = hold_appends(monkeypatch)
        one.leader.answers = {index: {"records": large_batch(0)} for index in (0, 1)}
        one.begin()
        await until(begun.is_set)
        one.loop.remove((FIRST, 0))
        go_on.set()
        await until(lambda: one.log(1).log_end_offset == 1)
        one.leader.answers = {1: {"records": batch(1)}}
        await until(lambda: one.log(1).log_end_offset == 2)
        assert not one.loop.is_dead
        assert one.leader.closed == 0, "its session goes on"
        assert (FIRST, 0) not in list(one.loop.fetcher)

    run(test, count=2)


@pytest.mark.parametrize("garbage", [b"\xff" * 300, b"x" * 70, batch(0)[:-1] + b"\x7f"], ids=["ff", "text", "crc"])
def test_garbage_of_a_leader_is_one_line_and_nothing_is_lost(run, caplog, garbage):
    """RFET-37: asked for again after each pause; the other partitions go on."""

    async def test(one):
        one.begin()
        for round_number in range(3):
            one.leader.answers = {0: {"records": garbage, "high_watermark": 9}, 1: {"records": batch(round_number)}}
            await until(lambda end=round_number + 1: one.log(1).log_end_offset == end)
            await until(lambda: one.loop.fetcher._partitions[FIRST, 0].delayed_until_ms is None)
        assert one.state(0) is FetcherState.FETCHING
        assert (one.log(0).log_end_offset, one.partition(0).high_watermark) == (0, 0)
        one.leader.answers = {0: {"records": batch(0)}}
        await until(lambda: one.log(0).log_end_offset == 1)

    with caplog.at_level(logging.WARNING):
        run(test, count=2)
    assert len([record for record in caplog.records if "damaged" in record.getMessage()]) == 1


def test_records_that_the_log_has_mark_the_partition_failed(run):
    """RFET-38, RFET-41: the others of the answer are appended."""

    async def test(one):
        one.leader.answers = {0: {"records": batch(0) + batch(1)}, 1: {"records": batch(0)}}
        one.begin()
        await until(lambda: one.log(1).log_end_offset == 1)
        one.leader.answers = {0: {"records": batch(1)}, 1: {"records": batch(1)}}
        await until(lambda: one.log(1).log_end_offset == 2)
        assert (one.state(0), one.log(0).log_end_offset) == (FetcherState.FAILED, 2)
        assert one.loop.fetcher.failed_count == 1

    run(test, count=2)


def test_leader_that_starts_later_is_followed_from_its_start(run):
    """RFET-59, RFET-61, RINV-52, RINV-53."""

    async def test(one):
        one.leader.ends = [90, 40]
        one.leader.answers = {0: {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}}
        one.begin()
        await until(lambda: one.log().log_end_offset == 40)
        asked = [message for message in one.leader.asked if isinstance(message, ListOffsetsRequest)]
        found = [message.topics[0].partitions[0] for message in asked]
        assert [(partition.timestamp, partition.current_leader_epoch) for partition in found] == [
            (-1, EPOCH),
            (-2, EPOCH),
        ]
        assert [message.replica_id for message in asked] == [NODE, NODE]
        assert (one.log().log_start_offset, one.partition().high_watermark) == (40, 40)

    run(test)


def test_defect_of_a_loop_does_not_look_healthy(run):
    """RFET-70: the loop begins anew, and says that it failed; one that is really gone is counted."""

    async def test(one):
        one.leader.answers = {0: ZeroDivisionError()}
        one.begin()
        await until(lambda: one.leader.closed == 1)
        assert not one.loop.is_dead
        one.leader.answers = {0: {"records": batch(0)}}
        await until(lambda: one.log().log_end_offset == 1)
        one.loop._task.cancel()
        await until(lambda: one.loop.is_dead)

    run(test)


class CutLater:
    """A replica whose log cannot be cut once, by a defect."""

    def __init__(self, partition):
        self._partition, self._replica = partition, partition.replica

    def __getattr__(self, name):
        return getattr(self._replica, name)

    def truncate_as_follower(self, *_arguments, **_named):
        self._partition.replica = self._replica
        raise ZeroDivisionError


def test_what_a_defect_kept_from_being_cut_is_cut_later(run):
    """RINV-56: its partition was named in no fetch before its next leader epoch."""

    async def test(one):
        one.leader.answers = {0: {"records": batch(0, epoch=2) + batch(1, epoch=4)}}
        one.begin()
        await until(lambda: one.log().log_end_offset == 2)
        one.partition().replica = CutLater(one.partition())
        one.leader.answers = {0: {"diverging_epoch": FetchResponse.EpochEndOffset(epoch=2, end_offset=1)}}
        await until(lambda: one.log().log_end_offset == 1)
        one.leader.answers = {0: {"records": batch(1)}}
        await until(lambda: one.log().epoch_entries() == [(2, 0), (EPOCH, 1)])

    run(test)


def test_rate_of_requests_is_measured(run, monkeypatch):
    async def test(one):
        clock_s = [host.monotonic_s()]
        monkeypatch.setattr(host, "monotonic_s", lambda: clock_s[0])
        one.leader.answers = {0: {"records": batch(0)}}
        one.begin()
        await until(lambda: one.log().log_end_offset == 1)
        clock_s[0] += 5  # the rate is renewed so often
        assert one.loop.fetch_rate > 0

    run(test)


def test_stop_cuts_a_request_off_in_silence(run, caplog):
    """RFET-71: the connection is closed once, and that is no failure."""

    class Silent(Leader):
        async def request(self, message, *, highest, lowest=0, wait_s=0.0):
            self.asked.append(message)
            await asyncio.Event().wait()

    async def test(one):
        one.loop.link = one.leader = Silent()
        one.begin()
        await until(lambda: one.leader.asked)
        await one.loop.stop()
        assert (one.leader.closed, one.loop.is_dead) == (1, False)

    with caplog.at_level(logging.INFO, logger="kraftlog.runtime.replica.fetcher_loop"):
        run(test)
    assert caplog.records == []


def test_lost_connection_is_one_line_until_the_leader_answers(run, caplog):
    """RFET-69: everything pauses; the next request is a full one and closes the session."""

    async def test(one):
        one.leader.answers = {0: {"records": batch(0)}}
        one.begin()
        await until(lambda: one.log().log_end_offset == 1)
        for _ in range(3):
            one.leader.answers = {0: KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "refused")}
            closed = one.leader.closed
            await until(lambda closed=closed: one.leader.closed > closed)
        one.leader.answers = {0: {"records": batch(1)}}
        await until(lambda: one.log().log_end_offset == 2)

    with caplog.at_level(logging.WARNING):
        run(test)
    assert len([record for record in caplog.records if "does not answer" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    ("topic", "partition", "count", "index"),
    [
        ("foo", 0, 1, 0),
        ("foo", 0, 4, 2),  # 31 * 101574 = 3148794
        ("foo", 3, 4, 1),
        ("t", 0, 5, 1),  # 31 * 116 = 3596
        ("orders", 0, 7, 6),  # 31 * -1008770331 is -1207109189 in 32 bits
        ("t", (1 << 31) - 3596, 3, 0),  # the smallest int: its absolute value is 0
    ],
)
def test_fetcher_of_a_partition_is_kafkas(topic, partition, count, index):
    """RFET-01: ``AbstractFetcherManager.getFetcherId``."""
    assert fetcher_index(topic, partition, count) == index


def addresses(port):
    return RegisterBrokerRecord(
        broker_id=2,
        end_points=[RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=port)],
        fenced=False,
    )


def placed(manager):
    """Each loop's address and partitions."""
    return {
        where: (loop.link.address.port, sorted(index for _, index in loop.fetcher))
        for where, loop in manager.fetchers._loops.items()
    }


def test_loops_follow_addresses_settings_and_assignments(run):
    """RFET-02, RFET-03, RFET-04, RFET-22: no partition is lost, or in two loops."""

    async def test(one):
        bench = one.bench
        bench.commit(addresses(1))
        await bench.settle()
        assert placed(bench.manager) == {(2, 0): (1, [0, 1, 2, 3])}
        first = bench.manager.fetchers.loops[0]
        bench.commit(ConfigRecord(resource_type=4, resource_name="1", name="num.replica.fetchers", value="3"))
        await bench.settle()
        found = placed(bench.manager)
        assert found == {(2, 0): (1, [1]), (2, 1): (1, [2]), (2, 2): (1, [0, 3])}
        for loop in bench.manager.fetchers.loops:
            for key in loop.fetcher:
                assert loop.fetcher.leader_epoch(key) == EPOCH
        bench.commit(ConfigRecord(resource_type=4, resource_name="1", name="num.replica.fetchers", value=None))
        await bench.settle()
        assert placed(bench.manager) == {(2, 0): (1, [0, 1, 2, 3])}
        again = bench.manager.fetchers.loops[0]
        assert again is first, "partition 1 stayed where it was"
        bench.commit(addresses(3))
        await bench.settle()
        assert placed(bench.manager) == {(2, 0): (3, [0, 1, 2, 3])}
        assert first._is_stopped
        bench.delete()
        await bench.settle()
        assert placed(bench.manager) == {}
        await bench.manager.fetchers.stop()

    run(test, count=4)


def test_leader_that_cannot_tell_where_an_epoch_ends_cuts_to_the_high_watermark(run):
    """RFET-58: fails before the fix, where nothing was cut and the same question was asked for ever."""

    async def test(one):
        one.leader.answers = {0: {"records": batch(0, epoch=2) + batch(1, epoch=2), "high_watermark": 1}}
        one.begin()
        await until(lambda: one.log().log_end_offset == 2)
        assert one.partition().high_watermark == 1
        one.leader.answers = {0: {"diverging_epoch": FetchResponse.EpochEndOffset(epoch=2, end_offset=-1)}}
        await until(lambda: one.log().log_end_offset == 1)
        one.leader.answers = {0: {"records": batch(1)}}
        await until(lambda: one.log().log_end_offset == 2)

    run(test)
