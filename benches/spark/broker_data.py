"""A real Apache Kafka and its topics: the same seeded records with each codec, in batches of a busy producer."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from interop.harness import Java, KafkaServer  # noqa: E402

BASE_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z; a record a millisecond
PARTITIONS = 2
POOL = 20_000
CONFIG = {
    "log.segment.bytes": str(128 << 20),
    "log.retention.ms": "-1",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "socket.request.max.bytes": str(128 << 20),
}


def values(size: int) -> list[bytes]:
    """JSON documents of `size` bytes with words in them, which compress to about a third."""
    rng = random.Random(size)
    words = [rng.randbytes(4).hex() for _ in range(512)]
    found = []
    for number in range(POOL):
        fields = {"id": number, "user": rng.randrange(1_000_000), "event": rng.choice(["click", "view", "buy"])}
        text = json.dumps(fields, separators=(",", ":"))[:-1] + ',"text":"'
        while len(text) < size - 2:
            text += rng.choice(words) + " "
        found.append((text[: size - 2] + '"}').encode())
    return found


def topic_name(size: int, codec: str) -> str:
    return f"bench-{size}-{codec}"


def start_kafka(home: Path, java: Java, config: dict[str, str] | None = None) -> KafkaServer:
    """As kafka-server-start runs it, with 1 GB of heap."""
    server = KafkaServer(home, java, {**CONFIG, **(config or {})}, heap="1g", fast_start=False)
    if server.properties_path.exists():
        # Of an earlier run: the only voter is found at the address that was written then.
        found = re.search(
            r"^listeners=PLAINTEXT://.*?:(\d+),CONTROLLER://.*?:(\d+)$",
            server.properties_path.read_text(),
            re.MULTILINE,
        )
        if found is None:
            raise SystemExit(f"{server.properties_path} has no listeners")
        server.port, server.controller_port = int(found[1]), int(found[2])
    server.start()
    return server


def produce(server: KafkaServer, size: int, codec: str, records: int, *, topic: str | None = None) -> None:
    """Records in batches of 64 KiB; keys of 11 B, of which a million differ."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = topic or topic_name(size, codec)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "compression.type": codec,
            "batch.size": 64 << 10,
            "batch.num.messages": 100_000,
            "linger.ms": 50,
            "acks": "all",
            "max.in.flight": 1,
            "queue.buffering.max.messages": 400_000,
            "queue.buffering.max.kbytes": 512 << 10,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
        }
    )
    pool = values(size)
    begun = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(
                    topic,
                    pool[number * 31 % POOL],
                    b"user-%06d" % (number * 7919 % 1_000_000),
                    partition=number % PARTITIONS,
                    timestamp=BASE_MS + number,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    if left or failed:
        raise SystemExit(f"{topic}: {left} records not sent, {failed[:1]}")
    print(f"# {topic}: {records} records in {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)


def wait_for_checkpoint(server: KafkaServer, ends: dict[tuple[str, int], int]) -> None:
    """Until the directory says that all records are below the high watermark, up to which a live one is read."""
    import kraftlog

    deadline = time.monotonic() + 60
    while True:
        try:
            marks = kraftlog.LogDir(server.data_dir).checkpoints.high_watermarks
        except FileNotFoundError:
            marks = {}
        found = {(key.topic, key.partition): mark for key, mark in marks.items()}
        if all(found.get(key) == end for key, end in ends.items()):
            return
        if time.monotonic() > deadline:
            raise SystemExit("the high watermarks were not written within 60 s")
        time.sleep(0.1)


def topic_bytes(server: KafkaServer, topic: str) -> int:
    return sum(path.stat().st_size for path in server.data_dir.glob(f"{topic}-[0-9]*/*.log"))


def segments(server: KafkaServer, topic: str) -> list[Path]:
    """Segment files that hold anything."""
    return sorted(path for path in server.data_dir.glob(f"{topic}-[0-9]*/*.log") if path.stat().st_size)
