"""Random scans of random logs give what a filter over everything gives."""

from __future__ import annotations

import datetime as dt
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kraftlog
from kraftlog._kraftlog import decode_batches, encode_batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COLUMNS = (
    "key", "value", "offset", "timestamp", "timestamp_type", "headers", "topic", "partition", "leader_epoch",
    "producer_id", "producer_epoch", "is_transactional", "is_control", "key_length", "value_length", "sequence",
    "compression", "batch_base_offset",
)  # fmt: skip


def random_log(rnd: random.Random, directory: Path) -> list[dict[str, Any]]:
    """Some segments with gaps, odd times and all codecs, some with indexes that tell the truth; all rows of it."""
    directory.mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    offset = rnd.choice([0, 5])
    for _ in range(rnd.randrange(1, 5)):
        base_offset, data, index, times = offset, bytearray(), bytearray(), bytearray()
        largest, last_indexed = -1, 0
        for _ in range(rnd.randrange(0 if rows else 1, 12)):
            count = rnd.randrange(1, 30)
            records = [
                (
                    rnd.randrange(1000, 2000),
                    rnd.choice([None, b"", rnd.randbytes(rnd.randrange(20))]),
                    rnd.choice([None, rnd.randbytes(rnd.randrange(60)), b"x" * rnd.randrange(300)]),
                    [("h", b"v")] if rnd.random() < 0.1 else [],
                )
                for _ in range(count)
            ]
            batch = encode_batch(records, base_offset=offset, compression=rnd.choice(CODECS))
            newest = max(range(count), key=lambda at: (records[at][0], -at))
            if records[newest][0] > largest:
                largest, largest_offset = records[newest][0], offset + newest
            if len(data) - last_indexed > 400:
                index += struct.pack(">II", offset + count - 1 - base_offset, len(data))
                times += struct.pack(">qI", largest, largest_offset - base_offset)
                last_indexed = len(data)
            part = pa.record_batch(decode_batches(batch, columns=COLUMNS, topic="t", partition=0))
            rows += part.to_pylist()
            data += batch
            offset += count + rnd.choice([0, 0, 0, 7])
        if not data:
            continue
        stem = directory / f"{base_offset:020}"
        stem.with_suffix(".log").write_bytes(data)
        if rnd.random() < 0.7:
            stem.with_suffix(".index").write_bytes(index)
        if rnd.random() < 0.7:
            stem.with_suffix(".timeindex").write_bytes(times + bytes(rnd.choice([0, 12, 120])))
    return rows


def milliseconds(moment: dt.datetime) -> int:
    return round(moment.timestamp() * 1000)


def bounds(rnd: random.Random, low: int, high: int) -> tuple[int | None, int | None]:
    first, last = sorted((rnd.randrange(low, high + 2), rnd.randrange(low, high + 2)))
    return rnd.choice([None, first]), rnd.choice([None, last])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_scan_is_a_filter_over_everything(seed: int) -> None:
    rnd = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "t-0"
        rows = random_log(rnd, directory)
        log = kraftlog.open_log(directory)
        for _ in range(8):
            start, end = bounds(rnd, log.log_start_offset, rows[-1]["offset"])
            since, until = bounds(rnd, 990, 2010)
            columns = rnd.sample(COLUMNS, rnd.randrange(len(COLUMNS)))
            scan = log.scan(
                start_offset=start,
                end_offset=end,
                from_timestamp=since,
                to_timestamp=until,
                columns=columns,
                threads=rnd.choice([1, 1, 2, 3]),
                binary_type=rnd.choice(["binary", "large_binary", "binary_view"]),
                batch_rows=rnd.choice([1, 7, 16384]),
                batch_bytes=rnd.choice([1, 500, 8 << 20]),
                check_crc=rnd.choice([True, False]),
                memory_map=rnd.random() < 0.3,
            )
            expected = [
                {name: row[name] for name in columns}
                for row in rows
                if (start is None or row["offset"] >= start)
                and (end is None or row["offset"] < end)
                and (since is None or milliseconds(row["timestamp"]) >= since)
                and (until is None or milliseconds(row["timestamp"]) < until)
            ]
            table = pa.table(scan)
            table.validate(full=True)
            assert table.num_rows == len(expected) == scan.report().rows
            assert not columns or table.to_pylist() == expected
            parts = scan.splits(rnd.randrange(1, 5)) if rnd.random() < 0.5 else scan.splits(split_bytes=300)
            tables = [pa.table(part) for part in parts]
            assert sum(part.num_rows for part in tables) == len(expected)
            assert not columns or [row for part in tables for row in part.to_pylist()] == expected
