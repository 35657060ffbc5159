"""A cluster whose nodes are kraftlog or Apache Kafka, as the test says, and may change from one to the other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from interop.harness import CLUSTER_ID, DATA_PATH, Java, Server
from kraftlog.storage.meta_properties import random_uuid, read_meta_properties

__all__ = ["KAFKA", "KRAFTLOG", "METADATA", "Member", "MixedCluster", "eventually"]

COUNTED_NODE = str(Path(__file__).with_name("counted_node.py"))
KAFKA, KRAFTLOG = "kafka", "kraftlog"
METADATA = "__cluster_metadata"
TOOLS = "org.apache.kafka.tools."
# A dead broker's session and a dead leader's fetch timeout decide how long a test takes.
QUICK = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "10000",
    "replica.fetch.backoff.ms": "200",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    # A changed setting of the cleaner starts a second one, and two of the default size do not fit into a small heap.
    "log.cleaner.dedupe.buffer.size": "8388608",
}
JVM_FLAGS = ("-Xmx256m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def eventually(what: Callable[[], bool], reason: str, timeout_s: float = 60) -> None:
    """Return when ``what`` holds; fail with ``reason`` after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {reason}"
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Replication:
    """A line of ``kafka-metadata-quorum describe --replication``."""

    status: str
    lag: int


