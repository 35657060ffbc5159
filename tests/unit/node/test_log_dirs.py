"""Data directories that fail, and what topic settings do to the logs in them."""

from __future__ import annotations

import contextlib
import errno
import logging
import signal
from pathlib import Path

import pytest

import kraftlog
from kraftlog._kraftlog import RecoveryProgress, encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.node.config import NodeConfig
from kraftlog.node.node import Node
from kraftlog.node.process import run_node
from kraftlog.node.standalone import format_when_needed, standalone_properties
from kraftlog.runtime.replica.log_recovery import LogRecovery, RecoveryJob
from kraftlog.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient
from waiting import until_true

SEGMENT = "00000000000000000000.log"


def produce_error(client: RawClient, topic: str, index: int, value: bytes = b"x") -> int:
    records = encode_batch([(1000, None, value, [])])
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    response = client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic_data]), 11)
    return response.responses[0].partition_responses[0].error_code


def latest_offset_error(client: RawClient, topic: str, index: int) -> int:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    )
    return client.call(request, 5).topics[0].partitions[0].error_code


def partition_of(broker: kraftlog.Broker, topic: str, index: int = 0):
    return broker._embedded.running.partitions.get_by_name(topic, index)


@contextlib.contextmanager
def full_disk(segment: Path):
    """Every write to this segment fails with ENOSPC."""
    aside = segment.with_suffix(".aside")
    segment.rename(aside)
    segment.symlink_to("/dev/full")
    yield
    segment.unlink()
    aside.rename(segment)


@pytest.mark.parametrize("text", ["1\n0\n", "0\n3\nt 0 1\n", "0\n1\nt 0 x\n"], ids=["version", "count", "offset"])
def test_directory_with_a_damaged_checkpoint_is_offline(tmp_path, caplog, text):
    """ISR-89: it is not taken for an empty one; the other directory goes on."""
    paths = {"log_dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}", "auto_create_topics_enable": False}
    with kraftlog.Broker(tmp_path / "a", **paths) as broker:
        broker.create_topic("t", partitions=4)
        with RawClient(broker.bootstrap_servers) as client:
            assert [produce_error(client, "t", index) for index in range(4)] == [0] * 4
    lost = sorted(int(path.name.rpartition("-")[2]) for path in (tmp_path / "b").glob("t-*"))
    checkpoint = tmp_path / "b" / REPLICATION_OFFSET_CHECKPOINT
    checkpoint.write_text(text)
    with kraftlog.Broker(tmp_path / "a", **paths) as broker, RawClient(broker.bootstrap_servers) as client:
        codes = [produce_error(client, "t", index) for index in range(4)]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR if index in lost else 0 for index in range(4)]
    assert checkpoint.read_text() == text
    assert f"{tmp_path / 'b'} is offline: {checkpoint} line" in caplog.text


@pytest.mark.spec("DISK-40", "LEPO-07", "CERR-13")
def test_failed_directory_goes_offline_and_the_others_go_on(tmp_path, caplog):
    paths = {"log_dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}", "auto_create_topics_enable": False}
    with kraftlog.Broker(tmp_path / "a", **paths) as broker:
        broker.create_topic("t", partitions=4)
        with RawClient(broker.bootstrap_servers) as client:
            assert [produce_error(client, "t", index) for index in range(4)] == [0] * 4
    lost = sorted(int(path.name.rpartition("-")[2]) for path in (tmp_path / "b").glob("t-*"))
    kept = [index for index in range(4) if index not in lost]
    assert len(lost) == len(kept) == 2
    with full_disk(tmp_path / "b" / f"t-{lost[0]}" / SEGMENT):
        with kraftlog.Broker(tmp_path / "a", **paths) as broker, RawClient(broker.bootstrap_servers) as client:
            assert produce_error(client, "t", lost[0]) == ErrorCode.KAFKA_STORAGE_ERROR
            until_true(lambda: partition_of(broker, "t", lost[1]) is None)
            for index in lost:
                assert produce_error(client, "t", index) == ErrorCode.KAFKA_STORAGE_ERROR
                assert latest_offset_error(client, "t", index) == ErrorCode.KAFKA_STORAGE_ERROR
            for index in kept:
                assert produce_error(client, "t", index) == 0
            results = client.call(DescribeLogDirsRequest(topics=None), 4).results
            found = {Path(result.log_dir).name: result.error_code for result in results}
            assert found == {"a": 0, "b": ErrorCode.KAFKA_STORAGE_ERROR}
            # What is new goes where it can be written; the lost ones are not made anew there.
            broker.create_topic("new", partitions=2)
            assert produce_error(client, "new", 0) == produce_error(client, "new", 1) == 0
            assert not list((tmp_path / "b").glob("new-*"))
            assert sorted(path.name for path in (tmp_path / "a").glob("t-*")) == [f"t-{index}" for index in kept]
        assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
        assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert "stopping to serve the replicas in" in caplog.text
    with kraftlog.Broker(tmp_path / "a", **paths) as broker, RawClient(broker.bootstrap_servers) as client:
        for index in range(4):
            assert partition_of(broker, "t", index).log.log_end_offset == (1 if index in lost else 2)
            assert produce_error(client, "t", index) == 0


