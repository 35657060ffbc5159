"""Spark over log directories beside Spark over the broker, in alternation on the same records of a real Kafka 4.3.1.

    .ci/dev bench-spark                 all sections, 15 minutes on a quiet machine; --quick in three
    .ci/dev bench-spark --sections spark,local --topics 100-none --out target/bench-spark.json

Sections: ``spark`` (scans, group-by, counts, the channel alone, Parquet), ``local`` (engines in one process), ``sail``,
and ``java`` (Kafka's FileRecords and DumpLogSegments). CPU seconds are those of the driver, the JVM, the Python workers
and the broker together; on a machine that others use too they are steadier than wall time. `write_tables.py` puts the
JSON that this writes into docs/reports/benchmarks-spark.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(ROOT / "tests")]
# Spark's Python processes import what this process imports.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(HERE), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import broker_data  # noqa: E402
import engines  # noqa: E402
from measuring import Case, CpuMeter, Sample, alternate, same_results  # noqa: E402
from scans import Topic, make_session  # noqa: E402

from interop.harness import Java, KafkaServer  # noqa: E402
from kraftlog._kraftlog import build_profile  # noqa: E402

# Value bytes and codec; the first two codecs of the second kind are only read in process.
TOPICS = ["100-none", "100-lz4", "100-zstd", "1000-none", "1000-lz4", "1000-zstd"]
DECODED_ONLY = ["100-gzip", "100-snappy"]
QUICK_TOPICS = ["100-none", "1000-lz4"]


class Bench:
    """One run."""

    def __init__(self, arguments: argparse.Namespace, ends: ExitStack) -> None:
        self.arguments = arguments
        self.found: list[Case] = []
        self.begun, self.load = time.time(), os.getloadavg()
        if arguments.keep:
            self.home = arguments.keep
        else:
            self.home = Path(tempfile.mkdtemp(prefix="bench-spark-", dir=arguments.directory))
            ends.callback(shutil.rmtree, self.home, ignore_errors=True)
        self.java = Java(os.environ.get("KAFKA_LIBS", str(ROOT / "tests/interop/target/libs/*")))
        self.rows: dict[str, int] = {}
        self.server: KafkaServer = broker_data.start_kafka(self.home / "kafka", self.java)
        ends.callback(self.server.stop if arguments.keep else self.server.kill)

    def produce(self) -> None:
        sections = self.arguments.sections
        wanted = [*self.arguments.topics, *(DECODED_ONLY if "java" in sections and not self.arguments.quick else [])]
        for name in wanted:
            size, codec = name.split("-")
            megabytes = self.arguments.megabytes // (3 if name in DECODED_ONLY else 1)
            rows = megabytes * 1_000_000 // (int(size) + 11)
            if not broker_data.segments(self.server, broker_data.topic_name(int(size), codec)):
                broker_data.produce(self.server, int(size), codec, rows)
            self.rows[broker_data.topic_name(int(size), codec)] = rows
        halves = {
            (topic, partition): (rows + 1 - partition) // 2
            for topic, rows in self.rows.items()
            for partition in range(broker_data.PARTITIONS)
        }
        broker_data.wait_for_checkpoint(self.server, halves)

    def run(self, cases: Iterator[Case] | list[Case], *, warm_ups: int = 1) -> list[Case]:
        chosen = list(cases)
        pid = self.server.process.pid if self.server.process else None
        alternate(chosen, CpuMeter(pid), rounds=self.arguments.rounds, warm_ups=warm_ups)
        self.found += chosen
        for case in chosen:
            found = case.summary()
            shown = {key: found[key] for key in ("group", "name", "rows", "result")}
            shown |= {key: round(found[key], 3) for key in ("wall_s", "cpu_s", "cpu_s_least", "others_busy")}
            shown |= {"cpu_by": {role: round(value, 2) for role, value in found["cpu_by"].items()}}
            print(json.dumps(shown | {"load": round(os.getloadavg()[0], 1)}), flush=True)
        self.write()
        return chosen

    def write(self) -> None:
        """All that was measured so far, so that a run that is interrupted was not for nothing."""
        now = os.getloadavg()
        out = {
            "when": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": f"{platform.platform()}, {os.cpu_count()} processors, Python {platform.python_version()}",
            "rounds": self.arguments.rounds,
            "megabytes": self.arguments.megabytes,
            "build": build_profile,
            "seconds": round(time.time() - self.begun),
            "load": [self.load[0], now[1], now[0]],
            "cases": [case.summary() for case in self.found],
        }
        self.arguments.out.parent.mkdir(parents=True, exist_ok=True)
        self.arguments.out.write_text(json.dumps(out, indent=1))

    def topics(self, spark: Any) -> Iterator[Topic]:
        for name in self.arguments.topics:
            size, codec = name.split("-")
            topic = broker_data.topic_name(int(size), codec)
            yield Topic(spark, self.server, topic, self.rows[topic], int(size), self.home)

    def spark(self) -> None:
        session = make_session(str(ROOT / "tests/interop/spark/target/libs/*"))
        try:
            for number, topic in enumerate(self.topics(session)):
                warm_ups = 1 if number else 2  # the compiler of a new JVM
                for query, cases in topic.queries().items():
                    if query in self.arguments.queries:
                        same_results(case for case in self.run(cases, warm_ups=warm_ups) if case.name != "no-op source")
                    warm_ups = 1
        finally:
            session.stop()

    def in_process(self, kind: str, cases: Iterator[str] | list[str], group: str) -> None:
        """Cases of an engines' process, topic by topic."""
        other = engines.Engines(kind, self.server.data_dir)
        try:
            for name in self.arguments.topics:
                topic = broker_data.topic_name(*_parts(name))
                self.run([self.remote_case(other, topic, group, case) for case in cases])
        finally:
            other.close()

    def remote_case(self, other: engines.Engines, topic: str, group: str, case: str) -> Case:
        size = broker_data.topic_bytes(self.server, topic)
        return Case(case, _asking(other, topic, case), self.rows[topic], size, f"{topic}: {group}")

    def local(self) -> None:
        self.in_process("local", list(engines.LOCAL), "in process")

    def sail(self) -> None:
        self.in_process("sail", list(engines.SAIL), "sail")

    def with_java(self) -> None:
        """Kafka's own readers of segment files against our decoder, one thread each."""
        other = engines.Engines("local", self.server.data_dir)
        try:
            for topic in self.rows:
                files = [str(path) for path in broker_data.segments(self.server, topic)]
                ours = self.remote_case(other, topic, "decode", "decode, 1 thread")
                scan = self.case(topic, "decode", "FileRecords, 1 thread", lambda files=files: self.file_records(files))
                views = self.remote_case(other, topic, "decode", "decode to views, 1 thread")
                read = self.remote_case(other, topic, "decode", "read, 1 thread")
                self.run([ours, views, read, scan], warm_ups=1 if topic == "bench-100-none" else 0)
            for topic in (topic for topic in self.rows if topic in {"bench-100-none", "bench-1000-none"}):
                files = [str(path) for path in broker_data.segments(self.server, topic)]
                dump = self.case(topic, "dump", "DumpLogSegments", lambda files=files: self.dump_log_segments(files))
                all_columns = self.remote_case(other, topic, "dump", "decode, all columns, 1 thread")
                text = self.case(topic, "dump", "kraftlog dump-log", lambda files=files: self.dump_log(files))
                self.run([all_columns, dump, text], warm_ups=0)
        finally:
            other.close()

    def case(self, topic: str, group: str, name: str, run: Callable[[], Any]) -> Case:
        size = broker_data.topic_bytes(self.server, topic)
        return Case(name, run, self.rows[topic], size, f"{topic}: {group}")

    def file_records(self, files: list[str]) -> Sample:
        """The best of the passes of one JVM, which the first passes warm up."""
        source = str(ROOT / "benches/java/ScanSegments.java")
        command = ["java", "-Xmx1g", "-cp", self.java.libs, source, "12", *files]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        passes = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
        rows, cpu, wall = min(passes, key=lambda one: one[1])
        return Sample(wall / 1e9, {"tools": cpu / 1e9}, 0.0, str(rows))

    def dump_log_segments(self, files: list[str]) -> None:
        main = "org.apache.kafka.tools.DumpLogSegments"
        command = ["java", "-Xmx1g", "-cp", self.java.libs, main, "--print-data-log", "--files", ",".join(files)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def dump_log(self, files: list[str]) -> None:
        command = [sys.executable, "-m", "kraftlog", "dump-log", "--print-data-log", "--files", ",".join(files)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _parts(name: str) -> tuple[int, str]:
    size, codec = name.split("-")
    return int(size), codec


def _asking(other: engines.Engines, topic: str, case: str) -> Callable[[], Sample]:
    return lambda: other.ask(topic, case)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two topics, a third of the records, one round")
    parser.add_argument("--megabytes", type=int, help="of keys and values in a topic (330; quick: 110)")
    parser.add_argument("--rounds", type=int, help="measured runs of each case (3; quick: 1)")
    parser.add_argument("--topics", help=",".join(TOPICS))
    parser.add_argument("--sections", default="spark,local,sail,java")
    parser.add_argument("--queries", default="sum,group,count,parquet,reduce,batches", help="of the section spark")
    parser.add_argument("--directory", help="where the broker's data goes; the temporary directory")
    parser.add_argument("--keep", type=Path, help="keep the data here, and use what a run with the same sizes left")
    parser.add_argument("--out", type=Path, default=ROOT / "target/bench-spark.json")
    arguments = parser.parse_args()
    arguments.sections, arguments.queries = arguments.sections.split(","), arguments.queries.split(",")
    arguments.topics = arguments.topics.split(",") if arguments.topics else QUICK_TOPICS if arguments.quick else TOPICS
    arguments.megabytes = arguments.megabytes or (110 if arguments.quick else 330)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    if build_profile == "debug":
        raise SystemExit("a debug build of the extension says nothing about speed: .ci/dev build")
    with ExitStack() as ends:
        # SIGTERM ends the broker and removes its data too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        bench = Bench(arguments, ends)
        bench.produce()
        sections = {"spark": bench.spark, "local": bench.local, "sail": bench.sail, "java": bench.with_java}
        for name in arguments.sections:
            sections[name]()
        print(f"# {len(bench.found)} cases in {time.time() - bench.begun:.0f} s, {arguments.out}", flush=True)


if __name__ == "__main__":
    main()
