"""A chain of topics and the clients that move records along it, in processes that die and come back."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from interop.harness import HERE, JVM_LOG_LEVEL, Java

PARTITIONS: Final = 2
TOPICS: Final = ("stage-0", "stage-1", "stage-2", "stage-3")
FENCED: Final = 3
STUCK: Final = 5
BACKLOG: Final = 4_000
"""Records of a partition that the feed may be ahead of the end of the chain."""
_EXPECTED_ENDS: Final = frozenset({FENCED, 4, STUCK, -signal.SIGKILL})


@dataclass(frozen=True)
class MoverFacts:
    """What distinguishes a client of the chain; ``group`` is a partition for aiokafka."""

    client: str
    stage: int
    transactional_id: str
    group: str


def movers() -> list[MoverFacts]:
    """The Java client, then confluent-kafka, then aiokafka: two of each."""
    return [
        *(MoverFacts("java", 0, f"java-{number}", "java-group") for number in range(2)),
        *(MoverFacts("confluent", 1, f"confluent-{number}", "confluent-group") for number in range(2)),
        *(MoverFacts("aiokafka", 2, f"aiokafka-{index}", str(index)) for index in range(PARTITIONS)),
    ]


class Mover:
    """One client in a process of its own; a new process takes its place when it ends."""

    def __init__(self, facts: MoverFacts, bootstrap: str, java: Java, home: Path, rng: random.Random) -> None:
        self.facts = facts
        self.ends: Counter[int] = Counter()
        self._bootstrap, self._java, self._rng = bootstrap, java, rng
        self._is_held_back = False
        self._log_path = home / f"{facts.transactional_id}.log"
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        facts = self.facts
        topics = TOPICS[facts.stage], TOPICS[facts.stage + 1]
        arguments = [self._bootstrap, *topics, facts.transactional_id, facts.group, str(self._rng.randrange(1 << 31))]
        if facts.client == "java":
            flags = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx96m", JVM_LOG_LEVEL]
            command = ["java", *flags, "-cp", self._java.libs, str(HERE / "java" / "MoveRecords.java"), *arguments]
        else:
            program = str(Path(__file__).with_name("move_records.py"))
            command = [sys.executable, program, facts.client, *arguments]
        with self._log_path.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def tend(self) -> None:
        """Start again after an end, unless a zombie is to take the place of the process."""
        code = self.process.poll()
        if code is None or self._is_held_back:
            return
        self.count(code)
        self.process = self._started()

    def count(self, code: int) -> None:
        self.ends[code] += 1
        if code not in _EXPECTED_ENDS:
            raise AssertionError(f"{self.facts} ended with {code}\n{self.log_tail()}")

    def kill(self) -> None:
        """Kill -9; ``tend`` starts the next one."""
        self.process.kill()
        self.process.wait()

    def hold_back(self, is_held_back: bool) -> None:
        """Kill the process and start none in its place, or allow it again."""
        self._is_held_back = is_held_back
        if is_held_back:
            self.kill()

    def replace_paused(self) -> Zombie:
        """Stop the process where it is and let another one take over its transactional id; the paused one."""
        paused = self.process
        os.kill(paused.pid, signal.SIGSTOP)
        self.process = self._started()
        return Zombie(self, paused)

    def has_begun(self) -> bool:
        """Whether the process owns its transactional id: it has said so in its log."""
        return self._said(f"began {self.process.pid}\n") > 0

    def commits_of(self, pid: int) -> int:
        """Transactions that process ``pid`` knows to be committed."""
        return self._said(f"committed {pid}\n")

    def _said(self, line: str) -> int:
        return self._log_path.read_text(errors="replace").count(line)

    def log_tail(self) -> str:
        return self._log_path.read_text(errors="replace")[-6000:]

    def show_stack(self, process: subprocess.Popen[bytes]) -> None:
        """Let a process that should have ended write its threads into the log."""
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGQUIT if self.facts.client == "java" else signal.SIGUSR1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Zombie:
    """A process that was stopped while another one took over its transactional id.

    A fenced producer learns of it when it sends. It may report one commit that was decided before the successor
    began; a second one would be a transaction of two owners.
    """

    def __init__(self, mover: Mover, process: subprocess.Popen[bytes]) -> None:
        self.mover, self.process = mover, process
        self._commits_at_handover: int | None = None

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def is_over(self) -> bool:
        """Whether the process has ended.

        Raises:
            AssertionError: It has committed a transaction after its successor began.
        """
        code = self.process.poll()
        commits = self.mover.commits_of(self.process.pid)
        if self._commits_at_handover is None:
            if self.mover.has_begun():
                self._commits_at_handover = commits
        elif commits > self._commits_at_handover + 1:
            raise AssertionError(f"a zombie of {self.mover.facts} commits beside its successor")
        if code is None:
            return False
        self.mover.count(code)
        return True

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Feed(threading.Thread):
    """Writes 0, 1, 2, ... to each partition of the first topic, up to ``BACKLOG`` ahead of ``arrived``."""

    def __init__(self, bootstrap: str, pause_s: float = 0.005) -> None:
        super().__init__(daemon=True)
        self.sent = self.arrived = 0
        self.failures: list[str] = []
        self._pause_s = pause_s
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "delivery.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        def on_delivery(error: object, _message: object) -> None:
            if error is not None:
                self.failures.append(str(error))

        while not self._is_over.wait(self._pause_s):
            if self.sent > self.arrived + BACKLOG:
                self._producer.poll(0)
                continue
            for index in range(PARTITIONS):
                self._producer.produce(TOPICS[0], b"%d" % self.sent, partition=index, on_delivery=on_delivery)
            self.sent += 1
            self._producer.poll(0)
        if self._producer.flush(300):
            self.failures.append("records without an answer after 300 s")

    def stop(self) -> None:
        self._is_over.set()
        self.join()
        assert not self.failures, self.failures[:3]


class Check:
    """Follows a topic as a reader of committed records: each number is there once and in order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.next_number = [0] * PARTITIONS
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "never-commits",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])

    def follow(self, timeout_s: float = 0.1) -> None:
        """Take what has come."""
        for message in self._consumer.consume(1000, timeout_s):
            if message.error() is not None:
                continue
            index, value = message.partition(), message.value()
            expected = self.next_number[index]
            assert value == b"%d" % expected, (
                f"{self.topic}-{index}: {value!r} at offset {message.offset()} where {expected} is next"
            )
            self.next_number[index] += 1

    def close(self) -> None:
        self._consumer.close()
