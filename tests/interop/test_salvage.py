"""A log that a real Kafka wrote, damaged, salvaged, and opened by a real Kafka again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from interop.clients import ConfluentKafka, create_topic
from interop.conftest import make_server
from interop.harness import Java, Server
from interop.kafka_tools import assert_dump_accepts
from interop.workload import make_records
from kraftlog import _kraftlog

TOPICS = {"salvage-none": "none", "salvage-zstd": "zstd"}
RECORD_COUNT = 3_200
# A client puts what it has into one batch: each of so many clients makes one at least.
BATCHES_MIN = 16


def read_all(server: Server, topic: str) -> dict[int, bytes | None]:
    """Offset to value of everything that a read_committed consumer gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        consumer.assign([TopicPartition(topic, 0, low)])
        found: dict[int, bytes | None] = {}
        while not found or max(found) < high - 1:
            message = consumer.poll(20)
            assert message is not None, f"{topic}: nothing more after {len(found)} records, high watermark {high}"
            assert message.error() is None, message.error()
            found[message.offset()] = message.value()
        return found
    finally:
        consumer.close()


def spoil(segment: Path) -> None:
    """A wrong byte in the second quarter, a length that makes no sense in the third."""
    data = bytearray(segment.read_bytes())
    starts = []
    at = 0
    while at + 61 <= len(data):
        starts.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    assert len(starts) > 12, "too few batches to damage two"
    data[starts[len(starts) // 4] + 100] ^= 1
    bad = starts[len(starts) // 2]
    data[bad + 8 : bad + 12] = b"\x7f\xff\xff\xff"
    segment.write_bytes(data)


@pytest.mark.slow
def test_a_salvaged_directory_opens_in_kafka_with_all_but_the_damaged_batches(tmp_path: Path, java: Java) -> None:
    server = make_server("kafka", tmp_path / "kafka", java, {})
    try:
        server.start()
        for topic, codec in TOPICS.items():
            create_topic(server.bootstrap, topic, segment_bytes="1048576", retention_ms="-1")
            for seed in range(BATCHES_MIN):
                records = make_records(RECORD_COUNT // BATCHES_MIN, seed=seed)
                ConfluentKafka().write(server.bootstrap, topic, records, codec, lambda: None)
        before = {topic: read_all(server, topic) for topic in TOPICS}
        server.stop()
        assert json.loads(_kraftlog.verify_files([server.data_dir]))["status"] == "sound"

        for topic in TOPICS:
            spoil(max((server.data_dir / f"{topic}-0").glob("*.log"), key=lambda path: path.stat().st_size))
        damaged = json.loads(_kraftlog.verify_files([server.data_dir]))
        assert damaged["status"] == "problems"
        output = tmp_path / "saved"
        lost: dict[str, set[int]] = {}
        for topic in TOPICS:
            report = json.loads(_kraftlog.salvage_files(server.data_dir / f"{topic}-0", output / topic))
            (partition,) = report["partitions"]
            assert len(partition["losses"]) == 2, partition["losses"]
            assert partition["openTransactions"] == partition["remarks"] == []
            lost[topic] = set()
            for loss in partition["losses"]:
                lost[topic] |= set(range(loss["firstOffset"], loss["lastOffset"] + 1))
            saved = output / topic / f"{topic}-0"
            assert json.loads(_kraftlog.verify_files([saved]))["status"] == "sound"
            assert_dump_accepts(java, saved, has_gaps=True)
            shutil.rmtree(server.data_dir / f"{topic}-0")
            shutil.copytree(saved, server.data_dir / f"{topic}-0")
        # So that Kafka reads every byte of what it is given, instead of trusting a clean stop.
        (server.data_dir / "recovery-point-offset-checkpoint").unlink()
        (server.data_dir / ".kafka_cleanshutdown").unlink()

        server.start()
        for topic in TOPICS:
            after = read_all(server, topic)
            expected = {offset: value for offset, value in before[topic].items() if offset not in lost[topic]}
            assert after == expected
            assert 0 < len(lost[topic]) < RECORD_COUNT
        more = make_records(100, seed=9)
        ConfluentKafka().write(server.bootstrap, "salvage-none", more, "none", lambda: None)
        assert len(read_all(server, "salvage-none")) == len(before["salvage-none"]) - len(lost["salvage-none"]) + 100
    finally:
        server.kill()