def test_directory_that_cannot_be_read_at_start_is_offline(tmp_path):
    paths = {"log_dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}", "auto_create_topics_enable": False}
    with kraftlog.Broker(tmp_path / "a", **paths) as broker:
        broker.create_topic("t", partitions=4)
        with RawClient(broker.bootstrap_servers) as client:
            assert [produce_error(client, "t", index) for index in range(4)] == [0] * 4
    lost = {int(path.name.rpartition("-")[2]) for path in (tmp_path / "b").glob("t-*")}
    properties = tmp_path / "b" / "meta.properties"
    aside = properties.rename(tmp_path / "aside")
    properties.mkdir()
    with kraftlog.Broker(tmp_path / "a", **paths) as broker, RawClient(broker.bootstrap_servers) as client:
        found = {index: produce_error(client, "t", index) for index in range(4)}
        assert found == {index: ErrorCode.KAFKA_STORAGE_ERROR if index in lost else 0 for index in range(4)}
        broker.create_topic("new")
        assert produce_error(client, "new", 0) == 0
        assert len(list((tmp_path / "a").glob("t-*"))) == 2
    properties.rmdir()
    aside.rename(properties)
    with kraftlog.Broker(tmp_path / "a", **paths) as broker:
        ends = {index: partition_of(broker, "t", index).log.log_end_offset for index in range(4)}
        assert ends == {index: 1 if index in lost else 2 for index in range(4)}


@pytest.mark.spec("DISK-40")
def test_last_directory_that_fails_ends_the_node(tmp_path):
    with kraftlog.Broker(tmp_path) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as client:
            assert produce_error(client, "t", 0) == 0
    with full_disk(tmp_path / "t-0" / SEGMENT):
        broker = kraftlog.Broker(tmp_path)
        with broker, RawClient(broker.bootstrap_servers) as client:
            node = broker._embedded.running
            assert produce_error(client, "t", 0) == ErrorCode.KAFKA_STORAGE_ERROR
            until_true(lambda: node.metadata.failure is not None)
            assert node.metadata.failed.is_set()
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with kraftlog.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert partition_of(broker, "t").log.log_end_offset == 1
        assert produce_error(client, "t", 0) == 0


def test_flush_settings_of_a_topic_flush(tmp_path):
    with kraftlog.Broker(tmp_path, log_flush_on_ack=False) as broker, RawClient(broker.bootstrap_servers) as client:
        settings = {"never": {}, "in-time": {"flush.ms": 30}, "by-count": {"flush.messages": 3}}
        for topic, setting in settings.items():
            broker.create_topic(topic, config=setting)
            for _ in range(2):
                assert produce_error(client, topic, 0) == 0
        logs = {topic: partition_of(broker, topic).log for topic in settings}
        until_true(lambda: logs["in-time"].recovery_point == 2)
        assert (logs["never"].recovery_point, logs["by-count"].recovery_point) == (0, 0)
        assert produce_error(client, "by-count", 0) == 0
        until_true(lambda: logs["by-count"].recovery_point == 3)
        # The clock starts again with the next record.
        assert produce_error(client, "in-time", 0) == 0
        until_true(lambda: logs["in-time"].recovery_point == 3)
        assert logs["never"].recovery_point == 0


def test_log_settings_of_a_topic_change_its_log(tmp_path):
    with kraftlog.Broker(tmp_path, log_flush_on_ack=False) as broker, RawClient(broker.bootstrap_servers) as client:
        broker.create_topic("pre", config={"preallocate": "true", "segment.bytes": 1 << 20})
        broker.create_topic("index", config={"index.interval.bytes": 0, "segment.index.bytes": 36})
        for _ in range(12):
            assert produce_error(client, "pre", 0) == produce_error(client, "index", 0) == 0
        assert (tmp_path / "pre-0" / SEGMENT).stat().st_size == 1 << 20
        assert partition_of(broker, "index").log.segment_count > 2
    size = (tmp_path / "pre-0" / SEGMENT).stat().st_size
    assert size == 12 * len(encode_batch([(1000, None, b"x", [])]))


