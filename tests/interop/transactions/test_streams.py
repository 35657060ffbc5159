"""Kafka Streams with exactly_once_v2 counts words while the application and the node die by kill -9.

Every new count of a word is written, so that a word lost or counted twice is a number that is missing or comes twice in
what a reader of committed records gets. KRAFTLOG_STREAMS_KILLS sets the number of kills.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from interop.clients import create_topic
from interop.harness import HERE, JVM_FLAGS, JVM_LOG_LEVEL, Java, KraftlogServer

KILLS = int(os.environ.get("KRAFTLOG_STREAMS_KILLS", "2"))
WORDS = [f"word-{number}" for number in range(20)]
PARTITIONS = 2
DEADLINE_S = 90.0


class Application:
    """WordCount.java in a process of its own."""

    def __init__(self, java: Java, home: Path, bootstrap: str) -> None:
        jar = next((Path(__file__).parent / "target" / "libs").glob("kafka-streams-*.jar"))
        self._command = [
            *("java", *JVM_FLAGS, JVM_LOG_LEVEL, "-cp", f"{jar}:{java.libs}"),
            *(str(HERE / "java" / "WordCount.java"), bootstrap, "lines", "counts", str(home / "state")),
        ]
        self.log_path = home / "application.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def wait_until_running(self) -> None:
        before = self.log_path.read_text().splitlines().count("running")
        deadline = time.monotonic() + DEADLINE_S
        while self.log_path.read_text().splitlines().count("running") == before:
            assert time.monotonic() < deadline, self.log_path.read_text()[-4000:]
            time.sleep(0.05)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


class Lines:
    """Writes lines of random words until it is stopped; ``words`` has how often each was written."""

    def __init__(self, bootstrap: str) -> None:
        self.words: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        chance = random.Random(7)
        while not self._is_over.wait(0.005):
            words = chance.choices(WORDS, k=3)
            self.words.update(words)
            self._producer.produce("lines", " ".join(words), partition=chance.randrange(PARTITIONS))
            self._producer.poll(0)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0


@pytest.fixture
def streams_jar() -> None:
    """Fetched once by `.ci/dev jars`."""
    if not list((Path(__file__).parent / "target" / "libs").glob("kafka-streams-*.jar")):
        subprocess.run(["sh", str(HERE.parents[1] / ".ci" / "dev"), "jars"], check=True)


def committed_counts(bootstrap: str, expected: int) -> Iterator[tuple[str, int]]:
    """At least ``expected`` counts, and what else comes within two seconds."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "never-commits", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition("counts", index, 0) for index in range(PARTITIONS)])
    deadline = time.monotonic() + DEADLINE_S
    seen = 0
    while time.monotonic() < deadline:
        message = consumer.poll(2)
        if message is None and seen >= expected:
            break
        if message is not None and message.error() is None:
            seen += 1
            yield message.key().decode(), int(message.value())
    consumer.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_streams_count_each_word_once_through_kills(java: Java, tmp_path: Path, streams_jar: None) -> None:
    node = KraftlogServer(tmp_path / "node", {"group.initial.rebalance.delay.ms": "0"})
    with node.running():
        for topic in ("lines", "counts"):
            create_topic(node.bootstrap, topic, partitions=PARTITIONS)
        application = Application(java, tmp_path, node.bootstrap)
        application.start()
        lines = Lines(node.bootstrap)
        application.wait_until_running()
        try:
            for number in range(KILLS):
                time.sleep(1)
                if number % 2 == 0:
                    node.kill()
                    node.start()
                else:
                    application.kill()
                    application.start()
                    application.wait_until_running()
            time.sleep(1)
        finally:
            lines.stop()
        counts: defaultdict[str, list[int]] = defaultdict(list)
        try:
            for word, count in committed_counts(node.bootstrap, lines.words.total()):
                counts[word].append(count)
        finally:
            application.kill()
    assert counts == {word: list(range(1, written + 1)) for word, written in lines.words.items()}
