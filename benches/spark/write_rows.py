"""CPU of writing rows from Spark: to segment files, and through a broker's clients.

    python benches/spark/write_rows.py --rows 2000000 --kafka-libs 'DIR/*'

One JVM with two task threads. The rows (keys of 11 bytes, values of 100, two partitions) are sorted and cached before,
so that each run is the write alone; a first run of each way warms the JVM. CPU is that of the driver, the JVM, the
Python workers and, where there is one, the broker. The jars of Spark's own Kafka sink come by ``.ci/dev jars``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]

from interop.harness import Java, KafkaServer  # noqa: E402  # found through the path above
from kraftlog._kraftlog import LogConfig, RowWriter, build_profile  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VALUE_BYTES = 100


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """CPU of processes and of all that they started, dead children included."""
    total = 0.0
    for process in processes:
        for measured in [process, *process.children(recursive=True)]:
            try:
                times = measured.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
    return total


def measure(name: str, run: Callable[[], Any], runs: int, rows: int, processes: list[psutil.Process]) -> None:
    """Print the medians of several runs after one that does not count."""
    run()
    walls, cpus = [], []
    for _ in range(runs):
        cpu, wall = cpu_seconds(processes), time.monotonic()
        run()
        walls.append(time.monotonic() - wall)
        cpus.append(cpu_seconds(processes) - cpu)
    wall, cpu = statistics.median(walls), statistics.median(cpus)
    row = {"way": name, "wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "cpu_us_per_row": round(cpu / rows * 1e6, 3)}
    print(json.dumps({**row, "rows_per_cpu_s": round(rows / cpu)}), flush=True)


def measure_encoder(rows: int, directory: Path) -> None:
    """The Rust side alone, on one thread, without Spark."""
    import pyarrow as pa

    batch = pa.record_batch(
        {
            "key": pa.array([b"key%08d" % n for n in range(10_000)]),
            "value": pa.array([b"%0100d" % n for n in range(10_000)]),
            "timestamp": pa.array([1_700_000_000_000_000 + n for n in range(10_000)], pa.timestamp("us", "UTC")),
        }
    )
    for codec in ("none", "lz4", "zstd"):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        began = time.process_time()
        writer = RowWriter(directory, config=LogConfig(), topic="t", partition=0, compression=codec)
        for _ in range(rows // 10_000):
            writer.write(batch, 0)
        writer.finish()
        cpu = time.process_time() - began
        print(json.dumps({"way": f"RowWriter {codec}", "cpu_us_per_row": round(cpu / rows * 1e6, 3)}), flush=True)


def main() -> None:
    """Run every way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kafka-libs", required=True, help="Kafka's jars, 'dir/*'")
    parser.add_argument("--jars", type=Path, default=ROOT / "tests/interop/spark/target/libs")
    options = parser.parse_args()
    if build_profile == "debug":
        parser.error("the extension is a debug build")
    # The JVM starts Python workers by these.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    from pyspark.sql import SparkSession

    import kraftlog.spark

    home = Path(tempfile.mkdtemp(prefix="kraftlog-write-"))
    broker = KafkaServer(home / "kafka", Java(options.kafka_libs), heap="1g", fast_start=False)
    broker.ready_timeout_s = 300.0
    try:
        measure_encoder(options.rows, home / "alone")
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "2g")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.jars", ",".join(str(jar) for jar in sorted(options.jars.glob("*.jar"))))
            .config("spark.python.unix.domain.socket.enabled", "true")
            .getOrCreate()
        )
        kraftlog.spark.register(spark)
        rows = spark.sql(
            f"SELECT CAST(concat('key', lpad(id % 100000, 8, '0')) AS BINARY) AS key, "
            f"CAST(lpad(id, {VALUE_BYTES}, 'abcdefghij') AS BINARY) AS value, CAST(id % 2 AS INT) AS partition "
            f"FROM range(0, {options.rows}, 1, 2)"
        )
        prepared = kraftlog.spark.prepare(rows).cache()
        print(json.dumps({"rows": prepared.count()}))
        broker.start()
        here = [psutil.Process()]
        assert broker.process is not None
        both = [*here, psutil.Process(broker.process.pid)]

        def noop(frame: DataFrame) -> None:
            frame.write.format("noop").mode("overwrite").save()

        def segments(codec: str) -> None:
            writer = prepared.write.format("kraftlog").option("topic", "t").option("compression.type", codec)
            writer.mode("overwrite").save(str(home / "segments"))

        def produce(name: str, codec: str) -> None:
            writer = prepared.write.format(name).option("kafka.bootstrap.servers", broker.bootstrap)
            writer = writer.option("topic", "rows").option("kafka.compression.type", codec).mode("append")
            writer.option("kafka.linger.ms", "20").option("kafka.acks", "all").save()

        create_topic(broker.bootstrap)
        measure("rows read and dropped (noop)", partial(noop, prepared), options.runs, options.rows, here)
        for codec in ("none", "lz4", "zstd"):
            measure(f"segments {codec}", partial(segments, codec), options.runs, options.rows, here)
        for codec in ("none", "lz4"):
            measure(f"spark-sql-kafka {codec}", partial(produce, "kafka", codec), options.runs, options.rows, both)
            measure(f"produce {codec}", partial(produce, "kraftlog", codec), options.runs, options.rows, both)
        spark.stop()
    finally:
        broker.kill()
        shutil.rmtree(home, ignore_errors=True)


def create_topic(bootstrap: str) -> None:
    """A topic of two partitions, without limits on what it keeps."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("rows", 2)])["rows"].result(120)


if __name__ == "__main__":
    main()
