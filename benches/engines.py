"""Engines over Kafka segment files: CPU seconds and rows per second of one query, the sum of the lengths of all values.

    python benches/engines.py DIRECTORY [--topics b100-none,b100-zstd] [--runs 7] [--threads 2] [--only duckdb]

The directory is made when it is not there: two partitions of each topic, batches of 64 KiB, segments of 128 MiB, keys
of 11 B, values of words. Rows of the table: CPU of all threads of the process, median of the runs; wall, least of the
runs, which other work on the machine makes longer. Sail needs KRAFTLOG_SAIL_CLIENT (see `.ci/dev`), Kafka's FileRecords
loop KAFKA_LIBS; its figure is the best pass.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kraftlog
from kraftlog._kraftlog import Log, LogConfig, build_profile, encode_values
from kraftlog.reading import Scan

HERE = Path(__file__).resolve().parent
TOPICS = {
    f"{name}-{codec}": (size, records, codec)
    for name, size, records in (("b100", 100, 3_000_000), ("k1", 1000, 600_000))
    for codec in ("none", "lz4", "zstd", "snappy", "gzip")
}
SEGMENT_BYTES = 128 << 20
BATCH_BYTES = 64 << 10
NOW_MS = 1_700_000_000_000

Run = Callable[[], int]


def make(log_dir: Path, topic: str) -> None:
    """Batches are encoded once and written with new offsets, which are outside their checksums."""
    size, records, codec = TOPICS[topic]
    rng = random.Random(1)
    words = [bytes(rng.randrange(97, 123) for _ in range(8)) for _ in range(512)]
    count = BATCH_BYTES // (size + 20)
    templates = []
    for _ in range(24):
        values = [b" ".join(rng.choices(words, k=size // 9 + 1))[:size] for _ in range(count)]
        keys = [b"k%010d" % rng.randrange(10_000) for _ in range(count)]
        times = [NOW_MS + record for record in range(count)]
        templates.append(bytearray(encode_values(values, keys=keys, timestamps=times, compression=codec)))  # type: ignore[arg-type]
    for partition in range(2):
        directory = log_dir / f"{topic}-{partition}"
        directory.mkdir(parents=True)
        offset = number = 0
        while offset < records // 2:
            with (directory / f"{offset:020}.log").open("wb") as file:
                while file.tell() < SEGMENT_BYTES - (1 << 20) and offset < records // 2:
                    template = templates[number % len(templates)]
                    struct.pack_into(">q", template, 0, offset)
                    struct.pack_into(">i", template, 12, 1)
                    file.write(template)
                    offset, number = offset + count, number + 1
        # Opening it as after an unclean stop writes the indexes.
        config = LogConfig(segment_bytes=SEGMENT_BYTES, max_message_bytes=2 << 20)
        Log.open(directory, config=config, now_ms=NOW_MS, clean_shutdown=False).close()


def engines(log_dir: Path, topic: str, threads: int) -> Iterator[tuple[str, Run]]:
    """What is measured; each run gives the sum of the lengths, or the rows where it only decodes."""
    import datafusion
    import duckdb
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    def scan(**options: Any) -> Scan:
        return kraftlog.scan(log_dir, topics=[topic], **options)

    for count in (1, threads):
        one = scan(columns=["value"], threads=count)
        yield f"decode value and drop, {count} threads", lambda one=one: sum(map(len, one))
    three = scan(columns=["key", "value", "offset"])
    yield "decode key, value, offset and drop, 1 thread", lambda: sum(map(len, three))

    connection = duckdb.connect(config={"threads": threads})
    scan().duckdb(connection, "logs")
    total = "SELECT sum(octet_length(value)) FROM {}"

    def by_duckdb(table: str) -> Run:
        return lambda: int(connection.execute(total.format(table)).fetchall()[0][0])

    yield "DuckDB, Scan.duckdb()", by_duckdb("logs")
    parts = scan(columns=["value"]).splits(2 * threads)
    for number, part in enumerate(parts):
        connection.register(f"part{number}", part)
    union = " UNION ALL ".join(f"FROM part{number}" for number in range(len(parts)))
    yield "DuckDB, a stream for each split", by_duckdb(f"({union})")
    connection.register("stream", scan(columns=["value"]))
    yield "DuckDB, one stream", by_duckdb("stream")
    connection.register("wide", scan())
    yield "DuckDB, one stream of all columns", by_duckdb("wide")

    lengths = scan().polars(threads=threads).select(pl.col("value").bin.size().sum())
    yield "Polars, Scan.polars(), streaming", lambda: int(lengths.collect(engine="streaming").item())
    yield "Polars, Scan.polars(), in memory", lambda: int(lengths.collect().item())
    yield (
        "Polars, pl.DataFrame(scan)",
        lambda: int(pl.DataFrame(scan(columns=["value"])).select(pl.col("value").bin.size().sum()).item()),
    )

    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(threads))
    # Of binary columns it has no length: the extent of the arrays is decoded all the same.
    scan().datafusion(context, "logs", splits=threads)

    def by_datafusion() -> int:
        row = context.sql("SELECT count(value), max(value) FROM logs").to_pylist()[0]
        return int(row["count(logs.value)"])

    yield "DataFusion, Scan.datafusion(), count and max of values", by_datafusion

    def by_pyarrow(one: Any) -> Run:
        def run() -> int:
            batches = (
                pa.RecordBatchReader.from_stream(one) if isinstance(one, Scan) else one.to_batches(columns=["value"])
            )
            return sum(pc.sum(pc.binary_length(batch.column("value"))).as_py() for batch in batches)

        return run

    yield "pyarrow loop over a stream", by_pyarrow(scan(columns=["value"], threads=threads))
    yield "pyarrow loop over Scan.dataset()", by_pyarrow(scan(threads=threads).dataset())


def measure(run: Run, runs: int) -> tuple[float, float]:
    """CPU seconds, median, and wall seconds, least."""
    run()
    found = []
    for _ in range(runs):
        cpu, wall = time.process_time(), time.perf_counter()
        assert run() > 0
        found.append((time.process_time() - cpu, time.perf_counter() - wall))
    return statistics.median(cpu for cpu, _ in found), min(wall for _, wall in found)


def sail(log_dir: Path, topic: str, runs: int) -> Iterator[tuple[str, float, float]]:
    """A Sail server and its client in one process of their own, whose CPU is counted for each query."""
    client = os.environ.get("KRAFTLOG_SAIL_CLIENT")
    if client is None:
        return
    tests = HERE.parent / "tests"
    package = Path(kraftlog.__file__).parents[1]
    schemas = {
        "all 7 columns": None,
        "key, value, offset": "key binary, value binary, offset bigint",
        "value": "value binary",
    }
    options = {"path": str(log_dir), "subscribe": topic, "endOffset": "logEnd"}
    out = log_dir.parent / "sail-answers"
    out.mkdir(exist_ok=True)
    queries = [
        {
            "name": f"{name}|{number}",
            "options": options,
            "columns": ["sum(length(value)) AS bytes"],
            **({} if schema is None else {"schema": schema}),
        }
        for name, schema in schemas.items()
        for number in range(runs + 1)
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([client, str(package), str(tests)])}
    child = [sys.executable, str(tests / "interop" / "sail_queries.py")]
    task = json.dumps({"path": str(out), "queries": queries})
    done = subprocess.run(child, input=task, env=environment, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for name in schemas:
        ours = [answer for answer in answers if answer["name"].startswith(f"{name}|")][1:]
        assert len(ours) == runs, f"{name}: {[path.read_text() for path in out.glob('*.error')]}"
        yield f"Sail, {name}", statistics.median(our["cpu_s"] for our in ours), min(our["wall_s"] for our in ours)


def file_records(log_dir: Path, topic: str, runs: int) -> float | None:
    """Kafka's loop over the same files on one thread: CPU seconds of its best pass in a warm JVM."""
    libraries = os.environ.get("KAFKA_LIBS")
    if libraries is None:
        return None
    files = sorted(glob.glob(f"{log_dir}/{topic}-*/*.log"))
    java = ["java", "-Xmx1g", "-cp", libraries, str(HERE / "java" / "ReadFiles.java"), str(runs + 6), *files]
    said = subprocess.run(java, capture_output=True, text=True, check=True).stdout.splitlines()
    return min(float(line.split()[2]) for line in said)


