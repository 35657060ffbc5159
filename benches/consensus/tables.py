"""The tables of a run of ``benches/consensus/run.py``: every row is kept, also those that lose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]

# commits/s that TestRaftServer with 2 GB of heap holds on a quiet machine of this kind: (replicas, bytes).
ANCHORS = {(1, 256): 400_000, (3, 256): 200_000, (1, 1024): 200_000, (3, 1024): 100_000, (1, 16_384): 16_000}
HELD = 0.95


def tables(rows: list[Row]) -> dict[str, str]:
    """Markdown by the name of the mark."""
    kraftlog = [row for row in rows if row["peer"] == "kraftlog"]
    return {
        "consensus-machine": machine(rows),
        "consensus": commits(kraftlog),
        "consensus-beside": beside(kraftlog, rows),
        "consensus-peers": peers(rows),
    }


def machine(rows: list[Row]) -> str:
    """When, where and how quiet."""
    disk = next(row for row in rows if row["peer"] == "disk")
    loads = [row["load"] for row in rows if "load" in row]
    return (
        f"{disk['when']}, {disk['machine']}: fdatasync of 4 KiB takes {disk['fdatasync_p50_ms']:.2f} ms in the median. "
        f"Load average {min(loads):.1f} to {max(loads):.1f} with the replicas."
    )


def size_text(size_bytes: int) -> str:
    """16 B, 1 KiB."""
    return f"{size_bytes // 1024} KiB" if size_bytes >= 1024 else f"{size_bytes} B"


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table."""
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def latency(row: Row) -> str:
    """p50 / p99 in ms."""
    return f"{row['p50']:.1f} / {row['p99']:.1f}" if "p50" in row else "none in time"


def rate_text(row: Row) -> str:
    """The median run's commits per second, and those of the slowest and the fastest."""
    least, most = min(row["runs_per_s"]), max(row["runs_per_s"])
    spread = f" ({least:,} to {most:,})" if least < most else ""
    return f"{row['per_s']:,.0f}{spread}"


def load_text(row: Row) -> str:
    """The requested load."""
    return f"{row['rate']:,} per second, evenly" if "rate" in row else f"{row['depth']:,}"


def commits(rows: list[Row]) -> str:
    """A row for each load, the numbers of replicas side by side; the median run, the slowest and the fastest."""
    found: dict[tuple[Any, ...], dict[int, Row]] = defaultdict(dict)
    for row in rows:
        key = (not row["flush"], load_text(row), row["size"], row.get("per_call", 1))
        found[key][row["nodes"]] = row
    counts = sorted({row["nodes"] for row in rows})
    head = ["in flight", "command", "commands per call", "flush"]
    for count in counts:
        head += [f"{count} replica{'s' if count > 1 else ''}: commits/s", "p50 / p99 ms"]
    lines = []
    for (is_unflushed, load, size, per_call), by_count in found.items():
        cells = [load, size_text(size), str(per_call), "no" if is_unflushed else "yes"]
        for count in counts:
            row = by_count.get(count)
            cells += ["", ""] if row is None else [rate_text(row), latency(row)]
        lines.append(cells)
    return markdown(head, lines)


def beside(rows_of_kraftlog: list[Row], rows: list[Row]) -> str:
    """The highest rate that TestRaftServer held, and what kraftlog committed of commands of the same size."""
    lines = []
    for (nodes, size), anchor in ANCHORS.items():
        wanted = (nodes, size, True)
        found = [row for row in rows_of_kraftlog if (row["nodes"], row["size"], row["flush"]) == wanted]
        if not found:
            continue  # a run of fewer replicas
        row = max(found, key=lambda row: float(row["per_s"]))
        now = [kafka["per_s"] for kafka in rows if is_held(kafka) and (kafka["nodes"], kafka["size"]) == (nodes, size)]
        lines.append(
            [
                f"{size_text(size)}, {nodes} replica{'s' if nodes > 1 else ''}",
                f"{anchor:,}/s",
                f"{max(now):,.0f}/s" if now else "none of the requested rates",
                f"{row['per_s']:,.0f}/s ({row['mb_s']:,.0f} MB/s)",
            ]
        )
    return markdown(["load", "TestRaftServer, quiet machine", "TestRaftServer, this run", "kraftlog, this run"], lines)


def is_held(row: Row) -> bool:
    """Whether TestRaftServer's logs grew as fast as it was asked to write."""
    return bool(row["peer"] == "TestRaftServer" and row["per_s"] >= HELD * row["rate"])


def peers(rows: list[Row]) -> str:
    """The others, in the same run."""
    lines = []
    for row in rows:
        if row["peer"] == "pysyncobj":
            load = f"{row['depth']:,} in flight, {size_text(row['size'])}"
            lines.append(["pysyncobj, in memory", str(row["nodes"]), load, f"{row['per_s']:,.0f}", latency(row)])
        elif row["peer"] == "TestRaftServer":
            load = f"{row['rate']:,}/s of {size_text(row['size'])} requested"
            verdict = "held" if is_held(row) else "did not hold"
            said = row["said"] or "none printed"
            lines.append(["TestRaftServer", str(row["nodes"]), load, f"{row['per_s']:,.0f}, {verdict}", said])
    return markdown(["peer", "replicas", "load", "commits/s", "p50 / p99 ms, or its output"], lines)
