"""Brokers that are not Apache Kafka 4: older releases, with ZooKeeper before 3.3, and franz-go's kfake."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from interop.harness import CLUSTER_ID, Java, Server

HERE = Path(__file__).resolve().parent
FIRST_WITHOUT_ZOOKEEPER = (3, 3)


def older_versions() -> list[str]:
    """The releases whose jars `.ci/dev foreign` fetches, the oldest first."""
    return sorted(path.name.removeprefix("kafka-") for path in HERE.glob("kafka-*"))


class OlderKafka(Server):
    """One broker of an older release."""

    ready_timeout_s = 120.0

    def __init__(self, home: Path, version: str) -> None:
        super().__init__(home)
        self.name = f"kafka-{version}"
        self._java = Java(str(HERE / self.name / "target" / "libs" / "*"))
        self._has_zookeeper = tuple(map(int, version.split(".")[:2])) < FIRST_WITHOUT_ZOOKEEPER

    def properties(self) -> dict[str, str]:
        found = super().properties()
        del found["controller.quorum.bootstrap.servers"]
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        if not self._has_zookeeper:
            voters = f"1@127.0.0.1:{self.controller_port}"
            return {**found, "advertised.listeners": listener, "controller.quorum.voters": voters}
        for key in ("process.roles", "node.id", "controller.listener.names", "listener.security.protocol.map"):
            del found[key]
        return {
            **found,
            "broker.id": "1",
            "listeners": listener,
            "advertised.listeners": listener,
            "zookeeper.connect": f"127.0.0.1:{self.controller_port}",
        }

    def format(self) -> None:
        if not self._has_zookeeper:
            super().format()

    def format_command(self) -> list[str]:
        return self._java.command(
            "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.properties_path)
        )

    def start_command(self) -> list[str]:
        return self._java.command("kafka.Kafka", str(self.properties_path))

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        if not self._has_zookeeper:
            with super().running():
                yield self
            return
        settings = self.home / "zookeeper.properties"
        settings.write_text(
            f"dataDir={self.home}/zookeeper\nclientPort={self.controller_port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
        )
        command = self._java.command("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings))
        with (self.home / "zookeeper.out").open("ab") as out:
            zookeeper = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        try:
            with super().running():
                yield self
        finally:
            zookeeper.kill()
            zookeeper.wait()


@contextlib.contextmanager
def kfake(program: str) -> Iterator[str]:
    """The ``bootstrap.servers`` of a cluster of three brokers of kfake."""
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        bootstrap = process.stdout.readline().strip()
        assert bootstrap, f"kfake ended with {process.wait(10)}"
        yield bootstrap
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
