"""A real broker with tiered storage copies topics into a directory, deletes them here, and we read them there."""

from __future__ import annotations

import random
import subprocess
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import kraftlog
from interop.harness import Java, KafkaServer
from kraftlog.reading import RemoteLog
from s3_fixture import s3_server

HERE = Path(__file__).resolve().parent
PLAIN, TRANSACTIONAL = "tiered.plain", "tiered-txn"
COPIES = {f"{PLAIN}-0": 3, f"{PLAIN}-1": 3, f"{TRANSACTIONAL}-0": 2}

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("tiered"), pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Tiered:
    """What the broker left: the tiered directory, its own one, and what a consumer got of each partition."""

    directory: Path
    data_dir: Path
    consumed: dict[tuple[str, int, str], list[tuple[int, int, bytes | None, bytes | None]]]


@pytest.fixture(scope="module")
def tiered_jar() -> Path:
    """Kafka's LocalTieredStorage, fetched once by `.ci/dev jars`."""
    libs = HERE / "target" / "libs"
    if not list(libs.glob("kafka-storage-*-test.jar")):
        subprocess.run(["sh", str(HERE.parents[2] / ".ci" / "dev"), "jars"], check=True)
    return next(libs.glob("kafka-storage-*-test.jar"))


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory, java: Java, tiered_jar: Path) -> Tiered:
    home = tmp_path_factory.mktemp("tiered")
    storage = home / "storage"
    storage.mkdir()
    config = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rsm.config.dir": str(storage),
        "rsm.config.delete.on.close": "false",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "300",
        "rlmm.config.remote.log.metadata.consume.wait.ms": "300",
        "log.initial.task.delay.ms": "300",
        "log.retention.check.interval.ms": "500",
    }
    server = KafkaServer(home, Java(f"{java.libs}:{tiered_jar}"), config)
    server.ready_timeout_s = 240.0
    with closing(server.java), server.running():
        fill(server.bootstrap)
        wait_for_copies(storage / "kafka-tiered-storage", server)
        consumed = {
            (topic, partition, isolation): consume(server.bootstrap, topic, partition, isolation)
            for topic, partition in ((PLAIN, 0), (PLAIN, 1), (TRANSACTIONAL, 0))
            for isolation in ("read_uncommitted", "read_committed")
        }
        server.stop()
    return Tiered(storage / "kafka-tiered-storage", server.data_dir, consumed)


def fill(bootstrap: str) -> None:
    settings = {
        "remote.storage.enable": "true",
        "segment.bytes": str(1 << 20),
        "retention.ms": "-1",
        "local.retention.bytes": "1",
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(PLAIN, 2, 1, config=settings), NewTopic(TRANSACTIONAL, 1, 1, config=settings)]
    for future in admin.create_topics(topics).values():
        future.result()
    rng = random.Random(5)
    plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 16384})
    for number in range(30_000):
        headers = [("n", b"%d" % number)] if number % 7 == 0 else None
        value = rng.randbytes(100) + b"v" * 100
        at = 1_700_000_000_000 + number
        plain.produce(PLAIN, key=b"%d" % number, value=value, partition=number % 2, timestamp=at, headers=headers)
        plain.poll(0)
    plain.flush()
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tiered"})
    transactional.init_transactions()
    for number in range(18):
        transactional.begin_transaction()
        for _ in range(500):
            transactional.produce(TRANSACTIONAL, key=b"%d" % number, value=rng.randbytes(300), partition=0)
            transactional.poll(0)
        transactional.flush()
        (transactional.abort_transaction if number % 3 == 1 else transactional.commit_transaction)()


def wait_for_copies(directory: Path, server: KafkaServer) -> None:
    """Until all sealed segments are copied, and those that were are deleted from the broker's own directory."""
    deadline = time.monotonic() + 240
    while True:
        copies = {
            name: len(list(directory.glob(f"{name}-*/*.snapshot"))) if directory.exists() else 0 for name in COPIES
        }
        here = {name: len(list((server.data_dir / name).glob("*.log"))) for name in COPIES}
        if all(copies[name] >= count for name, count in COPIES.items()) and max(here.values()) <= 1:
            return
        assert time.monotonic() < deadline, f"copied {copies}, here {here}\n{server.log_tail()}"
        time.sleep(0.2)


def consume(
    bootstrap: str, topic: str, partition: int, isolation: str
) -> list[tuple[int, int, bytes | None, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tiered",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    rows: list[tuple[int, int, bytes | None, bytes | None]] = []
    while True:
        for message in consumer.consume(5000, 1):
            if message.error():
                consumer.close()
                return rows
            rows.append((message.offset(), message.timestamp()[1], message.key(), message.value()))


def rows_of(scan: kraftlog.reading.Scan) -> list[tuple[int, int, bytes | None, bytes | None]]:
    table = pa.table(scan)
    columns = [table["offset"], table["timestamp"].cast(pa.int64()), table["key"], table["value"]]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.slow
def test_the_tiered_part_is_what_a_consumer_gets(tiered: Tiered) -> None:
    for log in kraftlog.LogDir(tiered.directory).partitions():
        assert isinstance(log, RemoteLog)
        assert len(log.segments) >= 2
        own = kraftlog.open_log(tiered.data_dir / f"{log.topic}-{log.partition}")
        # The segments are here no more: only the tiered directory has them.
        assert own.log_start_offset == log.log_end_offset > 1000
        assert log.log_start_offset == 0
        assert log.topic_id == own.topic_id
        assert log.leader_epochs == own.leader_epochs
        for isolation in ("read_uncommitted", "read_committed"):
            consumed = tiered.consumed[log.topic, log.partition, isolation]
            wanted = [row for row in consumed if row[0] < log.log_end_offset]
            assert len(wanted) > 1000
            for threads in (1, 2):
                assert rows_of(log.scan(isolation_level=isolation, threads=threads)) == wanted
            parts = log.scan(isolation_level=isolation).splits(split_bytes=200_000)
            assert [row for part in parts for row in rows_of(part)] == wanted
            # With what is still at the broker it is the whole log.
            rest = rows_of(own.scan(isolation_level=isolation))
            assert wanted + rest == consumed


def test_offsets_and_times_are_found_in_the_tiered_part(tiered: Tiered) -> None:
    log = next(log for log in kraftlog.LogDir(tiered.directory).partitions(PLAIN) if log.partition == 1)
    wanted = [row for row in tiered.consumed[PLAIN, 1, "read_uncommitted"] if 7000 <= row[0] < 9000]
    assert rows_of(log.scan(start_offset=7000, end_offset=9000)) == wanted
    found = log.offset_for_timestamp(1_700_000_000_000 + 2 * 7000 + 1)
    assert found is not None
    assert found.offset == 7000
    aborted = next(iter(kraftlog.LogDir(tiered.directory).partitions(TRANSACTIONAL))).aborted_transactions()
    assert len(aborted) >= 3


@pytest.mark.slow
def test_the_same_from_an_s3_server(tiered: Tiered) -> None:
    with s3_server() as server:
        server.upload(tiered.directory, "tiered")
        scan = kraftlog.scan("s3://logs/tiered", topics=[PLAIN], storage_options=server.s3fs_options)
        assert pa.table(scan).equals(pa.table(kraftlog.scan(tiered.directory, topics=[PLAIN])))
