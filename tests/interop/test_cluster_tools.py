"""Kafka's tools for replicated clusters against three kraftlog nodes: what they do and what they print."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import kraftlog
from interop.harness import HERE, Java
from interop.kafka_tools import assert_verification_finds_no_lag
from kraftlog.cli.transactions import main as transactions_tool
from kraftlog.client import OffsetAndEpoch
from kraftlog.errors import ErrorCode, LogTruncationError
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raw_client import RawClient
from transaction_requests import add, batch, begin, end, init, produce, wait_until_complete
from waiting import until_true

TOOLS = "org.apache.kafka.tools."
NODES = 3
# Codes of a cluster that has just made the topics of a coordinator.
STARTING = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.NETWORK_EXCEPTION}
# Tools that want the address of the cluster first.
BEFORE_THE_SUBCOMMAND = {"FeatureCommand", "MetadataQuorumCommand"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kraftlog.Cluster]:
    home = tmp_path_factory.mktemp("tools") / "cluster"
    settings = {
        "auto_leader_rebalance_enable": False,
        "transaction_state_log_num_partitions": 3,
        # So that transactions which no coordinator knows can be left on partitions.
        "transaction_partition_verification_enable": False,
    }
    with kraftlog.Cluster(NODES, data_dir=home, network_faults=False, **settings) as made:
        yield made
        for node_id in made.nodes:
            made.kill(node_id)


class Tools:
    """Runs tools with the cluster's address."""

    def __init__(self, java: Java, cluster: kraftlog.Cluster) -> None:
        self._java, self._cluster = java, cluster

    def __call__(self, name: str, *args: str, check: bool = True) -> str:
        """What the tool printed on both streams; a failure of the tool is one of the test."""
        where = ("--bootstrap-server", self._cluster.bootstrap_servers)
        words = (*where, *args) if name in BEFORE_THE_SUBCOMMAND else (*args, *where)
        done = self._java.tool(TOOLS + name, *words, check=check, timeout=120)
        return done.stdout + done.stderr

    def truncation(self, topic: str, position: OffsetAndEpoch) -> list[int]:
        """Position, diverging offset and its epoch, as the Java consumer reports them after a seek."""
        where = (self._cluster.bootstrap_servers, topic, str(position.offset), str(position.leader_epoch))
        done = self._java.tool(str(HERE / "java" / "Truncation.java"), *where, timeout=120)
        return [int(word) for word in done.stdout.split()]


@pytest.fixture
def tools(java: Java, cluster: kraftlog.Cluster) -> Iterator[Tools]:
    yield Tools(java, cluster)
    # A test that failed leaves the others, and its own second attempt, a whole cluster without its topics.
    for node in cluster.nodes.values():
        if not node.is_running and node.node_id <= NODES:
            cluster.start_node(node.node_id)
    for topic in {topic for topic, _ in cluster.state().partitions if not topic.startswith("__")}:
        cluster.delete_topic(topic)


def fill(cluster: kraftlog.Cluster, topic: str, partitions: int, count: int) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(
            topic, b"%d" % number * 20, partition=number % partitions, on_delivery=lambda e, _: errors.append(e)
        )
    assert producer.flush(30) == 0
    assert errors == [None] * count


def logs(cluster: kraftlog.Cluster, topic: str, index: int, node_ids: tuple[int, ...]) -> list[bytes]:
    return [
        b"".join(
            path.read_bytes() for path in sorted((cluster.nodes[number].data_dir / f"{topic}-{index}").glob("*.log"))
        )
        for number in node_ids
    ]


async def reassign(cluster: kraftlog.Cluster, topic: str, replicas: list[int]) -> None:
    host, _, port = cluster.nodes[replicas[0]].bootstrap_server.rpartition(":")
    loop = asyncio.get_running_loop()
    connection = await RpcConnection.open(loop, host, int(port), client_id="test", timeout_s=30)
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
    answer: Any = await connection.request(
        AlterPartitionReassignmentsRequest(
            topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])],
            timeout_ms=10_000,
        )
    )
    connection.close()
    assert answer.responses[0].partitions[0].error_code == 0, answer


def plan_of(path: Path, topic: str, replicas: dict[int, list[int]]) -> str:
    partitions = [{"topic": topic, "partition": index, "replicas": nodes} for index, nodes in replicas.items()]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


