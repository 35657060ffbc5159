"""SCRAM users of both products: kafka-configs, directories that change hands, nodes that connect to each other."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop.harness import CLUSTER_ID, Java, KafkaServer, KraftlogServer, Server, copy_of
from interop.sasl_servers import (
    PASSWORDS,
    PLAIN_MODULE,
    SCRAM_MODULE,
    USER,
    Sasl,
    SaslKafka,
    SaslKraftlog,
)
from interop.tool_runs import Said, run_kafka
from waiting import until_true

CONFIG_COMMAND = "kafka.admin.ConfigCommand"
USERS = "--entity-type users"
# Each line is run on one node and then on the other.
RUNS = f"""
--describe {USERS}
--alter {USERS} --entity-name bob --add-config SCRAM-SHA-256=[iterations=8192,password=b],SCRAM-SHA-512=[password=c]
--alter {USERS} --entity-name bob --add-config SCRAM-SHA-256=[password=b]
--alter {USERS} --entity-name bob --add-config SCRAM-SHA-512=[iterations=8192,password=c]
--alter {USERS} --entity-name eve --add-config SCRAM-SHA-512=[password=e]
--describe {USERS}
--describe {USERS} --entity-name bob
--alter {USERS} --entity-name bob --add-config SCRAM-SHA-256=[iterations=100,password=b]
--alter {USERS} --entity-name eve --delete-config SCRAM-SHA-512
--alter {USERS} --entity-name eve --delete-config SCRAM-SHA-512
--describe {USERS}
""".strip().splitlines()


def settings_of(bootstrap: str, mechanism: str, password: str, user: str = USER) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def is_served(bootstrap: str, mechanism: str, password: str, user: str = USER) -> bool:
    """Whether the user is authenticated; False when the node says that it is not."""
    failures: list[object] = []

    def note(error: confluent_kafka.KafkaError) -> None:
        if error.code() == confluent_kafka.KafkaError._AUTHENTICATION:
            failures.append(error)

    settings = settings_of(bootstrap, mechanism, password, user)
    admin = AdminClient({**settings, "error_cb": note, "log_level": "0"})
    answers: list[bool] = []

    def is_known() -> bool:
        admin.poll(0)
        with contextlib.suppress(confluent_kafka.KafkaException):
            answers.append(bool(admin.list_topics(timeout=1).brokers))
        return bool(answers or failures)

    until_true(is_known, 60)
    return bool(answers)


def comparable(said: Said) -> tuple[int, list[str], str]:
    """Kafka prints users, and the mechanisms of each, in the order of a hash map, which changes with the JVM."""
    lines = [" ".join(sorted(line.replace(",", " ").split())) for line in said.out.splitlines()]
    # The first line of an error has the port; those with tabs say where in the tool it was.
    errors = [line for line in said.err.strip().splitlines() if not line.startswith(("Error while", "\t"))]
    return said.code, sorted(lines), "\n".join(errors)


@pytest.mark.slow
def test_kafka_configs_does_and_prints_what_it_does_with_kafka(tmp_path: Path, java: Java) -> None:
    nodes: list[Sasl] = [SaslKafka(tmp_path / "kafka", java), SaslKraftlog(tmp_path / "kraftlog")]
    said = []
    try:
        for node in nodes:
            node.start()
            where = ["--bootstrap-server", f"127.0.0.1:{node.plain_port}"]
            said.append(run_kafka(java, CONFIG_COMMAND, [[*where, *line.split()] for line in RUNS]))
        wrong = [
            f"{line}\n  Kafka:    {comparable(kafkas)}\n  kraftlog: {comparable(own)}"
            for line, kafkas, own in zip(RUNS, *said, strict=True)
            if comparable(kafkas) != comparable(own)
        ]
        assert not wrong, "\n".join(wrong)
        assert any("bob" in done.out for done in said[0])
        for node in nodes:
            assert is_served(node.bootstrap, "SCRAM-SHA-256", "b", "bob")
            assert is_served(node.bootstrap, "SCRAM-SHA-512", "c", "bob")
    finally:
        for node in nodes:
            node.kill()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["kafka", "kraftlog"])
def test_users_of_one_product_are_those_of_the_other_on_its_directory(tmp_path: Path, java: Java, first: str) -> None:
    nodes: list[Sasl] = [SaslKafka(tmp_path / "kafka", java), SaslKraftlog(tmp_path / "kraftlog")]
    source, target = nodes if first == "kafka" else reversed(nodes)
    source.format()  # with --add-scram; nothing but the bootstrap file has the users
    copy_of(source, target)
    try:
        target.start()
        for mechanism, password in PASSWORDS.items():
            assert is_served(target.bootstrap, mechanism, password)
        change = ["--alter", *USERS.split(), "--entity-name", USER, "--add-config", "SCRAM-SHA-256=[password=new]"]
        run_kafka(java, CONFIG_COMMAND, [["--bootstrap-server", f"127.0.0.1:{target.plain_port}", *change]])
        until_true(lambda: is_served(target.bootstrap, "SCRAM-SHA-256", "new"))
        target.stop()
        ports = target.plain_port, target.tls_port
        copy_of(target, source)
        source.plain_port, source.tls_port = ports
        source.start()
        assert is_served(source.bootstrap, "SCRAM-SHA-256", "new")
        assert is_served(source.bootstrap, "SCRAM-SHA-512", PASSWORDS["SCRAM-SHA-512"])
        assert not is_served(source.bootstrap, "SCRAM-SHA-256", PASSWORDS["SCRAM-SHA-256"])
    finally:
        for node in nodes:
            node.kill()


class Member(Server):
    """One of three combined nodes; controllers know each other by PLAIN, brokers by SCRAM-SHA-512."""

    node_id = 0
    peers: Sequence[Member] = ()

    def sasl(self, base: dict[str, str]) -> dict[str, str]:
        listeners = f"BROKERS://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
        plain = f'{PLAIN_MODULE} required username="node" password="p" user_node="p";'
        scram = f'{SCRAM_MODULE} required username="node" password="s";'
        return {
            **{key: value for key, value in base.items() if key != "controller.quorum.bootstrap.servers"},
            "node.id": str(self.node_id),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "BROKERS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "controller.quorum.voters": ",".join(
                f"{peer.node_id}@127.0.0.1:{peer.controller_port}" for peer in self.peers
            ),
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": plain,
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.brokers.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.brokers.scram-sha-512.sasl.jaas.config": scram,
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.brokers.connections.max.reauth.ms": "8000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:node",
            "offsets.topic.replication.factor": "3",
            "min.insync.replicas": "2",
        }

    def arguments(self) -> list[str]:
        add = ["--add-scram", "SCRAM-SHA-512=[name=node,password=s]"]
        return ["format", "-t", CLUSTER_ID, "-c", str(self.properties_path), *add]


class KraftlogMember(Member, KraftlogServer):
    """A member that is a kraftlog node."""

    def properties(self) -> dict[str, str]:
        return self.sasl(KraftlogServer.properties(self))

    def run_format(self) -> subprocess.CompletedProcess[str]:
        command = [*self.start_command()[:3], "storage", *self.arguments()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


class KafkaMember(Member, KafkaServer):
    """A member that is a Kafka node."""

    def properties(self) -> dict[str, str]:
        return self.sasl(KafkaServer.properties(self))

    def run_format(self) -> subprocess.CompletedProcess[str]:
        return self.java.tool("kafka.tools.StorageTool", *self.arguments(), check=False)


@pytest.fixture
def members(tmp_path: Path, java: Java) -> Iterator[list[Member]]:
    nodes: list[Member] = [
        KraftlogMember(tmp_path / "1"),
        KraftlogMember(tmp_path / "2"),
        KafkaMember(tmp_path / "3", java),
    ]
    for number, node in enumerate(nodes, 1):
        node.node_id, node.peers = number, nodes
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_ready()
        yield nodes
    finally:
        for node in nodes:
            node.kill()


@pytest.mark.slow
def test_three_nodes_of_both_products_authenticate_to_each_other(members: list[Member]) -> None:
    settings = settings_of(",".join(node.bootstrap for node in members), "SCRAM-SHA-512", "s", "node")
    admin = AdminClient(settings)
    until_true(lambda: len(admin.list_topics(timeout=30).brokers) == 3, 60)
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(60)
    failed: list[object] = []
    producer = confluent_kafka.Producer({**settings, "acks": "all", "linger.ms": 0})
    # Longer than a session between brokers.
    for number in range(300):
        producer.produce("t", b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0.02)
    assert producer.flush(120) == 0
    members[0].kill()
    for number in range(300, 400):
        producer.produce("t", b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(120) == 0
    assert not failed
    members[0].start()

    def all_in_sync() -> bool:
        topic = admin.list_topics("t", timeout=30).topics["t"]
        return all(len(partition.isrs) == 3 for partition in topic.partitions.values())

    until_true(all_in_sync, 60)
    for node in members:
        # A node that had to wait for a processor may come too late, but not each time.
        assert node.log_path.read_text().count("closing connection") <= 2, node.name
