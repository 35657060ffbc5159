"""Print the JSON of pytest-benchmark as Markdown: one table a group, nanoseconds a record and GB/s, medians and minima.

sh .ci/dev bench --benchmark-json=bench.json
.venv/bin/python benches/table.py bench.json
"""

from __future__ import annotations

import json
import sys
from itertools import groupby
from typing import Any


def row(bench: dict[str, Any]) -> str:
    """One line: what, median and minimum a record (or a call where there are no records), and the rate."""
    stats = bench["stats"]
    records = bench["extra_info"].get("records") or 1
    size_bytes = bench["extra_info"].get("bytes")
    rate = f"{size_bytes / stats['median'] / 1e9:.2f}" if size_bytes else ""
    name = bench["name"].removeprefix("test_").replace("_", " ")
    return f"| {name} | {stats['median'] / records * 1e9:.1f} | {stats['min'] / records * 1e9:.1f} | {rate} |"


def show(benches: list[dict[str, Any]]) -> None:
    """Print every group, fastest row first."""
    benches.sort(key=lambda bench: (bench["group"] or "", bench["stats"]["median"]))
    for group, rows in groupby(benches, key=lambda bench: bench["group"] or ""):
        print(f"\n**{group}**\n\n| what | ns/record, median | minimum | GB/s |\n|---|---|---|---|")
        print(*map(row, rows), sep="\n")


def main(path: str) -> None:
    """Print the file."""
    with open(path, encoding="utf-8") as file:
        show(json.load(file)["benchmarks"])


if __name__ == "__main__":
    main(sys.argv[1])
