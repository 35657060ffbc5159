"""Clients with SASL against a kraftlog node: librdkafka, aiokafka, kafka-python, Java, and kraftlog's own."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pyarrow as pa
import pytest
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka.admin import AdminClient, NewTopic

import kraftlog
from interop.harness import Java
from interop.sasl_servers import MECHANISMS, PASSWORDS, PLAIN_MODULE, SCRAM_MODULE, USER, SaslKraftlog
from kraftlog.errors import KafkaError
from waiting import until_true

TOPIC = "t"
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
WAYS = [(protocol, mechanism) for protocol in PROTOCOLS for mechanism in MECHANISMS]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslKraftlog]:
    node = SaslKraftlog(tmp_path_factory.mktemp("sasl") / "node")
    with node.running():
        admin = AdminClient(librdkafka(node, "SASL_PLAINTEXT", "PLAIN"))
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        yield node


def librdkafka(node: SaslKraftlog, protocol: str, mechanism: str, password: str | None = None) -> dict[str, str]:
    return {
        "bootstrap.servers": node.bootstrap_of(protocol),
        "security.protocol": protocol,
        "sasl.mechanisms": mechanism,
        "sasl.username": USER,
        "sasl.password": password or PASSWORDS[mechanism],
        "ssl.ca.location": str(node.trusted),
    }


def pythonic(node: SaslKraftlog, protocol: str, mechanism: str, password: str | None = None) -> dict[str, object]:
    return {
        "bootstrap_servers": node.bootstrap_of(protocol),
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password or PASSWORDS[mechanism],
        "ssl_context": ssl.create_default_context(cafile=str(node.trusted)) if protocol == "SASL_SSL" else None,
    }


def java_properties(node: SaslKraftlog, protocol: str, mechanism: str, password: str | None = None) -> str:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    path = node.home / f"{protocol}-{mechanism}-{password is None}.properties"
    path.write_text(
        f"security.protocol={protocol}\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{USER}" password="{password or PASSWORDS[mechanism]}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={node.trusted}\n"
    )
    return str(path)


def values(node: SaslKraftlog, protocol: str, mechanism: str) -> list[bytes]:
    """What the topic has, read by kraftlog's own client."""
    settings = {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORDS[mechanism],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(node.trusted),
    }
    read = kraftlog.read(node.bootstrap_of(protocol), TOPIC, config=settings, columns=["value"])
    return pa.table(read)["value"].to_pylist()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_librdkafka(server: SaslKraftlog, protocol: str, mechanism: str) -> None:
    settings = librdkafka(server, protocol, mechanism)
    value = f"librdkafka {protocol} {mechanism}".encode()
    producer = confluent_kafka.Producer(settings)
    producer.produce(TOPIC, value)
    assert producer.flush(60) == 0
    assert values(server, protocol, mechanism)[-1] == value
    consumer = confluent_kafka.Consumer({**settings, "group.id": f"g-{protocol}-{mechanism}"})
    try:
        assert TOPIC in consumer.list_topics(timeout=60).topics
    finally:
        consumer.close()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_aiokafka(server: SaslKraftlog, protocol: str, mechanism: str) -> None:
    value = f"aiokafka {protocol} {mechanism}".encode()

    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(**pythonic(server, protocol, mechanism)) as producer:
            await producer.send_and_wait(TOPIC, value)

    asyncio.run(send())
    assert values(server, protocol, mechanism)[-1] == value


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_kafka_python(server: SaslKraftlog, protocol: str, mechanism: str) -> None:
    value = f"kafka-python {protocol} {mechanism}".encode()
    producer = kafka.KafkaProducer(**pythonic(server, protocol, mechanism))
    try:
        producer.send(TOPIC, value).get(60)
    finally:
        producer.close()
    assert values(server, protocol, mechanism)[-1] == value


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_java(server: SaslKraftlog, java: Java, protocol: str, mechanism: str) -> None:
    where = ["--bootstrap-server", server.bootstrap_of(protocol), "--topic", TOPIC]
    config = ["--command-config", java_properties(server, protocol, mechanism)]
    value = f"java {protocol} {mechanism}"
    java.tool("org.apache.kafka.tools.ConsoleProducer", *where, *config, text_input=f"{value}\n")
    found = values(server, protocol, mechanism)
    assert found[-1] == value.encode()
    read = java.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(*where, *config, "--from-beginning", "--max-messages", str(len(found)), "--timeout-ms", "60000"),
    ).stdout
    assert read.splitlines()[-1] == value


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_what_each_client_reports(server: SaslKraftlog, java: Java, mechanism: str) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    settings = {**librdkafka(server, "SASL_PLAINTEXT", mechanism, "wrong"), "error_cb": errors.append}
    admin = AdminClient({**settings, "log_level": "0"})

    def is_refused() -> bool:
        admin.poll(0.1)
        return any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors)

    until_true(is_refused)

    async def start() -> None:
        async with aiokafka.AIOKafkaProducer(**pythonic(server, "SASL_PLAINTEXT", mechanism, "wrong")):
            pass

    with pytest.raises(AiokafkaError):
        asyncio.run(start())
    done = java.tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", server.bootstrap, "--list"),
        *("--command-config", java_properties(server, "SASL_PLAINTEXT", mechanism, "wrong")),
        check=False,
    )
    assert done.returncode != 0
    assert "SaslAuthenticationException" in done.stdout + done.stderr
    with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
        kraftlog.read(
            server.bootstrap,
            TOPIC,
            config={
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": USER,
                "sasl.password": "wrong",
            },
        )


@pytest.mark.slow
def test_clients_authenticate_again_while_they_work(java: Java, tmp_path: Path) -> None:
    node = SaslKraftlog(tmp_path / "node", {"connections.max.reauth.ms": "4000"})
    with node.running():
        settings = librdkafka(node, "SASL_PLAINTEXT", "SCRAM-SHA-512")
        admin = AdminClient(settings)
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        producer = confluent_kafka.Producer(settings)
        failed: list[object] = []
        # Java's tool paces both: it takes three sessions.
        java_config = java_properties(node, "SASL_PLAINTEXT", "SCRAM-SHA-256")
        command = java.command(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", TOPIC, "--num-records", "600", "--record-size", "10", "--throughput", "50"),
            *("--bootstrap-server", node.bootstrap, "--command-config", java_config),
        )
        sent = 0
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:
                producer.produce(TOPIC, b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
                producer.poll(0.05)
                sent += 1
        assert process.returncode == 0
        assert producer.flush(60) == 0
        assert not failed
        # A client that had to wait for a processor may come too late, but not each time.
        assert node.log_path.read_text().count("closing connection") <= 1
        assert len(values(node, "SASL_PLAINTEXT", "PLAIN")) == 600 + sent
