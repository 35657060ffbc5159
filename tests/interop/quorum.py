"""Controllers as processes of their own, and Kafka's tools that drive them."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop.harness import CLUSTER_ID, Java, KraftlogServer
from interop.tool_runs import run_ours
from kraftlog.cli.metadata_quorum import main as metadata_quorum
from kraftlog.storage.meta_properties import random_uuid

METADATA = "__cluster_metadata-0"
METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
# Kafka's admin client that is told of no active controller never asks again, and gives up after a minute.
TOOL_TIMEOUT_S = 45


class Controller(KraftlogServer):
    """Our node as a controller alone."""

    def __init__(self, home: Path, node_id: int, config: dict[str, str] | None = None) -> None:
        super().__init__(home, config)
        self.node_id = node_id
        self.port = self.controller_port
        self.directory_id = str(random_uuid())
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.format_arguments = ["--no-initial-controllers"]

    def properties(self) -> dict[str, str]:
        return {
            "process.roles": "controller",
            "node.id": str(self.node_id),
            "listeners": f"CONTROLLER://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": self.bootstrap_servers,
            "log.dirs": str(self.data_dir),
            **self.config,
        }

    def format_command(self) -> list[str]:
        args = ["storage", "format", *self.format_arguments, "-t", CLUSTER_ID, "-c", str(self.properties_path)]
        return [sys.executable, "-m", "kraftlog", *args]

    @property
    def initial(self) -> str:
        """Its place in ``--initial-controllers``."""
        return f"{self.node_id}@127.0.0.1:{self.port}:{self.directory_id}"

    @property
    def metadata_files(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for path in sorted((self.data_dir / METADATA).glob("*.log")):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                found[path.name] = path.read_bytes()
        return found


class Quorum:
    """Several controllers and the tools."""

    def __init__(self, home: Path, java: Java, count: int, config: dict[str, str] | None = None) -> None:
        self.java = java
        self.config = dict(config or {})
        self.home = home
        self.controllers = [Controller(home / f"c{node_id}", node_id, config) for node_id in range(1, count + 1)]
        for controller in self.controllers:
            controller.bootstrap_servers = self.bootstrap

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{controller.port}" for controller in self.controllers)

    def controller(self, node_id: int) -> Controller:
        return next(controller for controller in self.controllers if controller.node_id == node_id)

    def format_together(self) -> None:
        """All of them are voters from the beginning."""
        initial = ",".join(controller.initial for controller in self.controllers)
        for controller in self.controllers:
            controller.format_arguments = ["--initial-controllers", initial]

    @contextmanager
    def running(self) -> Iterator[Quorum]:
        try:
            for controller in self.controllers:
                controller.launch()
            yield self
        finally:
            for controller in self.controllers:
                controller.kill()

    def tool(self, *args: str, config: Path | None = None, check: bool = True, timeout_s: float = 120) -> str:
        more = [] if config is None else ["--command-config", str(config)]
        done = self.java.tool(
            METADATA_QUORUM,
            "--bootstrap-controller",
            self.bootstrap,
            *more,
            *args,
            check=check,
            timeout=timeout_s,
        )
        return done.stdout + ("" if check else done.stderr)

    def our_tool(self, *args: str, config: Path | None = None) -> str:
        """``kraftlog metadata-quorum``, which takes the same arguments."""
        more = [] if config is None else ["--command-config", str(config)]
        command = [sys.executable, "-m", "kraftlog", "metadata-quorum", "--bootstrap-controller", self.bootstrap, *more]
        done = subprocess.run([*command, *args], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """What ``describe --status`` says, by field."""
        return self._parsed(self.tool("describe", "--status", timeout_s=TOOL_TIMEOUT_S))

    def our_status(self) -> dict[str, Any]:
        """The same by our tool, in this process: soon enough to be asked again and again."""
        (said,) = run_ours(metadata_quorum, [["--bootstrap-controller", self.bootstrap, "describe", "--status"]])
        assert said.code == 0, said.err
        return self._parsed(said.out)

    @staticmethod
    def _parsed(text: str) -> dict[str, Any]:
        found = dict(re.findall(r"^(\w+):\s+(.*)$", text, re.MULTILINE))
        return {
            **found,
            "LeaderId": int(found["LeaderId"]),
            "HighWatermark": int(found["HighWatermark"]),
            "CurrentVoters": json.loads(found["CurrentVoters"]),
            "CurrentObservers": json.loads(found["CurrentObservers"]),
        }

    def wait_for(self, what: Callable[[dict[str, Any]], bool], timeout_s: float = 120) -> dict[str, Any]:
        """What Kafka's tool says once ``what`` holds of it; it runs when kraftlog's tool says so."""
        deadline = time.monotonic() + timeout_s
        status: dict[str, Any] = {}
        while True:
            try:
                status = self.our_status()
                if what(status):
                    status = self.status()
                    if what(status):
                        return status
            except (AssertionError, subprocess.TimeoutExpired):
                status = {}  # nobody leads just now
            time.sleep(0.1)
            if time.monotonic() > deadline:
                tails = "\n".join(
                    f"-- {controller.node_id}\n{controller.log_tail(15)}" for controller in self.controllers
                )
                raise AssertionError(f"not within {timeout_s} s, last status {status}\n{tails}")


def voter_ids(status: dict[str, Any]) -> list[int]:
    return [voter["id"] for voter in status["CurrentVoters"]]


def observer_ids(status: dict[str, Any]) -> list[int]:
    return [observer["id"] for observer in status["CurrentObservers"]]
