"""Clients over TLS: Kafka's Java client and librdkafka against a kraftlog broker, with a certificate of their own."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from certificates import Authority
from interop.harness import Java, KraftlogServer

COUNT = 500


class TlsServer(KraftlogServer):
    """Our node with TLS on both of its listeners, and certificates asked of clients."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.authority = Authority()
        self.trusted = home / "trusted.pem"
        self.trusted.write_text(self.authority.certificate)
        self.identity = self.authority.issue("node").write(home / "identity.pem")

    def properties(self) -> dict[str, str]:
        listeners = f"CLIENTS://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
        return {
            **super().properties(),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CLIENTS:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "CLIENTS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.identity),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
            "listener.name.clients.ssl.client.auth": "required",
        }

    def answers(self) -> bool:
        return "started" in self.log_tail()


def test_java_and_librdkafka_produce_and_consume_over_tls(tmp_path: Path, java: Java) -> None:
    server = TlsServer(tmp_path / "node")
    key = server.authority.issue("client")
    keystore = key.write(tmp_path / "client.pem")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={server.trusted}\nssl.keystore.location={keystore}\n"
    )
    librdkafka = {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(server.trusted),
        "ssl.certificate.pem": key.certificate,
        "ssl.key.pem": key.key,
    }
    with server.running():
        admin = AdminClient(librdkafka)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        producer = Producer(librdkafka)
        padding = "x" * 2000  # a response of a megabyte: parts of files, encrypted piece by piece
        for number in range(COUNT):
            producer.produce("t", f"librdkafka {number} {padding}")
        assert producer.flush(60) == 0
        java.run(
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", server.bootstrap, "--topic", "t", "--command-config", str(properties)),
            text_input="".join(f"java {number} {padding}\n" for number in range(COUNT)),
        )
        read = java.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", server.bootstrap, "--topic", "t", "--command-config", str(properties)),
            *("--from-beginning", "--max-messages", str(2 * COUNT), "--timeout-ms", "60000"),
        ).stdout
        expected = [f"{who} {number} {padding}" for who in ("librdkafka", "java") for number in range(COUNT)]
        assert read.splitlines() == expected
        consumer = Consumer({**librdkafka, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found: list[str] = []
        while len(found) < 2 * COUNT:
            messages = consumer.consume(COUNT, timeout=60)
            assert messages, f"{len(found)} records came, then nothing"
            found += [message.value().decode() for message in messages if message.error() is None]
        consumer.close()
        assert found == expected
    assert not [line for line in server.errors_logged() if "Traceback" in line]