def test_recovery_reports_logs_segments_and_bytes(tmp_path, caplog):
    with kraftlog.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        broker.create_topic("t", partitions=3, config={"segment.index.bytes": 36, "index.interval.bytes": 0})
        for index in range(3):
            for _ in range(10):
                assert produce_error(client, "t", index) == 0
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / RECOVERY_POINT_CHECKPOINT).unlink()
    with caplog.at_level(logging.INFO), kraftlog.Broker(tmp_path, num_recovery_threads_per_data_dir=6) as broker:
        recovery = broker._embedded.running.replicas.recovery
        assert recovery.remaining_logs == {str(tmp_path): 0}
        assert recovery.remaining_segments == 0
        assert recovery.bytes_done == recovery.bytes_total > 0
        assert partition_of(broker, "t", 2).log.log_end_offset == 10
    assert "recovering 3 logs from" in caplog.text
    assert "(3/3 completed in" in caplog.text


def test_recovery_that_cuts_acknowledged_records_is_told_with_file_and_position(tmp_path, caplog):
    with kraftlog.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        for _ in range(3):
            assert produce_error(client, "t", 0) == 0
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / RECOVERY_POINT_CHECKPOINT).unlink()
    segment = tmp_path / "t-0" / SEGMENT
    batch_bytes = segment.stat().st_size // 3
    data = bytearray(segment.read_bytes())
    data[2 * batch_bytes - 2] ^= 1
    segment.write_bytes(data)
    with caplog.at_level(logging.WARNING), kraftlog.Broker(tmp_path):
        pass
    assert (
        f"{segment}, position {batch_bytes}, offset 1: a batch whose checksum differs; the file was cut" in caplog.text
    )
    assert f"{tmp_path / 't-0'} ends at offset 1, before its checkpointed high watermark 3" in caplog.text
    assert f"opening the logs in {tmp_path} found damage: 1 segment-cut; {2 * batch_bytes} bytes" in caplog.text


def test_recovery_point_beyond_the_log_is_lowered_before_anything_is_appended(tmp_path):
    with kraftlog.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        assert produce_error(client, "t", 0) == 0
    (tmp_path / ".kafka_cleanshutdown").unlink()
    write_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT, {TopicPartition("t", 0): 77})
    with kraftlog.Broker(tmp_path):
        assert read_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT) == {TopicPartition("t", 0): 1}


def test_log_that_cannot_be_opened_does_not_stop_the_recovery(tmp_path):
    def fails(threads: int, progress: RecoveryProgress):
        raise OSError(5, "broken")

    class Directory:
        path = tmp_path

    recovery = LogRecovery([RecoveryJob(TopicPartition("t", 0), Directory(), fails)], 2)
    assert recovery.remaining_logs == {str(tmp_path): 1}
    assert recovery.run() == {}
    assert recovery.remaining_logs == {str(tmp_path): 0}
    assert read_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT) == {}


def test_checkpoints_of_a_log_that_cannot_be_opened_are_kept(tmp_path):
    key = TopicPartition("t", 0)
    with kraftlog.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        with RawClient(broker.bootstrap_servers) as client:
            for _ in range(3):
                assert produce_error(client, "t", 0) == 0
    start_offsets, recovery_points = tmp_path / LOG_START_OFFSET_CHECKPOINT, tmp_path / RECOVERY_POINT_CHECKPOINT
    write_offset_checkpoint(start_offsets, {key: 2})
    metadata = tmp_path / "t-0" / "partition.metadata"
    text = metadata.read_bytes()
    metadata.write_bytes(b"nothing that can be read")
    with kraftlog.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert produce_error(client, "t", 0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce_error(client, "t", 1) == 0
    assert read_offset_checkpoint(start_offsets)[key] == 2
    assert read_offset_checkpoint(recovery_points)[key] == 3
    metadata.write_bytes(text)
    with kraftlog.Broker(tmp_path) as broker:
        assert partition_of(broker, "t").log.log_start_offset == 2
    assert read_offset_checkpoint(start_offsets)[key] == 2


@pytest.mark.parametrize(("failing", "status"), [("a", 1), ("b", 0), ("ab", 1)])
def test_process_ends_with_1_if_its_last_directory_or_that_of_the_metadata_fails(tmp_path, failing, status):
    """RDLT-50: directory a has the metadata log."""
    paths = [tmp_path / "a", tmp_path / "b"]
    properties = standalone_properties(
        paths[0], port=0, is_durable=False, changes={"log.dirs": ",".join(map(str, paths))}
    )
    config = NodeConfig(properties)
    format_when_needed(config)
    seen = []

    def started(node):
        for log_dir in list(node.log_dirs):
            if log_dir.path.name in failing:
                node.replicas.fail_log_dir(log_dir, OSError(errno.EIO, "broken"))
        seen.append(node.metadata.failure is not None)
        if not seen[0]:
            node.loop.call_soon(signal.raise_signal, signal.SIGTERM)

    assert run_node(Node(config), started) == status
    assert seen == [status == 1]
