"""Every segment and checkpoint that Kafka wrote decodes to what Kafka's own classes read from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from batch_rows import GOLDEN, comparable, describe_batch, read_rows
from kraftlog._kraftlog import read_batches

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
