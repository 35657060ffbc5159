"""Kafka's tools move a replica between the data directories of a node that is produced to, and killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from interop.clients import create_topic
from interop.harness import Java, Server
from interop.test_kill import TOPIC, Reader, SequenceProducer
from kraftlog.cli.__main__ import main
from waiting import until_true

TOOLS = "org.apache.kafka.tools."
NAME = f"{TOPIC}-0"
KILLS = int(os.environ.get("KRAFTLOG_KILLS", "4"))
SEED = int(os.environ.get("KRAFTLOG_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


class Mover:
    """One node with two data directories, and the tools that look at it."""

    def __init__(self, java: Java, server: Server, plan: Path) -> None:
        self._java, self._server, self._plan = java, server, plan
        self.directories = [server.data_dir, server.home / "other"]

    def _reassign(self, *arguments: str) -> str:
        where = ("--bootstrap-server", self._server.bootstrap, "--reassignment-json-file", str(self._plan))
        return self._java.tool(TOOLS + "reassign.ReassignPartitionsCommand", *where, *arguments, timeout=60).stdout

    def execute(self, target: Path, *arguments: str) -> str:
        partition = {"topic": TOPIC, "partition": 0, "replicas": [1], "log_dirs": [str(target)]}
        self._plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return self._reassign("--execute", *arguments)

    def verify(self) -> str:
        return self._reassign("--verify")

    def described(self) -> dict[Path, dict[str, Any]]:
        """By directory, what LogDirsCommand says of the partition."""
        where = ("--bootstrap-server", self._server.bootstrap, "--describe", "--topic-list", TOPIC)
        said = self._java.tool(TOOLS + "LogDirsCommand", *where, timeout=60).stdout
        document = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
        return {
            Path(directory["logDir"]): directory["partitions"][0]
            for directory in document["brokers"][0]["logDirs"]
            if directory["partitions"]
        }

    def current(self) -> Path:
        (found,) = [directory for directory in self.directories if (directory / NAME).is_dir()]
        return found

    def size_bytes(self) -> int:
        """What the segments of the partition hold, in whichever directory they are."""
        return sum(path.stat().st_size for at in self.directories for path in at.glob(f"{NAME}/*.log"))

    def other(self) -> Path:
        (found,) = [directory for directory in self.directories if directory != self.current()]
        return found

    def is_moved(self, target: Path) -> bool:
        return (target / NAME).is_dir() and not list(target.glob("*-future"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tools_move_a_replica_under_produce_and_kills_lose_nothing(
    server_factory: Any, java: Java, tmp_path: Path
) -> None:
    """RFET-81, RFET-82, RINV-88: request, future replica with its lag, completion; a kill at any point of the moves."""
    print(f"KRAFTLOG_KILL_SEED={SEED} KRAFTLOG_KILLS={KILLS}")
    rng = random.Random(SEED)
    server: Server = server_factory(config={"log.flush.on.ack": "true"})
    mover = Mover(java, server, tmp_path / "plan.json")
    server.config["log.dirs"] = ",".join(map(str, mover.directories))
    server.start()
    create_topic(server.bootstrap, TOPIC, partitions=1, segment_bytes="1048576", file_delete_delay_ms="1000")
    producer = SequenceProducer(server.bootstrap, 0, "none", rng.randrange(1 << 32))
    producer.start()
    try:
        # A throttle that has counted nothing yet lets the first part, a mebibyte, pass: here once before the kill and
        # once after it.
        until_true(lambda: mover.size_bytes() > 3 << 20, 60)
        source, target = mover.current(), mover.other()
        said = mover.execute(target, "--replica-alter-log-dirs-throttle", "20000")
        assert f"Successfully started moving log directory to {target} for replica {NAME} with broker 1" in said, said
        until_true(lambda: len(mover.described()) == 2, 30)
        until_true(lambda: mover.described()[target]["offsetLag"] > 0, 30)
        described = mover.described()
        assert not described[source]["isFuture"]
        assert described[target]["isFuture"]
        assert "is still in progress" in mover.verify()
        server.kill()
        server.start()
        assert len(list(target.glob(f"{NAME}.*-future"))) == 1, "found again"
        mover.execute(target, "--additional", "--replica-alter-log-dirs-throttle", "1000000000")
        until_true(lambda: mover.is_moved(target), 60)
        assert "completed successfully" in mover.verify()
        assert set(mover.described()) == {target}
        for _ in range(KILLS):
            target = mover.other()
            mover.execute(target)
            time.sleep(rng.uniform(0, 0.4))
            server.kill()
            server.start()
            until_true(lambda target=target: mover.is_moved(target), 60)  # type: ignore[misc]
            assert not producer.failures, f"seed {SEED}: {producer.failures[:3]}"
    finally:
        producer.stopping.set()
    producer.join(150)
    assert not producer.failures, f"seed {SEED}: {producer.failures[:3]}"
    assert producer.acked == producer.sent
    reader = Reader(1)
    reader.catch_up(server.bootstrap, 0, producer.sent)
    assert reader.next_number == [producer.sent]
    server.stop()
    assert server.errors_logged() == []
    for directory in mover.directories:
        assert main(["log", "verify", str(directory)]) == 0
