"""The examples of the how-to pages run as they stand, over a log directory of that name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine_logs import write_logs
from engine_pages import run


@pytest.mark.parametrize(
    ("page", "said"),
    [
        # Orders has 960 records, 383 and 388 of them from offset 100 on, and audit has 480.
        ("polars", [r"bytes", r"\b1440\b", r"^960 5$", r"^960$"]),
        ("duckdb", [r"\b383\b", r"\b388\b", r"^\[\(480,\)\]", r"Filters", r"topic.*orders", r"^\[\(1440,\)\]$"]),
        ("datafusion", [r"\b383\b", r"\b388\b", r"number_of_fragments=\d", r"projection=\[value\]", r"\borders\b"]),
        (
            "arrow",
            [
                r"^960$",
                r"dictionary<values=string",
                r"binary_view",
                r"^388 1440$",
                r"min\s+max",
                r"^494$",
                r"nanoarrow",
            ],
        ),
    ],
)
def test_examples_run(
    page: str, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_logs(tmp_path / "kafka-logs")
    monkeypatch.chdir(tmp_path)
    assert run(page) >= 3
    printed = capsys.readouterr().out
    position = 0
    for pattern in said:
        found = re.compile(pattern, re.MULTILINE).search(printed, position)
        assert found, f"{pattern} is not in what {page}.md printed after {position}:\n{printed}"
        position = found.start()
