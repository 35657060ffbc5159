"""Damaged segments: we stop at the byte where Kafka's readers stop, and refuse the records they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from batch_rows import GOLDEN, read_rows
from kraftlog._kraftlog import RecordBatch, read_batches
from kraftlog.errors import CorruptRecordError

DAMAGED = GOLDEN / "damaged"
ROWS = list(read_rows(DAMAGED / "expected.jsonl"))

LENGTH = "less than a v2 header: refused when it is found, where Kafka hands out a batch that fails its first check"
LEGACY = "formats 0 and 1 are not supported; Kafka reads a v2 batch as one of theirs and ends in one of four errors"
MAGIC = "outside the checksum: Kafka's file scan passes it, its MemoryRecords refuse it as we do"

# Case -> why we raise CorruptRecordError at the damaged batch although Kafka's scan of the file goes on.
STRICTER_IN_FILE = {
    "length-14": LENGTH,
    "length-48": LENGTH,
    "magic-0": LEGACY,
    "magic-1": LEGACY,
    "magic--1": LEGACY,
    "magic--128": LEGACY,
    "magic-3": MAGIC,
    "magic-127": MAGIC,
}
# The same for Kafka's scan of the bytes in memory.
STRICTER_IN_MEMORY = {"length-14": LENGTH, "length-48": LENGTH, "magic-0": LEGACY, "magic-1": LEGACY}


def scan(data: bytes) -> tuple[list[RecordBatch], int | None]:
    """The batches up to the first bad one, and the position of that if there is one."""
    try:
        return read_batches(data, check_crc=False), None
    except CorruptRecordError as error:
        position = int(str(error).removeprefix("buffer position ").partition(":")[0])
        return read_batches(data[:position], check_crc=False), position


def end_of(batches: list[RecordBatch]) -> int:
    return batches[-1].position + batches[-1].size_bytes if batches else 0


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['source']}-{row['case']}")
def test_damaged_bytes_in_memory_stop_where_kafka_stops(row: dict[str, Any]) -> None:
    batches, failed_at = scan((DAMAGED / row["file"]).read_bytes())
    kafka = row["memory"]
    if row["case"] in STRICTER_IN_MEMORY:
        assert failed_at == end_of(batches) == row["scan"]["batches"][len(batches)]["position"]
        assert end_of(batches) < kafka["bytes"]
        return
    assert (len(batches), end_of(batches)) == (kafka["batches"], kafka["bytes"])
    if failed_at is None:
        # A length of 2^31-1 overflows Kafka's int and is an IllegalArgumentException; to us it is a cut batch.
        assert "exception" not in kafka or row["case"] == "length-max"
    else:
        assert "exception" in kafka
        assert failed_at == end_of(batches)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['source']}-{row['case']}")
def test_damaged_file_gives_batches_and_records_as_kafka(row: dict[str, Any]) -> None:
    batches, failed_at = scan((DAMAGED / row["file"]).read_bytes())
    expected = row["scan"]["batches"]
    if row["case"] in STRICTER_IN_FILE:
        assert failed_at == expected[len(batches)]["position"]
        expected = expected[: len(batches)]
    assert len(batches) == len(expected)
    for batch, kafka in zip(batches, expected, strict=True):
        assert (batch.position, batch.size_bytes) == (kafka["position"], kafka["size"])
        assert (batch.base_offset, batch.last_offset) == (kafka["baseOffset"], kafka["lastOffset"])
        assert batch.magic == kafka["magic"]
        assert batch.is_crc_valid() == kafka["valid"]
        if "recordsError" in kafka:
            with pytest.raises(CorruptRecordError, match=rf"buffer position {batch.position}: .*base_offset"):
                batch.records()
        else:
            assert [record[0] for record in batch.records()] == kafka["recordOffsets"]
