"""What a follower does with the records of its leader, over a real log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlog._kraftlog import append_fetched, encode_batch
from kraftlog.errors import CorruptRecordError, KafkaError, OffsetOutOfRangeError
from kraftlog.runtime.replica.fetch_reader import FetchLimits, read_partition
from kraftlog.runtime.replica.fetch_session import SessionPartition
from kraftlog.runtime.replica.long_poll import FetchWait
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import ConfigRecord, PartitionChangeRecord
from replica_bench import FIRST, NODE, Bench
from waiting import until

EPOCH = 5
NOW_MS = 1_700_000_000_000


def batch(base_offset, count=1, *, epoch=EPOCH, **fields):
    records = [(NOW_MS, None, b"record", [])] * count
    return encode_batch(records, base_offset=base_offset, partition_leader_epoch=epoch, **fields)


class Follower:
    """Replica 1 of a partition that broker 2 leads in epoch 5."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        self.partition = partition
        self.log = partition.log

    def append(self, records=b"", *, high_watermark=0, log_start=0, at=None, epoch=EPOCH, flush=False) -> Any:
        """The outcome, and the error of a failure."""
        fetch_offset = self.log.log_end_offset if at is None else at
        fetched = [(self.partition.replica, records, fetch_offset, epoch, high_watermark, log_start)]
        ((kind, *_, error),) = append_fetched(fetched, now_ms=NOW_MS, flush=flush)
        return kind, error

    def cut(self, offset, *, restart=False):
        call = self.partition.replica.restart_as_follower if restart else self.partition.replica.truncate_as_follower
        kept: list[int] = []
        done = call(offset, leader_epoch=EPOCH, now_ms=NOW_MS, keep_recovery_point=kept.append)
        return done, kept

    @property
    def state(self):
        return self.log.log_start_offset, self.partition.high_watermark, self.log.log_end_offset


@pytest.fixture
def run(tmp_path):
    def run(test, **configs):
        async def main():
            bench = Bench(tmp_path)
            try:
                bench.create(replicas=(NODE, 2), leader=2, leader_epoch=EPOCH)
                if configs:
                    bench.commit(
                        *(
                            ConfigRecord(resource_type=2, resource_name="t", name=name.replace("_", "."), value=value)
                            for name, value in configs.items()
                        )
                    )
                await bench.settle()
                result = test(Follower(bench))
                if asyncio.iscoroutine(result):
                    await result
            finally:
                for log_dir in bench.log_dirs:
                    log_dir.release()

        asyncio.run(main())

    return run


def test_records_are_appended_as_they_are_with_their_gaps(run):
    """RFET-27, RINV-15: no byte is stamped anew, and a gap of compaction is taken."""

    def test(one):
        records = batch(3, 2, epoch=2) + batch(9, 1, epoch=4)
        assert one.append(records) == ("", None)
        assert bytes(one.log.read(0, max_bytes=1 << 20, end_offset=100)) == records
        assert one.state == (0, 0, 10)
        assert one.append(batch(11), at=9)[0] == "moved"
        assert one.state == (0, 0, 10)

    run(test)


def test_epochs_are_known_by_their_first_batches_and_durable_at_once(run):
    """RFET-33, RINV-16."""

    def test(one):
        one.append(batch(0, epoch=1) + batch(1, epoch=1) + batch(2, epoch=3))
        one.append(batch(3, epoch=3) + batch(4, epoch=5))
        assert one.log.epoch_entries() == [(1, 0), (3, 2), (5, 4)]
        lines = (one.log.path / "leader-epoch-checkpoint").read_text().split("\n")
        assert lines[2:5] == ["1 0", "3 2", "5 4"]

    run(test)


def test_batches_of_a_newer_epoch_are_left_out_with_all_behind_them(run):
    """LEPO-54, RFET-34, RINV-55: KAFKA-18723."""

    def test(one):
        assert one.append(batch(0) + batch(1, epoch=6) + batch(2)) == ("", None)
        assert one.state == (0, 0, 1)
        assert one.append(batch(1, epoch=6), epoch=6)[0] == "superseded", "this replica follows in epoch 5"
        assert one.append(batch(1, epoch=4), epoch=4)[0] == "superseded"
        assert one.state == (0, 0, 1)

    run(test)


