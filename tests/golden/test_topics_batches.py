"""Every segment and checkpoint that Kafka wrote decodes to what Kafka's own classes read from it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from batch_rows import GOLDEN, comparable, describe_batch, read_rows
from kraftlog._kraftlog import RecordBatch, encode_batch, read_batches

TOPICS = GOLDEN / "topics"
KRAFT = GOLDEN / "kraft"

SEGMENTS = sorted((TOPICS / "expected").rglob("*.batches.jsonl.gz"))
METADATA = sorted(
    path for pattern in ("*.log.jsonl.gz", "*.checkpoint.jsonl.gz") for path in (KRAFT / "expected").rglob(pattern)
)


def assert_file_decodes(data: Path, expected: Path) -> None:
    rows = [comparable(row) for row in read_rows(expected)]
    content = data.read_bytes()
    found = [describe_batch(batch) for batch in read_batches(content)]
    assert found == rows
    assert not any(content[sum(row["size"] for row in rows) :])  # nothing but preallocated zeros is left over


def test_expectations_are_all_there() -> None:
    assert (len(SEGMENTS), len(METADATA)) == (78, 222)


@pytest.mark.parametrize("expected", SEGMENTS, ids=lambda path: str(path.relative_to(TOPICS / "expected")))
def test_topic_segment_decodes_to_expected_rows(expected: Path) -> None:
    relative = expected.relative_to(TOPICS / "expected")
    base = relative.name.removesuffix(".batches.jsonl.gz")
    assert_file_decodes(TOPICS / relative.with_name(f"{base}.log"), expected)


@pytest.mark.parametrize("expected", METADATA, ids=lambda path: str(path.relative_to(KRAFT / "expected")))
def test_metadata_file_decodes_to_expected_rows(expected: Path) -> None:
    relative = expected.relative_to(KRAFT / "expected")
    assert_file_decodes(KRAFT / "logs" / relative.with_name(relative.name.removesuffix(".jsonl.gz")), expected)


def encode_again(batch: RecordBatch) -> bytes:
    records = batch.records()
    return encode_batch(
        [record[1:] for record in records],
        base_offset=batch.base_offset,
        partition_leader_epoch=batch.partition_leader_epoch,
        timestamp_type=batch.timestamp_type,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
        delete_horizon_ms=batch.delete_horizon_ms,
        offset_deltas=[record[0] - batch.base_offset for record in records],
        last_offset_delta=batch.last_offset - batch.base_offset,
        max_timestamp_ms=batch.max_timestamp,
    )


def test_every_uncompressed_batch_is_written_to_the_same_bytes() -> None:
    """Of brokers, cleaners, coordinators, quorums and snapshots; with gaps, horizons, markers, or without records."""
    files = [TOPICS / path.relative_to(TOPICS / "expected") for path in SEGMENTS]
    files = [path.with_name(path.name.replace(".batches.jsonl.gz", ".log")) for path in files]
    files += [
        KRAFT / "logs" / path.relative_to(KRAFT / "expected").with_name(path.name.removesuffix(".jsonl.gz"))
        for path in METADATA
    ]
    seen: Counter[str] = Counter()
    for file in files:
        content = file.read_bytes()
        for batch in read_batches(content):
            # With LogAppendTime the times that the producer gave are still in the records, and nobody is told them.
            if batch.compression != "none" or (batch.timestamp_type == "LogAppendTime" and batch.record_count):
                continue
            whole = content[batch.position : batch.position + batch.size_bytes]
            assert encode_again(batch) == whole, (file, batch)
            seen["horizon"] += batch.delete_horizon_ms is not None
            seen["control"] += batch.is_control
            seen["empty"] += batch.record_count == 0
            seen["gaps"] += batch.record_count != batch.last_offset - batch.base_offset + 1
            seen["transactional"] += batch.is_transactional
            seen["all"] += 1
    assert seen == {"all": 5462, "control": 681, "transactional": 311, "horizon": 37, "gaps": 35, "empty": 4}
