"""``kraftlog perf``: how fast clients produce to a cluster and fetch from it, and what that costs them."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kraftlog.cli.client_options import add_client_arguments, client_properties
from kraftlog.cli.perf_clients import PRODUCERS
from kraftlog.cli.perf_meter import percentiles_ms
from kraftlog.cli.progress import Progress, progress
from kraftlog.client import Consumer
from kraftlog.errors import KraftlogError
from kraftlog.extras import require

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("verb", choices=("produce", "fetch"), help="send records, or read them from the beginning")
    add_client_arguments(parser)
    parser.add_argument("--topic", required=True, help="the topic")
    parser.add_argument(
        "--client", choices=tuple(PRODUCERS), default="kraftlog", help="whose client; kraftlog by default"
    )
    parser.add_argument("--connections", type=int, default=1, help="processes with a client each (default 1)")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of all together (default 1000000)")
    parser.add_argument("--value-bytes", type=int, default=100, help="bytes of each value to send (default 100)")
    parser.add_argument("--rate", type=float, default=0.0, help="records per second to send; no limit by default")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write FILE.json, or FILE.parquet with a row per connection"
    )


def run(args: argparse.Namespace) -> int:
    """Run the connections side by side and report.

    Raises:
        KraftlogError: An argument does not fit, or a connection failed.
    """
    if min(args.connections, args.records, args.value_bytes) < 1 or args.rate < 0:
        raise KraftlogError("--connections, --records and --value-bytes must be at least 1, --rate at least 0")
    if args.output is not None and args.output.suffix not in {".json", ".parquet"}:
        raise KraftlogError(f"--output {args.output}: the name must end in .json or .parquet")
    properties = client_properties(args)
    tasks = _tasks(args, properties)
    total = sum(task["records"] for task in tasks)
    with progress(f"{args.verb} ({args.client})", total, unit="records") as bar:
        found = _run_workers(tasks, bar)
    summary = _summary(args, found)
    if args.output is not None:
        _write(args.output, summary)
    if args.json:
        print(json.dumps(summary))
    else:
        for name, value in summary.items():
            if not isinstance(value, list):
                print(f"{name:22} {value:,}" if isinstance(value, int | float) else f"{name:22} {value}")
    if args.verb == "fetch" and summary["records"] < args.records:
        print(f"the topic has only {summary['records']:,} of {args.records:,} records", file=sys.stderr)
    return 0


def _tasks(args: argparse.Namespace, properties: dict[str, str]) -> list[dict[str, Any]]:
    task: dict[str, Any] = {
        "verb": args.verb,
        "client": args.client,
        "settings": properties,
        "topic": args.topic,
        "value_bytes": args.value_bytes,
        "rate": args.rate / args.connections,
        "partitions": [],
    }
    each, rest = divmod(args.records, args.connections)
    tasks = [{**task, "seed": number, "records": each + (number < rest)} for number in range(args.connections)]
    if args.verb == "fetch":
        _give_partitions(tasks, args.topic, properties)
    return [task for task in tasks if task["records"]]


def _give_partitions(tasks: list[dict[str, Any]], topic: str, properties: dict[str, str]) -> None:
    """Divide the partitions among the connections; with more connections than partitions, several read the same."""
    # A setting of another client may be unknown here: only where the cluster is and how to get in is needed.
    known = {
        key: value for key, value in properties.items() if key.startswith(("bootstrap", "security", "ssl.", "sasl."))
    }
    with Consumer(known) as consumer:
        names = consumer.partitions_for(topic)
        starts, ends = consumer.beginning_offsets(names), consumer.end_offsets(names)
    for number, task in enumerate(tasks):
        mine = names[number :: len(tasks)] or [names[number % len(names)]]
        task["partitions"] = [(name.partition, starts[name]) for name in mine]
        task["available"] = sum(ends[name] - starts[name] for name in mine)
    wanted, available = sum(task["records"] for task in tasks), sum(task["available"] for task in tasks)
    for task in tasks:
        # A partition with more records than another is read further.
        task["records"] = task["available"] if available <= wanted else -(-wanted * task["available"] // available)


def _run_workers(tasks: Sequence[dict[str, Any]], bar: Progress) -> list[dict[str, Any]]:
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "kraftlog.cli.perf_worker", json.dumps(task)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for task in tasks
    ]
    counts = [0] * len(workers)
    finals: list[dict[str, Any] | None] = [None] * len(workers)
    errors = [""] * len(workers)

    def follow(index: int, worker: subprocess.Popen[str]) -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            found = json.loads(line)
            counts[index] = found["records"]
            bar.update(sum(counts))
            if found.get("is_final"):
                finals[index] = found

    def follow_errors(index: int, worker: subprocess.Popen[str]) -> None:
        assert worker.stderr is not None
        for line in worker.stderr:
            errors[index] = (errors[index] + line)[-4000:]

    threads = [
        threading.Thread(target=target, args=(index, worker), daemon=True)
        for index, worker in enumerate(workers)
        for target in (follow, follow_errors)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for index, worker in enumerate(workers):
            if worker.wait() or finals[index] is None:
                raise KraftlogError(f"connection {index} failed: {errors[index].strip() or worker.returncode}")
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
            with worker:  # closes its pipes
                pass
    return [found for found in finals if found is not None]


def _summary(args: argparse.Namespace, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    records = sum(worker["records"] for worker in found)
    size = sum(worker["bytes"] for worker in found)
    # The Java client runs in a process that the connection's process starts.
    cpu_s = sum(worker["cpu_s"] if args.client != "java" else worker["children_cpu_s"] for worker in found)
    seconds = max((worker["seconds"] for worker in found), default=0.0)
    rows = []
    for index, worker in enumerate(found):
        rows.append(
            {
                "connection": index,
                "records": worker["records"],
                "bytes": worker["bytes"],
                "seconds": round(worker["seconds"], 4),
                "cpu_s": round(worker["cpu_s"] if args.client != "java" else worker["children_cpu_s"], 4),
                **(worker.get("percentiles") or percentiles_ms([worker["buckets"]])),
            }
        )
    whole = percentiles_ms(worker["buckets"] for worker in found)
    if not whole and rows:
        # Percentiles that a client computed itself do not add up: the worst of the connections.
        names = [name for name in rows[0] if name.startswith("p") and name.endswith("_ms")]
        whole = {name: max(row[name] for row in rows) for name in names}
    return {
        "verb": args.verb,
        "client": args.client,
        "topic": args.topic,
        "connections": args.connections,
        "records": records,
        "bytes": size,
        "seconds": round(seconds, 4),
        "records_per_s": round(records / seconds) if seconds else 0,
        "mb_per_s": round(size / seconds / 1e6, 2) if seconds else 0.0,
        "cpu_s": round(cpu_s, 4),
        "cpu_ns_per_record": round(cpu_s / records * 1e9, 1) if records else 0.0,
        "records_per_cpu_s": round(records / cpu_s) if cpu_s else 0,
        "first_ms": round(
            min((worker["first_s"] for worker in found if worker["first_s"] is not None), default=0.0) * 1000, 2
        ),
        **whole,
        "per_connection": rows,
    }


def _write(path: Path, summary: dict[str, Any]) -> None:
    if path.suffix == ".json":
        path.write_text(json.dumps(summary, indent=2) + "\n")
        return
    require("arrow", "kraftlog perf --output FILE.parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = {name: summary[name] for name in ("verb", "client", "topic")}
    pq.write_table(pa.Table.from_pylist([{**about, **row} for row in summary["per_connection"]]), path)
