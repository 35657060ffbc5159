"""A node of a cluster in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from interop.harness import Java
from kraftlog.node.config import NodeConfig
from replicated_cluster import format_node, server_properties


class ClusterProcess:
    """Node ``node_id``, started from a file of properties that differ from the usual ones by ``changes``."""

    def __init__(
        self, node_id: int, home: Path, controllers: list[str], brokers: list[str], cluster_id: str, **changes: str
    ) -> None:
        self.node_id = node_id
        changes = {key.replace("_", "."): value for key, value in changes.items()}
        properties = server_properties(node_id, home, controllers, brokers, changes)
        format_node(NodeConfig(properties), cluster_id)
        self._properties = home / f"{node_id}.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._output = home / f"{node_id}.out"
        self._command = [sys.executable, "-m", "kraftlog", "server-start", str(self._properties)]
        self.process: subprocess.Popen[bytes] | None = None

    def run_by(self, java: Java) -> None:
        """Let Apache Kafka run on the formatted directories instead of kraftlog."""
        flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        self._command = java.command("kafka.Kafka", str(self._properties), flags=flags)

    def start(self) -> None:
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)

    def output_tail(self) -> str:
        return self._output.read_text(errors="replace")[-3000:]

    def check(self) -> None:
        """A node that was started and not ended since has to run."""
        code = None if self.process is None else self.process.poll()
        assert code is None, f"node {self.node_id} ended with {code}\n{self.output_tail()}"

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int, timeout_s: float = 60) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout_s)
            self.process = None