class Member(Server):
    """A node of a mixed cluster; ``kind`` says which program the next start runs on its directory."""

    ready_timeout_s = 120.0
    jvm_flags: Sequence[str] = JVM_FLAGS

    def __init__(self, cluster: MixedCluster, kind: str, roles: str, node_id: int, config: Mapping[str, str]) -> None:
        super().__init__(cluster.home / f"node-{node_id}", config)
        self.cluster, self.kind, self.roles, self.node_id = cluster, kind, roles, node_id
        self.name = f"node-{node_id}"
        self.directory_id = str(random_uuid())
        if not self.is_broker:
            self.port = self.controller_port

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    def properties(self) -> dict[str, str]:
        listeners = []
        if self.is_broker:
            listeners.append(f"PLAINTEXT://127.0.0.1:{self.port}")
        if self.is_controller:
            listeners.append(f"CONTROLLER://127.0.0.1:{self.controller_port}")
        found = {
            "process.roles": self.roles,
            "node.id": str(self.node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            **self.cluster.quorum_properties(),
            "log.dirs": str(self.data_dir),
            **QUICK,
            **self.config,
        }
        if self.kind == KRAFTLOG:
            found["kraftlog.data.path"] = DATA_PATH
        return found

    def run_format(self) -> subprocess.CompletedProcess[str]:
        arguments = ["format", *self.cluster.format_arguments(self), "-t", CLUSTER_ID, "-c", str(self.properties_path)]
        if self.kind == KAFKA:
            return self.cluster.java.tool("kafka.tools.StorageTool", *arguments, check=False)
        command = [sys.executable, "-m", "kraftlog", "storage", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def start_command(self) -> list[str]:
        if self.kind == KAFKA:
            return self.cluster.java.command("kafka.Kafka", str(self.properties_path), flags=self.jvm_flags)
        return [sys.executable, COUNTED_NODE, str(self.counts_path), "server-start", str(self.properties_path)]

    @property
    def counts_path(self) -> Path:
        return self.home / "counts.json"

    def counts(self) -> Counter[str]:
        """What ``counted_node`` has counted since a kraftlog node was started."""
        return Counter(json.loads(self.counts_path.read_text()))

    def become(self, kind: str) -> None:
        """Stop in order, and start the other program on the same directory."""
        self.stop()
        self.kind = kind
        self.start()

    def log(self, topic: str, index: int = 0) -> bytes:
        """All segments of a partition, in order."""
        return b"".join(path.read_bytes() for path in sorted((self.data_dir / f"{topic}-{index}").glob("*.log")))

    def stored_directory_id(self) -> str:
        """The id in ``meta.properties``."""
        return str(read_meta_properties(self.data_dir).directory_id)

    def complaints(self) -> list[str]:
        """Errors that kraftlog logged, and faults that Kafka did; Kafka also logs what it tells clients as errors."""
        if self.kind == KRAFTLOG:
            return self.errors_logged()
        said = self.log_path.read_text(errors="replace").splitlines()
        return [line for line in said if re.search(r"[Ee]ncountered .*fault|CorruptRecordException|FATAL", line)]


class MixedCluster:
    """Members, the tools that operate them, and what the cluster says of itself.

    Args:
        home: Directory of all members.
        java: Kafka's jars.
        is_dynamic: Whether the voters stand in the metadata log (kraft.version 1) or in the configuration.
    """

    def __init__(self, home: Path, java: Java, *, is_dynamic: bool = True) -> None:
        self.home, self.java, self.is_dynamic = home, java, is_dynamic
        self.members: dict[int, Member] = {}

    def add(self, kind: str, roles: str, node_id: int, **config: str) -> Member:
        """A member; all are added before the first one starts."""
        member = Member(self, kind, roles, node_id, {key.replace("_", "."): value for key, value in config.items()})
        self.members[node_id] = member
        return member

    def start(self) -> None:
        """Start all, at once."""
        for member in self.members.values():
            member.launch()
        for member in self.members.values():
            member.wait_until_ready()
        self.wait_for_brokers(*(member.node_id for member in self.brokers))

    def close(self) -> None:
        for member in self.members.values():
            member.kill()

    @property
    def brokers(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_broker]

    @property
    def controllers(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_controller]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{member.port}" for member in self.brokers)

    @property
    def controller_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{member.controller_port}" for member in self.controllers)

    def quorum_properties(self) -> dict[str, str]:
        if self.is_dynamic:
            return {"controller.quorum.bootstrap.servers": self.controller_bootstrap}
        voters = (f"{member.node_id}@127.0.0.1:{member.controller_port}" for member in self.controllers)
        return {"controller.quorum.voters": ",".join(voters)}

    def format_arguments(self, member: Member) -> Sequence[str]:
        if not self.is_dynamic:
            return ()
        if not member.is_controller:
            return ("--no-initial-controllers",)
        voters = (f"{each.node_id}@127.0.0.1:{each.controller_port}:{each.directory_id}" for each in self.controllers)
        return ("--initial-controllers", ",".join(voters))

    # What the cluster says.

    def admin(self, member: Member | None = None, timeout_s: int = 5) -> AdminClient:
        """Asks ``member``, or any broker, and waits ``timeout_s`` for an answer."""
        where = self.bootstrap if member is None else f"127.0.0.1:{member.port}"
        return AdminClient({"bootstrap.servers": where, "log_level": 0, "socket.timeout.ms": timeout_s * 1000})

    def topics(self, member: Member | None = None) -> dict[str, dict[int, tuple[int, list[int], list[int]]]]:
        """Leader, replicas and in-sync replicas of all partitions, as ``member`` or some broker knows them.

        Empty while no broker answers.
        """
        try:
            metadata = self.admin(member).list_topics(timeout=5)
        except KafkaException:
            return {}
        return {
            name: {
                index: (partition.leader, list(partition.replicas), sorted(partition.isrs))
                for index, partition in topic.partitions.items()
            }
            for name, topic in metadata.topics.items()
        }

    def leader(self, topic: str, index: int = 0) -> int:
        return self.topics().get(topic, {}).get(index, (-1, [], []))[0]

    def wait_for_brokers(self, *node_ids: int) -> None:
        """Return when exactly these brokers are not fenced."""

        def known() -> set[int]:
            try:
                return set(self.admin().list_topics(timeout=5).brokers)
            except KafkaException:
                return set()

        eventually(lambda: known() == set(node_ids), f"brokers {node_ids}, are {known()}")

    def wait_until_in_sync(self, timeout_s: float = 60) -> None:
        """Return when each replica of each partition is in sync."""

        def behind() -> list[tuple[str, int, list[int], list[int]]] | None:
            topics = self.topics()
            return (
                [
                    (name, index, replicas, isr)
                    for name, partitions in topics.items()
                    for index, (leader, replicas, isr) in partitions.items()
                    if sorted(replicas) != isr or leader not in replicas
                ]
                if topics
                else None
            )

        deadline = time.monotonic() + timeout_s
        while (left := behind()) != []:
            assert time.monotonic() < deadline, f"not in sync within {timeout_s} s: {left}"
            time.sleep(0.1)

    def replicas(self) -> dict[str, dict[int, list[int]]]:
        """The replicas of all partitions."""
        return {
            topic: {index: replicas for index, (_, replicas, _) in partitions.items()}
            for topic, partitions in self.topics().items()
        }

    def active_controller(self) -> int:
        """The leader of the quorum, as Kafka's tool prints it; -1 while there is none."""
        try:
            text = self.quorum("describe", "--status")
        except (AssertionError, subprocess.TimeoutExpired):
            return -1
        return int(re.findall(r"^LeaderId:\s+(-?\d+)$", text, re.MULTILINE)[0])

    def replication(self) -> dict[int, Replication]:
        """What ``describe --replication`` prints per node; nothing while nobody leads."""
        try:
            text = self.quorum("describe", "--replication")
        except (AssertionError, subprocess.TimeoutExpired):
            return {}
        rows = [line.split() for line in text.splitlines()[1:]]
        return {int(row[0]): Replication(row[-1], int(row[3])) for row in rows if len(row) >= 7}

    def replication_status(self, node_id: int) -> str:
        """Leader, Follower or Observer; empty for a node that the leader does not know."""
        found = self.replication().get(node_id)
        return "" if found is None else found.status

    def wait_until_voters_follow(self) -> None:
        """Return when a controller leads and all others follow it without lag."""

        def follow() -> bool:
            found = self.replication()
            return all(
                node_id in found and found[node_id].status in ("Leader", "Follower") and found[node_id].lag <= 1
                for node_id in (member.node_id for member in self.controllers)
            )

        eventually(follow, "controllers do not follow")

    # Kafka's tools.

    def tool(self, name: str, *args: str, check: bool = True, timeout_s: float = 60) -> str:
        done = self.java.tool(TOOLS + name, *args, "--bootstrap-server", self.bootstrap, check=check, timeout=timeout_s)
        return done.stdout + done.stderr

    def quorum(self, *args: str) -> str:
        alive = (member for member in self.controllers if member.process is not None)
        where = ",".join(f"127.0.0.1:{member.controller_port}" for member in alive)
        done = self.java.tool(TOOLS + "MetadataQuorumCommand", "--bootstrap-controller", where, *args, timeout=45)
        return done.stdout

    def features(self, *args: str, check: bool = True) -> str:
        done = self.java.tool(
            TOOLS + "FeatureCommand", "--bootstrap-server", self.bootstrap, *args, check=check, timeout=60
        )
        return done.stdout + done.stderr

    def configs(self, *args: str, bootstrap: str = "") -> str:
        where = ("--bootstrap-server", bootstrap or self.bootstrap)
        return self.java.tool("kafka.admin.ConfigCommand", *where, *args, timeout=60).stdout

    def create_topic(self, name: str, *replicas: list[int], **config: str) -> None:
        """A topic with these replicas per partition, the first of which is preferred."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, len(replicas), replica_assignment=list(replicas), config=settings)
        # Two of Kafka's controllers that stand for election at the same moment need more than one round of it. The
        # client gives up a request after its socket's time-out, whatever the time-out of the request is.
        admin = self.admin(timeout_s=60)
        admin.create_topics([new], operation_timeout=60, request_timeout=60)[name].result(90)
        self.wait_until_in_sync()

    def elect_preferred(self) -> None:
        self.tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")

    def reassign(self, topic: str, replicas: Mapping[int, list[int]]) -> None:
        """Move a topic with ReassignPartitionsCommand, and return when it says that the move is done."""
        partitions = [{"topic": topic, "partition": index, "replicas": ids} for index, ids in replicas.items()]
        path = self.home / f"reassign-{topic}.json"
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        name = "reassign.ReassignPartitionsCommand"
        plan = ("--reassignment-json-file", str(path))
        said = self.tool(name, "--execute", *plan, "--throttle", "50000000")
        assert "Successfully started partition reassignment" in said, said

        def is_done() -> bool:
            return self.tool(name, "--verify", *plan).count("is completed") == len(partitions)

        eventually(is_done, f"reassignment of {topic}")

    # What is on the disks.

    def stop(self) -> None:
        """Stop all in order: brokers, then controllers.

        The last combined node is killed: without a controller a Kafka broker waits minutes for its controlled shutdown.
        """
        combined = [member for member in self.members.values() if member.is_broker and member.is_controller]
        for member in sorted(self.members.values(), key=lambda member: member.is_controller):
            if len(combined) > 1 and member is combined[-1]:
                member.kill()
            else:
                member.stop()

    def assert_equal_replicas(self, topics: Mapping[str, Mapping[int, Iterable[int]]]) -> None:
        """The segments of all replicas of stopped members have equal bytes.

        Args:
            topics: Per topic and partition the ids of the replicas.
        """
        for topic, partitions in topics.items():
            for index, replicas in partitions.items():
                logs = {node_id: self.members[node_id].log(topic, index) for node_id in replicas}
                first = next(iter(logs.values()))
                sizes = {node_id: len(data) for node_id, data in logs.items()}
                assert all(data == first for data in logs.values()), f"{topic}-{index}: bytes per node {sizes}"

    def metadata_sizes(self) -> dict[int, int]:
        """Bytes of the metadata log of each node, once all have what the leader has now."""
        leader = self.members[self.active_controller()]
        size = len(leader.log(METADATA))
        nodes = list(self.members.values())
        eventually(lambda: all(len(node.log(METADATA)) >= size for node in nodes), "metadata logs behind the leader's")
        return {node.node_id: size for node in nodes}

    def assert_equal_metadata(self, committed: Mapping[int, int]) -> None:
        """The metadata logs of stopped members have equal bytes as far as they were committed."""
        logs = {node_id: self.members[node_id].log(METADATA)[:size] for node_id, size in committed.items()}
        first = next(iter(logs.values()))
        sizes = {node_id: len(data) for node_id, data in logs.items()}
        assert first
        assert all(data == first for data in logs.values()), f"bytes per node {sizes}"
