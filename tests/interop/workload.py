"""The records that every client writes and reads: seeded, skewed in size, with every odd case in them."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]

TEXT = "".join(map(chr, range(33, 127))).replace(",", "").replace(":", "").replace("\\", "")
BIG_EVERY = 2_000
BIG_MAX_BYTES = 300_000
NULL_TEXT = "<null>"  # null.marker and null.literal of the console tools


@dataclass(frozen=True, slots=True)
class Record:
    """One record as all clients can say it; a timestamp of None is left to the client."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None

    def canonical(self) -> bytes:
        """Bytes that two equal records share, whichever client made them; RoundTrip.java hashes the same."""

        def field(data: bytes | None) -> bytes:
            return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

        parts = [field(self.key), field(self.value), struct.pack(">i", len(self.headers))]
        for name, data in self.headers:
            parts += [field(name.encode()), field(data)]
        return b"".join(parts)


def sizes(rng: random.Random, count: int) -> Iterable[int]:
    """Mostly under 200 bytes, a few KB now and then, and one of 2000 anywhere up to 300 kB."""
    for index in range(count):
        if index % BIG_EVERY == BIG_EVERY - 1:
            yield BIG_MAX_BYTES if index == BIG_EVERY - 1 else rng.randrange(BIG_MAX_BYTES + 1)
        else:
            roll = rng.random()
            yield 0 if roll < 0.02 else rng.randrange(1, 200) if roll < 0.99 else rng.randrange(200, 4_000)


def make_records(count: int, seed: int, *, text: bool = False, base_timestamp_ms: int | None = None) -> list[Record]:
    """The workload of a seed: always the same records.

    Args:
        count: How many.
        seed: Root of every choice.
        text: Only printable bytes and no empty key: what a console can carry on one line.
        base_timestamp_ms: Timestamps rise from here, with an out-of-order one in ten; None leaves them to the client.
    """
    rng = random.Random(seed)
    noise = rng.randbytes(1 << 20)
    alphabet = "".join(rng.choices(TEXT, k=1 << 20)).encode()
    pool = alphabet if text else noise
    words = (alphabet[:97] * 4000)[:BIG_MAX_BYTES]  # compresses well; every other record is taken from it

    def data(size: int, *, random_bytes: bool) -> bytes:
        if not random_bytes:
            return words[:size]
        start = rng.randrange(len(pool) - size) if size else 0
        return pool[start : start + size]

    records = []
    for index, size in enumerate(sizes(rng, count)):
        value = None if rng.random() < 0.02 else data(size, random_bytes=rng.random() < 0.5)
        key = None if rng.random() < 0.3 else data(rng.randrange(0 if not text else 1, 24), random_bytes=True)
        if key is None and value is None:
            key = b"tombstone"  # aiokafka and kafka-python refuse a record without both
        headers: Headers = ()
        if rng.random() < 0.2:
            headers = tuple(
                (
                    rng.choice(("trace-id", "k", "ключ" if not text else "content-type")),
                    None
                    if rng.random() < 0.1 and not text
                    else data(rng.randrange(1 if text else 0, 30), random_bytes=True),
                )
                for _ in range(rng.randrange(1, 4))
            )
        stamp = None
        if base_timestamp_ms is not None:
            stamp = base_timestamp_ms + index // 10 - (1_000 if rng.random() < 0.1 else 0)
        records.append(Record(key, value, headers, stamp))
    return records


def without_null_header_values(records: Iterable[Record]) -> list[Record]:
    """The same with empty header values for null ones, for a client that cannot write those."""
    return [
        dataclasses.replace(record, headers=tuple((name, data or b"") for name, data in record.headers))
        for record in records
    ]


def digest(records: Iterable[Record]) -> str:
    """SHA-256 over the canonical bytes in order."""
    state = hashlib.sha256()
    for record in records:
        state.update(record.canonical())
    return state.hexdigest()


def assert_same(wanted: list[Record], got: list[Record], where: str) -> None:
    """Byte for byte, in order; the first difference is shown, not two lists of 100 000."""
    for index, (left, right) in enumerate(zip(wanted, got, strict=False)):
        same_time = left.timestamp_ms is None or right.timestamp_ms is None or left.timestamp_ms == right.timestamp_ms
        if left.key != right.key or left.value != right.value or left.headers != right.headers or not same_time:
            raise AssertionError(f"{where}: record {index} differs\n wrote {short(left)}\n  read {short(right)}")
    if len(wanted) != len(got):
        raise AssertionError(f"{where}: wrote {len(wanted)} records, read {len(got)}")


def short(record: Record) -> str:
    def show(data: bytes | None) -> str:
        return "null" if data is None else f"{len(data)} B {data[:24]!r}"

    headers = [(name, show(data)) for name, data in record.headers]
    return f"key {show(record.key)}, value {show(record.value)}, headers {headers}, timestamp {record.timestamp_ms}"