@pytest.mark.timeout(200)
def test_topic_command_sees_replicas_and_a_missing_broker(tools: Tools, cluster: kraftlog.Cluster) -> None:
    def topics(*args: str) -> str:
        return tools("TopicCommand", *args)

    topics("--create", "--topic", "three", "--partitions", "3", "--replication-factor", "3")
    told = topics("--describe", "--topic", "three")
    assert "PartitionCount: 3\tReplicationFactor: 3" in told
    assert len(re.findall(r"Replicas: \d,\d,\d\tIsr: \d,\d,\d\tElr: \tLastKnownElr: ", told)) == 3, told
    assert "Partition:" not in topics("--describe", "--under-replicated-partitions")
    topics("--alter", "--topic", "three", "--partitions", "4")
    assert "PartitionCount: 4" in topics("--describe", "--topic", "three")
    cluster.wait_until_in_sync()
    fill(cluster, "three", 4, 400)

    gone = 3 if cluster.controller != 3 else 2
    cluster.kill(gone)
    cluster.wait_until(lambda state: gone not in state.brokers, "not fenced")
    told = topics("--describe", "--under-replicated-partitions", "--topic", "three")
    assert len(re.findall(r"Partition: \d", told)) == 4
    assert "Partition:" not in topics("--describe", "--unavailable-partitions", "--topic", "three")
    assert len(re.findall(r"Partition: \d", topics("--describe", "--at-min-isr-partitions", "--topic", "three"))) == 4
    cluster.start_node(gone)
    cluster.wait_until_in_sync()
    assert "Partition:" not in topics("--describe", "--under-replicated-partitions")


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_leader_election_command_gives_preferred_leaders_back(
    tools: Tools, cluster: kraftlog.Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("elected", 3)
    plan = tmp_path / "partitions.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "elected", "partition": index} for index in range(3)]}))
    moved = cluster.leader("elected", 0)
    cluster.restart(moved)
    cluster.wait_until_in_sync()
    assert cluster.leader("elected", 0) != moved
    said = tools("LeaderElectionCommand", "--election-type", "preferred", "--path-to-json-file", str(plan))
    assert "Successfully completed leader election (PREFERRED) for partitions elected-0" in said, said
    cluster.wait_until(lambda state: state.partitions["elected", 0].leader == moved, "no preferred leader")
    said = tools("LeaderElectionCommand", "--election-type", "preferred", "--path-to-json-file", str(plan))
    assert "Valid replica already elected for partitions elected-" in said, said
    # Others have lost their preferred leader with that broker, too; afterwards there is nothing to do.
    tools("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    assert tools("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions") == ""

    # Unclean: the only in-sync replica dies, and a replica that is behind takes its place.
    cluster.create_topic("unclean", 1, 2, {"min.insync.replicas": 1})
    first, second = cluster.state().partitions["unclean", 0].replicas
    fill(cluster, "unclean", 1, 10)
    cluster.kill(second)
    cluster.wait_until(lambda state: state.partitions["unclean", 0].isr == (first,), "still in sync")
    fill(cluster, "unclean", 1, 10)
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "none"}
    with kraftlog.Consumer(**settings) as reader:
        reader.assign([("unclean", 0)])
        reader.seek(("unclean", 0), 0)
        while reader.position(("unclean", 0)).offset < 20:
            assert reader.poll(30) is not None
        read = reader.position(("unclean", 0))
    cluster.kill(first)
    third = ({1, 2, 3} - {first, second}).pop()
    cluster.start_node(second)
    # Other brokers name no leader as soon as its process is gone; the controller has to have fenced it.
    cluster.wait_until(
        lambda state: (
            state.partitions["unclean", 0].leader == -1 and second in state.brokers and first not in state.brokers
        ),
        "is led",
    )
    said = tools("LeaderElectionCommand", "--election-type", "unclean", "--topic", "unclean", "--partition", "0")
    assert "Successfully completed leader election (UNCLEAN) for partitions unclean-0" in said, said
    cluster.wait_until(lambda state: state.partitions["unclean", 0].leader == second, "no unclean leader")
    fill(cluster, "unclean", 1, 5)
    found = tools.truncation("unclean", read)
    with kraftlog.Consumer(**settings) as reader:
        reader.assign([("unclean", 0)])
        reader.seek(("unclean", 0), read.offset, leader_epoch=read.leader_epoch)
        with pytest.raises(LogTruncationError) as raised:
            reader.poll(30)
        diverging = raised.value.diverging_offset
        assert found == [raised.value.position, diverging.end_offset, diverging.epoch]
        assert found[:2] == [20, 10]
    cluster.start_node(first)
    cluster.wait_until_in_sync()
    assert cluster.nodes[third].is_running
    until_true(lambda: len(set(logs(cluster, "unclean", 0, (first, second)))) == 1)


@pytest.mark.timeout(200)
def test_reassign_partitions_command_generates_executes_verifies_and_cancels(
    tools: Tools, cluster: kraftlog.Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("moved", 2, 2, {"min.insync.replicas": 1})
    fill(cluster, "moved", 2, 200)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    said = tools(
        "reassign.ReassignPartitionsCommand",
        "--generate",
        "--topics-to-move-json-file",
        str(topics),
        "--broker-list",
        "1,2,3",
    )
    assert "Current partition replica assignment" in said
    assert '"topic":"moved","partition":0' in said
    before = {index: cluster.state().partitions["moved", index].replicas for index in (0, 1)}
    wanted = {index: [({1, 2, 3} - set(replicas)).pop(), replicas[0]] for index, replicas in before.items()}
    plan = plan_of(tmp_path / "plan.json", "moved", wanted)
    said = tools(
        "reassign.ReassignPartitionsCommand", "--execute", "--reassignment-json-file", plan, "--throttle", "50000000"
    )
    assert "Successfully started partition reassignments for moved-0,moved-1" in said, said

    def verified() -> bool:
        told = tools("reassign.ReassignPartitionsCommand", "--verify", "--reassignment-json-file", plan)
        return len(re.findall(r"Reassignment of partition moved-\d is completed\.", told)) == 2

    until_true(verified)
    state = cluster.state()
    assert {index: list(state.partitions["moved", index].replicas) for index in (0, 1)} == wanted
    for index, replicas in wanted.items():
        leader_log = logs(cluster, "moved", index, tuple(replicas))[0]
        assert leader_log
        until_true(lambda index=index, replicas=replicas: len(set(logs(cluster, "moved", index, tuple(replicas)))) == 1)
        dropped = (set(before[index]) - set(replicas)).pop()
        until_true(
            lambda dropped=dropped, index=index: not (cluster.nodes[dropped].data_dir / f"moved-{index}").exists()
        )

    # To a broker that is not there: it cannot end, and is cancelled.
    absent = next(number for number in (3, 2, 1) if number != cluster.controller)
    cluster.kill(absent)
    cluster.wait_until(lambda state: absent not in state.brokers, "not fenced")
    cluster.create_topic("waits", 1, 1)
    (home,) = cluster.state().partitions["waits", 0].replicas
    plan = plan_of(tmp_path / "cancel.json", "waits", {0: [home, absent]})
    # The tool itself does not start this: it names only brokers that are there.
    said = tools("reassign.ReassignPartitionsCommand", "--execute", "--reassignment-json-file", plan, check=False)
    assert f"Unknown broker id {absent}" in said, said
    asyncio.run(reassign(cluster, "waits", [home, absent]))
    said = tools(
        "reassign.ReassignPartitionsCommand", "--verify", "--reassignment-json-file", plan, "--preserve-throttles"
    )
    assert "Reassignment of partition waits-0 is still in progress." in said, said
    assert "Current partition reassignments:" in tools("reassign.ReassignPartitionsCommand", "--list")
    # Without --preserve-throttles the tool waits a minute for the broker that is not there, to change its throttles.
    said = tools(
        "reassign.ReassignPartitionsCommand", "--cancel", "--reassignment-json-file", plan, "--preserve-throttles"
    )
    assert "Successfully cancelled partition reassignment for: waits-0" in said, said
    assert "No partition reassignments found." in tools("reassign.ReassignPartitionsCommand", "--list")
    cluster.start_node(absent)
    cluster.wait_until_in_sync()
    assert cluster.state().partitions["waits", 0].replicas == (home,)


class Transactions:
    """Raw requests to the coordinator of the id ``topic`` and to the leaders of that topic."""

    def __init__(self, cluster: kraftlog.Cluster, topic: str) -> None:
        self.key = self.topic = topic
        self.nodes = {
            node_id: RawClient(node.bootstrap_server) for node_id, node in cluster.nodes.items() if node.is_running
        }
        self.leaders = [self.nodes[cluster.leader(topic, index)] for index in range(3)]
        first = next(iter(self.nodes.values()))
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[topic])
        until_true(lambda: not first.call(request).coordinators[0].error_code)
        self.coordinator = self.nodes[first.call(request).coordinators[0].node_id]
        until_true(lambda: init(self.coordinator, topic)[0] == 0)  # it may just be loading
        self.producer = begin(self.coordinator, topic)

    def open(self, level: int, values: list[bytes]) -> None:
        """Begin a transaction on all partitions, as a client of that level does."""
        if not level:
            partitions = [(self.topic, index) for index in range(3)]
            assert add(self.coordinator, self.key, self.producer, *partitions) == [0, 0, 0]
        for index, leader in enumerate(self.leaders):
            for sequence, value in enumerate(values):
                records = batch(self.producer, sequence, value)
                self._produce(leader, records, version=12 if level else 11, index=index)

    def _produce(self, leader: RawClient, records: bytes, **fields: int) -> None:
        until_true(lambda: produce(leader, self.topic, records, key=self.key, **fields) not in STARTING)
        assert produce(leader, self.topic, records, key=self.key, **fields) == 0, "a duplicate of what was taken"

    def end(self, version: int, *, commit: bool = True) -> int:
        """End it, and become the producer that the answer names."""
        code, producer_id, epoch = end(self.coordinator, self.key, self.producer, commit=commit, version=version)
        if code == 0:
            wait_until_complete(self.coordinator, self.key)
            self.producer = (producer_id, epoch) if version >= 5 else begin(self.coordinator, self.key)
        return int(code)


def ends(cluster: kraftlog.Cluster, topic: str) -> list[dict[Any, int]]:
    """The ends of all partitions for readers of committed and of all records."""
    found = []
    for isolation in ("read_committed", "read_uncommitted"):
        with kraftlog.Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level=isolation) as consumer:
            found.append(dict(consumer.end_offsets(consumer.partitions_for(topic))))
    return found


