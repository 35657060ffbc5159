"""Decoding record batches: nanoseconds a record, checksums compared, beside the peers in the same run.

Expected, with a key of 9 B and a value of 100 B in cache: CRC-32C of 120 B 1 to 4 ns, six variable-length integers and
five stores 4 ns, the copy of 109 B 3 to 5 ns; so 10 to 15 ns copied, under 9 ns as views. At 1000 B the 20 MB in and
20 MB out are beyond the second-level cache: the copy alone is 50 to 80 ns, the checksum 15 to 30.

    python -m pytest benches/test_decode.py --benchmark-enable --benchmark-group-by=group

All codecs, sizes and peers are in test_matrix.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record._crecords import DefaultRecordBatch as AiokafkaBatch

import kraftlog
from kraftlog._kraftlog import LogDump, build_profile, decode_batches, encode_batch, read_batches

RECORDS = 20_000
BATCH_RECORDS = 150
TIMESTAMP = 1_700_000_000_000
MAIN_COLUMNS = ["key", "value", "offset", "timestamp"]

SIZES = pytest.mark.parametrize("size", [100, 1000], ids=["100B", "1000B"])


@pytest.fixture(autouse=True)
def _optimised_build() -> None:
    assert build_profile == "release", "a debug build says nothing about speed"


@cache
def batches_of(size: int, codec: Any = "none") -> tuple[bytes, ...]:
    """Keys of 9 B and values of words: they compress to about half."""
    rng = random.Random(size)
    words = [bytes(rng.randrange(97, 123) for _ in range(8)) for _ in range(512)]

    def value() -> bytes:
        return b" ".join(rng.choices(words, k=size // 9 + 1))[:size]

    records = [(TIMESTAMP + number, b"k%08d" % number, value(), ()) for number in range(RECORDS)]
    return tuple(
        encode_batch(records[first : first + BATCH_RECORDS], base_offset=first, compression=codec)
        for first in range(0, RECORDS, BATCH_RECORDS)
    )


def run(benchmark: Any, group: str, size: int, decode: Callable[[], int], times: int = 1) -> None:
    benchmark.group = group
    benchmark.extra_info.update(bytes=RECORDS * (size + 9) * times, records=RECORDS * times)
    assert benchmark(decode) == RECORDS * times


@SIZES
@pytest.mark.parametrize("binary_type", ["binary", "large_binary", "binary_view"])
def test_decode_main_columns(benchmark: Any, size: int, binary_type: Any) -> None:
    data = b"".join(batches_of(size))
    group = f"decode {size} B values"
    run(benchmark, group, size, lambda: len(decode_batches(data, columns=MAIN_COLUMNS, binary_type=binary_type)))


@SIZES
def test_decode_all_columns(benchmark: Any, size: int) -> None:
    data = b"".join(batches_of(size))
    run(benchmark, f"decode {size} B values", size, lambda: len(decode_batches(data, topic="orders", partition=0)))


@SIZES
def test_decode_offsets_only(benchmark: Any, size: int) -> None:
    data = b"".join(batches_of(size))
    run(benchmark, f"decode {size} B values", size, lambda: len(decode_batches(data, columns=["offset"])))


@SIZES
def test_decode_without_checksum(benchmark: Any, size: int) -> None:
    data = b"".join(batches_of(size))
    group = f"decode {size} B values"
    run(benchmark, group, size, lambda: len(decode_batches(data, columns=MAIN_COLUMNS, check_crc=False)))


@SIZES
def test_decode_record_tuples(benchmark: Any, size: int) -> None:
    data = b"".join(batches_of(size))
    group = f"decode {size} B values"
    run(benchmark, group, size, lambda: sum(len(batch.records()) for batch in read_batches(data)))


def by_aiokafka(batches: tuple[bytes, ...]) -> int:
    count = 0
    for data in batches:
        batch = AiokafkaBatch(data)
        assert batch.validate_crc()
        for record in batch:
            count += 1
            _ = (record.key, record.value)
    return count


@SIZES
def test_decode_aiokafka_c_extension(benchmark: Any, size: int) -> None:
    batches = batches_of(size)
    run(benchmark, f"decode {size} B values", size, lambda: by_aiokafka(batches))


@pytest.fixture(scope="module")
def million(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with a million records of 108 B in one segment; a hundredth of that when nothing is measured."""
    directory = tmp_path_factory.mktemp("log") / "orders-0"
    directory.mkdir()
    value = "v" * 100
    measures = request.config.getoption("benchmark_enable") or not request.config.getoption("benchmark_disable")
    count = 1_000_000 if measures else 10_000
    with (directory / f"{0:020}.log").open("wb") as file:
        for first in range(0, count, 1000):
            records = [(TIMESTAMP + n, b"k%07d" % n, value.encode(), ()) for n in range(first, first + 1000)]
            file.write(encode_batch(records, base_offset=first))
    return directory


@pytest.mark.parametrize("columns", [None, MAIN_COLUMNS], ids=["all", "main"])
@pytest.mark.parametrize("binary_type", ["binary", "binary_view"])
def test_scan_million_records(benchmark: Any, million: Path, columns: list[str] | None, binary_type: Any) -> None:
    """Expected: the read from the page cache at 8 GB/s, 17 ns per record, and the decoding."""
    log = kraftlog.open_log(million)
    benchmark.group = "dump 1 M records of 108 B"
    benchmark.extra_info.update(bytes=108 * log.log_end_offset, records=log.log_end_offset)
    count = benchmark(lambda: sum(len(rows) for rows in log.scan(columns=columns, binary_type=binary_type)))
    assert count == log.log_end_offset


def test_dump_million_records_to_json_lines(benchmark: Any, million: Path) -> None:
    """Expected: 300 B of text a record at 1 GB/s, 0.3 s in all."""
    (path,) = million.glob("*.log")
    benchmark.group = "dump 1 M records of 108 B"
    records = kraftlog.open_log(million).log_end_offset
    benchmark.extra_info.update(bytes=108 * records, records=records)

    def dump() -> int:
        return sum(lines.count(b"\n") for lines in LogDump(path, form="json", records=True, data=True))

    assert benchmark(dump) == records
