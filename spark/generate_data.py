"""Start a node, produce topics that differ in what a job has to cope with, and write down what a scan has to find.

    python spark/generate_data.py /tmp/kraftlog-data --records 200000

DIRECTORY/node is the node's log directory: a topic for each codec with the same records (``scan-none`` and so on), and
a shop's topics over some days, with partitions of very different size: ``orders`` (zstd), ``clicks`` (lz4, headers),
``audit`` (not compressed, one partition) and ``customers`` (compacted, gzip). DIRECTORY/expected.json has count, sum of
value lengths and an order-free hash for each topic. DIRECTORY/cluster is the metadata log of a cluster of three brokers
over the same days, made by generate_metadata.py. DIRECTORY/kafka has partitions with transactions, some aborted, that
Apache Kafka wrote (from tests/golden, where that is there).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from generate_metadata import generate_metadata

import kraftlog

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_TIMESTAMP_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
DAY_MS = 86_400_000
GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "topics" / "node-1"
# The records are old: without this retention would take them, from 30 seconds after the start of the node on.
NODE_CONFIG = {"log.segment.bytes": 4 << 20, "log.initial.task.delay.ms": 30 * DAY_MS}


@dataclass(frozen=True)
class ShopTopic:
    """A topic whose records spread over days; the first partition is the largest."""

    codec: str
    partitions: int
    share: float  # of the records of all shop topics
    config: dict[str, str | int]


SHOP = {
    "orders": ShopTopic("zstd", 6, 0.4, {"retention.ms": 7 * DAY_MS}),
    "clicks": ShopTopic("lz4", 4, 0.45, {"retention.ms": 3 * DAY_MS, "retention.bytes": 8 << 20}),
    "audit": ShopTopic("none", 1, 0.1, {"retention.ms": -1}),
    "customers": ShopTopic("gzip", 2, 0.05, {"cleanup.policy": "compact"}),
}
Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Produced:
    """A record as it is handed to the producer; without a partition the key decides."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    partition: int | None = None


def record(rnd: random.Random, number: int) -> tuple[bytes | None, bytes | None, Headers]:
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


def codec_records(count: int, seed: int) -> Iterator[Produced]:
    """A millisecond apart; the same for each codec."""
    rnd = random.Random(seed)
    for number in range(count):
        yield Produced(*record(rnd, number), timestamp_ms=BASE_TIMESTAMP_MS + number)


def shop_records(name: str, count: int, days: int, seed: int) -> Iterator[Produced]:
    """Over the days, more in the evening than at night; a few partitions and customers have most of them."""
    topic = SHOP[name]
    rnd = random.Random(f"{seed} {name}")
    # How the day's records spread over its hours.
    hours = [1.2 + math.sin((hour - 11) / 24 * 2 * math.pi) for hour in range(24)]
    slots = sorted(
        day * DAY_MS + hour * 3_600_000 + rnd.randrange(3_600_000)
        for day, hour in zip(rnd.choices(range(days), k=count), rnd.choices(range(24), hours, k=count), strict=True)
    )
    weights = [1 / (partition + 1) ** 1.5 for partition in range(topic.partitions)]
    for number, slot in enumerate(slots):
        customer = int(rnd.paretovariate(1.2)) % 50_000
        value = json.dumps(
            {
                "id": number,
                "customer": customer,
                "page": rnd.choice(("home", "search", "product", "basket", "checkout")),
                "cents": rnd.randrange(100, 100_000),
                "note": "-" * rnd.randrange(60),
            }
        ).encode()
        headers: Headers = [("trace-id", b"%016x" % rnd.getrandbits(64))] if name == "clicks" else []
        partition = rnd.choices(range(topic.partitions), weights)[0]
        yield Produced(b"customer-%d" % customer, value, headers, BASE_TIMESTAMP_MS + slot, partition)


def produce(bootstrap_servers: str, topic: str, codec: str, records: Iterator[Produced]) -> dict[str, int]:
    """Produces records; what was acknowledged, in numbers."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 100_000,
        }
    )
    expected = {"count": 0, "value_bytes": 0, "hash": 0}
    failures: list[Any] = []
    started = time.perf_counter()

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    for number, generated in enumerate(records):
        where = {} if generated.partition is None else {"partition": generated.partition}
        while True:
            try:
                producer.produce(
                    topic,
                    generated.value,
                    generated.key,
                    headers=generated.headers,
                    timestamp=generated.timestamp_ms,
                    on_delivery=on_delivery,
                    **where,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
        expected["count"] += 1
        expected["value_bytes"] += len(generated.value or b"")
        expected["hash"] += row_hash(generated.key, generated.value)
    left = producer.flush(120)
    if left or failures:
        message = f"{topic}: {left} records not acknowledged, {len(failures)} failed, first {failures[:1]}"
        raise RuntimeError(message)
    seconds = time.perf_counter() - started
    print(f"{topic}: {expected['count']} records in {seconds:.1f} s", flush=True)
    return expected


def change_config(bootstrap_servers: str, topic: str, name: str, value: str) -> None:
    """A topic's setting, for the history in the metadata."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(30)


def generate(
    directory: Path, *, records: int, shop_count: int = 0, days: int = 14, partitions: int = 3, seed: int = 20240601
) -> dict[str, dict[str, int]]:
    """A node's data directory with a topic for each codec and, if wanted, a shop's; and the file of what is in it."""
    directory.mkdir(parents=True, exist_ok=True)
    expected = {}
    if records:
        with kraftlog.Broker(directory / "node", config=NODE_CONFIG) as broker:
            for codec in CODECS:
                topic = f"scan-{codec}"
                broker.create_topic(topic, partitions=partitions)
                expected[topic] = produce(broker.bootstrap_servers, topic, codec, codec_records(records, seed))
    if shop_count:  # a second start, which the metadata remembers
        with kraftlog.Broker(directory / "node", config=NODE_CONFIG) as broker:
            for name, topic in SHOP.items():
                broker.create_topic(name, partitions=topic.partitions, config=topic.config)
                of_topic = shop_records(name, round(shop_count * topic.share), days, seed)
                expected[name] = produce(broker.bootstrap_servers, name, topic.codec, of_topic)
            change_config(broker.bootstrap_servers, "orders", "retention.ms", str(10 * DAY_MS))
            change_config(broker.bootstrap_servers, "clicks", "segment.bytes", str(2 << 20))
        generate_metadata(directory / "cluster", start_ms=BASE_TIMESTAMP_MS, days=days, seed=seed)
        if GOLDEN.is_dir():
            for name in ("g-txn-0", "g-compact-txn-0"):
                shutil.copytree(GOLDEN / name, directory / "kafka" / name)
    (directory / "expected.json").write_text(json.dumps(expected, indent=1))
    return expected


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="a directory that does not exist yet, or is empty")
    parser.add_argument("--records", type=int, default=200_000, help="of each codec (default 200000)")
    parser.add_argument("--shop-records", type=int, default=300_000, help="of the shop's topics together")
    parser.add_argument("--days", type=int, default=14, help="that the shop's records are from")
    parser.add_argument("--partitions", type=int, default=3, help="of the topic of each codec")
    args = parser.parse_args()
    if args.directory.exists() and any(args.directory.iterdir()):
        parser.error(f"{args.directory} is not empty")
    generate(
        args.directory,
        records=args.records,
        shop_count=args.shop_records,
        days=args.days,
        partitions=args.partitions,
    )


if __name__ == "__main__":
    main()
