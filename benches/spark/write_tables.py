"""Puts what the three Spark benches measured into docs/reports/benchmarks-spark.md, between its marks.

    .ci/dev spark-tables        reads target/bench-spark*.json, bench-broker.json and bench-large.json where they are

Several runs of bench-spark, each with some of the topics and an ``--out`` of its own, make one set of tables.

Marks are comments, ``<!-- table: spark-NAME -->`` to ``<!-- end -->``. Every row is kept, also those that lose.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "reports" / "benchmarks-spark.md"
BASE = "spark-sql-kafka"
Case = dict[str, Any]
Groups = dict[tuple[str, str], dict[str, Case]]


def grouped(cases: list[Case]) -> Groups:
    """Cases by topic and group, then by name."""
    found: Groups = defaultdict(dict)
    for case in cases:
        topic, group = case["group"].removeprefix("bench-").split(": ", 1)
        found[topic, group][case["name"]] = case
    return found


def lines(head: list[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    return "\n".join(
        ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *("| " + " | ".join(row) + " |" for row in rows)]
    )


def scans(groups: Groups) -> str:
    rows = []
    for (topic, group), cases in groups.items():
        base = cases.get(BASE)
        if base is None or group not in {"sum", "count", "group", "parquet", "reduce"}:
            continue
        for name, case in cases.items():
            ratio, least = (base[key] / case[key] for key in ("cpu_s", "cpu_s_least"))
            by = case["cpu_by"]
            parts = " + ".join(f"{by[role]:.2f}" for role in ("driver", "jvm", "workers", "broker"))
            shown = [
                f"{topic.replace('-', ' B ')}, {group}",
                name,
                f"{case['wall_s']:.2f}",
                f"{case['cpu_s']:.2f}",
                parts,
            ]
            shown += [f"{case['rows'] / case['wall_s'] / 1e6:.2f}"]
            if name in {BASE, "no-op source"}:
                rows.append([*shown, "", "", ""])
                continue
            shown += [f"x{ratio:.1f}", f"x{least:.1f}", f"x{base['wall_s'] / case['wall_s']:.1f}"]
            rows.append(shown)
    head = ["topic, query", "way", "wall s", "CPU s", "driver + JVM + workers + broker", "M rows/s"]
    return lines([*head, "less CPU", "of least", "less wall"], rows)


def channel(groups: Groups) -> str:
    rows = []
    for (topic, group), cases in groups.items():
        if group == "channel":
            noop, value = cases["no-op source"], groups[topic, "sum"]["value"]
            ratio = value["cpu_s"] / noop["cpu_s"]
            least = value["cpu_s_least"] / noop["cpu_s_least"]
            each = [f"{case['cpu_s'] / case['rows'] * 1e6:.3f}" for case in (noop, value)]
            rows.append([topic.replace("-", " B "), *each, f"x{ratio:.2f}", f"x{least:.2f}"])
    head = ["topic", "no-op, CPU us per row", "value only", "ratio of medians", "of least"]
    return lines(head, rows)


def in_process(groups: Groups) -> str:
    rows = []
    for (topic, group), cases in groups.items():
        if group != "in process":
            continue
        for name, case in cases.items():
            rate = case["rows"] / case["wall_s_least"] / 1e6
            shown = [topic.replace("-", " B "), name, f"{case['wall_s']:.3f}", f"{case['wall_s_least']:.3f}"]
            shown += [f"{case['cpu_s']:.3f}", f"{rate:.1f}", f"{case['rows'] / case['cpu_s'] / 1e6:.1f}"]
            rows.append(shown)
    head = ["topic", "engine", "wall s", "least", "CPU s", "M rows/s, best", "M rows per CPU s"]
    return lines(head, rows)


def decoders(groups: Groups) -> str:
    rows = []
    for (topic, group), cases in groups.items():
        if group == "decode":
            java = cases["FileRecords, 1 thread"]
            whats = {
                "decode, 1 thread": "copied",
                "decode to views, 1 thread": "views",
                "read, 1 thread": "bytes read, no more",
            }
            for name, what in whats.items():
                if name not in cases:
                    continue
                case = cases[name]
                ratio = java["cpu_s_least"] / case["cpu_s_least"]
                each = [f"{timed['rows'] / timed['cpu_s_least'] / 1e6:.1f}" for timed in (case, java)]
                label = f"{topic.replace('-', ' B ')}, FileRecords; {what}"
                rows.append([label, *each, f"x{ratio:.1f}"])
        if group == "dump":
            tool = cases["DumpLogSegments"]
            for name in ("decode, all columns, 1 thread", "kraftlog dump-log"):
                case = cases[name]
                ratio = tool["cpu_s"] / case["cpu_s"]
                each = [f"{timed['rows'] / timed['cpu_s'] / 1e6:.2f}" for timed in (case, tool)]
                what = f"{topic.replace('-', ' B ')}, DumpLogSegments; {name}"
                rows.append([what, *each, f"x{ratio:.0f}"])
    return lines(["topic, other", "kraftlog, M records per CPU s", "Kafka's", "less CPU"], rows)


def sail(groups: Groups) -> str:
    rows = []
    for (topic, group), cases in groups.items():
        base = groups.get((topic, "sum"), {}).get(BASE)
        if group != "sail" or base is None:
            continue
        for name, case in cases.items():
            ratio = base["cpu_s_least"] / case["cpu_s_least"]
            rate = case["rows"] / case["wall_s"] / 1e6
            shown = [topic.replace("-", " B "), name, f"{case['wall_s']:.2f}", f"{case['cpu_s']:.2f}", f"{rate:.1f}"]
            rows.append([*shown, f"x{ratio:.0f}"])
    return lines(["topic", "columns", "wall s", "CPU s", "M rows/s", "less CPU than spark-sql-kafka"], rows)


def broker(rows: list[dict[str, Any]]) -> str:
    by_phase: dict[tuple[Any, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_phase[row["limit_mb"], row["phase"]].append(row)

    def median(found: list[dict[str, Any]], *keys: str) -> float:
        values = []
        for row in found:
            value: Any = row
            for key in keys:
                value = value[key]
            values.append(value)
        return float(statistics.median(values))

    shown = []
    for (limit, phase), found in by_phase.items():
        cells = [str(limit or "none"), phase]
        for kind in ("produce_ms", "end_to_end_ms"):
            cells += [f"{median(found, kind, name):.1f}" for name in ("p50", "p99", "p99.9")]
        cells += [f"{median(found, 'read_bytes_s') / 1e6:.0f}", f"{median(found, 'broker_cpu_s'):.1f}"]
        cells += [f"{100 * median(found, name):.0f}" for name in ("hot_cached", "old_cached")]
        shown.append(cells)
    head = ["memory limit, MB", "backfill by", "produce p50 ms", "p99", "p99.9", "to consumer p50 ms", "p99", "p99.9"]
    return lines([*head, "backfill MB/s", "broker CPU s", "% of hot topic cached", "% of old topic"], shown)


def large(row: dict[str, Any]) -> str:
    cpu = row["cpu_s"]
    cells = [f"{row['size_bytes'] / 1e9:.1f}", f"{row['records'] / 1e6:.1f} M", row["codecs"], row["pyspark_memory"]]
    cells += [f"{row['wall_s']:.0f}", f"{row['size_bytes'] / row['wall_s'] / 1e6:.0f}", f"{sum(cpu.values()):.0f}"]
    cells += [f"{row['peak_rss_mb'].get(name, 0):.0f}" for name in ("executor JVM", "Python worker", "driver JVM")]
    head = ["GB", "records", "codec", "worker's limit", "wall s", "MB/s", "CPU s", "peak RSS MB: executor JVM"]
    return lines([*head, "Python worker", "driver JVM"], [cells])


def machine(run: dict[str, Any]) -> str:
    # Processes that measure themselves say nothing of others.
    noise = [case["others_busy"] for case in run["cases"] if case["others_busy"]]
    busy = f"{statistics.median(noise):.1f}" if noise else "an unknown number of"
    low, high = min(run["load"]), max(run["load"])
    return (
        f"{run['when'][:10]}, {run['machine']}, {run['rounds']} rounds, {run['seconds']} s, {run['build']} build. "
        f"Load average {low:.1f} to {high:.1f}; other processes kept {busy} processors busy (median of the cases)."
    )


def read_runs(paths: list[Path]) -> dict[str, Any] | None:
    """All runs as one, with the cases of the latest where two have the same."""
    runs = sorted((json.loads(path.read_text()) for path in paths), key=lambda run: str(run["when"]))
    if not runs:
        return None
    cases = {(case["group"], case["name"]): case for run in runs for case in run["cases"]}
    found: dict[str, Any] = dict(runs[-1])
    for same in ("machine", "build", "megabytes"):
        if len({run[same] for run in runs}) > 1:
            raise SystemExit(f"the runs differ in {same}: {[run[same] for run in runs]}")
    loads = [load for run in runs for load in run["load"]]
    rounds = sorted({run["rounds"] for run in runs})
    found["rounds"] = " or ".join(str(count) for count in rounds)
    return {**found, "cases": list(cases.values()), "seconds": sum(run["seconds"] for run in runs), "load": loads}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "target", help="of the JSON files")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    arguments = parser.parse_args()
    tables: dict[str, str] = {}
    effect, single = (arguments.folder / f"bench-{name}.json" for name in ("broker", "large"))
    run = read_runs(sorted(arguments.folder.glob("bench-spark*.json")))
    if run is not None:
        groups = grouped(run["cases"])
        tables = {"machine": machine(run), "scans": scans(groups), "channel": channel(groups), "sail": sail(groups)}
        tables |= {"local": in_process(groups), "decoders": decoders(groups)}
    if effect.exists():
        tables["broker"] = broker(json.loads(effect.read_text()))
    if single.exists():
        tables["large"] = large(json.loads(single.read_text()))
    text = arguments.document.read_text()
    for name, lines_ in tables.items():
        mark = re.compile(rf"(<!-- table: spark-{name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not mark.search(text):
            raise SystemExit(f"{arguments.document} has no mark for spark-{name}")
        text = mark.sub(lambda found, lines_=lines_: f"{found[1]}\n{lines_}\n\n{found[2]}", text)  # type: ignore[misc]
    arguments.document.write_text(text)


if __name__ == "__main__":
    main()
