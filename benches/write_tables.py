"""Puts the tables of a bench run into the benchmark pages of docs/reports, between their marks.

    sh .ci/dev bench --quick | sh .ci/dev bench      writes bench.json and calls this
    python benches/write_tables.py [bench.json] [--large large.md] [--consensus consensus.json]
        [--path path.json]

Marks are comments: ``<!-- table: NAME -->`` begins a table and ``<!-- end -->`` ends it. Tables are ``decode`` and
``encode`` (a row per codec, size and kind of record), ``large`` (what `large_log.py` printed) and ``groups``
(all other groups as they are), and those of ``consensus/tables.py`` and ``data_path/tables.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import io
import json
import os
import platform
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import table
from consensus import tables as consensus
from data_path import tables as data_path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reports"
ORDER = {
    "decode": ["copied", "views", "limit", "Java", "kafka-protocol", "aiokafka", "kafka-python"],
    "encode": ["columns", "tuples", "aiokafka", "kafka-python"],
}


def figure(bench: dict[str, Any]) -> float:
    """The least nanoseconds per record."""
    return float(bench["stats"]["min"]) / int(bench["extra_info"]["records"]) * 1e9


def matrix(benches: list[dict[str, Any]], name: str) -> str:
    """One row for each codec, size and kind of record."""
    rows: dict[tuple[str, int, bool], dict[str, float]] = defaultdict(dict)
    for bench in benches:
        info = bench["extra_info"]
        if info.get("table") == name:
            rows[info["codec"], info["size"], info["full"]][info["column"]] = figure(bench)
    columns = ORDER[name]
    share = ["copied, % of limit", "views, % of limit"] if name == "decode" else []
    lines = [
        "| " + " | ".join(["codec", "B", "keys, headers", *columns, *share]) + " |",
        "|---" * (3 + len(columns) + len(share)) + "|",
    ]
    for (codec, size, full), found in rows.items():
        cells = [codec, str(size), "with" if full else "without"]
        cells += [f"{found[column]:,.1f}" if column in found else "" for column in columns]
        if share:
            limit = found.get("limit")
            shares = [found.get(column) for column in ("copied", "views")]
            cells += [f"{100 * limit / value:.0f}" if limit and value else "" for value in shares]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def groups(benches: list[dict[str, Any]]) -> str:
    """All other groups."""
    others = [bench for bench in benches if "table" not in bench["extra_info"]]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        table.show(others)
    return out.getvalue().strip()


def machine(run: dict[str, Any]) -> str:
    """When and where."""
    info = run.get("machine_info", {})
    cpu = info.get("cpu", {}).get("brand_raw", platform.machine())
    load = os.getloadavg()[0]
    day = dt.datetime.fromisoformat(run["datetime"]).date()
    return f"{day}, {cpu}, {os.cpu_count()} processors, Python {platform.python_version()}, load at the end {load:.1f}"


def main() -> None:
    """Replace what is between the marks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, nargs="?", help="JSON of pytest-benchmark")
    parser.add_argument("--large", type=Path, help="what large_log.py printed")
    parser.add_argument("--consensus", type=Path, help="JSON of consensus/run.py")
    parser.add_argument("--path", type=Path, help="JSON of path_bench.py")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the pages benchmarks-*.md")
    arguments = parser.parse_args()
    tables: dict[str, str] = {}
    if arguments.run:
        run = json.loads(arguments.run.read_text())
        tables |= {name: matrix(run["benchmarks"], name) for name in ORDER}
        tables["groups"] = groups(run["benchmarks"])
        tables["machine"] = machine(run)
    if arguments.consensus:
        tables |= consensus.tables(json.loads(arguments.consensus.read_text()))
    if arguments.path:
        tables |= data_path.tables(json.loads(arguments.path.read_text()))
    if arguments.large:
        tables["large"] = arguments.large.read_text().strip()
    put(tables, sorted(arguments.folder.glob("benchmarks-*.md")))


def put(tables: dict[str, str], pages: list[Path]) -> None:
    """Replaces each table in the page that has its mark."""
    texts = {page: page.read_text() for page in pages}
    for name, lines in tables.items():
        mark = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = next((page for page, text in texts.items() if mark.search(text)), None)
        if page is None:
            raise SystemExit(f"no page has a mark for {name}")
        texts[page] = mark.sub(lambda found, lines=lines: f"{found[1]}\n{lines}\n\n{found[2]}", texts[page])  # type: ignore[misc]
    for page, text in texts.items():
        page.write_text(text)


if __name__ == "__main__":
    main()