def main() -> None:
    """Make the logs that are missing, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--topics", default="b100-none,b100-zstd", help=f"of {', '.join(TOPICS)}")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="engines whose name has this in it")
    arguments = parser.parse_args()
    assert build_profile == "release", "a debug build says nothing about speed"
    print("| topic | engine | CPU s | wall s | M rows/s | M rows a CPU second |\n|---|---|---|---|---|---|")
    for topic in arguments.topics.split(","):
        if not (arguments.directory / f"{topic}-0").is_dir():
            make(arguments.directory, topic)
        rows = sum(len(batch) for batch in kraftlog.scan(arguments.directory, topics=[topic], columns=[]))

        def show(name: str, cpu: float, wall: float, *, topic: str = topic, rows: int = rows) -> None:
            speeds = f"{rows / wall / 1e6:.1f} | {rows / cpu / 1e6:.1f}"
            print(f"| {topic} | {name} | {cpu:.3f} | {wall:.3f} | {speeds} |", flush=True)

        for name, run in engines(arguments.directory, topic, arguments.threads):
            if arguments.only.lower() in name.lower():
                show(name, *measure(run, arguments.runs))
        if arguments.only.lower() in "sail":
            for found in sail(arguments.directory, topic, arguments.runs):
                show(*found)
        if arguments.only.lower() in "kafka's filerecords":
            best = file_records(arguments.directory, topic, arguments.runs)
            if best is not None:
                show("Kafka's FileRecords, 1 thread, best pass", best, best)
    print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
