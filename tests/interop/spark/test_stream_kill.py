"""kill -9 at random moments while a stream writes Parquet files: every record is in the sink, once.

Killed in turn are the JVM, the Python driver, and the Python processes that plan and read. Seeds are printed;
KRAFTLOG_SPARK_KILLS and KRAFTLOG_SPARK_KILL_SEED repeat a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kraftlog
from growing_logs import GrowingLogs

KILLS = int(os.environ.get("KRAFTLOG_SPARK_KILLS", "3"))
SEED = int(os.environ.get("KRAFTLOG_SPARK_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
JOB = Path(__file__).with_name("stream_job.py")
VICTIMS = ("jvm", "workers", "driver")
PARTITIONS = 4


class Writer(threading.Thread):
    """Appends about 500 records per second to all partitions, as a broker would, and now and then leads anew."""

    def __init__(self, logs: GrowingLogs, seed: int) -> None:
        super().__init__(name="writer", daemon=True)
        self.logs = logs
        self.rng = random.Random(seed)
        self.stopping = threading.Event()
        self.failures: list[str] = []

    def run(self) -> None:
        try:
            epoch = 0
            while not self.stopping.wait(0.05):
                if self.rng.random() < 0.002:
                    epoch += 1
                partition = self.rng.randrange(PARTITIONS)
                self.logs.append("killed", partition, self.rng.randrange(1, 50), epoch=epoch, checkpoint=False)
                if self.rng.random() < 0.3:
                    self.logs.checkpoint()
        except Exception as error:  # noqa: BLE001 - told by the test
            self.failures.append(repr(error))


class Job:
    """The query in a process group of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.output, self.checkpoint = folder / "output", folder / "checkpoint"
        self.log = folder / "job.log"
        self.environment = environment
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(JOB), str(self.folder / "logs"), str(self.output), str(self.checkpoint)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def processes(self, victim: str) -> list[psutil.Process]:
        """The JVM, the driver, or the Python processes below the JVM, as far as they are there."""
        assert self.process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            driver = psutil.Process(self.process.pid)
            if victim == "driver":
                return [driver]
            below = driver.children(recursive=True)
            jvms = [process for process in below if process.name() == "java"]
            return jvms if victim == "jvm" else [child for jvm in jvms for child in jvm.children(recursive=True)]
        return []

    def stop(self) -> None:
        """kill -9 of whatever is left."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self.process = None

    def tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-6000:]

    def committed(self) -> int:
        """The number of batches that are committed."""
        commits = self.checkpoint / "commits"
        return sum(path.name.isdigit() for path in commits.iterdir()) if commits.is_dir() else 0

    def last_end(self) -> dict[str, int]:
        """The end of the last committed batch."""
        numbers = [int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit()]
        lines = (self.checkpoint / "offsets" / str(max(numbers))).read_text(encoding="utf-8").splitlines()
        offsets: dict[str, int] = json.loads(lines[2])["offsets"].get("killed", {})
        return offsets


def wait_for(what: str, job: Job, condition: Any, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} not within {seconds} s\n{job.tail()}"
        if not job.is_running:
            job.stop()
            job.start()  # a query whose planner or whose worker was killed ends; the next one goes on
        time.sleep(0.05)


def kill_somewhere(job: Job, victim: str, rng: random.Random) -> str:
    """Kills at a random moment; says when."""
    processes: list[psutil.Process] = []
    moment = "while it starts" if rng.random() < 0.3 else "while it runs"
    while not processes:
        if moment == "while it runs":
            before = job.committed()
            wait_for("a batch", job, lambda before=before: job.committed() > before)
            time.sleep(rng.uniform(0, 2))
        else:
            wait_for(f"a process of the {victim}", job, lambda: job.processes(victim))
            time.sleep(rng.uniform(0, 10))
        processes = job.processes(victim)
    if victim == "workers":
        # One of them, or all at once.
        processes = processes if rng.random() < 0.3 else [rng.choice(processes)]
    names = Counter(kind_of(process) for process in processes)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if victim != "workers":
        # What is left of it may still write for a moment.
        time.sleep(rng.uniform(0, 1))
        job.stop()
        job.start()
    return f"{victim} {moment}: {dict(names)}"


def kind_of(process: psutil.Process) -> str:
    try:
        line = " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return "gone"
    for kind in ("stream_job", "java", "pyspark.daemon", "python_streaming_source_runner"):
        if kind in line:
            return kind
    return "python"


def sink_files(output: Path) -> list[Path]:
    """The files that the sink's log names, which is what readers of the sink see."""
    log = output / "_spark_metadata"
    numbers = {int(path.name.partition(".")[0]): path for path in log.iterdir() if path.name[0].isdigit()}
    compacted = [number for number, path in numbers.items() if path.name.endswith(".compact")]
    first = max(compacted, default=0)
    found = []
    for number, path in sorted(numbers.items()):
        if number >= first:
            for line in path.read_text(encoding="utf-8").splitlines()[1:]:
                entry = json.loads(line)
                assert entry["action"] == "add"
                found.append(output / Path(entry["path"]).name)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600 + KILLS * 120)
def test_every_record_is_in_the_sink_once(
    spark_environment: dict[str, str], quick_spark_home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(SEED)
    logs = GrowingLogs(tmp_path / "logs", segment_bytes=200_000)
    for partition in range(PARTITIONS):
        logs.add("killed", partition)
    job = Job(tmp_path, {"SPARK_HOME": quick_spark_home, **spark_environment})
    writer = Writer(logs, SEED)
    writer.start()
    started = time.monotonic()
    try:
        job.start()
        for number in range(KILLS):
            told = kill_somewhere(job, VICTIMS[number % len(VICTIMS)], rng)
            with capsys.disabled():
                print(f"\n{time.monotonic() - started:.0f} s, kill {number + 1}, {told}", end="", flush=True)
        writer.stopping.set()
        writer.join(60)
        logs.checkpoint()
        ends = {str(partition): logs.logs["killed", partition].log_end_offset for partition in range(PARTITIONS)}
        wait_for("the last batch", job, lambda: job.committed() and job.last_end() == ends)
    finally:
        writer.stopping.set()
        job.stop()
    assert writer.failures == []

    source = pa.table(kraftlog.scan(tmp_path / "logs", columns=["partition", "offset", "value"]))
    expected = sorted(zip(*source.to_pydict().values(), strict=True))
    files = sink_files(job.output)
    sink = pa.concat_tables([pq.ParquetFile(path).read(["partition", "offset", "value"]) for path in files])
    found = sorted(zip(*sink.to_pydict().values(), strict=True))
    batches, orphans = job.committed(), len(set(job.output.glob("*.parquet")) - set(files))
    with capsys.disabled():
        print(
            f"\nseed {SEED}: {KILLS} kills in {time.monotonic() - started:.0f} s, {len(expected)} records,"
            f" {batches} batches, {len(files)} files in the sink's log and {orphans} left by killed batches"
        )
    assert len(found) == len({row[:2] for row in found}), "a record is there twice"
    assert found == expected
    logs.close()
