"""The rows of the table: what each one asks of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from data_path.awake import processors_awake
from data_path.memory import back_free_memory
from data_path.servers import Node

Report = dict[str, float]

RECORD_BYTES = 100
RECORDS_OF_16_KB = 150
RECORDS_OF_256_KB = 2400
RECORDS_OF_900_KB = 8200
FETCH_BYTES = 1 << 20
RATE = 1000


@dataclass(frozen=True)
class Row:
    """A row: its name, what it is about, and the run.

    ``servers`` is ``page cache`` or ``flush``: what the acknowledgements of the nodes wait for.
    """

    name: str
    subject: str
    run: Callable[[Node, float], Report]
    servers: str = "page cache"


def produce(partitions: int, **options: object) -> Callable[[Node, float], Report]:
    """Produce to a new topic; 100 B values unless said otherwise. Options are those of the generator."""

    def run(node: Node, seconds: float) -> Report:
        with node.topics(partitions) as topic:
            return node.load("produce", topics=topic, seconds=seconds, **options)

    return run


def large(records: int) -> Callable[[Node, float], Report]:
    """Large batches to memory that is there, half the time: a gigabyte and more per second goes to the disk."""
    load = produce(6, in_flight=5, records=records, warm=0.3)

    def run(node: Node, seconds: float) -> Report:
        back_free_memory()
        return load(node, seconds / 2)

    return run


def consume(record_bytes: int, records: int, max_bytes: int) -> Callable[[Node, float], Report]:
    """Read about 100 MB in batches of 16 KB again and again."""

    def run(node: Node, seconds: float) -> Report:
        with node.topics(6) as topic:
            batches = {"records": records, "record_bytes": record_bytes}
            # Little at a time: the node must still have the pages in its cache, and none to write back.
            node.load("produce", topics=topic, rate=4000, seconds=1.0, warm=0.5, **batches)
            return node.load("fetch", topics=topic, max_bytes=max_bytes, seconds=seconds)

    return run


def session(partitions: int, changing: int) -> Callable[[Node, float], Report]:
    """One consumer of so many partitions, of which ``changing`` get a record in every round."""

    def run(node: Node, seconds: float) -> Report:
        with node.topics(partitions) as topic:
            wait_ms = 500 if changing else 0
            return node.load("session", topics=topic, changing=changing, wait_ms=wait_ms, seconds=seconds)

    return run


def idle_connections(count: int) -> Callable[[Node, float], Report]:
    """Memory and processor time of connections that say nothing."""
    return lambda node, seconds: node.load("idle", connections=count, seconds=seconds)


def requests() -> Iterator[Row]:
    """Small and large requests, answered from the page cache."""
    yield Row("1 record, 1 in flight", "produce", produce(1))
    yield Row("1 record, 5 in flight", "produce", produce(1, in_flight=5))
    yield Row("1 record, 6 connections x 5 in flight", "produce", produce(6, connections=6, in_flight=5))
    yield Row(f"1 record, {RATE} requests/s", "produce", produce(1, rate=RATE))
    yield Row("16 KB batches, 5 in flight", "produce", large(RECORDS_OF_16_KB))
    yield Row("256 KB batches, 5 in flight", "produce", large(RECORDS_OF_256_KB))
    yield Row("900 KB batches, 5 in flight", "produce", large(RECORDS_OF_900_KB))
    yield Row("100 B records, fetches of 1 MB", "consume", consume(RECORD_BYTES, RECORDS_OF_16_KB, FETCH_BYTES))
    yield Row("1 KB records, fetches of 1 MB", "consume", consume(1024, 16, FETCH_BYTES))
    yield Row("100 B records, fetches of 16 KB", "consume", consume(RECORD_BYTES, RECORDS_OF_16_KB, 16 << 10))


def awake(row: Row) -> Row:
    """The same row while no processor halts; the processes that keep them awake count for no node."""

    def run(node: Node, seconds: float) -> Report:
        with processors_awake():
            return row.run(node, seconds)

    return replace(row, subject=f"{row.subject}, awake", run=run)


def flushes() -> Iterator[Row]:
    """Acknowledged after an fdatasync."""
    yield Row("flush on ack, one at a time", "flush", produce(1), "flush")
    yield Row("flush on ack, 1 partition, 5 in flight", "flush", produce(1, in_flight=5), "flush")
    yield Row(
        "flush on ack, 100 partitions, 10 connections x 10 in flight",
        "flush",
        produce(100, connections=10, in_flight=10),
        "flush",
    )


def growth() -> Iterator[Row]:
    """The same load over more partitions and more connections."""
    # First: a node keeps the memory that other rows needed.
    for count in (10, 1000, 5000):
        yield Row(f"{count} idle connections", "idle connections", idle_connections(count))
        yield Row(f"{RATE} requests/s beside {count} idle", "idle connections", produce(1, rate=RATE, idle=count))
    for count in (1, 10, 1000, 10_000):
        yield Row(f"{count} partitions, 10 connections x 5", "partitions", produce(count, connections=10, in_flight=5))
    for count in (10, 1000, 5000):
        yield Row(f"{count} connections, each 1 in flight", "connections", produce(10, connections=count, warm=2.0))
    for count in (10, 1000, 10_000):
        yield Row(f"session of {count}, nothing new", "session", session(count, 0))
        yield Row(f"session of {count}, 10 changing", "session", session(count, 10))


def all_rows() -> list[Row]:
    """Every row that runs on a node of its own process."""
    small = [
        row
        for row in requests()
        if row.name.startswith("1 record,") or row.name.startswith("16 KB") or row.name.endswith("fetches of 16 KB")
    ]
    return [*requests(), *map(awake, small), *flushes(), *growth()]