def has_level(transactions: Transactions, level: int) -> bool:
    """Whether every node has heard of the level of transaction.version."""
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answers = [client.call(request).finalized_features for client in transactions.nodes.values()]
    levels = [{feature.name: feature.max_version_level for feature in features} for features in answers]
    return all(found.get("transaction.version", 0) == level for found in levels)


def committed_values(cluster: kraftlog.Cluster, topic: str) -> list[list[bytes]]:
    """What readers of committed records get of each of three partitions."""
    where, level = cluster.bootstrap_servers, {"isolation_level": "read_committed"}
    scans = [kraftlog.read(where, topic, partitions=[index], **level) for index in range(3)]
    return [pa.table(scan)["value"].to_pylist() for scan in scans]


@pytest.mark.timeout(300)
def test_transactions_are_found_aborted_and_outlast_changes_of_transaction_version(
    tools: Tools, cluster: kraftlog.Cluster, java: Java, capsys: pytest.CaptureFixture[str]
) -> None:
    """KIP-664 by both tools on partitions of three leaders; transactions that are open while the level changes."""
    hung = f"hung-{secrets.token_hex(2)}"  # of this try: a second one finds what the first has left
    cluster.create_topic(hung, 3)
    where = ("--bootstrap-server", cluster.bootstrap_servers)
    alive = Transactions(cluster, hung)
    alive.open(2, [b"first"])
    for index, leader in enumerate(alive.leaders):
        assert produce(leader, hung, batch((987_000 + index, 3), 0), key="unknown", version=9, index=index) == 0

    def kafkas(*args: str) -> list[list[str]]:
        # The tool leaves threads behind, and so each needs a JVM of its own.
        lines = java.run(TOOLS + "TransactionsCommand", *where, *args).stdout.splitlines()
        return [[column.strip() for column in line.split("\t")] for line in lines[1:]]

    def hanging() -> list[tuple[str, int, int]]:
        late = ("--max-transaction-timeout", "-5")
        assert transactions_tool([*where, "find-hanging", "--topic", hung, *late, "--json"]) == 0
        return [(row["Topic"], row["Partition"], row["ProducerId"]) for row in json.loads(capsys.readouterr().out)]

    found = [(hung, index, 987_000 + index) for index in range(3)]
    assert sorted(hanging()) == found
    rows = kafkas("find-hanging", "--topic", hung, "--max-transaction-timeout", "-10")
    assert sorted((row[0], int(row[1]), int(row[2])) for row in rows) == found
    kafkas("abort", "--topic", hung, "--partition", "0", "--start-offset", "1")
    assert sorted(hanging()) == found[1:]
    by_producer = ("--producer-id", "987002", "--producer-epoch", "3", "--coordinator-epoch", "0")
    for arguments in (("1", "--start-offset", "1"), ("2", *by_producer)):
        assert transactions_tool([*where, "abort", "--topic", hung, "--partition", *arguments]) == 0
    assert hanging() == []
    assert [set(found.values()) for found in ends(cluster, hung)] == [{0}, {3}], "the other transaction is open"
    assert alive.end(5) == 0

    committed = [b"first"]
    for before, level in ((2, 1), (1, 0), (0, 1), (1, 2)):
        value = b"%d to %d" % (before, level)
        alive.open(before, [value])
        verb = "upgrade" if level > before else "downgrade"
        tools("FeatureCommand", verb, "--feature", f"transaction.version={level}")
        until_true(lambda level=level: has_level(alive, level))
        if not level:
            assert alive.end(5) == ErrorCode.UNSUPPORTED_VERSION
        assert alive.end(5 if level else 4) == 0
        alive.open(level, [b"dropped"])
        assert alive.end(5 if level else 4, commit=False) == 0
        committed.append(value)
    assert len({tuple(sorted(found.values())) for found in ends(cluster, hung)}) == 1
    assert committed_values(cluster, hung) == [committed] * 3
    for client in alive.nodes.values():
        client.sock.close()


