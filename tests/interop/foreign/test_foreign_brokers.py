"""The client against older releases of Kafka and against kfake: `.ci/dev foreign` fetches both and runs this.

librdkafka's mock cluster needs no such preparation: ``integration/client/test_mock_cluster.py``.
"""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pytest

import kraftlog
import transactional_producer_story as story
from interop.foreign.foreign_brokers import HERE, OlderKafka, kfake, older_versions
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition

KFAKE = os.environ.get("KRAFTLOG_KFAKE")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 200
TOTAL = RECORDS * len(CODECS)
FIRST_TIME = 10**12
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(KFAKE is None, reason="KRAFTLOG_KFAKE names no program; .ci/dev foreign builds it"),
]


@pytest.fixture(scope="module", params=[*older_versions(), "kfake"])
def cluster(request, tmp_path_factory):
    """Name and ``bootstrap.servers`` of a cluster whose topic ``codecs`` has rows in every codec."""
    name = request.param
    if name == "kfake":
        with kfake(KFAKE or "") as bootstrap:
            fill(bootstrap)
            yield name, bootstrap
        return
    assert (HERE / f"kafka-{name}" / "target" / "libs").exists(), ".ci/dev foreign fetches the jars"
    server = OlderKafka(tmp_path_factory.mktemp(f"kafka-{name}") / "node", name)
    server.config["num.partitions"] = "2"
    with server.running():
        fill(server.bootstrap)
        yield name, server.bootstrap


def fill(bootstrap):
    for codec in CODECS:
        with kraftlog.Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
            for number in range(RECORDS):
                headers = [("a", b"1"), ("b", None)] if number % 3 else []
                producer.send(
                    "codecs", b"%d-" % number * (number % 40), key=codec.encode(), headers=headers,
                    partition=number % 2, timestamp=FIRST_TIME + number,
                )  # fmt: skip


def test_rows_of_every_codec_are_those_that_were_sent(cluster):
    table = pa.table(kraftlog.read(cluster[1], "codecs"))
    expected = [(codec.encode(), b"%d-" % number * (number % 40)) for codec in CODECS for number in range(RECORDS)]
    assert sorted(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == sorted(expected)
    headers = table["headers"].to_pylist()
    assert headers.count([{"key": "a", "value": b"1"}, {"key": "b", "value": None}]) == TOTAL - headers.count([])


@pytest.mark.parametrize("acks", [0, 1])
def test_records_arrive_without_idempotence(cluster, acks):
    topic = f"acks-{acks}"
    with kraftlog.Producer(bootstrap_servers=cluster[1], acks=acks) as producer:
        producer.send(topic, b"x", partition=0)
    with kraftlog.Consumer(bootstrap_servers=cluster[1], auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert [record.value for record in consumer.poll_records(30)] == [b"x"]


def test_offsets_are_found_by_time_and_at_both_ends(cluster):
    first = TopicPartition("codecs", 0)
    with kraftlog.Consumer(bootstrap_servers=cluster[1]) as consumer:
        assert consumer.list_topics()["codecs"] == (0, 1)
        assert consumer.beginning_offsets([first]) == {first: 0}
        assert consumer.end_offsets([first]) == {first: TOTAL // 2}
        found = consumer.offsets_for_times({first: FIRST_TIME + 100})[first]
        assert (found.offset, found.timestamp) == (50, FIRST_TIME + 100)
        assert consumer.offsets_for_times({first: 2**60}) == {first: None}


def test_a_position_with_a_leader_epoch_is_read_from(cluster):
    with kraftlog.Consumer(bootstrap_servers=cluster[1], auto_offset_reset="none") as consumer:
        consumer.assign([("codecs", 0)])
        consumer.seek(("codecs", 0), 5, leader_epoch=0)
        assert pa.record_batch(consumer.poll(30))["offset"][0].as_py() == 5


@pytest.mark.parametrize("protocol", ["auto", "classic"])
def test_members_of_a_group_share_the_partitions(cluster, protocol):
    settings = {
        "bootstrap_servers": cluster[1],
        "auto_offset_reset": "earliest",
        "group_id": f"g-{protocol}",
        "group_protocol": protocol,
        "heartbeat_interval_ms": 200,
    }
    with kraftlog.Consumer(**settings) as first:
        first.subscribe(["codecs"])
        rows = 0
        while rows < TOTAL:
            batch = first.poll(30)
            assert batch is not None, (rows, first.assignment)
            rows += len(batch)
        with kraftlog.Consumer(**settings) as second:
            second.subscribe(["codecs"])
            deadline = time.monotonic() + 60
            while not len(first.assignment) == len(second.assignment) == 1:
                assert time.monotonic() < deadline, (first.assignment, second.assignment)
                assert first.poll(0.1) is None
                assert second.poll(0.1) is None
        first.commit()
        assert first.committed([("codecs", 0)])[TopicPartition("codecs", 0)].offset == TOTAL // 2


def test_a_setting_that_the_broker_is_too_old_for_is_refused_by_name(cluster):
    """JoinGroup 5, and with it ``group.instance.id``, came with Kafka 2.3."""
    settings = {"group_id": "static", "group_instance_id": "one", "auto_offset_reset": "earliest"}
    with kraftlog.Consumer(bootstrap_servers=cluster[1], **settings) as consumer:
        consumer.subscribe(["codecs"])
        if cluster[0] != "2.1.1":
            assert consumer.poll(30) is not None
            return
        with pytest.raises(KafkaError, match=r"is too old: JoinGroupRequest v3 group_instance_id") as raised:
            consumer.poll(30)
        assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_transactions_commit_abort_and_fence(cluster):
    story.commits_and_aborts(cluster[1], "both")
    story.newer_producer_fences_the_older(cluster[1], "fence")


def test_offsets_are_part_of_a_transaction(cluster):
    if cluster[0] != "2.1.1":
        story.offsets_are_part_of_the_transaction(cluster[1], "source", "target")
        return
    with kraftlog.Producer(bootstrap_servers=cluster[1], transactional_id="by-name") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({("codecs", 0): 7}, "by-name")
        membership = kraftlog.client.GroupMetadata("by-name", 1, "member")
        with (
            pytest.raises(KafkaError, match="is too old: TxnOffsetCommitRequest v2 generation_id"),
            producer.transaction(),
        ):
            producer.send_offsets_to_transaction({("codecs", 0): 8}, membership)
    with kraftlog.Consumer(bootstrap_servers=cluster[1], group_id="by-name") as consumer:
        deadline = time.monotonic() + 20
        while not (found := consumer.committed([("codecs", 0)])):
            assert time.monotonic() < deadline
        assert found[TopicPartition("codecs", 0)].offset == 7
