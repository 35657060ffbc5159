"""Other engines than Spark, in a process of their own that runs one case a line.

    python benches/spark/engines.py local|sail LOG_DIRECTORY      then lines "TOPIC CASE" on standard input

Each line is answered by JSON: wall seconds, CPU seconds of the process with all its threads, and the answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import Sample

THREADS = 2
KEPT: list[Any] = []  # a server without a reference to it ends
MAIN = ["key", "value", "offset", "timestamp"]
LENGTHS = "count(*), sum(octet_length(value))"


def scan(path: str, topic: str, columns: list[str], **options: Any) -> Any:
    import kraftlog

    return kraftlog.scan(path, topics=[topic], columns=columns, **options)


def read_alone(path: str, topic: str) -> Any:
    """Every byte of the segments from the page cache, by the chunks that our decoder takes, and nothing else."""
    buffer = bytearray(512 << 10)
    read = 0
    for file in sorted(Path(path).glob(f"{topic}-[0-9]*/*.log")):
        with file.open("rb", buffering=0) as opened:
            while size := opened.readinto(buffer):
                read += size
    return read


def decode(path: str, topic: str) -> Any:
    return sum(len(batch) for batch in scan(path, topic, MAIN))


def decode_views(path: str, topic: str) -> Any:
    return sum(len(batch) for batch in scan(path, topic, MAIN, binary_type="binary_view"))


def decode_two_threads(path: str, topic: str) -> Any:
    return sum(len(batch) for batch in scan(path, topic, MAIN, threads=THREADS))


def decode_all(path: str, topic: str) -> Any:
    columns = [*MAIN, "topic", "partition", "timestamp_type", "headers"]
    return sum(len(batch) for batch in scan(path, topic, columns))


def batch_headers(path: str, topic: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    from kraftlog.reading import scan_batches

    stream = pa.RecordBatchReader.from_stream(scan_batches([path], topics=[topic]))
    return sum(pc.sum(batch["record_count"]).as_py() for batch in stream)


def pyarrow_loop(path: str, topic: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = total = 0
    for batch in pa.RecordBatchReader.from_stream(scan(path, topic, ["value"], threads=THREADS)):
        rows += batch.num_rows
        total += pc.sum(pc.binary_length(batch["value"])).as_py() or 0
    return rows, total


def duckdb_relation(path: str, topic: str) -> Any:
    """A stream for each split, which DuckDB pulls on its own threads."""
    import duckdb

    with duckdb.connect(config={"threads": THREADS}) as connection:
        log = scan(path, topic, MAIN).duckdb(connection)
        return log.aggregate(LENGTHS).fetchall()[0]


def duckdb_one_stream(path: str, topic: str) -> Any:
    import duckdb

    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.register("log", scan(path, topic, ["value"], binary_type="binary_view"))
        return connection.sql(f"select {LENGTHS} from log").fetchall()[0]


def polars_frame(path: str, topic: str) -> Any:
    import polars as pl

    frame = scan(path, topic, MAIN).polars(threads=THREADS)
    return frame.select(pl.len(), pl.col("value").bin.size().sum()).collect().row(0)


def datafusion_table(path: str, topic: str) -> Any:
    from datafusion import SessionConfig, SessionContext

    context = SessionContext(SessionConfig().with_target_partitions(THREADS))
    scan(path, topic, MAIN).datafusion(context, "log")
    # It has no length of bytes, only of text; the values are ASCII.
    query = "select count(*), sum(octet_length(arrow_cast(value, 'Utf8'))) from log"
    (batch,) = context.sql(query).collect()
    return tuple(column[0].as_py() for column in batch.columns)


LOCAL: dict[str, Callable[[str, str], Any]] = {
    "read, 1 thread": read_alone,
    "decode, 1 thread": decode,
    "decode to views, 1 thread": decode_views,
    "decode, 2 threads": decode_two_threads,
    "decode, all columns, 1 thread": decode_all,
    "batch headers": batch_headers,
    "pyarrow, 2 threads": pyarrow_loop,
    "DuckDB, one stream per split": duckdb_relation,
    "DuckDB, one stream": duckdb_one_stream,
    "Polars": polars_frame,
    "DataFusion": datafusion_table,
}
SAIL = {"all 7 columns": None, "key,value,offset": "key,value,offset", "value": "value", "valueLength": "valueLength"}


def sail_cases(path: str) -> dict[str, Callable[[str, str], Any]]:
    """The same data source class under Sail's Spark Connect server, which runs in this process."""
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    from kraftlog.spark import KraftlogDataSource

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    KEPT.append(server)
    address, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://{address}:{port}").getOrCreate()
    session.dataSource.register(KraftlogDataSource)

    def case(columns: str | None) -> Callable[[str, str], Any]:
        def run(path: str, topic: str) -> Any:
            reader = session.read.format("kraftlog").option("path", path).option("subscribe", topic)
            if columns is not None:
                reader = reader.option("columns", columns)
            length = "valueLength" if columns == "valueLength" else "length(value)"
            return tuple(reader.load().selectExpr("count(*)", f"sum({length})").collect()[0])

        return run

    return {name: case(columns) for name, columns in SAIL.items()}


class Engines:
    """The process, seen from the bench."""

    def __init__(self, kind: str, path: Path) -> None:
        environment = dict(os.environ)
        if kind == "sail":
            # Sail does not take the PySpark of the other sections; `.ci/dev jars` puts a client that it takes here.
            client = Path(__file__).resolve().parents[2] / "tests/interop/target/sail"
            environment["PYTHONPATH"] = os.pathsep.join([str(client), environment.get("PYTHONPATH", "")])
            environment.pop("SPARK_HOME", None)
        command = [sys.executable, __file__, kind, str(path)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, topic: str, case: str) -> Sample:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{topic} {case}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the engines' process ended at {topic}, {case}")
        reply = json.loads(line)
        return Sample(reply["wall_s"], {"engine": reply["cpu_s"]}, 0.0, reply["result"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def main() -> None:
    kind, path = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    cases = sail_cases(path) if kind == "sail" else LOCAL
    for line in sys.stdin:
        topic, name = line.rstrip("\n").split(" ", 1)
        cpu, begun = time.process_time(), time.perf_counter()
        result = cases[name](path, topic)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - begun
        print(json.dumps({"wall_s": wall, "cpu_s": cpu, "result": str(result)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
