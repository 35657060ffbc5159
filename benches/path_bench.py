"""Produce and Fetch of a kraftlog node, data path native and python, beside Apache Kafka 4.3.1, in alternation.

The client is ``benches/load``: one thread over raw sockets, so that it costs little of a small machine. Processor time
and memory are the node's own. Each row runs on a new topic, deleted afterwards. Round 0 runs every row on every node
and only warms them; the rounds after it alternate their order. Every row is kept, also those in which kraftlog loses.

    KAFKA_LIBS='tests/interop/target/libs/*' python benches/path_bench.py --json target/path.json      all, an hour
    python benches/path_bench.py --nodes native,python --rows '1 record' --rounds 1 --seconds 2        a glance

``--rows`` is a regular expression over ``subject: name``: ``awake`` chooses the rows in which no processor halts,
``^(partitions|connections|idle|session)`` the table of growth. ``--tables FILE`` prints the table of a JSON again.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benches")]

from data_path import tables  # noqa: E402
from data_path.rows import RATE, Row, all_rows, produce  # noqa: E402
from data_path.servers import KINDS, LoadError, Node, data_paths, embedded, load_program, make, nodes  # noqa: E402

from interop.harness import Java  # noqa: E402

Result = dict[str, Any]

NEEDED_DESCRIPTORS = 16_384  # a node with 10 000 partitions; the generator has one per connection, at most 5 000


def raise_descriptor_limit() -> None:
    """Give this process, and so the nodes and the generator, as many descriptors as it may have.

    Raises:
        SystemExit: Those are too few for the largest rows.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < NEEDED_DESCRIPTORS:
        raise SystemExit(f"rows of growth need {NEEDED_DESCRIPTORS} open files; the hard limit is {most}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def fdatasync_ms(directory: str | None = None) -> float:
    """The median of 200 fdatasyncs of 4 KiB."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        took_ms = []
        for _ in range(200):
            file.write(bytes(4096))
            file.flush()
            began_s = time.perf_counter()
            os.fdatasync(file.fileno())
            took_ms.append((time.perf_counter() - began_s) * 1000)
    return statistics.median(took_ms)


def is_told_to_end(error: BaseException) -> bool:
    """Whether SIGTERM is behind an error: sent to the whole group it ends nodes too, and topics cannot be deleted."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SystemExit):
        cause = cause.__context__
    return cause is not None


def measure(node: Node, row: Row, seconds: float) -> Result:
    """One run; one that fails is a row too."""
    before = os.getloadavg()[0]
    try:
        report: dict[str, Any] = dict(row.run(node, seconds))
    except (LoadError, OSError) as error:
        if is_told_to_end(error):
            raise SystemExit(1) from error
        report = {"failure": str(error)}
    return {"row": row.name, "subject": row.subject, "node": node.name, "load_before": before, **report}


def rounds(rows: list[Row], found: list[Node], count: int, seconds: float) -> Iterator[Result]:
    """Round 0 warms: each row for at most two seconds."""
    for number in range(count + 1):
        for row in rows:
            for node in found if number % 2 else found[::-1]:
                yield {"round": number} | measure(node, row, seconds if number else min(seconds, 2.0))


def beside_threads(
    kinds: list[str], program: Path, count: int, seconds: float, wanted: re.Pattern[str]
) -> Iterator[Result]:
    """Open-loop produce to an embedded node, in an idle interpreter and beside a thread that computes."""
    rows = [
        (Row(f"{name}, {where}", "embedded", load), busy_threads)
        for name, load in ((f"{RATE} requests/s", produce(1, rate=RATE)), ("1 in flight", produce(1)))
        for busy_threads, where in ((0, "idle interpreter"), (1, "beside a busy Python thread"))
    ]
    for number in range(1, count + 1):
        for row, busy_threads in rows:
            for kind in kinds if wanted.search(f"{row.subject}: {row.name}") else ():
                with embedded(kind, program, busy_threads=busy_threads) as node:
                    yield {"round": number} | measure(node, row, seconds)


def starts(kinds: list[str], java: Java, home: Path, count: int) -> Iterator[Result]:
    """From a formatted directory to the first answer, and the memory and processor time before any client came."""
    for number in range(1, count + 1):
        for kind in kinds:
            server = make(kind, home / f"start-{kind}-{number}", java, is_flushed=False, heap="1g")
            server.format()
            began_s = time.perf_counter()
            with server.running():
                took_s = time.perf_counter() - began_s
                assert server.process is not None
                time.sleep(2)
                node = Node(kind, server.bootstrap, server.process.pid, load_program())
                report = node.load("idle", connections=0, seconds=3)
                report.pop("rss_kB_per_connection", None)  # of none
            shutil.rmtree(server.home)
            yield {"round": number, "row": "start, idle", "subject": "start", "node": kind, "start_s": took_s, **report}


def run(arguments: argparse.Namespace, home: Path) -> Iterator[Result]:
    """Every row that was asked for."""
    java = Java(os.environ.get("KAFKA_LIBS", str(ROOT / "tests/interop/target/libs/*")))
    program = load_program()
    kinds = data_paths(arguments.nodes.split(","))
    wanted = re.compile(arguments.rows)
    rows = [row for row in all_rows() if wanted.search(f"{row.subject}: {row.name}")]
    if wanted.search("start: start, idle"):
        yield from starts(kinds, java, home, arguments.rounds)
    for servers in ("page cache", "flush"):
        chosen = [row for row in rows if row.servers == servers]
        if chosen:
            is_flushed = servers == "flush"
            with nodes(kinds, home / servers, java, program, is_flushed=is_flushed, heap=arguments.heap) as found:
                yield from rounds(chosen, found, arguments.rounds, arguments.seconds)
    own = [kind for kind in kinds if kind != "kafka"]
    yield from beside_threads(own, program, arguments.rounds, arguments.seconds, wanted)


def main() -> None:
    """Runs, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default=",".join(KINDS), help="native,python,kafka")
    parser.add_argument("--rows", default="", help="regular expression over 'subject: name'")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one run")
    parser.add_argument("--heap", default="1g", help="of Kafka")
    parser.add_argument("--json", type=Path, help="where the results are kept")
    parser.add_argument("--tables", type=Path, help="print the tables of this JSON, and run nothing")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the nodes end with it
    if arguments.tables:
        print(
            *(
                f"**{name}**\n\n{text}\n"
                for name, text in tables.tables(json.loads(arguments.tables.read_text())).items()
            ),
            sep="\n",
        )
        return
    home = Path(tempfile.mkdtemp(prefix="path-bench-", dir=os.environ.get("BENCH_DIR")))
    machine = {
        "when": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} processors, Linux {platform.release()}, Python {platform.python_version()}",
        "fdatasync_ms": fdatasync_ms(str(home)),
        "load_before": os.getloadavg()[0],
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
    }
    run_of: dict[str, Any] = {"machine": machine, "results": []}
    try:
        for result in run(arguments, home):
            run_of["results"].append(result)
            shown = {key: round(value, 3) if isinstance(value, float) else value for key, value in result.items()}
            print(json.dumps(shown), flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(run_of, indent=1))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    for name, text in tables.tables(run_of).items():
        print(f"\n**{name}**\n\n{text}")


if __name__ == "__main__":
    main()
