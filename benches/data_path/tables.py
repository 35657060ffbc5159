"""The tables of a run of ``benches/path_bench.py``: medians of the rounds, least and most in brackets, every row."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

Result = dict[str, Any]

# Table -> subjects of its rows.
SUBJECTS = {
    "path-requests": ("produce", "consume"),
    "path-awake": ("produce, awake", "consume, awake"),
    "path-flush": ("flush", "embedded", "start"),
    "path-growth": ("partitions", "connections", "idle connections", "session"),
}
# Title, key and format of each column; the second key of a pair stands behind a slash.
COLUMNS = (
    ("requests/s", ("requests_s",), "{:,.0f}"),
    ("MB/s", ("MB_s",), "{:,.1f}"),
    ("p50 ms", ("p50_ms",), "{:.3g}"),
    ("p99 ms", ("p99_ms",), "{:.3g}"),
    ("p99.9 ms", ("p999_ms",), "{:.3g}"),
    ("max ms", ("max_ms",), "{:.3g}"),
    ("CPU us per request, median / best decile", ("cpu_us", "cpu_us_best"), "{:,.1f}"),
    ("CPU s/GB, median / best decile", ("cpu_s_per_GB", "cpu_s_per_GB_best"), "{:.2f}"),
    ("RSS MB", ("rss_MB",), "{:.0f}"),
    ("kB per connection", ("rss_kB_per_connection",), "{:.1f}"),
    ("cores", ("server_cores",), "{:.3f}"),
    ("start s", ("start_s",), "{:.2f}"),
)
WITH_RANGE = {"requests/s"}
NAMES = {"native": "kraftlog native", "python": "kraftlog python", "kafka": "Kafka 4.3.1"}
ORDER = list(NAMES)


def tables(run: dict[str, Any]) -> dict[str, str]:
    """Markdown by the name of the mark; a table whose rows were not run is left out.

    Each table has its conditions below it, since tables may come from runs of different days.
    """
    kept = [result for result in run["results"] if result["round"] > 0]
    found = {}
    for name, subjects in SUBJECTS.items():
        results = [result for result in kept if result["subject"] in subjects]
        if results:
            found[name] = f"{table(results)}\n\n{machine(run['machine'], results)}"
    return found


def machine(facts: dict[str, Any], kept: list[Result]) -> str:
    """When, where, how quiet."""
    loads = [result["load_before"] for result in kept if "load_before" in result] or [facts["load_before"]]
    return (
        f"{facts['when']}, {facts['machine']}; fdatasync of 4 KiB {facts['fdatasync_ms']:.2f} ms in the median; "
        f"{facts['rounds']} rounds of {facts['seconds']:g} s; load average {facts['load_before']:.1f} before the run "
        f"and {min(loads):.1f} to {max(loads):.1f} in it, with the processes of the run."
    )


def table(results: list[Result]) -> str:
    """One line for each row and node; columns that no result has are left out."""
    columns = [column for column in COLUMNS if any(column[1][0] in result for result in results)] or COLUMNS[:1]
    head = ["subject", "row", "node", *(title for title, _, _ in columns)]
    lines = [head, ["---"] * len(head)]
    groups: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for result in results:
        by_node = groups.setdefault((result["subject"], result["row"]), {})
        by_node.setdefault(result["node"], []).append(result)
    for (subject, row), by_node in groups.items():
        found = sorted(by_node, key=ORDER.index)
        lines += [[subject, row, NAMES[node], *cells(by_node[node], columns)] for node in found]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cells(rounds: list[Result], columns: Iterable[tuple[str, tuple[str, ...], str]]) -> list[str]:
    """Medians of the rounds that ended well; the failure if none did."""
    ended = [result for result in rounds if "failure" not in result]
    if not ended:
        return ["failed: " + str(rounds[0]["failure"]), *("" for _ in list(columns)[1:])]
    found = []
    for title, keys, form in columns:
        parts = []
        for key in keys:
            values = [result[key] for result in ended if key in result]
            if values:
                parts.append(form.format(statistics.median(values)))
        text = " / ".join(parts)
        values = [result[keys[0]] for result in ended if keys[0] in result]
        if title in WITH_RANGE and len(values) > 1:
            text += f" ({form.format(min(values))}-{form.format(max(values))})"
        found.append(text)
    if len(ended) < len(rounds):
        found[0] += f", {len(rounds) - len(ended)} of {len(rounds)} failed"
    return found
