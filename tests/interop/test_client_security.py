"""``kraftlog.Producer`` and ``kraftlog.read`` on a Kafka with SASL PLAIN, SASL SCRAM and TLS."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import kraftlog
from certificates import Authority
from free_ports import free_port
from interop.harness import Java, KafkaServer
from kraftlog.errors import KafkaError, KraftlogError

PASSWORD = 'pa,ss=word"'
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin" user_admin="admin" user_alice="secret";'
)


class SecureKafka(KafkaServer):
    """Kafka with a plain listener for the test, and one each for SASL_PLAINTEXT, SASL_SSL and SSL."""

    def __init__(self, home: Path, java: Java) -> None:
        super().__init__(home, java)
        self.ports = {protocol: free_port() for protocol in ("SASL_PLAINTEXT", "SASL_SSL", "SSL")}
        authority = Authority()
        self.trusted = home / "trusted.pem"
        self.trusted.write_text(authority.certificate)
        self.identity = authority.issue("node").write(home / "identity.pem")
        self.client = authority.issue("client").write(home / "client.pem")

    def properties(self) -> dict[str, str]:
        found = super().properties()
        more = ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in self.ports.items())
        names = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL"
        mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        for listener in ("sasl_plaintext", "sasl_ssl"):
            found[f"listener.name.{listener}.plain.sasl.jaas.config"] = JAAS
            found[f"listener.name.{listener}.scram-sha-256.sasl.jaas.config"] = scram
            found[f"listener.name.{listener}.scram-sha-512.sasl.jaas.config"] = scram
        return {
            **found,
            "listeners": f"{found['listeners']},{more}",
            "advertised.listeners": f"{found['advertised.listeners']},{more}",
            "listener.security.protocol.map": names,
            "sasl.enabled.mechanisms": mechanisms,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.identity),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
            "listener.name.ssl.ssl.client.auth": "required",
        }


@pytest.fixture(scope="module")
def kafka(java: Java, tmp_path_factory):
    server = SecureKafka(tmp_path_factory.mktemp("secure") / "kafka", java)
    with server.running():
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion("bob", info, PASSWORD.encode())
            admin.alter_user_scram_credentials([change])["bob"].result(30)
        yield server


def settings_of(kafka, protocol, mechanism, user, password):
    settings = {"security.protocol": protocol}
    if "SASL" in protocol:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    if "SSL" in protocol:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(kafka.trusted)}
    if protocol == "SSL":
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(kafka.client)}
    return settings


CASES = [
    ("SASL_PLAINTEXT", "PLAIN", "alice", "secret"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256", "bob", PASSWORD),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512", "bob", PASSWORD),
    ("SASL_SSL", "PLAIN", "alice", "secret"),
    ("SASL_SSL", "SCRAM-SHA-512", "bob", PASSWORD),
    ("SSL", "", "", ""),
]


def test_records_go_there_and_back_over_every_listener(kafka):
    for number, case in enumerate(CASES):
        bootstrap = f"127.0.0.1:{kafka.ports[case[0]]}"
        settings = settings_of(kafka, *case)
        with kraftlog.Producer({"bootstrap.servers": bootstrap, **settings}) as producer:
            producer.send("t", b"%d" % number)
            producer.flush()
        found = pa.table(kraftlog.read(bootstrap, "t", config=settings, columns=["value"]))["value"].to_pylist()
        assert found == [b"%d" % sent for sent in range(number + 1)], case


@pytest.mark.parametrize("case", CASES[:3])
def test_a_wrong_password_is_an_error_at_once(kafka, case):
    settings = settings_of(kafka, *case[:3], "wrong")
    with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
        kraftlog.read(f"127.0.0.1:{kafka.ports[case[0]]}", "t", config=settings)


def test_an_authority_that_is_not_trusted_is_an_error(kafka, tmp_path):
    other = tmp_path / "other.pem"
    other.write_text(Authority("another").certificate)
    settings = {**settings_of(kafka, *CASES[3]), "ssl.truststore.location": str(other)}
    with pytest.raises(KraftlogError, match="certificate"):
        kraftlog.read(f"127.0.0.1:{kafka.ports['SASL_SSL']}", "t", config=settings)
