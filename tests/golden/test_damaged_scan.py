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
MAGIC = "outside the checksum: Kafka's file scan passes it, its MemoryRecords refuse it as we do"

# Case -> why we raise CorruptRecordError at the damaged batch although Kafka's scan of the file goes on.
STRICTER_IN_FILE = {
    "length-14": LENGTH,
    "length-48": LENGTH,
    "magic--1": MAGIC,
    "magic--128": MAGIC,
    "magic-3": MAGIC,
    "magic-127": MAGIC,
}
# The same for Kafka's scan of the bytes in memory.
STRICTER_IN_MEMORY = {"length-14": LENGTH, "length-48": LENGTH}
# A v2 batch read as a message of format 0 or 1 is one of an odd key. Kafka's iterator hands it out unless its codec
# is odd too, and fails when the key is read; our records have their key and value read.
LEGACY = ("magic-0", "magic-1")


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
    if expected and "baseOffset" not in expected[-1]:  # Kafka throws at the first question about this batch
        assert row["case"] in LEGACY
        batches = batches[: len(expected)]
    assert len(batches) == len(expected)
    for batch, kafka in zip(batches, expected, strict=True):
        assert (batch.position, batch.size_bytes) == (kafka["position"], kafka["size"])
        is_legacy = batch.magic < 2
        assert not is_legacy or row["case"] == f"magic-{batch.magic}"
        if "baseOffset" in kafka:
            assert (batch.base_offset, batch.last_offset) == (kafka["baseOffset"], kafka["lastOffset"])
            assert batch.magic == kafka["magic"]
        assert batch.is_crc_valid() == kafka.get("valid", False)
        if "recordsError" in kafka or is_legacy:
            with pytest.raises(CorruptRecordError, match=rf"buffer position {batch.position}: .*base_offset"):
                batch.records()
        else:
            assert [record[0] for record in batch.records()] == kafka["recordOffsets"]
