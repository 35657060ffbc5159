"""Kafka's own command line tools against the node: what they print and how they end."""

from __future__ import annotations

import re

import pytest

from interop.clients import ConfluentKafka, create_topic
from interop.harness import CLUSTER_ID, Java, Server
from interop.workload import make_records

TOOLS = "org.apache.kafka.tools."
TOPIC = "tools-topic"
COUNT = 1_000


@pytest.fixture(scope="module")
def served(node: Server) -> Server:
    create_topic(node.bootstrap, TOPIC, partitions=2, retention_ms="86400000")
    ConfluentKafka().write(node.bootstrap, TOPIC, make_records(COUNT, seed=5), "lz4", lambda: None)
    return node


def test_topic_command_creates_lists_describes_alters_deletes(served: Server, java: Java) -> None:
    def topics(*args: str) -> str:
        return java.tool(TOOLS + "TopicCommand", "--bootstrap-server", served.bootstrap, *args).stdout

    topics("--create", "--topic", "made-by-tool", "--partitions", "3", "--config", "segment.bytes=2097152")
    assert {TOPIC, "made-by-tool"} <= set(topics("--list").split())
    told = topics("--describe", "--topic", "made-by-tool")
    assert "PartitionCount: 3" in told
    assert "segment.bytes=2097152" in told
    assert len(re.findall(r"Partition: \d\tLeader: 1\tReplicas: 1\tIsr: 1", told)) == 3
    topics("--alter", "--topic", "made-by-tool", "--partitions", "5")
    assert "PartitionCount: 5" in topics("--describe", "--topic", "made-by-tool")
    topics("--delete", "--topic", "made-by-tool")
    assert "made-by-tool" not in topics("--list").split()
    again = java.tool(
        TOOLS + "TopicCommand", "--bootstrap-server", served.bootstrap, "--create", "--topic", TOPIC, check=False
    )
    assert again.returncode != 0
    assert "already exists" in again.stdout + again.stderr


def test_config_command_alters_and_describes_topic_and_broker(served: Server, java: Java) -> None:
    def configs(*args: str) -> str:
        return java.tool("kafka.admin.ConfigCommand", "--bootstrap-server", served.bootstrap, *args).stdout

    topic = ("--entity-type", "topics", "--entity-name", TOPIC)
    assert "retention.ms=86400000" in configs("--describe", *topic)
    configs("--alter", *topic, "--add-config", "retention.ms=90000000,max.message.bytes=2000000")
    told = configs("--describe", *topic)
    assert "retention.ms=90000000" in told
    assert "max.message.bytes=2000000" in told
    configs("--alter", *topic, "--delete-config", "max.message.bytes")
    assert "max.message.bytes=2000000" not in configs("--describe", *topic)
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "log.retention.ms" in configs("--describe", *broker, "--all")
    configs("--alter", *broker, "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in configs("--describe", *broker)


def test_config_command_refuses_what_kafka_refuses(served: Server, java: Java) -> None:
    done = java.tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", served.bootstrap, "--alter", "--entity-type", "topics", "--entity-name", TOPIC),
        *("--add-config", "segment.bytes=1"),
        check=False,
    )
    assert done.returncode != 0
    assert "segment.bytes" in done.stdout + done.stderr


def test_get_offset_shell_says_the_ends(served: Server, java: Java) -> None:
    def offsets(*args: str) -> dict[str, int]:
        command = (TOOLS + "GetOffsetShell", "--bootstrap-server", served.bootstrap, "--topic", TOPIC, *args)
        rows = [line.rsplit(":", 1) for line in java.tool(*command).stdout.split()]
        return {name: int(offset) for name, offset in rows}

    assert offsets("--time", "latest") == {f"{TOPIC}:0": COUNT, f"{TOPIC}:1": 0}
    assert offsets("--time", "earliest") == {f"{TOPIC}:0": 0, f"{TOPIC}:1": 0}
    assert 0 <= offsets("--time", "max-timestamp")[f"{TOPIC}:0"] < COUNT
    assert offsets("--time", "1")[f"{TOPIC}:0"] == 0


def test_log_dirs_command_says_the_sizes(served: Server, java: Java) -> None:
    text = java.tool(
        TOOLS + "LogDirsCommand", "--bootstrap-server", served.bootstrap, "--describe", "--topic-list", TOPIC
    ).stdout
    assert str(served.data_dir) in text
    size = sum(path.stat().st_size for path in (served.data_dir / f"{TOPIC}-0").glob("*.log"))
    assert f'"partition":"{TOPIC}-0","size":{size}' in text


def test_metadata_quorum_command_describes_status_and_replication(served: Server, java: Java) -> None:
    def quorum(*args: str) -> str:
        main = TOOLS + "MetadataQuorumCommand"
        return java.tool(main, "--bootstrap-server", served.bootstrap, "describe", *args).stdout

    status = quorum("--status")
    assert CLUSTER_ID in status
    assert re.search(r"LeaderId:\s+1\b", status)
    assert re.search(r"LeaderEpoch:\s+[1-9]", status)
    assert re.search(r"HighWatermark:\s+[1-9]", status)
    assert str(served.controller_port) in status
    replication = quorum("--replication")
    assert re.search(r"^1\s.*\bLeader\b", replication, re.MULTILINE)


def test_cluster_tool_says_the_cluster_id(served: Server, java: Java) -> None:
    text = java.tool(TOOLS + "ClusterTool", "cluster-id", "--bootstrap-server", served.bootstrap).stdout
    assert f"Cluster ID: {CLUSTER_ID}" in text
    text = java.tool(TOOLS + "ClusterTool", "list-endpoints", "--bootstrap-server", served.bootstrap).stdout
    assert str(served.port) in text


def test_transactions_command_describes_the_producers_of_a_partition(served: Server, java: Java) -> None:
    out = java.tool(
        TOOLS + "TransactionsCommand",
        *("--bootstrap-server", served.bootstrap, "describe-producers", "--topic", TOPIC, "--partition", "0"),
    ).stdout
    assert out.split("\n")[0].split() == [
        *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
        "CurrentTransactionStartOffset",
    ]


def test_broker_api_versions_command_knows_every_api_served(served: Server, java: Java) -> None:
    main = TOOLS + "BrokerApiVersionsCommand"
    text = java.tool(main, "--bootstrap-server", served.bootstrap).stdout
    assert f"127.0.0.1:{served.port} (id: 1" in text
    for api in (
        "Produce(0): ",
        "Fetch(1): 4 to 18",
        "ListOffsets(2): 1 to 11",
        "Metadata(3): 0 to 13",
        "InitProducerId(22): 0 to 5",
    ):
        assert api in text, api
    assert re.search(r"DescribeQuorum\(55\): 0 to 2", text)
