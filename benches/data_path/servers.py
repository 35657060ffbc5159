"""The nodes that are compared, each a process of its own, with its topics and the load generator pointed at it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from interop.harness import Java, KafkaServer, KraftlogServer, Server
from kraftlog.node.config import is_known_key
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from raw_client import RawClient

ROOT = Path(__file__).resolve().parents[2]
DATA_PATH = "kraftlog.data.path"
KINDS = ("native", "python", "kafka")
TOPIC_TIMEOUT_S = 300.0
LOAD_TIMEOUT_S = 300.0
DELETE_DELAY_MS = 1000
MANY_PARTITIONS = 1000
MOST_OF_A_TOPIC = 2000  # partitions; a controller refuses requests that create many more


def load_program() -> Path:
    """The load generator, built if it is not up to date; ``KRAFTLOG_LOAD`` names another one."""
    given = os.environ.get("KRAFTLOG_LOAD")
    if given:
        return Path(given)
    target = ROOT / "target" / "load"
    command = [
        "cargo",
        "build",
        "--locked",
        "--release",
        "--quiet",
        "--manifest-path",
        str(ROOT / "benches/load/Cargo.toml"),
    ]
    subprocess.run(command, check=True, env=os.environ | {"CARGO_TARGET_DIR": str(target)})
    return target / "release" / "kraftlog-load"


def data_paths(wanted: list[str]) -> list[str]:
    """The kinds that this tree has, in order; a node of an older tree would ignore the key and serve in Python."""
    has_native = is_known_key(DATA_PATH)
    if "native" in wanted and not has_native:
        print(f"no native rows: this tree has no {DATA_PATH}", file=sys.stderr)
    return [kind for kind in wanted if kind != "native" or has_native]


def path_config(kind: str) -> dict[str, str]:
    """The setting of a data path; empty for a tree that has only one."""
    return {DATA_PATH: kind} if is_known_key(DATA_PATH) else {}


class Node:
    """A broker under load.

    Args:
        name: As shown in the table.
        bootstrap: ``host:port``.
        pid: Its process.
        program: The load generator.
    """

    def __init__(self, name: str, bootstrap: str, pid: int, program: Path) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.pid = pid
        self._program = program

    @contextmanager
    def topics(self, partitions: int, *, broker_id: int | None = None) -> Iterator[str]:
        """New topics, as the generator's argument; deleted when the block ends, so that their pages are free again.

        ``broker_id`` places all partitions on that broker; by default the controller chooses.
        """
        made: dict[str, str] = {}
        with RawClient(self.bootstrap, timeout_s=TOPIC_TIMEOUT_S) as client:
            try:
                for first in range(0, partitions, MOST_OF_A_TOPIC):
                    name = f"path-{partitions}-{first}-{uuid.uuid4().hex[:6]}"
                    count = min(MOST_OF_A_TOPIC, partitions - first)
                    made[name] = f"{self._create(client, name, count, broker_id)}:{count}"
                    self.wait_until_open(client, name, count)
                yield ",".join(made.values())
            finally:
                for name in made:
                    gone = DeleteTopicsRequest.DeleteTopicState(name=name)
                    client.call(DeleteTopicsRequest(topics=[gone], timeout_ms=int(TOPIC_TIMEOUT_S * 1000)))
                if partitions > MANY_PARTITIONS:
                    # The next row does not begin while ten thousands of files are removed.
                    time.sleep(2 * DELETE_DELAY_MS / 1000)

    def _create(self, client: RawClient, name: str, partitions: int, broker_id: int | None) -> str:
        """The id of the new topic, in hexadecimal digits."""
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        if broker_id is not None:
            places = [
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=[broker_id])
                for index in range(partitions)
            ]
            topic = replace(topic, num_partitions=-1, replication_factor=-1, assignments=places)
        (created,) = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=int(TOPIC_TIMEOUT_S * 1000))).topics
        if created.error_code:
            raise LoadError(f"{self.name}: CreateTopics answered {created.error_code} {created.error_message}")
        return str(created.topic_id.hex())

    def wait_until_open(self, client: RawClient, name: str, partitions: int) -> None:
        """Until each partition tells its end: a leader known to Metadata may still refuse requests."""
        end_s = time.monotonic() + TOPIC_TIMEOUT_S
        wanted = [
            ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)
        ]
        topic = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=wanted)
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        while time.monotonic() < end_s:
            (found,) = client.call(request).topics
            if all(partition.error_code == 0 for partition in found.partitions):
                return
            time.sleep(0.05)
        raise LoadError(f"{self.name}: {name} was not open within {TOPIC_TIMEOUT_S} s")

    def load(self, mode: str, *, timeout_s: float = LOAD_TIMEOUT_S, **options: object) -> dict[str, float]:
        """Runs the generator; underscores in option names stand for dashes."""
        settings = {"address": self.bootstrap, "pid": self.pid, **options}
        arguments = [f"{name.replace('_', '-')}={value}" for name, value in settings.items()]
        done = subprocess.run(
            [str(self._program), mode, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode:
            raise LoadError(done.stderr.strip())
        report: dict[str, float] = json.loads(done.stdout)
        if report.get("errors"):
            raise LoadError(f"{report['errors']:.0f} answers with errors, the last {report['last_error_code']:.0f}")
        return report


class LoadError(Exception):
    """A run of the generator that did not end well."""


@contextmanager
def nodes(
    kinds: list[str], home: Path, java: Java, program: Path, *, is_flushed: bool, heap: str
) -> Iterator[list[Node]]:
    """One running node of each kind; ended when the block ends."""
    servers: list[Server] = []
    with contextlib.ExitStack() as ends:
        found = []
        for kind in kinds:
            server = make(kind, home / kind, java, is_flushed=is_flushed, heap=heap)
            ends.callback(shutil.rmtree, server.home, ignore_errors=True)
            ends.callback(server.kill)
            servers.append(server)
            server.format()
            server.start()
            assert server.process is not None
            found.append(Node(kind, server.bootstrap, server.process.pid, program))
        yield found


def make(kind: str, home: Path, java: Java, *, is_flushed: bool, heap: str) -> Server:
    """A server that acknowledges from the page cache, or after a flush.

    Kafka has no ``log.flush.on.ack``; with a flush after each append its acknowledgement waits for the disk too.
    """
    many = {"max.incremental.fetch.session.cache.slots": "1000", "queued.max.requests": "500"}
    # Topics of earlier rows keep neither files open nor mapped for the default minute.
    soon = {"log.segment.delete.delay.ms": str(DELETE_DELAY_MS)}
    if kind == "kafka":
        config = many | soon | ({"log.flush.interval.messages": "1"} if is_flushed else {})
        return KafkaServer(home, java, config, heap=heap, fast_start=False)
    return KraftlogServer(home, soon | {"log.flush.on.ack": str(is_flushed).lower(), **path_config(kind)})


class EmbeddedNode(Node):
    """A node inside an interpreter of its own that has ``busy_threads`` threads of pure Python beside it.

    Args:
        kind: The data path.
        program: The load generator.
        busy_threads: How many threads compute.
        **settings: ``config``, ``data_dir`` and ``cluster_id`` of the node; see ``embedded_node.py``.
    """

    def __init__(self, kind: str, program: Path, *, busy_threads: int, **settings: Any) -> None:
        options = {"data_path": kind, "busy_threads": busy_threads, **settings}
        command = [sys.executable, str(Path(__file__).with_name("embedded_node.py")), json.dumps(options)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        super().__init__(kind, "", self._process.pid, program)

    def wait_until_ready(self) -> None:
        """Until clients may connect."""
        self.bootstrap = self._read()["bootstrap"]

    def state(self, metrics: list[str]) -> dict[str, Any]:
        """Metrics by name, and ``laps`` of the threads."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"metrics": metrics}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LoadError("the embedded node ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """Let it end in order, which removes a temporary directory."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()


@contextmanager
def embedded(kind: str, program: Path, *, busy_threads: int) -> Iterator[Node]:
    """An embedded node with a temporary directory; it stops as its user would stop it when the block ends."""
    node = EmbeddedNode(kind, program, busy_threads=busy_threads)
    try:
        node.wait_until_ready()
        yield node
        node.stop()
    finally:
        node.close()
