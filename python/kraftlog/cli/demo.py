"""``kraftlog demo``: a durable node, a real client, and the node's own files as Arrow, with what it all took.

The node runs as a process of its own, as a user would start it. It is killed with SIGKILL between writing and reading,
so that what is read back has survived that.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kraftlog.errors import KraftlogError
from kraftlog.extras import require

__all__ = ["add_arguments", "run"]

TOPIC = "demo"
PARTITIONS = 3
CODEC = "lz4"
START_TIMEOUT_S = 30.0
CLIENT_TIMEOUT_S = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--records", type=int, default=100_000, help="how many records (default: 100000)")
    parser.add_argument("--data-dir", type=Path, help="keep the node's data here instead of in a temporary directory")


def run(args: argparse.Namespace) -> int:
    """Run all steps; 0 when every byte came back."""
    try:
        require("demo", "kraftlog demo")
    except ModuleNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    if args.records < 1:
        print("kraftlog demo: --records must be at least 1", file=sys.stderr)
        return 2
    data_dir = args.data_dir or Path(tempfile.mkdtemp(prefix="kraftlog-demo-"))
    try:
        return _demo(data_dir, args.records)
    finally:
        if args.data_dir is None:
            shutil.rmtree(data_dir, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Step:
    """A row of the table."""

    name: str
    records: int
    size_bytes: int
    seconds: float
    digest: str

    def line(self) -> str:
        rate = self.records / self.seconds
        megabytes = self.size_bytes / 1e6
        return (
            f"{self.name:<34}{self.records:>9,} {megabytes:>8.1f} {self.seconds:>8.3f} {rate:>12,.0f}"
            f" {megabytes / self.seconds:>8.1f}  {self.digest[:16]}"
        )


class _NodeProcess:
    """``kraftlog dev`` on a directory that is kept, with acknowledgements that wait for the disk."""

    def __init__(self, data_dir: Path) -> None:
        begun = time.perf_counter()
        command = [sys.executable, "-m", "kraftlog", "dev", "--port", "0", "--data-dir", str(data_dir)]
        command += ["--override", "log.flush.on.ack=true"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.bootstrap_servers = self._wait_for_address()
        self.ready_s = time.perf_counter() - begun

    def _wait_for_address(self) -> str:
        stdout = self._process.stdout
        if stdout is None:
            raise KraftlogError("the node's output was not captured")
        for line in stdout:
            found = re.search(r"bootstrap\.servers=(\S+)", line)
            if found:
                return found[1]
        raise KraftlogError(f"the node ended with {self._process.wait(START_TIMEOUT_S)} before it was ready")

    def usage(self) -> str:
        """CPU seconds and resident memory so far, where there is a /proc."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return "not known on this system"
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        resident = re.search(r"VmHWM:\s+(\d+)", status)
        return f"{seconds:.2f} s of CPU, {int(resident[1]) / 1024 if resident else 0:.0f} MB at most"

    def end(self, signal_number: signal.Signals) -> None:
        """Send the signal and wait for the end."""
        if self._process.poll() is None:
            self._process.send_signal(signal_number)
            try:
                self._process.wait(START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextlib.contextmanager
def _running(data_dir: Path, signal_number: signal.Signals) -> Iterator[_NodeProcess]:
    node = _NodeProcess(data_dir)
    try:
        yield node
    finally:
        node.end(signal_number)


def _records(count: int) -> list[tuple[bytes, bytes]]:
    """Keys and values of a shop that never closes; the same on every run."""
    rng = random.Random(2_026)
    places = ("Lyon", "Graz", "Oslo", "Porto", "Gent")
    return [
        (
            f"customer-{rng.randrange(10_000)}".encode(),
            json.dumps(
                {
                    "order": number,
                    "place": rng.choice(places),
                    "cents": rng.randrange(100_000),
                    "note": "x" * (number % 50),
                }
            ).encode(),
        )
        for number in range(count)
    ]


class _Digest:
    """SHA-256 over keys and values, in order within each partition."""

    def __init__(self) -> None:
        self._partitions = [hashlib.sha256() for _ in range(PARTITIONS)]
        self.records = 0
        self.size_bytes = 0

    def add(self, partition: int, key: bytes, value: bytes) -> None:
        state = self._partitions[partition]
        state.update(len(key).to_bytes(4, "big"))
        state.update(key)
        state.update(len(value).to_bytes(4, "big"))
        state.update(value)
        self.records += 1
        self.size_bytes += len(key) + len(value)

    def hexdigest(self) -> str:
        return hashlib.sha256(b"".join(state.digest() for state in self._partitions)).hexdigest()

    def step(self, name: str, seconds: float) -> _Step:
        return _Step(name, self.records, self.size_bytes, seconds, self.hexdigest())


def _demo(data_dir: Path, count: int) -> int:
    records = _records(count)
    steps = []
    with _running(data_dir, signal.SIGKILL) as node:
        print(f"node       {node.bootstrap_servers}, data in {data_dir}, acks=all waits for fsync", flush=True)
        print(f"started    in {node.ready_s:.2f} s, a new directory formatted on the way", flush=True)
        _create_topic(node.bootstrap_servers)
        steps.append(_produce(node.bootstrap_servers, records))
        print(f"killed     with SIGKILL after {count:,} acknowledgements: {node.usage()}", flush=True)
    with _running(data_dir, signal.SIGTERM) as node:
        print(f"recovered  in {node.ready_s:.2f} s", flush=True)
        steps.append(_consume(node.bootstrap_servers, count))
        print(f"stopped    with SIGTERM: {node.usage()}", flush=True)
    steps.append(_scan(data_dir))
    stored = sum(path.stat().st_size for path in data_dir.glob(f"{TOPIC}-*/*.log"))
    print(f"\n{'':<34}{'records':>9} {'MB':>8} {'seconds':>8} {'records/s':>12} {'MB/s':>8}  SHA-256")
    for step in steps:
        print(step.line())
    print(f"{stored / 1e6:.1f} MB in {PARTITIONS} partitions on disk ({CODEC})")
    if len({(step.records, step.size_bytes, step.digest) for step in steps}) != 1:
        print("kraftlog demo: what was read is not what was written", file=sys.stderr)
        return 1
    print("every byte equal")
    return 0


def _create_topic(bootstrap_servers: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    admin.create_topics([topic])[TOPIC].result(CLIENT_TIMEOUT_S)


def _produce(bootstrap_servers: str, records: list[tuple[bytes, bytes]]) -> _Step:
    from confluent_kafka import Producer

    failed: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": CODEC,
            "linger.ms": 5,
            "queue.buffering.max.messages": len(records) + 1,
            "on_delivery": delivered,
        }
    )
    digest = _Digest()
    begun = time.perf_counter()
    for number, (key, value) in enumerate(records):
        producer.produce(TOPIC, value, key, partition=number % PARTITIONS)
        if number % 1_000 == 0:
            producer.poll(0)
    left = producer.flush(CLIENT_TIMEOUT_S)
    seconds = time.perf_counter() - begun
    if failed or left:
        raise KraftlogError(f"{len(failed)} records refused, {left} unanswered: {failed[:1]}")
    for number, (key, value) in enumerate(records):
        digest.add(number % PARTITIONS, key, value)
    return digest.step("produced by confluent-kafka", seconds)


def _consume(bootstrap_servers: str, count: int) -> _Step:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "demo", "enable.auto.commit": False})
    got: list[Message] = []
    begun = time.perf_counter()
    try:
        consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        while len(got) < count:
            messages = consumer.consume(10_000, 1.0)
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            got += messages
            if time.perf_counter() - begun > CLIENT_TIMEOUT_S:
                break
        seconds = time.perf_counter() - begun
    finally:
        consumer.close()
    digest = _Digest()
    for message in got:
        digest.add(message.partition(), message.key(), message.value())
    return digest.step("consumed by confluent-kafka", seconds)


def _scan(data_dir: Path) -> _Step:
    import pyarrow as pa

    from kraftlog.reading import scan

    begun = time.perf_counter()
    table = pa.RecordBatchReader.from_stream(scan(data_dir, topics=[TOPIC])).read_all()
    seconds = time.perf_counter() - begun
    digest = _Digest()
    for batch in table.to_batches():
        columns = (batch.column(name).to_pylist() for name in ("partition", "key", "value"))
        for partition, key, value in zip(*columns, strict=True):
            digest.add(partition, key, value)
    return digest.step("scanned to Arrow from its files", seconds)
