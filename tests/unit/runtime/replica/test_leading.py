"""What a leader does with the fetches of its followers, over a real log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kraftlog._kraftlog import append_fetched, encode_batch
from kraftlog.api.handlers import list_offsets
from kraftlog.errors import ErrorCode, LogError
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from kraftlog.wire.messages.metadata_records import PartitionChangeRecord, RegisterBrokerRecord
from replica_bench import FIRST, NODE, Bench

NOW_MS = 1_700_000_000_000


def batch(base_offset=0, *, key=None, value=b"x", **fields):
    return encode_batch([(NOW_MS, key, value, [])], base_offset=base_offset, **fields)


class Leader:
    """Node 1 leads in epoch 1; ten records, of which it wrote four as a follower in epoch 0; replica 2 is in sync."""

    def __init__(self, bench):
        self.bench = bench
        self.partition = bench.partitions.get(FIRST, 0)
        self.replica = self.partition.replica

    def fetch(self, offset, *, epoch=1, last_epoch=-1, log_start=0, replica_id=2, is_arrival=True):
        """Error code, where to truncate to, and the high watermark afterwards."""
        answer = self.replica.follower_fetch(
            replica_id=replica_id,
            broker_epoch=-1,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            log_start_offset=log_start,
            now_ms=NOW_MS,
            is_arrival=is_arrival,
        )
        return answer[0], answer[1], self.partition.high_watermark


@pytest.fixture
def run(tmp_path):
    def run(test):
        async def main():
            bench = Bench(tmp_path)
            try:
                bench.create(replicas=(NODE, 2), leader=2)
                await bench.settle()
                records = b"".join(batch(offset, partition_leader_epoch=0) for offset in range(4))
                replica = bench.partitions.get(FIRST, 0).replica
                append_fetched([(replica, records, 0, 0, 0, 0)], now_ms=NOW_MS, flush=False)
                bench.commit(
                    RegisterBrokerRecord(broker_id=2, broker_epoch=20, fenced=False),
                    PartitionChangeRecord(topic_id=FIRST, partition_id=0, leader=NODE),
                )
                await bench.settle()
                for _ in range(6):
                    replica.append(batch(), acks=1, now_ms=NOW_MS)
                await test(Leader(bench))
            finally:
                await bench.manager.fetchers.stop()
                for log_dir in bench.log_dirs:
                    log_dir.release()

        asyncio.run(main())

    return run


@pytest.mark.parametrize(
    ("asked", "code", "diverging"),
    [
        ({"offset": 9, "last_epoch": 0}, ErrorCode.NONE, (0, 4)),  # RINV-58: KAFKA-13141
        ({"offset": 9, "epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH, None),  # RINV-59: KAFKA-6880
        ({"offset": 9, "epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH, None),
        ({"offset": 11}, ErrorCode.OFFSET_OUT_OF_RANGE, None),
        ({"offset": 1 << 50}, ErrorCode.OFFSET_OUT_OF_RANGE, None),
        ({"offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE, None),
        ({"offset": 9, "replica_id": 7}, ErrorCode.UNKNOWN_LEADER_EPOCH, None),
        ({"offset": 9, "last_epoch": 1, "is_arrival": False}, ErrorCode.NONE, None),
    ],
)
def test_fetch_that_is_refused_diverges_or_looks_again_moves_nothing(run, asked, code, diverging):
    """ISR-16, RINV-58, RINV-59: stale epochs, foreign replicas and offsets that are not there."""

    async def test(one):
        assert one.fetch(5, last_epoch=1) == (0, None, 5)
        assert one.fetch(**asked) == (code, diverging, 5)
        assert one.replica.in_sync_followers_with(5) == [(2, 5, one.replica.in_sync_followers_with(5)[0][2])]
        assert one.fetch(10, last_epoch=1) == (0, None, 10)

    run(test)


def test_a_follower_that_knows_of_its_assignment_before_the_leader_is_served_once_the_leader_knows(run):
    """RFET-79."""

    async def test(one):
        assert one.fetch(9, replica_id=7)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        one.bench.commit(
            RegisterBrokerRecord(broker_id=7, broker_epoch=70, fenced=False),
            PartitionChangeRecord(topic_id=FIRST, partition_id=0, replicas=(NODE, 2, 7), adding_replicas=(7,)),
        )
        await one.bench.settle()
        assert one.fetch(9, replica_id=7, last_epoch=1)[:2] == (ErrorCode.NONE, None)

    run(test)


def test_follower_below_the_log_start_is_out_of_range_and_not_told_to_truncate(run):
    """RINV-51: KAFKA-12996."""

    async def test(one):
        one.fetch(10, last_epoch=1)
        one.partition.delete_records(6)
        assert one.fetch(3, last_epoch=0)[:2] == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
        assert one.fetch(6, last_epoch=1)[:2] == (0, None)
        # Epoch 2 was another leader's: of the follower's last record this leader has only the epoch before.
        for leader in (2, NODE):
            one.bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=0, leader=leader))
            await one.bench.settle()
        one.replica.append(batch(), acks=1, now_ms=NOW_MS)
        assert one.fetch(7, epoch=3, last_epoch=2)[:2] == (0, (1, 10))
        assert one.fetch(5, epoch=3, last_epoch=2)[:2] == (ErrorCode.OFFSET_OUT_OF_RANGE, None)

    run(test)


def test_low_watermark_waits_for_live_followers(run):
    """ISR-82, ISR-83: a fenced follower is not waited for."""

    async def test(one):
        one.fetch(10, last_epoch=1)
        one.partition.delete_records(6)
        assert one.replica.low_watermark == 0
        one.fetch(10, last_epoch=1, log_start=4)
        assert one.replica.low_watermark == 4
        one.fetch(10, last_epoch=1, log_start=6)
        assert one.replica.low_watermark == 6
        one.partition.delete_records(8)
        assert one.replica.low_watermark == 6
        one.replica.update_live_brokers([])
        assert one.replica.low_watermark == 8

    run(test)


def test_finished_transaction_is_stable_once_its_marker_is_committed(run):
    """ISR-80, ISR-81."""

    async def test(one):
        one.fetch(10, last_epoch=1)
        assert one.partition.last_stable_offset == 10
        producer = {"producer_id": 7, "producer_epoch": 0}
        one.replica.append(batch(base_sequence=0, transactional=True, **producer), acks=1, now_ms=NOW_MS)
        one.fetch(11, last_epoch=1)
        assert (one.partition.high_watermark, one.partition.last_stable_offset) == (11, 10)
        marker = batch(
            key=b"\0\0\0\1", value=b"\0\0\0\0\0\0", transactional=True, control=True, base_sequence=-1, **producer
        )
        one.replica.append(marker, acks=1, now_ms=NOW_MS, origin="coordinator", transaction_version=0)
        assert one.partition.last_stable_offset == 10, "the high watermark is below the marker"
        one.fetch(12, last_epoch=1)
        assert (one.partition.high_watermark, one.partition.last_stable_offset) == (12, 12)

    run(test)


def listed(one, timestamp=-1, *, version=11, replica_id=-1, isolation=0):
    """Error code and offset of ListOffsets."""
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])
    request = ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation, topics=[topic])
    answer = list_offsets.handle(SimpleNamespace(api_version=version), request, replicas=one.bench.partitions)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.offset


def test_latest_offset_depends_on_the_isolation_level_and_on_who_asks(run):
    """LEPO-30: last stable offset, high watermark, or the end of the log for followers and for debugging."""

    async def test(one):
        one.fetch(10, last_epoch=1)
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        one.replica.append(batch(transactional=True, **producer), acks=1, now_ms=NOW_MS)
        one.replica.append(batch(), acks=1, now_ms=NOW_MS)
        one.fetch(11, last_epoch=1)
        assert listed(one, isolation=1) == (0, 10)
        assert listed(one, isolation=0) == (0, 11)
        for isolation in (0, 1):
            assert listed(one, replica_id=2, isolation=isolation) == (0, 12)
            assert listed(one, replica_id=-2, isolation=isolation) == (0, 12)

    run(test)


def test_latest_offset_of_a_new_leader_is_not_available_before_its_epoch_is_committed(run):
    """ISR-74, RINV-12, RINV-72: KAFKA-2334; its predecessor may have told consumers any offset up to 4."""

    async def test(one):
        for committed in (0, 3):
            assert one.partition.high_watermark == committed
            for isolation in (0, 1):
                assert listed(one, isolation=isolation) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
                assert listed(one, isolation=isolation, version=5) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
                assert listed(one, isolation=isolation, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            assert listed(one, replica_id=2) == (0, 10)
            assert listed(one, timestamp=-2) == (0, 0)
            one.fetch(3 if not committed else 4, last_epoch=0)
        assert listed(one) == (0, 4)

    run(test)


def test_repeated_batch_is_acknowledged_once_its_first_append_is_committed(run):
    """PSTA-19."""

    async def test(one):
        one.fetch(10, last_epoch=1)
        records = batch(producer_id=7, producer_epoch=0, base_sequence=0)
        acks: list[int] = []
        offsets = []
        for _ in range(2):
            appended = one.replica.append(records, acks=-1, now_ms=NOW_MS)
            offsets.append((appended.last_offset, appended.duplicate))
            one.partition.wait_for_ack(appended, acks.append)
        one.bench.manager.inbox.take()
        assert (offsets, acks) == ([(10, False), (10, True)], [])
        one.fetch(10, last_epoch=1)
        one.bench.manager.inbox.take()
        assert acks == []
        one.fetch(11, last_epoch=1)
        one.bench.manager.inbox.take()
        assert acks == [0, 0]

    run(test)


def test_leader_that_others_have_replaced_commits_nothing(run):
    """LEPO-61, RINV-25: who knows the next epoch gets UNKNOWN_LEADER_EPOCH and moves nothing."""

    async def test(one):
        one.fetch(10, last_epoch=1)
        acks: list[int] = []
        one.partition.wait_for_ack(one.replica.append(batch(), acks=-1, now_ms=NOW_MS), acks.append)
        for _ in range(3):
            assert one.fetch(11, epoch=2, last_epoch=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, None, 10)
        for epoch, code in ((2, ErrorCode.UNKNOWN_LEADER_EPOCH), (1, 0), (-1, 0)):
            assert one.replica.check_leader_epoch(epoch) == code
        one.bench.manager.inbox.take()
        assert acks == []
        one.bench.commit(PartitionChangeRecord(topic_id=FIRST, partition_id=0, leader=2))
        await one.bench.settle()
        one.bench.manager.inbox.take()
        assert acks == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert one.partition.high_watermark == 10

    run(test)


@pytest.mark.parametrize(("version", "epoch"), [(0, 0), (2, 1), (None, 1)])
def test_marker_needs_the_version_of_its_transaction(run, version, epoch):
    """PSTA-39: without a stated version it is refused as a programming error, and nothing is appended."""

    async def test(one):
        fields = {"producer_id": 7, "producer_epoch": 0}
        one.replica.append(batch(base_sequence=0, transactional=True, **fields), acks=1, now_ms=NOW_MS)
        fields["producer_epoch"] = epoch
        marker = batch(
            key=b"\0\0\0\1", value=b"\0\0\0\0\0\0", transactional=True, control=True, base_sequence=-1, **fields
        )
        stated = {} if version is None else {"transaction_version": version}
        end_offset = one.replica.log_end_offset
        if version is None:
            with pytest.raises(LogError, match="transaction version"):
                one.replica.append(marker, acks=1, now_ms=NOW_MS, origin="coordinator")
            assert one.replica.log_end_offset == end_offset
        else:
            one.replica.append(marker, acks=1, now_ms=NOW_MS, origin="coordinator", **stated)
            assert one.replica.log_end_offset == end_offset + 1

    run(test)
