"""Topics of a real broker, one for each thing that a log can hold; few records, many batches and segments."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import kraftlog
from interop.clients import CODECS
from interop.harness import Server

BASE_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
CONFIG = {
    # What a live directory says of itself is at most this old.
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "log.cleaner.backoff.ms": "50",
    "log.index.interval.bytes": "1024",
    "log.retention.ms": "-1",
}
Header = tuple[str, bytes | None]
# Partitions and settings. A record whose timestamp is so much after that of the first in the segment begins a new one.
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (3, {"segment.ms": "1000"}),
    "codecs": (len(CODECS), {}),
    "headers": (1, {}),
    "logappend": (1, {"message.timestamp.type": "LogAppendTime"}),
    "compacted": (2, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000"}),
    "transactional": (2, {}),
    "epochs": (1, {}),
    "deleted": (2, {}),
    "empty": (1, {}),
}
HEADERS: Sequence[list[Header]] = (
    [],
    [("plain", b"value")],
    [("null", None), ("empty", b"")],
    [("twice", b"1"), ("other", b"x"), ("twice", b"2"), ("twice", b"1")],
    [("", b"no name"), ("größe", bytes(range(256)))],
    [(f"h{number}", b"%d" % number) for number in range(40)],
)


class Writer:
    """An idempotent producer of small batches; `finish` fails unless everything was acknowledged."""

    def __init__(self, server: Server, codec: str = "none", **settings: object) -> None:
        self.failed: list[object] = []
        self.producer = Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": codec,
                "batch.num.messages": 20,
                "linger.ms": 1,
                "log_level": 2,
                "on_delivery": self.delivered,
                **settings,
            }
        )

    def delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed.append(error)

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp: int = 0,
        headers: list[Header] | None = None,
    ) -> None:
        self.producer.produce(
            topic, value, key, partition=partition, timestamp=timestamp or BASE_MS, headers=headers or []
        )

    def finish(self) -> None:
        left = self.producer.flush(60)
        assert not left, f"{left} records were not acknowledged"
        assert not self.failed, self.failed[:3]


class TopicMaker:
    """Fills the topics in two halves, between which the broker is restarted, so that all have two leader epochs."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.random = random.Random(5)
        self.writers: dict[str, Writer] = {}  # one a codec: an idempotent producer takes half a second to begin
        self.transactional: dict[str, Writer] = {}

    def fill(self) -> None:
        self.server.start()
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap, "log_level": 2})
        new = [
            NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
            for topic, (partitions, settings) in TOPICS.items()
        ]
        for future in admin.create_topics(new).values():
            future.result(60)
        self.writers = {codec: Writer(self.server, codec) for codec in CODECS}
        with ThreadPoolExecutor() as pool:
            names = ("first", "second", "open")
            self.transactional = dict(zip(names, pool.map(self.transaction, names), strict=True))
        self.half(0)
        self.server.restart()
        self.half(1)
        self.delete_records(admin)
        self.server.restart()
        self.few_of("epochs", 2, 50)
        self.leave_transaction_open()
        wait_for("the log cleaner", self.is_compacted)
        wait_for("the checkpoints", self.is_checkpointed)

    def half(self, number: int) -> None:
        self.few_of("plain", number, 700)
        self.few_of("logappend", number, 150)
        self.few_of("epochs", number, 150)
        self.few_of("deleted", number, 400)
        for partition, codec in enumerate(CODECS):
            self.few_of("codecs", number, 300, codec, [partition])
        writer = self.writers["none"]
        for record in range(120):
            writer.send("headers", 0, b"%d" % record, b"v", headers=HEADERS[record % len(HEADERS)])
        writer = self.writers["lz4"]
        for record in range(600):
            value = None if record % 17 == 0 else self.random.randbytes(50)
            key = b"key-%d" % self.random.randrange(40)
            writer.send("compacted", record % 2, key, value, timestamp=BASE_MS + 10 * (number * 600 + record))
        self.transactions(number)
        for writer in self.writers.values():
            writer.finish()

    def few_of(
        self, topic: str, half: int, count: int, codec: str = "none", partitions: Sequence[int] | None = None
    ) -> None:
        """Records with null and empty keys and values, and timestamps that rise and fall."""
        chosen = partitions or range(TOPICS[topic][0])
        for record in range(count):
            key = (None, b"", b"key-%d" % record)[record % 3]
            value = (None, b"", self.random.randbytes(self.random.randrange(200)), b"text " * 30)[record % 4]
            timestamp = BASE_MS + half * 100_000 + (record ^ 5) * 10
            self.writers[codec].send(topic, chosen[record % len(chosen)], key, value, timestamp=timestamp)

    def transactions(self, half: int) -> None:
        """Two producers, their commits and aborts interleaved with each other and with records of no transaction."""
        first, second = self.transactional["first"], self.transactional["second"]
        plain = self.writers["none"]
        for step in range(6):
            for writer in (first, second):
                writer.producer.begin_transaction()
            for record in range(60):
                writer = (first, second, plain)[record % 3]
                writer.send("transactional", record % 2, b"%d" % step, b"%d-%d" % (half, record))
            plain.finish()
            for writer, is_aborted in ((first, step % 2), (second, step % 3)):
                writer.finish()
                if is_aborted:
                    writer.producer.abort_transaction(60)
                else:
                    writer.producer.commit_transaction(60)

    def transaction(self, name: str) -> Writer:
        writer = Writer(self.server, **{"transactional.id": name, "transaction.timeout.ms": 600_000})
        writer.producer.init_transactions(60)
        return writer

    def leave_transaction_open(self) -> None:
        """In one partition, with decided records behind it that no consumer with read_committed gets."""
        writer = self.transactional["open"]
        writer.producer.begin_transaction()
        for record in range(30):
            writer.send("transactional", 0, b"open", b"%d" % record)
        writer.finish()
        self.few_of("transactional", 1, 40)
        self.writers["none"].finish()

    def delete_records(self, admin: AdminClient) -> None:
        # In the middle of a batch, and in the other partition everything.
        cut = [TopicPartition("deleted", 0, 133), TopicPartition("deleted", 1, -1)]
        for future in admin.delete_records(cut).values():
            future.result(60)

    def is_compacted(self) -> bool:
        return all(self.gaps("compacted", partition) > 100 for partition in range(2))

    def gaps(self, topic: str, partition: int) -> int:
        """Offsets that have no record, markers not counted."""
        log = self.log(topic, partition)
        found = sum(len(rows) for rows in log.scan(columns=["offset"], include_control=True))
        return log.log_end_offset - log.log_start_offset - found

    def is_checkpointed(self) -> bool:
        logs = kraftlog.LogDir(self.server.data_dir)
        checkpoints = logs.checkpoints
        starts = {
            key.partition: start for key, start in checkpoints.log_start_offsets.items() if key.topic == "deleted"
        }
        ends = {key: log.log_end_offset for topic in TOPICS for log in logs.partitions(topic) for key in [_key(log)]}
        marks = {(key.topic, key.partition): mark for key, mark in checkpoints.high_watermarks.items()}
        return starts.keys() == {0, 1} and all(marks.get(key) == end for key, end in ends.items())

    def log(self, topic: str, partition: int) -> kraftlog.Log:
        return kraftlog.open_log(Path(self.server.data_dir) / f"{topic}-{partition}")


def _key(log: kraftlog.Log) -> tuple[str, int]:
    return log.topic, log.partition


def wait_for(what: str, is_done: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_done():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.05)
