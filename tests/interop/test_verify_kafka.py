"""Directories of a real Kafka that stopped cleanly: `verify` finds no fault, and timestamps are found as Kafka does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import kraftlog
from interop.clients import create_topic
from interop.conftest import make_server
from interop.harness import Java, Server
from kraftlog import _kraftlog

# How many records DeleteRecords leaves of each topic; None for all of them.
LEFT = {"kept": None, "emptied": 0, "cut": 3}
TIMES = (100, 300, 200, 400, 5_000, 600)
ROUNDS = 3


@dataclass(frozen=True)
class Stopped:
    """What a stopped Kafka left, and what it answered before."""

    data_dir: Path
    times: dict[int, int]  # timestamp that was asked for, to the offset of ListOffsets for "kept"
    ends: dict[str, tuple[int, int]]


def write_transactions(server: Server, topic: str) -> None:
    """One transaction that is committed and one that is aborted, with record times in the past."""
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "transactional.id": f"writer-{topic}", "linger.ms": 0, "log_level": 2}
    )
    producer.init_transactions(30)
    for is_committed in (True, False):
        producer.begin_transaction()
        for timestamp in TIMES:
            producer.produce(topic, b"value", partition=0, timestamp=timestamp)
        producer.flush(30)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def watermarks(consumer: Consumer, topic: str) -> tuple[int, int]:
    return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)


def times_around_markers(started_ms: int, ended_ms: int) -> list[int]:
    later = range(started_ms, ended_ms + 2, max((ended_ms - started_ms) // 200, 1))
    return [*{near for time_ms in TIMES for near in (time_ms - 1, time_ms, time_ms + 1)}, *later]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[Stopped]:
    server = make_server("kafka", tmp_path_factory.mktemp("verify") / "kafka", java, {})
    started_ms = int(time.time() * 1000)
    try:
        # Each start is a leader epoch of its own.
        for number in range(ROUNDS):
            server.start()
            for topic in LEFT:
                if number == 0:
                    create_topic(server.bootstrap, topic, retention_ms="-1")
                write_transactions(server, topic)
            if number < ROUNDS - 1:
                server.stop()
        reader = {"bootstrap.servers": server.bootstrap, "group.id": "reader", "log_level": 2}
        consumer = Consumer({**reader, "isolation.level": "read_uncommitted"})
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
        for topic, left in LEFT.items():
            if left is not None:
                target = TopicPartition(topic, 0, watermarks(consumer, topic)[1] - left)
                for future in admin.delete_records([target]).values():
                    future.result(30)
        ends = {topic: watermarks(consumer, topic) for topic in LEFT}
        times = {}
        for timestamp in times_around_markers(started_ms, int(time.time() * 1000)):
            (found,) = consumer.offsets_for_times([TopicPartition("kept", 0, timestamp)], timeout=30)
            # librdkafka has the end of the log for a time after the last record.
            times[timestamp] = found.offset
        consumer.close()
        server.stop()
        yield Stopped(server.data_dir, times, ends)
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("topic", LEFT)
def test_a_partition_after_delete_records_is_sound(stopped: Stopped, topic: str) -> None:
    log = kraftlog.open_log(stopped.data_dir / f"{topic}-0")
    left = LEFT[topic]
    assert (log.log_start_offset, log.log_end_offset) == stopped.ends[topic]
    if left is not None:
        assert log.log_end_offset - log.log_start_offset == left
    assert json.loads(_kraftlog.verify_files([log.path]))["findings"] == []


def test_a_log_directory_after_delete_records_is_sound(stopped: Stopped) -> None:
    report = json.loads(_kraftlog.verify_files([stopped.data_dir]))
    assert report["status"] == "sound", report["findings"]
    assert report["findings"] == []


def test_timestamps_are_found_where_kafka_finds_them(stopped: Stopped) -> None:
    log = kraftlog.open_log(stopped.data_dir / "kept-0")
    end = log.log_end_offset
    found = {timestamp: log.offset_for_timestamp(timestamp) for timestamp in stopped.times}
    assert {
        timestamp: end if found_offset is None else found_offset.offset for timestamp, found_offset in found.items()
    } == {timestamp: end if offset < 0 else offset for timestamp, offset in stopped.times.items()}
    markers = {
        row["offset"]
        for batch in log.scan(columns=["offset", "is_control"], include_control=True)
        for row in _rows(batch)
        if row["is_control"]
    }
    assert markers & set(stopped.times.values()), "no answer of Kafka's is a marker"


def _rows(batch: object) -> list[dict[str, object]]:
    import pyarrow as pa

    return pa.record_batch(batch).to_pylist()
