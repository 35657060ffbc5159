"""Clients of other languages against one node and against Apache Kafka: sarama (Go) and kafkajs (JavaScript).

Each program writes with every codec, shares a group, commits, aborts and fences transactions, moves records with their
offsets and administers, and prints what it sees. Both servers have to yield the same lines. `.ci/dev foreign` builds
the programs and runs this.
"""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interop.foreign.foreign_brokers import HERE
from interop.harness import Java, KafkaServer, KraftlogServer, Server

SARAMA = os.environ.get("KRAFTLOG_SARAMA")
KAFKAJS = HERE / "kafkajs" / "story.js"
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(SARAMA is None, reason="KRAFTLOG_SARAMA names no program; .ci/dev foreign builds it"),
]


@pytest.fixture
def servers(tmp_path: Path, java: Java):
    made: list[Server] = [KraftlogServer(tmp_path / "kraftlog"), KafkaServer(tmp_path / "kafka", java)]
    with made[0].running(), made[1].running():
        yield made


def told(server: Server, command: list[str]) -> list[str]:
    done = subprocess.run(
        [word.replace("BOOTSTRAP", server.bootstrap) for word in command],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, f"{server.name}: {done.stderr[-4000:]}\n{done.stdout[-2000:]}"
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", ["sarama-2.1.0", "sarama-3.6.0", "sarama-4.3.1", "kafkajs"])
def test_a_foreign_client_sees_what_it_sees_of_kafka(servers: list[Server], name: str) -> None:
    client, _, version = name.partition("-")
    if client == "sarama":
        command = [str(SARAMA), "BOOTSTRAP", version, f"{name}-"]
    else:
        command = ["node", str(KAFKAJS), "BOOTSTRAP", f"{name}-"]
    with ThreadPoolExecutor(2) as pool:
        seen, seen_of_kafka = pool.map(lambda server: told(server, command), servers)
    assert len(seen_of_kafka) > 100
    assert seen == seen_of_kafka
