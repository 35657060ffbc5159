"""A ``.txnindex`` that Kafka's sanity check refuses is not believed: the markers of the log are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import kraftlog
from batch_rows import GOLDEN

ENTRY_BYTES = 34
TOPICS = sorted({path.parent for path in (GOLDEN / "topics").glob("*/*/*.txnindex")})


def committed(directory: Path) -> pa.Table:
    return pa.table(kraftlog.open_log(directory).scan(isolation_level="read_committed", columns=["offset", "value"]))


@pytest.mark.parametrize(
    "damage", ["last offset below the segment", "first offset behind the marker", "torn", "version"]
)
@pytest.mark.parametrize("source", TOPICS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_refused_transaction_index_changes_no_row(source: Path, damage: str, tmp_path: Path) -> None:
    copy = tmp_path / source.name
    shutil.copytree(source, copy)
    expected = committed(copy)
    for index in copy.glob("*.txnindex"):
        entries = bytearray(index.read_bytes())
        for start in range(0, len(entries), ENTRY_BYTES):
            match damage:
                case "last offset below the segment":
                    entries[start + 18 : start + 26] = (-1).to_bytes(8, signed=True)
                case "first offset behind the marker":
                    entries[start + 10 : start + 18] = (1 << 40).to_bytes(8)
                case "version":
                    entries[start + 1] = 1
        index.write_bytes(entries[:-1] if damage == "torn" else entries)
    assert committed(copy).equals(expected)
