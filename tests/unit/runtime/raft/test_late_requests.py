"""Requests of replicas with numbers that no replica sends, and answers that come late."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kraftlog.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from kraftlog.storage.snapshot_file import list_snapshots
from kraftlog.types import Uuid
from kraftlog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlog.wire.messages.vote import VoteRequest
from quorum_fixture import format_directory, register_broker, started

HUGE = (1 << 31) - 1


@pytest.fixture
def path(tmp_path):
    directory = tmp_path / "data"
    format_directory(directory)
    return directory


def fetch_request(quorum, **fields):
    partition = FetchRequest.FetchPartition(
        partition=0,
        current_leader_epoch=quorum.replica.raft.epoch,
        fetch_offset=fields.pop("fetch_offset", 0),
        last_fetched_epoch=fields.pop("last_fetched_epoch", 0),
        partition_max_bytes=fields.pop("partition_max_bytes", 0),
    )
    topic = FetchRequest.FetchTopic(topic_id=Uuid.METADATA_TOPIC_ID, partitions=(partition,))
    return FetchRequest(cluster_id=quorum.cluster_id, topics=(topic,), **fields)


async def fetch(quorum, **fields):
    request = fetch_request(quorum, **fields)
    response = await quorum.replica.log.driver.handle_request(request, version=17, listener_name="CONTROLLER")
    return response.responses[0].partitions[0]


@pytest.mark.parametrize(
    ("max_bytes", "partition_max_bytes"), [(-1, 0), (0, -1), (-HUGE, -HUGE), (1, 0), (HUGE, HUGE), (HUGE, 1)]
)
def test_bounds_of_a_fetch_never_keep_the_first_batch_back(path, max_bytes, partition_max_bytes):
    async def run():
        quorum = await started(path)
        found = await fetch(quorum, max_bytes=max_bytes, partition_max_bytes=partition_max_bytes)
        assert found.error_code == 0
        assert len(found.records) > 61
        await quorum.stop()
        assert quorum.failure is None

    asyncio.run(run())


def test_negative_wait_is_an_invalid_request(path):
    async def run():
        quorum = await started(path)
        found = await fetch(quorum, max_wait_ms=-1, max_bytes=1000)
        assert found.error_code == ErrorCode.INVALID_REQUEST
        await quorum.stop()

    asyncio.run(run())


def test_segments_that_go_before_the_answer_leave_it_without_records(path, monkeypatch):
    async def run():
        quorum = await started(path)

        def read(*_, **__):
            raise OffsetOutOfRangeError("the log starts behind 0")

        monkeypatch.setattr(quorum.replica.log.log, "read", read)
        found = await fetch(quorum, max_bytes=1000)
        assert (found.error_code, bytes(found.records)) == (0, b"")
        monkeypatch.undo()
        assert len((await fetch(quorum, max_bytes=1000)).records) > 61
        await quorum.stop()
        assert quorum.failure is None

    asyncio.run(run())


@pytest.mark.parametrize("max_bytes", [-1, 0, 7, HUGE])
def test_pieces_of_a_snapshot_are_bounded(path, max_bytes, monkeypatch):
    monkeypatch.setattr("kraftlog.runtime.raft.codec.fetch_snapshot._CHUNK_MAX_BYTES", 100)

    async def run():
        quorum = await started(path, **{"metadata.log.max.record.bytes.between.snapshots": "1"})
        await register_broker(quorum)
        await quorum.replica.log.snapshots.finish()
        await asyncio.sleep(0)
        found = [snapshot for snapshot in list_snapshots(quorum.replica.log.log.directory) if snapshot.end_offset]
        partition = FetchSnapshotRequest.PartitionSnapshot(
            partition=0,
            current_leader_epoch=quorum.replica.raft.epoch,
            snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=found[-1].end_offset, epoch=found[-1].epoch),
            position=3,
        )
        topic = FetchSnapshotRequest.TopicSnapshot(name="__cluster_metadata", partitions=(partition,))
        request = FetchSnapshotRequest(cluster_id=quorum.cluster_id, max_bytes=max_bytes, topics=(topic,))
        response = await quorum.replica.log.driver.handle_request(request, version=1, listener_name="CONTROLLER")
        answer = response.topics[0].partitions[0]
        assert answer.error_code == 0
        assert answer.size > 103
        assert len(answer.unaligned_records) == min(100, max(0, max_bytes))
        await quorum.stop()

    asyncio.run(run())


def test_what_stops_the_effects_half_way_ends_the_replica(path, monkeypatch, caplog):
    async def run():
        quorum = await started(path)

        def stumble(_):
            raise ZeroDivisionError("a fault of the program")

        monkeypatch.setattr(quorum.replica.log, "on_committed", stumble)
        waiting = quorum.submit(lambda core, _: core.no_op())
        with caplog.at_level(logging.CRITICAL):
            await asyncio.wait([waiting])
        assert isinstance(quorum.failure, ZeroDivisionError)
        assert "ZeroDivisionError" in caplog.text
        await quorum.stop()

    asyncio.run(run())


def test_a_request_that_the_core_refuses_is_the_callers(path):
    async def run():
        quorum = await started(path)
        with pytest.raises(ValueError, match="unknown"):
            quorum.replica.log.driver.tell(_raise_value_error)
        assert quorum.failure is None
        assert quorum.is_leader
        await quorum.stop()

    asyncio.run(run())


@pytest.mark.spec("RPC-05", "FTCH-06", "SNAP-32")
def test_another_cluster_is_refused_before_another_partition(path):
    async def run():
        quorum = await started(path)
        orders = {
            VoteRequest: VoteRequest.TopicData(topic_name="orders"),
            BeginQuorumEpochRequest: BeginQuorumEpochRequest.TopicData(topic_name="orders"),
            EndQuorumEpochRequest: EndQuorumEpochRequest.TopicData(topic_name="orders"),
            FetchSnapshotRequest: FetchSnapshotRequest.TopicSnapshot(name="orders"),
            FetchRequest: FetchRequest.FetchTopic(topic_id=Uuid(bytes([9] * 16))),
        }
        for kind, topic in orders.items():
            for cluster_id in ("another", ""):
                with pytest.raises(KafkaError) as refused:
                    quorum.replica.handle_request(
                        kind(cluster_id=cluster_id, topics=[topic]), version=1, listener_name="CONTROLLER"
                    )
                assert refused.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID, kind
            for cluster_id in (None, quorum.cluster_id):
                with pytest.raises(KafkaError) as refused:
                    quorum.replica.handle_request(
                        kind(cluster_id=cluster_id, topics=[topic]), version=1, listener_name="CONTROLLER"
                    )
                assert refused.value.code in {ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, kind
        await quorum.stop()

    asyncio.run(run())


@pytest.mark.spec("CONN-13", "CONN-14", "CONN-20")
@pytest.mark.parametrize("is_stopped", [True, False])
def test_who_waits_for_an_answer_when_the_replica_ends_is_told(path, is_stopped):
    async def run():
        quorum = await started(path)
        end_offset = quorum.replica.raft.log_end_offset
        waiting = quorum.replica.log.driver.handle_request(
            fetch_request(
                quorum, fetch_offset=end_offset, last_fetched_epoch=quorum.replica.raft.epoch, max_wait_ms=60_000
            ),
            version=17,
            listener_name="CONTROLLER",
        )
        await asyncio.sleep(0)
        assert not waiting.done()
        if is_stopped:
            await quorum.replica.log.driver.stop()
        else:
            quorum.replica.log.driver.fail(OSError("the disk is gone"))
        with pytest.raises(KafkaError) as told:
            await waiting
        assert told.value.code == ErrorCode.BROKER_NOT_AVAILABLE
        with pytest.raises(KafkaError) as told:
            quorum.replica.log.driver.handle_request(fetch_request(quorum), version=17, listener_name="CONTROLLER")
        assert told.value.code == ErrorCode.BROKER_NOT_AVAILABLE
        await quorum.stop()

    asyncio.run(run())


@pytest.mark.spec("HWM-13")
def test_notices_are_logged_as_warnings_and_not_repeated_at_once(path, caplog):
    async def run():
        quorum = await started(path)
        driver = quorum.replica.log.driver
        with caplog.at_level(logging.WARNING):
            for text in ("one", "one", "two"):
                driver.tell(lambda text=text: quorum.replica.raft._replica.note(text))
            driver._noticed["one"] -= 11
            driver.tell(lambda: quorum.replica.raft._replica.note("one"))
        told = [
            (record.levelname, record.getMessage()) for record in caplog.records if "replica 1" in record.getMessage()
        ]
        assert told == [("WARNING", f"replica 1: {text}") for text in ("one", "two", "one")]
        await quorum.stop()

    asyncio.run(run())


def _raise_value_error():
    raise ValueError("unknown")
