"""A log of 10 GB read by Spark executors of 1 GB: every row counted and hashed, peak memory of each process.

    .ci/dev bench-spark-large [--gb 10] [--codecs none] [--directory DIR]

Two executors in JVMs of their own (``local-cluster[2,1,1024]``, ``spark.executor.memory=1g``), and Python workers that
may not map more than ``spark.executor.pyspark.memory`` (a limit of their address space). The log, of segments of 1 GiB,
is made of batches that come again and again, so that the sums that Spark has to find are known without reading it. It
is deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import make_large_log  # noqa: E402
from measuring import CpuMeter, processes  # noqa: E402

import kraftlog  # noqa: E402
from kraftlog._kraftlog import Log, LogConfig  # noqa: E402

WEIGHT = 1009  # binds each value to its offset
PRIME = 1_000_003  # sums of what is below it stay within 64 bits
QUERY = ("count(*)", "sum(offset)", f"sum(crc32(value) % {PRIME} * (offset % {WEIGHT}))", "sum(crc32(key))")


def expected(count: int) -> tuple[int, ...]:
    """What the query has to find in so many records."""
    import numpy as np

    values, keys = [], []
    for batch_values, batch_keys in make_large_log.records():
        values += [zlib.crc32(value) % PRIME for value in batch_values]
        keys += [zlib.crc32(key) for key in batch_keys]
    value_sums, key_sums = np.array(values, np.int64), np.array(keys, np.int64)
    total = keyed = 0
    step = len(values) * 100
    for first in range(0, count, step):
        offsets = np.arange(first, min(first + step, count))
        place = offsets % len(values)
        total += int((value_sums[place] * (offsets % WEIGHT)).sum())
        keyed += int(key_sums[place].sum())
    return count, count * (count - 1) // 2, total, keyed


class PeakMemory:
    """The largest resident set of each process below this one, by role, looked at ten times per second."""

    def __init__(self) -> None:
        self.peaks: dict[str, dict[int, int]] = defaultdict(dict)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self) -> None:
        while not self.stop.wait(0.1):
            for pid in processes(os.getpid()):
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                except OSError:
                    continue
                peak = re.search(r"VmHWM:\s+(\d+)", status)
                if peak:
                    self.peaks[role(command)][pid] = int(peak[1]) * 1024

    def end(self) -> dict[str, float]:
        """MB of the largest process of each role."""
        self.stop.set()
        self.thread.join()
        return {name: max(found.values()) / 1e6 for name, found in self.peaks.items()}


def role(command: str) -> str:
    if "CoarseGrainedExecutorBackend" in command:
        return "executor JVM"
    if "pyspark.daemon" in command:
        return "Python worker"
    if "java" in command.split("\0", maxsplit=1)[0]:
        return "driver JVM"
    return "driver Python"


def scan(directory: Path, memory: str) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    import kraftlog.spark

    session = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .appName("kraftlog-large")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "1g")
        .config("spark.executor.pyspark.memory", memory)
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    kraftlog.spark.register(session)
    meter, peak = CpuMeter(), PeakMemory()
    before, begun = meter.read(), time.perf_counter()
    # A directory that no broker owns has no high watermark.
    reader = session.read.format("kraftlog").option("path", str(directory)).option("endOffset", "logEnd")
    found = tuple(reader.option("columns", "key,value,offset").load().selectExpr(*QUERY).collect()[0])
    wall = time.perf_counter() - begun
    cpu = {name: seconds - before[name] for name, seconds in meter.read().items()}
    memory_mb = peak.end()
    session.stop()
    return {"found": found, "wall_s": wall, "cpu_s": cpu, "peak_rss_mb": memory_mb}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gb", type=float, default=10, help="size in GB (10^9 bytes)")
    parser.add_argument("--codecs", default="none", help="codecs of the batches, in turns")
    parser.add_argument("--pyspark-memory", default="512m", help="address space of a Python worker")
    parser.add_argument("--directory", help="where the log is made; the temporary directory")
    parser.add_argument("--keep", type=Path, help="keep the log here, and use one of an earlier run")
    parser.add_argument("--out", type=Path, default=ROOT / "target/bench-large.json")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the log goes too
    home = arguments.keep or Path(tempfile.mkdtemp(prefix="bench-large-", dir=arguments.directory))
    try:
        directory = home / "large-0"
        if not directory.exists():
            make_large_log.make(directory, int(arguments.gb * 1e9), arguments.codecs.split(","))
            config = LogConfig(segment_bytes=make_large_log.SEGMENT_BYTES, max_message_bytes=2 << 20)
            Log.open(directory, config=config, now_ms=make_large_log.NOW_MS, clean_shutdown=False).close()
        count = kraftlog.open_log(directory).log_end_offset
        size = sum(path.stat().st_size for path in directory.glob("*.log"))
        print(f"# {count} records, {size} bytes", file=sys.stderr, flush=True)
        row = scan(directory, arguments.pyspark_memory)
    finally:
        if not arguments.keep:
            shutil.rmtree(home)
    row |= {"records": count, "size_bytes": size, "pyspark_memory": arguments.pyspark_memory}
    row |= {"codecs": arguments.codecs, "load": os.getloadavg()[0]}
    print(json.dumps(row))
    if row["found"] != expected(count):
        raise SystemExit(f"wrong: {row['found']} found, {expected(count)} expected")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(row, indent=1))
    print(f"# as expected; {size / row['wall_s'] / 1e9:.2f} GB/s", file=sys.stderr)


if __name__ == "__main__":
    main()
