"""Clients that write 0, 1, 2, ... to one partition and follow all partitions of the topic while nodes fail.

A follower fails at the first record that is missing, doubled or out of order, and at any truncation: it starts at
offset 0 and has no ``auto.offset.reset``. What it saw must be there in the end.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import threading
from collections.abc import Sequence
from typing import Protocol

from confluent_kafka import Consumer, TopicPartition

from interop.harness import HERE, Java
from interop.test_kill import TOPIC, SequenceProducer

__all__ = ["CLIENTS", "ConfluentClient", "ProcessClient", "SequenceClient", "make_client"]

CLIENTS = ("confluent", "java", "franz")
FLUSH_S = 150.0


class SequenceClient(Protocol):
    """A producer of one partition and a follower of all of them."""

    name: str
    partition: int
    failures: list[str]
    progress: threading.Event

    @property
    def acked(self) -> int:
        """Exclusive end of what was acknowledged."""

    @property
    def sent(self) -> int:
        """Exclusive end of what was given to the client."""

    @property
    def followed(self) -> list[int]:
        """Per partition, the number that the follower expects next."""

    def start(self) -> None: ...

    def stop_writing(self) -> None:
        """Write no new records; returns at once."""

    def wait_until_flushed(self) -> None:
        """Return when every record has its answer; after ``FLUSH_S`` that is one of ``failures``."""

    def close(self) -> None:
        """End the follower."""


class Follower(threading.Thread):
    """confluent-kafka at the end of every partition."""

    def __init__(self, bootstrap: str, partitions: int, failures: list[str]) -> None:
        super().__init__(name="follower", daemon=True)
        self.next_number = [0] * partitions
        self.closing = threading.Event()
        self._next_offset = [0] * partitions
        self._failures = failures
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 2,
                "group.id": "follower",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "socket.timeout.ms": 4000,
                "reconnect.backoff.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(partitions)])

    def run(self) -> None:
        with contextlib.closing(self._consumer):
            while not self.closing.is_set():
                for message in self._consumer.consume(5_000, 0.2):
                    failure = self._take(message)
                    if failure:
                        self._failures.append(f"follower: {failure}")
                        return

    def _take(self, message: object) -> str | None:
        index, offset, error = message.partition(), message.offset(), message.error()
        if error is not None:
            return None if error.retriable() else f"partition {index}: {error}"
        number = struct.unpack_from(">q", message.value())[0]
        if number != self.next_number[index] or offset < self._next_offset[index]:
            return f"partition {index} offset {offset}: record {number}, {self.next_number[index]} was next"
        self.next_number[index], self._next_offset[index] = number + 1, offset + 1
        return None


class ConfluentClient:
    """librdkafka in this process."""

    def __init__(self, bootstrap: str, partition: int, partitions: int, seed: int) -> None:
        self._producer = SequenceProducer(
            bootstrap, partition, "none", seed, socket_timeout_ms=4000, request_timeout_ms=3000
        )
        self.name = f"confluent-{partition}"
        self.partition = partition
        self.failures = self._producer.failures
        self.progress = self._producer.progress
        self._follower = Follower(bootstrap, partitions, self.failures)

    @property
    def acked(self) -> int:
        return self._producer.acked

    @property
    def sent(self) -> int:
        return self._producer.sent

    @property
    def followed(self) -> list[int]:
        return self._follower.next_number

    def start(self) -> None:
        self._producer.start()
        self._follower.start()

    def stop_writing(self) -> None:
        self._producer.stopping.set()

    def wait_until_flushed(self) -> None:
        self._producer.join(FLUSH_S)
        if self._producer.is_alive():
            self.failures.append(f"the producer did not end within {FLUSH_S} s")

    def close(self) -> None:
        self.stop_writing()
        self._follower.closing.set()
        self._follower.join(60)


class ProcessClient(threading.Thread):
    """A program that reports on standard output: SequenceClient.java, or ``franz sequence``."""

    def __init__(self, name: str, command: Sequence[str], partition: int, partitions: int) -> None:
        super().__init__(name=f"{name}-{partition}", daemon=True)
        self.partition = partition
        self.acked = self.sent = 0
        self.followed = [0] * partitions
        self.failures: list[str] = []
        self.progress = threading.Event()
        self._flushed = threading.Event()
        self._closing = threading.Event()
        self._command = list(command)
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        super().start()

    def run(self) -> None:
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "status":
                self._take([int(number) for number in rest.split()])
            elif word == "flushed":
                self._flushed.set()
            else:
                self.failures.append(f"{self.name}: {rest or word}")
        if not self._closing.is_set():
            self.failures.append(f"{self.name} ended by itself with {self._process.wait()}")

    def _take(self, numbers: list[int]) -> None:
        acked, self.sent, *self.followed = numbers
        if acked > self.acked:
            self.acked = acked
            self.progress.set()

    def stop_writing(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write("stop\n")
            self._process.stdin.flush()

    def wait_until_flushed(self) -> None:
        if not self._flushed.wait(FLUSH_S):
            self.failures.append(f"{self.name}: records left without an answer after {FLUSH_S} s")

    def close(self) -> None:
        if self._process is None:
            return
        self._closing.set()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.join(10)
        self._process.stdout.close()


def make_client(
    name: str, java: Java | None, bootstrap: str, partition: int, partitions: int, seed: int
) -> SequenceClient:
    """A client by its name in ``CLIENTS``; Java needs the jars, franz-go the program that KRAFTLOG_FRANZ names."""
    if name == "confluent":
        return ConfluentClient(bootstrap, partition, partitions, seed)
    arguments = (bootstrap, TOPIC, str(partition), str(partitions), str(seed))
    if name == "java":
        command = java.command(str(HERE / "java" / "SequenceClient.java"), *arguments)
    elif name == "franz":
        command = [os.environ["KRAFTLOG_FRANZ"], "sequence", *arguments]
    else:
        raise ValueError(f"no client {name}: {', '.join(CLIENTS)}")
    return ProcessClient(name, command, partition, partitions)
