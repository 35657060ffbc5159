"""Where a replica's high watermark begins, when the checkpoint and the log do not agree."""

from __future__ import annotations

import time

import pytest

import kraftlog
from kraftlog._kraftlog import Log, LogConfig, encode_batch, read_batches
from kraftlog.runtime.replica.log_opener import first_high_watermark
from kraftlog.storage.checkpoints import REPLICATION_OFFSET_CHECKPOINT, read_offset_checkpoint, write_offset_checkpoint
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient


@pytest.mark.spec("DISK-51")
@pytest.mark.parametrize(("checkpointed", "expected"), [(0, 2), (1, 2), (2, 2), (4, 4), (5, 5), (6, 5), (99, 5)])
def test_checkpoint_outside_the_log_is_moved_to_its_end_or_start(tmp_path, checkpointed, expected):
    log = Log.open(tmp_path / "t-0", config=LogConfig(), now_ms=time.time_ns() // 1_000_000)
    for value in range(5):
        records = encode_batch([(1000, None, b"%d" % value, [])])
        log.append_as_leader(records, leader_epoch=0, now_ms=1000, origin="coordinator")
    log.update_high_watermark(5)
    log.advance_log_start_offset(2)
    assert first_high_watermark(checkpointed, log) == expected
    log.close()


def produce(client: RawClient, value: bytes) -> None:
    data = ProduceRequest.PartitionProduceData(index=0, records=encode_batch([(1000, None, value, [])]))
    topic_data = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    response = client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic_data]), 11)
    assert response.responses[0].partition_responses[0].error_code == 0


def fetch(client: RawClient) -> tuple[int, list[bytes]]:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[partition])
    data = client.call(FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[topic]), 12).responses[0].partitions[0]
    return data.high_watermark, [value for batch in read_batches(data.records) for _, _, _, value, _ in batch.records()]


@pytest.mark.spec("DISK-51")
def test_checkpoint_beyond_the_log_shows_nothing_that_is_not_there(tmp_path):
    with kraftlog.Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", partitions=1)
        with RawClient(broker.bootstrap_servers) as client:
            produce(client, b"a")
    file = tmp_path / REPLICATION_OFFSET_CHECKPOINT
    assert read_offset_checkpoint(file)[TopicPartition("t", 0)] == 1
    write_offset_checkpoint(file, {TopicPartition("t", 0): 99})
    with kraftlog.Broker(data_dir=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert fetch(client) == (1, [b"a"])
        produce(client, b"b")
        assert fetch(client) == (2, [b"a", b"b"])
