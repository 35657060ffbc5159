"""Every codec, value size and kind of record: decoding and encoding, kraftlog, the peers and the bare libraries.

Expected: docs/reports/decoder-speed.md says what bounds each row. `benches/write_tables.py` makes a table each.

    python -m pytest benches/test_matrix.py --benchmark-enable --benchmark-max-time=0.2
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record._crecords import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from peers import TIMES, Peer, java_command, rust_command

from kraftlog._kraftlog import build_profile, crc32c, decode_batches, decompressed_size, encode_batch, encode_columns

TIMESTAMP = 1_700_000_000_000
CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HEADERS = ((b"trace", b"0123456789abcdef"), (b"kind", b"order"))

CODECS = pytest.mark.parametrize("codec", list(CODEC_IDS))
SIZES = pytest.mark.parametrize("size", [10, 100, 1000, 10_000])
SHAPES = pytest.mark.parametrize("full", [False, True], ids=["values", "keys and headers"])


@pytest.fixture(autouse=True)
def _optimised_build() -> None:
    assert build_profile == "release", "a debug build says nothing about speed"


def counts(size: int) -> tuple[int, int]:
    """Records in all, about 2 MB of them, and in a batch, about 16 KB or one."""
    records = min(20_000, max(200, 2_000_000 // size))
    return records, min(records, max(10, min(500, 16_384 // size)))


@cache
def records_of(size: int, full: bool) -> list[tuple[int, bytes | None, bytes, tuple[tuple[bytes, bytes], ...]]]:
    """Values of words, which compress to about half."""
    rng = random.Random(size)
    words = [bytes(rng.randrange(97, 123) for _ in range(8)) for _ in range(512)]

    def value() -> bytes:
        return b" ".join(rng.choices(words, k=size // 9 + 1))[:size]

    headers = HEADERS if full else ()
    return [
        (TIMESTAMP + number, b"k%08d" % number if full else None, value(), headers) for number in range(counts(size)[0])
    ]


@cache
def batches_of(size: int, codec: Any, full: bool) -> tuple[bytes, ...]:
    records, step = records_of(size, full), counts(size)[1]
    return tuple(
        encode_batch(records[first : first + step], base_offset=first, compression=codec)
        for first in range(0, len(records), step)
    )


def note(benchmark: Any, table: str, row: tuple[str, int, bool], column: str, times: int = 1) -> int:
    """Say where the figure goes; the number of records."""
    codec, size, full = row
    records = counts(size)[0]
    benchmark.group = f"{table}: {codec}, {size} B, {'keys and headers' if full else 'values'}"
    benchmark.extra_info.update(
        table=table,
        codec=codec,
        size=size,
        full=full,
        column=column,
        records=records * times,
        bytes=records * size * times,
    )
    return records


# --- decoding ---


def columns_of(full: bool) -> list[str]:
    return ["key", "value", "offset", "timestamp", "headers"] if full else ["key", "value", "offset", "timestamp"]


@SHAPES
@SIZES
@CODECS
@pytest.mark.parametrize("binary_type", ["binary", "binary_view"])
def test_decode(benchmark: Any, codec: str, size: int, full: bool, binary_type: Any) -> None:
    records = note(benchmark, "decode", (codec, size, full), {"binary": "copied", "binary_view": "views"}[binary_type])
    data = b"".join(batches_of(size, codec, full))
    columns = columns_of(full)
    assert benchmark(lambda: len(decode_batches(data, columns=columns, binary_type=binary_type))) == records


@SHAPES
@SIZES
@CODECS
def test_decode_limit(benchmark: Any, codec: str, size: int, full: bool) -> None:
    """The bare decompressor; without a codec, the checksum and one copy of the same bytes."""
    data = b"".join(batches_of(size, codec, full))
    note(benchmark, "decode", (codec, size, full), "limit")
    if codec != "none":
        assert benchmark(decompressed_size, data) > 0
        return
    target, source = memoryview(bytearray(len(data))), memoryview(data)

    def checksum_and_copy() -> None:
        crc32c(data)
        target[:] = source

    benchmark(checksum_and_copy)


def decode_by(batch_class: Any, batches: tuple[bytes, ...], full: bool) -> int:
    count = 0
    for data in batches:
        batch = batch_class(data)
        assert batch.validate_crc()
        for record in batch:
            count += 1
            _ = (record.key, record.value, record.headers) if full else (record.key, record.value)
    return count


@SHAPES
@SIZES
@CODECS
def test_decode_aiokafka(benchmark: Any, codec: str, size: int, full: bool) -> None:
    records = note(benchmark, "decode", (codec, size, full), "aiokafka")
    assert benchmark(decode_by, AiokafkaBatch, batches_of(size, codec, full), full) == records


@SHAPES
@SIZES
def test_decode_kafka_python(benchmark: Any, size: int, full: bool) -> None:
    """Without a codec only, as its own Python takes most of every row."""
    records = note(benchmark, "decode", ("none", size, full), "kafka-python")
    batches = batches_of(size, "none", full)
    assert benchmark.pedantic(decode_by, (KafkaPythonBatch, batches, full), rounds=3) == records


def running(command: list[str] | None, why: str) -> Iterator[Peer]:
    if command is None:
        pytest.skip(why)
    peer = Peer(command)
    yield peer
    peer.close()


@pytest.fixture(scope="module")
def java() -> Iterator[Peer]:
    yield from running(java_command(), "no KAFKA_LIBS: Kafka's own classes are measured where its jars are")


@pytest.fixture(scope="module")
def rust() -> Iterator[Peer]:
    yield from running(rust_command(), "sh .ci/dev bench-peers builds the kafka-protocol crate")


def by_program(benchmark: Any, row: tuple[str, int, bool], column: str, peer: Peer, directory: Path) -> None:
    codec, size, full = row
    file = directory / "batches"
    file.write_bytes(b"".join(batches_of(size, codec, full)))
    records = note(benchmark, "decode", row, column, TIMES)
    assert peer.ask(f"load {file}") == records
    assert benchmark(peer.ask, "") == records * TIMES


@SHAPES
@SIZES
@CODECS
def test_decode_java(benchmark: Any, codec: str, size: int, full: bool, java: Peer, tmp_path: Path) -> None:
    by_program(benchmark, (codec, size, full), "Java", java, tmp_path)


@SHAPES
@SIZES
@CODECS
def test_decode_kafka_protocol(benchmark: Any, codec: str, size: int, full: bool, rust: Peer, tmp_path: Path) -> None:
    by_program(benchmark, (codec, size, full), "kafka-protocol", rust, tmp_path)


# --- encoding ---


@SIZES
@CODECS
def test_encode_columns(benchmark: Any, codec: Any, size: int) -> None:
    """Values without keys from an Arrow column, in batches of about 16 KB."""
    note(benchmark, "encode", (codec, size, False), "columns")
    records, step = records_of(size, False), counts(size)[1]
    parts = [records[first : first + step] for first in range(0, len(records), step)]
    columns = [(pa.array([value for _, _, value, _ in part]), pa.array([time for time, *_ in part])) for part in parts]

    def encode() -> int:
        return sum(len(encode_columns(None, values, times, compression=codec)) for values, times in columns)

    assert benchmark(encode) > 0


@SHAPES
@SIZES
@CODECS
def test_encode_tuples(benchmark: Any, codec: Any, size: int, full: bool) -> None:
    note(benchmark, "encode", (codec, size, full), "tuples")
    records, step = records_of(size, full), counts(size)[1]
    parts = [records[first : first + step] for first in range(0, len(records), step)]
    assert benchmark(lambda: sum(len(encode_batch(part, compression=codec)) for part in parts)) > 0


def encode_by(builder_class: Any, parts: list[Any], codec: int) -> int:
    size = 0
    for part in parts:
        builder = builder_class(
            magic=2,
            compression_type=codec,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 30,
        )
        append = builder.append
        for offset, (timestamp, key, value, headers) in enumerate(part):
            append(offset, timestamp, key, value, headers)
        size += len(builder.build())
    return size


def parts_for_peers(size: int, full: bool) -> list[Any]:
    records, step = records_of(size, full), counts(size)[1]
    named = [
        (time, key, value, [(name.decode(), data) for name, data in headers]) for time, key, value, headers in records
    ]
    return [named[first : first + step] for first in range(0, len(named), step)]


@SHAPES
@SIZES
@CODECS
def test_encode_aiokafka(benchmark: Any, codec: str, size: int, full: bool) -> None:
    note(benchmark, "encode", (codec, size, full), "aiokafka")
    parts = parts_for_peers(size, full)
    assert benchmark.pedantic(encode_by, (AiokafkaBuilder, parts, CODEC_IDS[codec]), rounds=3) > 0


@SHAPES
@SIZES
def test_encode_kafka_python(benchmark: Any, size: int, full: bool) -> None:
    """Without a codec only, as its own Python takes most of every row."""
    note(benchmark, "encode", ("none", size, full), "kafka-python")
    assert benchmark.pedantic(encode_by, (KafkaPythonBuilder, parts_for_peers(size, full), 0), rounds=2) > 0