def test_producer_state_follows_and_nothing_is_checked(run):
    """RFET-35: neither sequence nor epoch of a producer, and no duplicate is dropped."""

    def test(one):
        def of(base_offset, *, epoch, sequence):
            return batch(base_offset, producer_id=7, producer_epoch=epoch, base_sequence=sequence)

        assert one.append(of(0, epoch=2, sequence=0) + of(1, epoch=2, sequence=0)) == ("", None)
        assert one.append(of(2, epoch=2, sequence=40)) == ("", None)
        assert one.log.log_end_offset == 3
        (producer,) = one.log.active_producers()
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 40)

    run(test)


def test_leaders_limit_of_a_batch_is_not_the_followers(run):
    """RFET-36: KAFKA-9617."""

    def test(one):
        assert one.append(batch(0, 200)) == ("", None)
        assert one.log.log_end_offset == 200

    run(test, max_message_bytes="100")


def test_batch_above_the_size_of_a_segment_is_refused(run):
    """RFET-36."""

    def test(one):
        kind, error = one.append(batch(0, 200))
        assert (kind, isinstance(error, KafkaError)) == ("failed", True)
        assert one.state == (0, 0, 0)

    run(test, internal_segment_bytes="1000")


def test_damaged_answer_appends_nothing(run):
    """RFET-37, RFET-38: a wrong checksum in the second batch, offsets that do not rise, records that are there."""

    def test(one):
        one.append(batch(0))
        broken = bytearray(batch(2))
        broken[-1] ^= 1
        kind, error = one.append(batch(1) + bytes(broken))
        assert (kind, isinstance(error, CorruptRecordError)) == ("failed", True)
        assert one.append(batch(4) + batch(2))[0] == "failed"
        kind, error = one.append(batch(0))
        assert (kind, isinstance(error, OffsetOutOfRangeError)) == ("failed", True)
        assert one.state == (0, 0, 1)
        assert one.append(batch(1)) == ("", None)

    run(test)


def test_log_is_begun_anew_where_the_leaders_log_starts_inside_a_batch(run):
    """RFET-39."""

    def test(one):
        one.cut(7, restart=True)
        assert one.state == (7, 7, 7)
        assert one.append(batch(5, 4), log_start=7, high_watermark=9) == ("", None)
        assert (one.log.log_start_offset, one.log.log_end_offset) == (7, 9)
        assert bytes(one.log.read(7, max_bytes=1 << 20, end_offset=100)) == batch(5, 4)

    run(test)


def test_leaders_log_start_ends_other_records_before_its_first_batch(run):
    """RFET-28, RFET-39: the leader has no epochs before its log start: a fetch does not show that logs differ."""

    def test(one):
        one.append(batch(0, 5, epoch=2) + batch(5, 2, epoch=2), high_watermark=5)
        assert one.append(batch(5, 4, epoch=4), log_start=7, high_watermark=9) == ("", None)
        assert one.state == (7, 9, 9)
        assert bytes(one.log.read(7, max_bytes=1 << 20, end_offset=100)) == batch(5, 4, epoch=4)
        assert one.log.epoch_entries() == [(4, 7)]

    run(test)


def test_log_start_is_followed_though_the_records_are_refused(run):
    def test(one):
        one.append(batch(0, 5), high_watermark=5)
        assert isinstance(one.append(batch(5)[:-1] + b"?", log_start=3, high_watermark=6)[1], CorruptRecordError)
        assert one.state == (3, 5, 5)
        assert one.append(batch(5), log_start=5, high_watermark=6) == ("", None)
        assert one.state == (5, 6, 6)

    run(test)


@pytest.mark.parametrize("cut_bytes", [1, 20, 60])
def test_batch_that_is_cut_off_is_left_out(run, cut_bytes):
    """RFET-42."""

    def test(one):
        assert one.append(batch(0) + batch(1) + batch(2)[:-cut_bytes]) == ("", None)
        assert one.log.log_end_offset == 2

    run(test)


