"""Small log directories for the tests of engines, and the rows that queries over them have to give."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa

import kraftlog
from kraftlog._kraftlog import encode_batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIME = 1_700_000_000_000

Row = dict[str, Any]


def write_logs(directory: Path, *, batches: int = 12, batch_rows: int = 40) -> Path:
    """Two topics with two and one partitions of three segments each; times rise and fall, offsets have gaps."""
    rng = random.Random(7)
    for topic, partition in (("orders", 0), ("orders", 1), ("audit", 0)):
        path = directory / f"{topic}-{partition}"
        path.mkdir(parents=True)
        offset = 5 * partition
        for number in range(batches):
            if number % (batches // 3) == 0:
                segment = path / f"{offset:020}.log"
            records = [
                (
                    FIRST_TIME + 1000 * number + rng.randrange(-3000, 3000),
                    None if at % 5 == 4 else b"k%d" % (at % 3),
                    None if at % 7 == 6 else b"%s-%d-" % (topic.encode(), at) * (at % 9),
                    [("h", b"x"), ("empty", None)] if at % 3 == 0 else [],
                )
                for at in range(batch_rows)
            ]
            with segment.open("ab") as file:
                file.write(encode_batch(records, base_offset=offset, compression=CODECS[number % 5]))
            offset += batch_rows + (number % 2) * 3
    return directory


def rows_of(scan: kraftlog.reading.Scan) -> list[Row]:
    """All rows by pyarrow, which the golden topics check."""
    rows: list[Row] = pa.RecordBatchReader.from_stream(scan).read_all().to_pylist()
    return rows


def places(rows: list[Row]) -> list[tuple[str, int, int]]:
    """Which records they are, in order of partitions and offsets."""
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def damage(log_dir: Path, partition: str, batch_number: int) -> tuple[Path, int, int]:
    """Flips a bit in the records of a batch of the first segment; the file, the batch's position and base offset."""
    path = min((log_dir / partition).glob("*.log"))
    data, position = bytearray(path.read_bytes()), 0
    for _ in range(batch_number):
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    (base_offset,) = struct.unpack_from(">q", data, position)
    data[position + 80] ^= 1
    path.write_bytes(data)
    return path, position, base_offset
