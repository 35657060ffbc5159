"""Controllers and brokers of either kind as parts of one cluster."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from interop.harness import CLUSTER_ID, Java, KafkaServer, KraftlogServer, Server
from raw_client import RawClient

__all__ = ["METADATA", "Broker", "Controller", "eventually", "metadata_files", "status"]

METADATA = "__cluster_metadata-0"


def eventually(what: Callable[[], bool], reason: str, timeout_s: float = 180) -> None:
    """Wait; a machine that does many things at once needs long to start a JVM."""
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {reason}"
        time.sleep(0.05)


class _Part:
    """What both kinds have in common; mixed into a ``Server``."""

    roles: str
    listener: str
    node_id: int
    format_arguments: tuple[str, ...]
    bootstrap_servers: str

    def properties(self: Any) -> dict[str, str]:
        address = f"127.0.0.1:{self.port}"
        own = {"listeners": f"{self.listener}://{address}", "advertised.listeners": f"{self.listener}://{address}"}
        return {
            "process.roles": self.roles,
            "node.id": str(self.node_id),
            **own,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": self.bootstrap_servers or address,
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            **self.config,
        }

    def run_format(self: Any) -> subprocess.CompletedProcess[str]:
        return Server.run_format(self)

    def format_command(self: Any) -> list[str]:
        # kraftlog writes what Kafka's tool writes, in a tenth of the time.
        args = ["storage", "format", *self.format_arguments, "-t", CLUSTER_ID, "-c", str(self.properties_path)]
        return [sys.executable, "-m", "kraftlog", *args]


def _made(kind: str, home: Path, java: Java, config: Mapping[str, str] | None) -> Any:
    base: Any = KafkaServer if kind == "kafka" else KraftlogServer

    class Made(_Part, base):  # type: ignore[misc]
        ready_timeout_s = 240.0

    return Made(home, java, config) if kind == "kafka" else Made(home, config)


def Controller(  # noqa: N802 - stands for a class
    kind: str, home: Path, java: Java, node_id: int, config: Mapping[str, str] | None = None
) -> Any:
    """A controller alone; the first of its cluster unless ``format_arguments`` and ``bootstrap_servers`` say more."""
    one = _made(kind, home, java, config)
    one.roles, one.listener, one.node_id, one.bootstrap_servers = "controller", "CONTROLLER", node_id, ""
    one.format_arguments = ("--standalone",)
    return one


def Broker(  # noqa: N802 - stands for a class
    kind: str, home: Path, java: Java, node_id: int, controllers: str, config: Mapping[str, str] | None = None
) -> Any:
    """A broker alone."""
    one = _made(kind, home, java, config)
    one.roles, one.listener, one.node_id, one.bootstrap_servers = "broker", "PLAINTEXT", node_id, controllers
    one.format_arguments = ("--no-initial-controllers",)
    return one


def metadata_files(server: Server, suffix: str = ".log") -> dict[str, bytes]:
    """The metadata log of a node, or its checkpoints."""
    return {path.name: path.read_bytes() for path in sorted((server.data_dir / METADATA).glob(f"*{suffix}"))}


def status(java: Java, controllers: str) -> dict[int, tuple[str, int, int]]:
    """Status, log end offset and lag of each replica, as Kafka's ``describe --replication`` prints them."""
    tool = "org.apache.kafka.tools.MetadataQuorumCommand"
    try:
        said = java.tool(tool, "--bootstrap-controller", controllers, "describe", "--replication", timeout=60).stdout
    except (AssertionError, subprocess.TimeoutExpired):
        return {}  # nobody leads just now
    rows = [re.split(r"\s+", line.strip()) for line in said.splitlines()[1:]]
    return {int(row[0]): (row[6], int(row[2]), int(row[3])) for row in rows if len(row) >= 7}


def ask(server: Server, request: Any, version: int | None = None) -> Any:
    """One request over a connection of its own."""
    with RawClient(server.bootstrap) as client:
        return client.call(request, version)