@pytest.mark.timeout(300)
def test_log_dirs_quorum_features_and_cluster_commands(tools: Tools, cluster: kraftlog.Cluster) -> None:
    cluster.create_topic("sized", 1)
    fill(cluster, "sized", 1, 50)
    said = tools("LogDirsCommand", "--describe", "--topic-list", "sized")
    document = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert sorted(broker["broker"] for broker in document["brokers"]) == [1, 2, 3]
    for broker in document["brokers"]:
        (directory,) = broker["logDirs"]
        assert directory["logDir"] == str(cluster.nodes[broker["broker"]].data_dir)
        (partition,) = directory["partitions"]
        assert partition["partition"] == "sized-0"
        assert partition["size"] > 0
        assert not partition["isFuture"]
    status = tools("MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"CurrentVoters:.*\"id\": 1.*\"id\": 2.*\"id\": 3", status), status
    replication = tools("MetadataQuorumCommand", "describe", "--replication")
    assert len(re.findall(r"\bFollower\b", replication)) == 2
    assert len(re.findall(r"\bLeader\b", replication)) == 1
    assert "metadata.version" in tools("FeatureCommand", "describe")
    said = tools("ClusterTool", "list-endpoints")
    assert all(node.bootstrap_server.rpartition(":")[2] in said for node in cluster.nodes.values()), said
    added = cluster.add_node()
    cluster.wait_until(lambda state: added in state.brokers, "not registered")
    cluster.stop_node(added)
    said = tools("ClusterTool", "unregister", "--id", str(added))
    assert f"Broker {added} is no longer registered." in said, said
    said = tools("ClusterTool", "list-endpoints", "--include-fenced-brokers")
    # Lines that begin with an id: the client also warns about the stopped broker, which is among its bootstrap servers.
    assert set(re.findall(r"^(\d+) ", said, re.MULTILINE)) == {"1", "2", "3"}, said


@pytest.mark.timeout(300)
def test_replica_verification_tool_finds_no_lag(java: Java, cluster: kraftlog.Cluster) -> None:
    cluster.create_topic("verified", 2)
    fill(cluster, "verified", 2, 500)
    assert_verification_finds_no_lag(java, cluster.bootstrap_servers, "verified")
