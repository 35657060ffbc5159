"""Start a node, produce the same records with every codec, and write down what a scan has to find.

    python spark/generate_data.py /tmp/kraftlog-data --records 200000

The node keeps its data under ``DIRECTORY/node``; ``DIRECTORY/expected.json`` has count, sum of value lengths and an
order-free hash for each topic.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import zlib
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import kraftlog

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_TIMESTAMP_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def record(rnd: random.Random, number: int) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Key, value and headers: some null, some empty, sizes from 0 to some thousand bytes."""
    key = None if number % 17 == 0 else b"user-%06d" % (number * 7919 % 1_000_000)
    if number % 23 == 0:
        value = None
    else:
        words = rnd.choices((b"click", b"view", b"order", b"total", b"price", rnd.randbytes(4)), k=rnd.randrange(40))
        value = b" ".join(words) * (20 if number % 500 == 0 else 1)
    headers = [("trace-id", b"%d" % number), ("empty", None)] if number % 10 == 0 else []
    return key, value, headers


def row_hash(key: bytes | None, value: bytes | None) -> int:
    """CRC-32 of key and value, nulls told from empty ones; summed over rows it knows no order."""
    parts = (b"\0" if part is None else b"\1" + part for part in (key, value))
    return zlib.crc32(b"\x1f".join(parts))


def produce(bootstrap_servers: str, topic: str, codec: str, count: int, seed: int) -> dict[str, int]:
    """Produces ``count`` records; what was acknowledged, in numbers."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 100_000,
        }
    )
    rnd = random.Random(seed)
    expected = {"count": 0, "value_bytes": 0, "hash": 0}
    failures: list[Any] = []

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    for number in range(count):
        key, value, headers = record(rnd, number)
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    headers=headers,
                    timestamp=BASE_TIMESTAMP_MS + number,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
        expected["count"] += 1
        expected["value_bytes"] += len(value or b"")
        expected["hash"] += row_hash(key, value)
    left = producer.flush(120)
    if left or failures:
        message = f"{topic}: {left} records not acknowledged, {len(failures)} failed, first {failures[:1]}"
        raise RuntimeError(message)
    return expected


def generate(directory: Path, *, records: int, partitions: int = 3, seed: int = 20240601) -> dict[str, dict[str, int]]:
    """A node's data directory with a topic for each codec, and the file of what is in it."""
    directory.mkdir(parents=True, exist_ok=True)
    expected = {}
    with kraftlog.Broker(directory / "node", config={"log.segment.bytes": 4 << 20}) as broker:
        for codec in CODECS:
            topic = f"scan-{codec}"
            broker.create_topic(topic, partitions=partitions)
            started = time.perf_counter()
            expected[topic] = produce(broker.bootstrap_servers, topic, codec, records, seed)
            seconds = time.perf_counter() - started
            print(f"{topic}: {records} records in {seconds:.1f} s, {records / seconds:,.0f}/s", flush=True)
    (directory / "expected.json").write_text(json.dumps(expected, indent=1))
    return expected


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int, default=200_000, help="of each codec")
    parser.add_argument("--partitions", type=int, default=3)
    args = parser.parse_args()
    generate(args.directory, records=args.records, partitions=args.partitions)


if __name__ == "__main__":
    main()
