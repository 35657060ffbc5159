"""Servers with SASL, of kraftlog and of Apache Kafka with the same settings."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from certificates import Authority
from free_ports import free_port
from interop.harness import CLUSTER_ID, Java, KafkaServer, KraftlogServer, Server

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# With characters that SCRAM escapes in names, properties and JAAS in values.
USER, PASSWORD = "alice", "se,cr=et"
ADD_SCRAM = [
    argument
    for mechanism in MECHANISMS[1:]
    for argument in ("--add-scram", f'{mechanism}=[name={USER},password="scram"]')
]
PASSWORDS = {"PLAIN": PASSWORD, "SCRAM-SHA-256": "scram", "SCRAM-SHA-512": "scram"}


def sasl_properties(*listeners: str) -> dict[str, str]:
    """All mechanisms on these listeners, with the users node and alice of PLAIN."""
    found = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    for listener in listeners:
        prefix = f"listener.name.{listener.lower()}."
        found[f"{prefix}plain.sasl.jaas.config"] = (
            f'{PLAIN_MODULE} required username="node" password="node" user_node="node" user_{USER}="{PASSWORD}";'
        )
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            found[f"{prefix}{mechanism}.sasl.jaas.config"] = f'{SCRAM_MODULE} required username="node" password="node";'
    return found


class Sasl(Server):
    """A listener with SASL_PLAINTEXT at ``port``, one with SASL_SSL, and a PLAINTEXT one."""

    def __init__(self, home: Path, config: Mapping[str, str] | None = None) -> None:
        super().__init__(home, config)
        self.prepare()

    def prepare(self) -> None:
        self.tls_port, self.plain_port = free_port(), free_port()
        authority = Authority()
        self.trusted = self.home / "trusted.pem"
        self.trusted.write_text(authority.certificate)
        self.identity = authority.issue("node").write(self.home / "identity.pem")

    def sasl(self, base: Mapping[str, str]) -> dict[str, str]:
        ports = {"SASL_PLAINTEXT": self.port, "SASL_SSL": self.tls_port, "PLAINTEXT": self.plain_port}
        named = {**ports, "CONTROLLER": self.controller_port}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in named.items())
        return {
            **base,
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join([*(f"{name}:{name}" for name in ports), "CONTROLLER:PLAINTEXT"]),
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            **sasl_properties("SASL_PLAINTEXT", "SASL_SSL"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.identity),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
            **self.config,
        }

    def bootstrap_of(self, protocol: str) -> str:
        return f"127.0.0.1:{self.tls_port if protocol == 'SASL_SSL' else self.port}"


class SaslKraftlog(Sasl, KraftlogServer):
    """A kraftlog node."""

    format_arguments = ADD_SCRAM

    def properties(self) -> dict[str, str]:
        return self.sasl(KraftlogServer.properties(self))


class SaslKafka(Sasl, KafkaServer):
    """Apache Kafka."""

    def __init__(self, home: Path, java: Java, config: Mapping[str, str] | None = None) -> None:
        KafkaServer.__init__(self, home, java, config)
        self.prepare()

    def properties(self) -> dict[str, str]:
        return self.sasl(KafkaServer.properties(self))

    def run_format(self) -> subprocess.CompletedProcess[str]:
        arguments = ("-t", CLUSTER_ID, "-c", str(self.properties_path), *ADD_SCRAM)
        return self.java.tool("kafka.tools.StorageTool", "format", "--standalone", *arguments, check=False)
