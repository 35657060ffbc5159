"""``kraftlog dump-log`` as a process, from its start to its end, beside Kafka's DumpLogSegments in the same run.

Expected for 1 M records of 108 B: the interpreter 0.1 s; text 220 MB and JSON 310 MB at about 1 GB/s; Arrow 125 MB at
the speed of the scan and of a write into the page cache; Parquet what pyarrow takes to compress 100 MB.

    python -m pytest benches/test_dump.py --benchmark-enable --benchmark-group-by=group

``KAFKA_LIBS='dir/*'`` adds Kafka's tool; ``KRAFTLOG_BENCH_LOG=DIR`` dumps a directory of yours, and says the
largest resident set.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kraftlog
from kraftlog._kraftlog import build_profile, encode_batch

RECORDS = 1_000_000
BATCH_RECORDS = 150
TIMESTAMP = 1_700_000_000_000
FORMS = {
    "text, batches": ["--threads", "1"],
    "text": ["--print-data-log"],
    "JSON": ["--json", "--print-data-log"],
    "Arrow": ["--arrow", "{out}"],
    "Arrow, 2 threads": ["--arrow", "{out}", "--threads", "2"],
    "Parquet": ["--parquet", "{out}"],
    "Parquet, 2 threads": ["--parquet", "{out}", "--threads", "2"],
}


@pytest.fixture(autouse=True)
def _optimised_build() -> None:
    assert build_profile == "release", "a debug build says nothing about speed"


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One segment of a million records of 108 B: a key of 9 B and a value of words, which compress to about half."""
    folder = tmp_path_factory.mktemp("dump") / "million-0"
    folder.mkdir()
    rng = random.Random(1)
    words = [bytes(rng.randrange(97, 123) for _ in range(8)) for _ in range(512)]
    values = [b" ".join(rng.choices(words, k=11))[:90] for _ in range(997)]
    with (folder / f"{0:020}.log").open("wb") as log:
        for first in range(0, RECORDS, BATCH_RECORDS):
            numbers = range(first, min(first + BATCH_RECORDS, RECORDS))
            records = [(TIMESTAMP + number, b"k%08d" % number, values[number % 997], ()) for number in numbers]
            log.write(encode_batch(records, base_offset=first))
    return folder


def run_and_count(benchmark: Any, command: Sequence[str], out: Path) -> int:
    """Bytes of the output; the process has to end well. Its CPU seconds, which other work disturbs less, are kept."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with out.open("wb") as sink:
        done = subprocess.run(command, stdout=sink, stderr=subprocess.PIPE, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr[-2000:]
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    least = benchmark.extra_info.get("cpu_seconds", seconds)
    benchmark.extra_info["cpu_seconds"] = round(min(seconds, least), 3)
    return out.stat().st_size


def ours(arguments: Sequence[str], folder: Path, out: Path) -> list[str]:
    shown = [argument.format(out=f"{out}.table") for argument in arguments]
    return [sys.executable, "-m", "kraftlog", "dump-log", str(folder), *shown]


@pytest.mark.parametrize("form", FORMS)
def test_dump_million_records(benchmark: Any, million: Path, tmp_path: Path, form: str) -> None:
    benchmark.group = "dump-log 1 M records of 108 B"
    benchmark.extra_info.update(bytes=(million / f"{0:020}.log").stat().st_size, records=RECORDS)
    out = tmp_path / "out"
    written = benchmark.pedantic(
        run_and_count, (benchmark, ours(FORMS[form], million, out), out), rounds=3, warmup_rounds=1
    )
    table = Path(f"{out}.table")
    benchmark.extra_info["written"] = table.stat().st_size if table.exists() else written
    assert benchmark.extra_info["written"] > RECORDS // 2


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--print-data-log"]], ids=["batches", "records"])
def test_kafka_dump_log_segments(benchmark: Any, million: Path, tmp_path: Path, flags: list[str]) -> None:
    libs = os.environ.get("KAFKA_LIBS")
    if libs is None:
        pytest.skip("KAFKA_LIBS names no jars")
    benchmark.group = "dump-log 1 M records of 108 B"
    command = ["java", "-cp", libs, "org.apache.kafka.tools.DumpLogSegments"]
    command += ["--files", str(million / f"{0:020}.log"), *flags]
    benchmark.extra_info.update(bytes=(million / f"{0:020}.log").stat().st_size, records=RECORDS)
    benchmark.pedantic(run_and_count, (benchmark, command, tmp_path / "out"), rounds=2)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "JSON"])
def test_dump_a_large_log(benchmark: Any, tmp_path: Path, form: str) -> None:
    given = os.environ.get("KRAFTLOG_BENCH_LOG")
    if given is None:
        pytest.skip("KRAFTLOG_BENCH_LOG names no partition's directory")
    log = kraftlog.open_log(given)
    size = sum(segment.size_bytes for segment in log.segments)
    benchmark.group = f"dump-log {size / 1e9:.1f} GB"
    out = tmp_path / "out"
    arguments = ["--threads", "1"] if form == "text" else FORMS[form]
    benchmark.pedantic(run_and_count, (benchmark, ours(arguments, log.path, out), out), rounds=1)
    # Of the largest process so far: run one form at a time to have that of each.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    benchmark.extra_info.update(bytes=size, peak_rss_kib=peak)
    Path(f"{out}.table").unlink(missing_ok=True)
