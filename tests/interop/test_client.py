"""``kraftlog.Consumer`` beside confluent-kafka on a real Kafka: the same rows in every codec, transactions, groups."""

from __future__ import annotations

import time

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import kraftlog
from interop.harness import Java, KafkaServer
from interop.rows import confluent_rows, rows_of
from kraftlog.errors import KafkaError
from kraftlog.partitioner import key_partition
from waiting import until_true

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 500


@pytest.fixture(scope="module")
def kafka(java: Java, tmp_path_factory):
    server = KafkaServer(tmp_path_factory.mktemp("client") / "kafka", java)
    with server.running():
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for future in admin.create_topics([NewTopic("codecs", 3, 1), NewTopic("txn", 1, 1)]).values():
            future.result(30)
        fill(server.bootstrap)
        yield server


def fill(bootstrap):
    for codec in CODECS:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for number in range(RECORDS):
            key = None if number % 5 == 0 else b"key-%d" % number
            value = None if number % 7 == 0 else b"%d-" % number * (number % 40)
            headers = [] if number % 3 else [("a", b"1"), ("b", None)]
            producer.produce("codecs", value, key, headers=headers, partition=number % 3, timestamp=10**12 + number)
        assert producer.flush(30) == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        for inner in range(10):
            producer.produce("txn", b"%d-%d" % (number, inner))
        producer.flush(30)
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(30)


def kraftlog_rows(bootstrap, topic, partitions, isolation):
    with kraftlog.Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation
    ) as reader:
        reader.assign([(topic, number) for number in range(partitions)])
        ends = reader.end_offsets([(topic, number) for number in range(partitions)])
        rows = []
        while any(reader.position(name).offset < end for name, end in ends.items()):
            batch = reader.poll(30)
            rows += [] if batch is None else [row for _, row in rows_of(batch)]
    return sorted(rows, key=lambda row: row[:2])


def test_rows_of_every_codec_equal_those_of_confluent_kafka(kafka):
    found = kraftlog_rows(kafka.bootstrap, "codecs", 3, "read_uncommitted")
    assert len(found) == RECORDS * len(CODECS)
    assert found == confluent_rows(kafka.bootstrap, "codecs", 3, "read_uncommitted", len(found))


@pytest.mark.parametrize(("isolation", "count"), [("read_uncommitted", 120), ("read_committed", 80)])
def test_rows_of_transactions_equal_those_of_confluent_kafka(kafka, isolation, count):
    found = kraftlog_rows(kafka.bootstrap, "txn", 1, isolation)
    assert len(found) == count
    assert found == confluent_rows(kafka.bootstrap, "txn", 1, isolation, count)


@pytest.mark.spec("CTRN-13")
def test_a_position_with_its_epoch_is_validated_by_kafka(kafka):
    with kraftlog.Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="none") as reader:
        reader.assign([("codecs", 0)])
        reader.seek(("codecs", 0), 5, leader_epoch=0)
        assert pa.record_batch(reader.poll(30)).column("offset")[0].as_py() == 5


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_share_partitions_in_both_group_protocols(kafka, protocol):
    settings = {
        "bootstrap_servers": kafka.bootstrap,
        "auto_offset_reset": "earliest",
        "group_id": f"g-{protocol}",
        "group_protocol": protocol,
        "heartbeat_interval_ms": 200,
    }
    with kraftlog.Consumer(**settings) as first:
        first.subscribe(["codecs"])
        rows = 0
        while rows < RECORDS * len(CODECS):
            batch = first.poll(30)
            assert batch is not None, first.assignment
            rows += len(batch)
        with kraftlog.Consumer(**settings) as second:
            second.subscribe(["codecs"])
            deadline = time.monotonic() + 60
            while not (first.assignment and second.assignment and len(first.assignment + second.assignment) == 3):
                assert time.monotonic() < deadline, (first.assignment, second.assignment)
                assert first.poll(0.1) is None
                assert second.poll(0.1) is None


def test_committed_offsets_are_those_that_kafka_shows(kafka):
    with kraftlog.Consumer(
        bootstrap_servers=kafka.bootstrap, group_id="shown", auto_offset_reset="earliest", max_poll_records=10
    ) as reader:
        reader.assign([("codecs", 1)])
        reader.poll(30)
        reader.commit()
    other = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "shown"})
    (found,) = other.committed([confluent_kafka.TopicPartition("codecs", 1)], 10)
    other.close()
    assert (found.offset, found.leader_epoch) == (10, 0)


def test_producer_finds_partitions_that_are_added(kafka):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def grow(count):
        for future in admin.create_partitions([NewPartitions("growing", count)]).values():
            future.result(30)

    for future in admin.create_topics([NewTopic("growing", 1, 1)]).values():
        future.result(30)
    settings = {"bootstrap_servers": kafka.bootstrap, "linger_ms": 0}
    with (
        kraftlog.Producer(**settings, metadata_max_age_ms=200) as asking,
        kraftlog.Producer(**settings) as waiting,
    ):
        for producer in (asking, waiting):
            assert producer.send_and_wait("growing", b"first").partition == 0
        grow(3)
        assert key_partition(b"k", 3) != 0
        until_true(lambda: asking.send_and_wait("growing", b"with a key", key=b"k").partition != 0)
        # One that is named is asked for at once, long before metadata is old.
        assert waiting.send_and_wait("growing", b"named", partition=2).partition == 2
        with pytest.raises(KafkaError, match="growing has 3 partitions, no 3"):
            waiting.send_and_wait("growing", b"no such", partition=3)
