"""Every damaged segment of ``golden/damaged`` recovers as Kafka's ``LogSegment.recover`` does.

Where Kafka throws, recovery here raises an error that names the batch, and leaves the log as it was.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kraftlog import _kraftlog
from kraftlog.errors import LogError

DAMAGED = Path(__file__).parent / "damaged"


def _rows() -> list[dict[str, Any]]:
    with (DAMAGED / "expected.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _by_source() -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in _rows():
        grouped.setdefault(row["source"], []).append(row)
    return grouped


@pytest.mark.parametrize(("source", "rows"), _by_source().items())
def test_recover_damaged_segment_equals_kafka(source: str, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    assert rows
    differences: list[tuple[str, object, object]] = []
    for row in rows:
        file = tmp_path / row["case"] / Path(row["file"]).name
        file.parent.mkdir()
        shutil.copy(DAMAGED / row["file"], file)
        expected = row["recover"]
        try:
            found = _kraftlog.recover_segment(file, index_interval_bytes=1024)
        except LogError as error:
            if "exception" not in expected:
                differences.append((row["case"], str(error), expected))
            elif file.stat().st_size != row["fileBytes"]:
                differences.append((row["case"], "the log was changed", expected))
            continue
        actual = {
            "truncatedBytes": found.truncated_bytes,
            "bytesAfter": found.size_bytes,
            "nextOffset": found.next_offset,
            "offsetIndex": [list(entry) for entry in found.offset_index],
            "leaderEpochs": [list(entry) for entry in found.leader_epochs],
            "producers": found.producer_count,
        }
        if actual != expected:
            differences.append((row["case"], actual, expected))
        elif file.stat().st_size != expected["bytesAfter"]:
            differences.append((row["case"], file.stat().st_size, expected))
    assert not differences, f"{source}: {differences}"
