"""A live node compacts while it is written to, and Apache Kafka goes on with what is left.

The producer is one and the same throughout: idempotent, it holds on to its id and its sequences while the directory
moves from our node to a Kafka on the same port, so that a lost producer state would show as an error.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from interop.clients import create_topic
from interop.conftest import make_server
from interop.harness import Java, KraftlogServer, copy_of
from interop.kafka_tools import assert_dump_accepts
from kraftlog._kraftlog import Log, LogConfig, encode_batch
from kraftlog.storage.checkpoints import read_offset_checkpoint
from kraftlog.types import TopicPartition as Key

TOPIC = "compacted"
TRANSACTIONS = "transactions"
CONFIG = {"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.1"}
Message = tuple[int, bytes | None, bytes | None]


def read_all(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    found: list[Message] = []
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                if message.error() is not None:
                    assert message.error().code() == -191, message.error()  # the end of the partition
                    return found
                found.append((message.offset(), message.key(), message.value()))
    raise AssertionError(f"{topic} was not read to its end")


def latest(messages: list[Message]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in messages}


class Writer:
    """Writes random values to few keys and knows the latest of each."""

    def __init__(self, bootstrap: str, codec: str) -> None:
        self.rng = random.Random(7)
        self.values: dict[bytes | None, bytes | None] = {}
        self.count = 0
        self.failures: list[str] = []
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": codec,
                "linger.ms": 2,
                "delivery.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 100,
                "log_level": 2,
            }
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            key = b"key-%d" % self.rng.randrange(300)
            value = None if self.rng.random() < 0.05 else self.rng.randbytes(self.rng.randrange(1500))
            self.producer.produce(TOPIC, value, key, partition=0, on_delivery=self.delivered)
            self.values[key] = value
            self.count += 1
            self.producer.poll(0)
        assert self.producer.flush(60) == 0
        assert not self.failures, self.failures[:3]

    def delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failures.append(str(error))


def wait_for(is_done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def write_transactions(directory: Path) -> tuple[dict[bytes, bytes], int]:
    """Committed and aborted transactions of two producers, compacted; the committed values and what is left of all."""
    now_ms = time.time_ns() // 1_000_000
    log = Log.open(
        directory, config=LogConfig(segment_bytes=1 << 20, cleanup_policy="compact"), now_ms=now_ms, clean_shutdown=True
    )
    rng = random.Random(11)
    committed: dict[bytes, bytes] = {}
    sequences = {5000: 0, 5001: 0}
    for number in range(60):
        producer_id = rng.choice([5000, 5001])
        pairs = [(b"t%d" % rng.randrange(12), b"%d.%d" % (number, index)) for index in range(3)]
        records = [(now_ms, key, value, []) for key, value in pairs]
        log.append_as_leader(
            encode_batch(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                transactional=True,
            ),
            leader_epoch=0,
            now_ms=now_ms,
        )
        sequences[producer_id] += 3
        commits = rng.random() < 0.5
        marker = [(now_ms, b"\0\0\0" + bytes([commits]), b"\0\0\0\0\0\1", [])]
        log.append_as_leader(
            encode_batch(marker, producer_id=producer_id, producer_epoch=0, transactional=True, control=True),
            leader_epoch=0,
            now_ms=now_ms,
            origin="coordinator",
        )
        if commits:
            committed.update(pairs)
        if number % 20 == 9:
            log.roll(now_ms)  # aborted data stays in the last segment
    log.update_high_watermark(log.log_end_offset)
    report = log.clean(first_dirty_offset=0, first_uncleanable_offset=log.log_end_offset, now_ms=now_ms)
    assert report.outcome == "completed"
    assert report.messages_retained < report.messages_read
    log.close()
    return committed, log.log_end_offset


@pytest.mark.slow
def test_a_live_topic_is_compacted_and_kafka_goes_on_with_it(java: Java, tmp_path: Path) -> None:
    node = KraftlogServer(tmp_path / "node", dict(CONFIG))
    with node.running():
        create_topic(node.bootstrap, TOPIC, cleanup_policy="compact", segment_bytes="1048576")
        create_topic(node.bootstrap, TRANSACTIONS, cleanup_policy="compact", segment_bytes="1048576")
        writer = Writer(node.bootstrap, "lz4")
        checkpoint = node.data_dir / "cleaner-offset-checkpoint"
        cleaned = {0}
        while len(cleaned) < 4:
            writer.write(600)
            cleaned.add(read_offset_checkpoint(checkpoint).get(Key(TOPIC, 0), 0))
            assert latest(read_all(node.bootstrap, TOPIC)) == writer.values
            assert writer.count < 60_000, f"only cleaned to {cleaned}"
        messages = read_all(node.bootstrap, TOPIC)
        assert len(messages) < writer.count / 2
        assert [offset for offset, _, _ in messages] == sorted({offset for offset, _, _ in messages})
        clean_until = read_offset_checkpoint(checkpoint)[Key(TOPIC, 0)]
        below = [key for offset, key, _ in messages if offset < clean_until]
        assert len(below) == len(set(below)), "a key twice in the clean section"
        node.stop()
    assert not node.errors_logged()
    committed, end_offset = write_transactions(node.data_dir / f"{TRANSACTIONS}-0")
    assert_dump_accepts(
        java, node.data_dir / f"{TOPIC}-0", node.data_dir / f"{TRANSACTIONS}-0", print_data=False, has_gaps=True
    )
    kafka = make_server("kafka", tmp_path / "kafka", java)
    copy_of(node, kafka)
    with kafka.running():
        for isolation in ("read_uncommitted", "read_committed"):
            assert read_all(kafka.bootstrap, TOPIC, isolation) == messages
        served = read_all(kafka.bootstrap, TRANSACTIONS, "read_committed")
        assert latest(served) == committed
        everything = read_all(kafka.bootstrap, TRANSACTIONS)
        assert len(served) < len(everything) < end_offset
        writer.write(2000)
        assert latest(read_all(kafka.bootstrap, TOPIC)) == writer.values
        kafka.stop()
    assert not [line for line in kafka.errors_logged() if "shutdown" not in line.lower()]


@pytest.mark.slow
def test_consumer_offsets_are_compacted_and_survive(tmp_path: Path) -> None:
    node = KraftlogServer(
        tmp_path / "node",
        {**CONFIG, "offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": "1048576"},
    )
    with node.running():
        create_topic(node.bootstrap, TOPIC)
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g", "enable.auto.commit": False})
        with contextlib.closing(consumer):
            checkpoint = node.data_dir / "cleaner-offset-checkpoint"
            offset = 0

            def is_cleaned() -> bool:
                nonlocal offset
                for _ in range(200):
                    offset += 1
                    metadata = "m" * 2000
                    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset, metadata=metadata)], asynchronous=False)
                return Key("__consumer_offsets", 0) in read_offset_checkpoint(checkpoint)

            wait_for(is_cleaned, "__consumer_offsets was not compacted")
            node.restart()
            assert consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)[0].offset == offset
        segments = sorted((node.data_dir / "__consumer_offsets-0").glob("*.log"))
        assert segments[0].stat().st_size < 100_000
    assert not node.errors_logged()
