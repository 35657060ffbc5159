"""Kafka nodes for the golden files: combined nodes, controllers and brokers of one cluster."""

from __future__ import annotations

import base64
import random
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from interop.harness import Java, KafkaServer

METADATA = "__cluster_metadata-0"
# The lock is empty; what has this suffix is about to be removed.
LEFT_OUT = (".lock", "*.deleted")


def uuid_text(chance: random.Random) -> str:
    """An id as Kafka writes one: 16 bytes in base64url, which do not look like an option of a command."""
    text = "-"
    while text.startswith("-"):
        text = base64.urlsafe_b64encode(chance.randbytes(16)).decode().rstrip("=")
    return text


class Node(KafkaServer):
    """A node with an id and roles; ``format_arguments`` are those of StorageTool besides cluster id and configuration.

    Args:
        home: An empty folder for its data directory and output.
        java: Kafka's jars.
        node_id: Its id.
        roles: ``broker``, ``controller`` or both.
        cluster_id: As ``uuid_text``.
        config: Settings of the node, over those of its roles.
    """

    def __init__(
        self, home: Path, java: Java, node_id: int, roles: str, cluster_id: str, config: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(home, java, config, heap="400m")
        self.node_id = node_id
        self.roles = roles.split(",")
        self.cluster_id = cluster_id
        self.format_arguments: tuple[str, ...] = ()
        if "broker" not in self.roles:
            self.port = self.controller_port

    @property
    def controller_address(self) -> str:
        return f"127.0.0.1:{self.controller_port}"

    def properties(self) -> dict[str, str]:
        ports = {"broker": ("PLAINTEXT", self.port), "controller": ("CONTROLLER", self.controller_port)}
        listeners = ",".join(
            "{}://127.0.0.1:{}".format(*ports[role]) for role in ("broker", "controller") if role in self.roles
        )
        return {
            "process.roles": ",".join(self.roles),
            "node.id": str(self.node_id),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            **self.config,
        }

    def run_format(self) -> subprocess.CompletedProcess[str]:
        args = ("format", *self.format_arguments, "-t", self.cluster_id, "-c", str(self.properties_path))
        return self.java.tool("kafka.tools.StorageTool", *args, check=False)


def start_together(nodes: Iterable[Node]) -> None:
    """Launch nodes, and wait for each: the first ones cannot answer before a majority runs."""
    nodes = list(nodes)
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_until_ready()


def stop_together(nodes: Iterable[Node]) -> None:
    """SIGTERM to all before any is waited for: a broker asks the controllers for leave to stop."""
    running = [node for node in nodes if node.process is not None]
    for node in running:
        if node.process is not None:
            node.process.send_signal(signal.SIGTERM)
    for node in running:
        node.stop(timeout=120)


def copy_directory(node: Node, target: Path, *, partitions: Iterable[str] | None = None) -> None:
    """Copy what is in a node's data directory but the metadata log.

    Args:
        node: Stopped or killed.
        target: The new folder.
        partitions: Only these partition directories; all when None.
    """
    if node.process is not None:
        raise AssertionError(f"node {node.node_id} runs")
    left_out = shutil.ignore_patterns(*LEFT_OUT)
    kept = None if partitions is None else set(partitions)
    target.mkdir(parents=True)
    for path in sorted(node.data_dir.iterdir()):
        if path.is_dir():
            if path.name != METADATA and (kept is None or path.name in kept) and not path.name.endswith("-delete"):
                shutil.copytree(path, target / path.name, ignore=left_out)
        elif path.name != ".lock":
            shutil.copy(path, target)
