"""Kafka's tools and Kafka itself on files of kraftlog, and a kraftlog node on files of Kafka.

A directory is formatted, used (every codec, several segments, plain and idempotent producers, topic settings, a deleted
topic, committed offsets) and stopped; then the other side opens it or a copy of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType

from interop.clients import CODECS, Aiokafka, ConfluentKafka, create_topic
from interop.conftest import make_server
from interop.harness import Java, Server, copy_of
from interop.kafka_tools import assert_dump_accepts, dump, files_with, metadata_shell
from interop.workload import Record, assert_same, make_records

RECORD_COUNT = 6_000
METADATA = "__cluster_metadata-0"
GROUP = "group-of-files"
# Small, so that a short run has metadata snapshots in it.
SNAPSHOT_CONFIG = {"metadata.log.max.record.bytes.between.snapshots": "2000"}


@dataclass
class Used:
    """A stopped server and what its directory has to hold."""

    server: Server
    topics: dict[str, list[Record]] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)


def use(server: Server) -> Used:
    """Format, start, work, stop."""
    used = Used(server)
    server.start()
    for index, codec in enumerate(CODECS):
        topic = f"files-{codec}"
        settings = {"segment_bytes": "1048576", "retention_ms": "-1"}
        create_topic(server.bootstrap, topic, **settings)
        used.topic_configs[topic] = {"segment.bytes": "1048576", "retention.ms": "-1"}
        records = make_records(RECORD_COUNT, seed=100 + index)
        writer = Aiokafka() if codec in ("gzip", "lz4") else ConfluentKafka()
        writer.write(server.bootstrap, topic, records, codec, lambda: None)
        used.topics[topic] = records
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
    create_topic(server.bootstrap, "files-grown")
    admin.create_partitions([NewPartitions("files-grown", 3)])["files-grown"].result(30)
    create_topic(server.bootstrap, "files-gone")
    admin.delete_topics(["files-gone"])["files-gone"].result(30)
    commit(server, used)
    server.restart()  # a second generation of files: epochs, snapshots, a roll at start
    more = make_records(500, seed=200)
    ConfluentKafka().write(server.bootstrap, "files-none", more, "none", lambda: None)
    used.topics["files-none"] = used.topics["files-none"] + more
    server.stop()
    return used


def commit(server: Server, used: Used) -> None:
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": GROUP, "enable.auto.commit": False, "log_level": 2}
    )
    offsets = {("files-none", 0): 17, ("files-zstd", 0): 4_000}
    try:
        consumer.assign([TopicPartition(topic, partition) for topic, partition in offsets])
        consumer.commit(offsets=[TopicPartition(*key, offset) for key, offset in offsets.items()], asynchronous=False)
    finally:
        consumer.close()
    used.committed.update(offsets)


def assert_serves(server: Server, used: Used) -> None:
    """Everything that was written is served, with the settings and the committed offsets."""
    for topic, records in used.topics.items():
        got = ConfluentKafka().read(server.bootstrap, topic, len(records))
        assert_same(records, got, f"{topic} from {server.name}")
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
    names = set(admin.list_topics(timeout=30).topics)
    assert names >= {*used.topics, "files-grown"}
    assert "files-gone" not in names
    assert len(admin.list_topics("files-grown", timeout=30).topics["files-grown"].partitions) == 3
    for topic, wanted in used.topic_configs.items():
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = admin.describe_configs([resource])[resource].result(30)
        assert {key: found[key].value for key in wanted} == wanted
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": GROUP, "enable.auto.commit": False, "log_level": 2}
    )
    try:
        asked = [TopicPartition(topic, partition) for topic, partition in used.committed]
        found = consumer.committed(asked, timeout=60)
        assert {(item.topic, item.partition): item.offset for item in found} == used.committed
    finally:
        consumer.close()


def assert_takes_more(server: Server, used: Used) -> None:
    """The borrowed directory is not only readable: an idempotent producer goes on."""
    more = make_records(1_000, seed=300)
    topic = "files-lz4"
    ConfluentKafka().write(server.bootstrap, topic, more, "lz4", lambda: None)
    got = ConfluentKafka().read(server.bootstrap, topic, RECORD_COUNT + 1_000)
    assert_same(used.topics[topic] + more, got, f"{topic} from {server.name}")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, java: Java, target_kind: str) -> Iterator[Used]:
    server = make_server(target_kind, tmp_path_factory.mktemp("ours"), java, dict(SNAPSHOT_CONFIG))
    try:
        yield use(server)
    finally:
        server.kill()


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[Used]:
    server = make_server("kafka", tmp_path_factory.mktemp("kafkas"), java, dict(SNAPSHOT_CONFIG))
    try:
        yield use(server)
    finally:
        server.kill()


@pytest.mark.slow
def test_dump_log_segments_accepts_every_segment_and_index(ours: Used, java: Java) -> None:
    folders = ours.server.partition_dirs()
    assert {"files-none-0", "files-grown-2", METADATA} <= {folder.name for folder in folders}
    batches = assert_dump_accepts(java, *folders)
    assert all(batches[f"{topic}-0"] > 1 for topic in ours.topics)
    assert len(files_with(ours.server.data_dir / "files-none-0", ".log")) > 1


def test_dump_log_segments_decodes_the_metadata_log_and_checkpoints(ours: Used, java: Java) -> None:
    folder = ours.server.data_dir / METADATA
    text = dump(java, files_with(folder, ".log"), "--cluster-metadata-decoder")
    for word in ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "REMOVE_TOPIC_RECORD", "CONFIG_RECORD"):
        assert f'"type":"{word}"' in text, word
    assert "PRODUCER_IDS_RECORD" in text
    assert "LeaderChange" in text
    assert "could not be decoded" not in text
    checkpoints = [*files_with(folder, ".checkpoint"), ours.server.data_dir / "bootstrap.checkpoint"]
    assert (folder / "00000000000000000000-0000000000.checkpoint") in checkpoints or len(checkpoints) > 1
    for checkpoint in checkpoints:
        text = dump(java, [checkpoint], "--cluster-metadata-decoder")
        assert "SnapshotHeader" in text, checkpoint
        assert "SnapshotFooter" in text, checkpoint
        assert "could not be decoded" not in text, checkpoint
        if checkpoint.name == "bootstrap.checkpoint":
            assert "FEATURE_LEVEL_RECORD" in text


def test_dump_log_segments_decodes_the_offsets_topic(ours: Used, java: Java) -> None:
    text = ""
    for folder in ours.server.partition_dirs():
        if folder.name.startswith("__consumer_offsets-"):
            text += dump(java, files_with(folder, ".log"), "--offsets-decoder")
    assert GROUP in text
    for (topic, _), offset in ours.committed.items():
        assert re.search(rf'"topic":"{topic}".*"offset":{offset}\b', text), topic


@pytest.mark.slow
def test_metadata_shell_reads_the_checkpoints(ours: Used, java: Java) -> None:
    # The shell waits for ever on the checkpoint of format, Kafka's too: it holds control records only.
    snapshots = [path for path in files_with(ours.server.data_dir / METADATA, ".checkpoint") if int(path.name[:20])]
    assert snapshots, "no snapshot of the metadata was written"
    for checkpoint in (ours.server.data_dir / "bootstrap.checkpoint", *snapshots):
        assert "image" in metadata_shell(java, checkpoint, "ls", "/").split(), checkpoint
    last = snapshots[-1]
    assert metadata_shell(java, last, "ls", "/image/cluster/brokers").split() == ["1"]
    assert str(ours.server.port) in metadata_shell(java, last, "cat", "/image/cluster/brokers/1")
    assert set(ours.topics) <= set(metadata_shell(java, last, "ls", "/image/topics/byName").split())


@pytest.mark.slow
def test_kafka_serves_a_copy_of_our_directory(ours: Used, java: Java, tmp_path: Path) -> None:
    kafka = make_server("kafka", tmp_path / "kafka", java)
    copy_of(ours.server, kafka)
    with kafka.running():
        assert_serves(kafka, ours)
        assert_takes_more(kafka, ours)
        kafka.stop()
    assert not [line for line in kafka.errors_logged() if "shutdown" not in line.lower()]


@pytest.mark.slow
def test_our_node_serves_a_copy_of_kafkas_directory(kafkas: Used, java: Java, target_kind: str, tmp_path: Path) -> None:
    node = make_server(target_kind, tmp_path / "node", java)
    copy_of(kafkas.server, node)
    with node.running():
        assert_serves(node, kafkas)
        assert_takes_more(node, kafkas)
        node.restart(kill=True)
        used = Used(node, {topic: kafkas.topics[topic] for topic in ("files-none", "files-snappy", "files-zstd")})
        for topic, records in used.topics.items():
            assert_same(records, ConfluentKafka().read(node.bootstrap, topic, len(records)), topic)
        node.stop()
    assert_dump_accepts(java, *node.partition_dirs())


@pytest.mark.slow
def test_directory_goes_to_kafka_and_comes_back(ours: Used, java: Java, target_kind: str, tmp_path: Path) -> None:
    """Files of kraftlog, used by Kafka, opened by kraftlog again: two programs write metadata, epochs and producers."""
    kafka = make_server("kafka", tmp_path / "kafka", java)
    copy_of(ours.server, kafka)
    more = make_records(300, seed=400)
    with kafka.running():
        create_topic(kafka.bootstrap, "files-made-by-kafka")
        ConfluentKafka().write(kafka.bootstrap, "files-made-by-kafka", more, "snappy", lambda: None)
        kafka.stop()
    node = make_server(target_kind, tmp_path / "node", java)
    copy_of(kafka, node)
    with node.running():
        assert_serves(node, ours)
        got = ConfluentKafka().read(node.bootstrap, "files-made-by-kafka", len(more))
        assert_same(more, got, "files-made-by-kafka")
        node.stop()


@pytest.mark.slow
def test_format_writes_what_kafka_writes(ours: Used, kafkas: Used) -> None:
    """meta.properties, and the files that format leaves, by name and by key."""

    def properties(server: Server) -> dict[str, str]:
        lines = (server.data_dir / "meta.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    mine, theirs = properties(ours.server), properties(kafkas.server)
    assert mine.keys() == theirs.keys()
    assert {key: mine[key] for key in mine if key != "directory.id"} == {
        key: theirs[key] for key in theirs if key != "directory.id"
    }
    state = json.loads((ours.server.data_dir / METADATA / "quorum-state").read_text())
    expected = json.loads((kafkas.server.data_dir / METADATA / "quorum-state").read_text())
    assert state.keys() == expected.keys()
    assert (ours.server.data_dir / "bootstrap.checkpoint").exists()