def test_empty_answer_still_brings_the_high_watermark_and_the_log_start(run):
    """RFET-28, RFET-29, RFET-30, RINV-13: within the log, and in this order."""

    def test(one):
        one.append(batch(0, 10), high_watermark=50)
        assert one.state == (0, 10, 10)
        one.append(high_watermark=6, log_start=4)
        assert one.state == (4, 6, 10)
        one.append(high_watermark=6, log_start=8)
        assert one.state == (8, 8, 10)
        one.append(high_watermark=9, log_start=2)
        assert one.state == (8, 9, 10)

    run(test)


def test_empty_answer_keeps_the_epoch_of_the_last_record(run):
    """RFET-29, RINV-49: KAFKA-15510; a divergence would not be noticed without it."""

    def test(one):
        one.append(batch(0, epoch=3))
        fetched = [(one.partition.replica, b"", 1, EPOCH, 1, 0)]
        ((_, log_end_offset, _, last_epoch, *_),) = append_fetched(fetched, now_ms=NOW_MS, flush=False)
        assert (log_end_offset, last_epoch) == (1, 3)

    run(test)


def test_cut_below_the_high_watermark_is_done(run):
    """RFET-48, RFET-51: the recovery point is kept before the log is cut."""

    def test(one):
        one.append(b"".join(batch(offset) for offset in range(10)), high_watermark=8)
        one.log.flush()
        done, kept = one.cut(5)
        assert done == (5, EPOCH, 5)
        assert kept == [5]
        assert one.state == (0, 5, 5)
        assert one.append(batch(5)) == ("", None)

    run(test)


def test_cut_at_the_end_removes_only_epochs_that_begin_there(run):
    """RFET-49, RINV-54: KAFKA-10706."""

    def test(one):
        one.append(batch(0, epoch=2) + batch(1, epoch=3))
        one.log.assign_epoch_start(EPOCH, 2)
        assert one.log.epoch_entries() == [(2, 0), (3, 1), (EPOCH, 2)]
        one.cut(2)
        assert one.log.epoch_entries() == [(2, 0), (3, 1)]
        assert one.log.log_end_offset == 2

    run(test)


def test_cut_below_the_first_segment_begins_anew(run):
    """RFET-50, RFET-61, RINV-52: KAFKA-9491; the high watermark follows."""

    def test(one):
        one.cut(20, restart=True)
        assert one.state == (20, 20, 20)
        one.append(batch(20, 3), high_watermark=23)
        done, _ = one.cut(12)
        assert done == (12, -1, 12)
        assert one.log.log_end_offset == 12
        assert one.partition.high_watermark <= 12
        assert one.log.epoch_entries() == []

    run(test)


def test_nothing_of_the_old_epoch_lands_after_a_change_of_leaders(run):
    """RFET-24, RFET-56, RINV-47, RINV-48: KAFKA-7786, 13207, 13266."""

    async def test(one):
        one.append(batch(0, 3), high_watermark=3)
        one.bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=0, leader=NODE))
        await one.bench.settle()
        assert one.partition.is_leader
        assert one.append(batch(3))[0] == "superseded"
        assert one.cut(0)[0] is None
        assert one.cut(0, restart=True)[0] is None
        assert one.state == (0, 3, 3)

    run(test)


def test_new_leader_keeps_the_high_watermark_it_had_as_a_follower(run):
    """ISR-73, RINV-45: older records are committed when members confirm them; the epoch is known (KAFKA-7415)."""

    async def test(one):
        one.append(batch(0, 10), high_watermark=4)
        one.bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=0, leader=NODE))
        await one.bench.settle()
        assert (one.partition.is_leader, one.partition.high_watermark) == (True, 4)
        assert not one.partition.replica.is_high_watermark_settled
        await until(lambda: one.log.epoch_entries()[-1] == (EPOCH + 1, 10))
        one.partition.replica.follower_fetch(
            replica_id=2,
            broker_epoch=-1,
            current_leader_epoch=EPOCH + 1,
            fetch_offset=10,
            last_fetched_epoch=EPOCH,
            log_start_offset=0,
            now_ms=NOW_MS,
            is_arrival=True,
        )
        assert one.partition.high_watermark == 10

    run(test)


LIMITS = FetchLimits(
    isolation_level=0, max_bytes=1 << 20, max_wait_ms=20_000, min_bytes=1, uses_topic_ids=True, needs_leader=False
)


def asks(offset):
    return SessionPartition("", FIRST, 0, 1 << 20, offset, -1, -1, -1)


def test_consumer_that_waits_on_a_follower_is_answered_when_the_high_watermark_moves(run):
    """RFET-31, ISR-75, ISR-76."""

    async def test(one):
        one.append(batch(0, 3), high_watermark=0)
        wanted = asks(0)
        read = read_partition(one.bench.partitions, wanted, LIMITS, 1 << 20, is_first=True)
        assert (read.error_code, read.size_bytes, read.high_watermark) == (0, 0, 0)
        wait = FetchWait(one.bench.partitions, [wanted], LIMITS, [read], lambda reads: reads)
        one.append(batch(3), high_watermark=3)
        one.bench.manager.inbox.take()
        async with asyncio.timeout(10):
            (answered,) = await wait.future
        assert (answered.size_bytes > 0, answered.high_watermark) == (True, 3)

    run(test)


def test_consumer_between_the_high_watermark_and_the_end_waits(run):
    """ISR-77, ISR-78, ISR-79, RINV-10, RINV-73: OFFSET_OUT_OF_RANGE only behind the end of this replica's log."""

    def test(one):
        one.append(b"".join(batch(offset) for offset in range(10)), high_watermark=4)
        found = {}
        for offset in (3, 4, 7, 10, 11):
            read = read_partition(one.bench.partitions, asks(offset), LIMITS, 1 << 20, is_first=True)
            found[offset] = (read.error_code, read.size_bytes > 0, read.high_watermark)
        assert found == {
            3: (0, True, 4),
            4: (0, False, 4),
            7: (0, False, 4),
            10: (0, False, 4),
            11: (1, False, -1),
        }
        read = read_partition(one.bench.partitions, asks(0), LIMITS, 1 << 20, is_first=True)
        assert read.records is not None
        assert read.size_bytes == 4 * len(batch(0)), "nothing at or above the high watermark"

    run(test)


def test_consumer_of_an_old_version_is_sent_to_the_leader(run):
    """LEPO-05: before version 11 a follower answers NOT_LEADER_OR_FOLLOWER."""

    def test(one):
        limits = FetchLimits(isolation_level=0, max_bytes=1, max_wait_ms=0, min_bytes=0, uses_topic_ids=True)
        read = read_partition(one.bench.partitions, asks(0), limits, 1, is_first=True)
        assert read.error_code == 6
        missing = SessionPartition("", Uuid(b"x" * 16), 0, 1, 0, -1, -1, -1)
        assert read_partition(one.bench.partitions, missing, LIMITS, 1, is_first=True).error_code == 100

    run(test)


def test_fetch_that_waits_is_answered_at_once_when_its_epoch_diverges(run):
    """LEPO-09."""

    async def test(one):
        one.append(b"".join(batch(offset, epoch=3) for offset in range(4)), high_watermark=4)
        wanted = SessionPartition("", FIRST, 0, 1 << 20, 4, -1, 3, -1)
        read = read_partition(one.bench.partitions, wanted, LIMITS, 1 << 20, is_first=True)
        assert (read.error_code, read.diverging_epoch, read.size_bytes) == (0, None, 0)
        wait = FetchWait(one.bench.partitions, [wanted], LIMITS, [read], lambda reads: reads)
        await asyncio.sleep(0)
        assert not wait.future.done()
        one.cut(2)
        one.bench.manager.inbox.take()
        async with asyncio.timeout(10):
            (answered,) = await wait.future
        assert (answered.error_code, answered.diverging_epoch, answered.size_bytes) == (0, (3, 2), 0)

    run(test)
