"""Compaction: reading a log twice, looking up every key, writing what is left; Kafka's ``Cleaner`` on the same input.

Half of the records are superseded. Bytes are those of the log before. The limit reads the log once, checks its
checksums and writes half of it, durably. Kafka's row needs KAFKA_LIBS, the class path of its jars; the time of copying
the input is outside, opening and closing the log inside, for both.

    KAFKA_LIBS='kafka/libs/*' python -m pytest benches/test_compact.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlog._kraftlog import Log, LogConfig, crc32c, encode_batch

NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 16 << 20
BUFFER_BYTES = 64 << 20
BYTES = int(os.environ.get("KRAFTLOG_COMPACT_BYTES", str(48 << 20)))
BATCH_BYTES = 16_000
ROUNDS = 5
CLEAN_LOG = Path(__file__).parents[1] / "tests" / "interop" / "java" / "CleanLog.java"
SHAPES = [(size, codec) for size in (100, 1000) for codec in ("none", "lz4", "zstd")]


def config() -> LogConfig:
    return LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy="compact")


@pytest.fixture(scope="module", params=SHAPES, ids=[f"{size} B {codec}" for size, codec in SHAPES])
def stored(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path, int, int]]:
    """(shape, directory, bytes, records)."""
    size, codec = request.param
    path = Path(tempfile.mkdtemp(prefix="kraftlog-bench-"))
    rng = random.Random(1)
    noise = rng.randbytes(1 << 16)
    words = (b"the quick brown fox jumps over the lazy dog " * 1500)[: 1 << 16]
    log = Log.open(path / "bench-0", config=config(), now_ms=NOW_MS)
    per_batch = max(BATCH_BYTES // size, 1)
    # As an ordinary test, without figures, little is enough.
    wanted = BYTES if request.config.getoption("benchmark_enable") else 1 << 20
    count = wanted // size // per_batch * per_batch
    keys = list(range(count // 2)) * 2
    rng.shuffle(keys)
    for start in range(0, len(keys), per_batch):
        records = []
        for key in keys[start : start + per_batch]:
            at = rng.randrange(60_000)
            value = noise[at : at + size // 2] + words[at : at + size - size // 2]
            records.append((NOW_MS, b"user-%012d" % key, value, ()))
        log.append_as_leader(encode_batch(records, compression=codec), leader_epoch=1, now_ms=NOW_MS)
    log.roll(NOW_MS)
    size_bytes = log.size_bytes
    log.close()
    yield f"{size} B values, {codec}", path / "bench-0", size_bytes, count
    shutil.rmtree(path)


def copies(directory: Path) -> Callable[[], tuple[tuple[Path], dict[str, Any]]]:
    """A fresh copy for each round, the last one removed."""
    target = directory.parent / "round" / directory.name

    def setup() -> tuple[tuple[Path], dict[str, Any]]:
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(directory, target)
        return (target,), {}

    return setup


def measure(benchmark: Any, stored: tuple[str, Path, int, int], work: Callable[[Path], Any]) -> Any:
    shape, directory, size_bytes, records = stored
    benchmark.group = f"compact, {shape}"
    benchmark.extra_info.update(bytes=size_bytes, records=records)
    return benchmark.pedantic(work, setup=copies(directory), rounds=ROUNDS, warmup_rounds=2)


def clean(directory: Path) -> Any:
    log = Log.open(directory, config=config(), now_ms=NOW_MS, clean_shutdown=True)
    report = log.clean(
        first_dirty_offset=0,
        first_uncleanable_offset=log.log_end_offset,
        now_ms=NOW_MS,
        dedupe_buffer_bytes=BUFFER_BYTES,
    )
    log.close()
    return report


def test_compact(benchmark: Any, stored: tuple[str, Path, int, int]) -> None:
    report = measure(benchmark, stored, clean)
    assert report.messages_retained == stored[3] // 2


def test_compact_limit_read_crc_write(benchmark: Any, stored: tuple[str, Path, int, int]) -> None:
    def work(directory: Path) -> int:
        total = 0
        for path in sorted(directory.glob("*.log")):
            data = path.read_bytes()
            total += crc32c(data) & 1
            with (directory / f"{path.name}.half").open("wb") as file:
                file.write(memoryview(data)[: len(data) // 2])
                os.fsync(file.fileno())
        return total

    measure(benchmark, stored, work)


@pytest.fixture(scope="module")
def java() -> Iterator[subprocess.Popen[str]]:
    libs = os.environ.get("KAFKA_LIBS")
    if libs is None or shutil.which("java") is None:
        pytest.skip("KAFKA_LIBS is not set, or there is no java")
    settings = f"segment.bytes={SEGMENT_BYTES}"
    process = subprocess.Popen(
        ["java", "-Xmx1g", "-cp", libs, str(CLEAN_LOG), str(BUFFER_BYTES), str(NOW_MS), "86400000", settings],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    )
    yield process
    process.kill()
    process.wait()


def test_compact_java_cleaner(benchmark: Any, stored: tuple[str, Path, int, int], java: subprocess.Popen[str]) -> None:
    def work(directory: Path) -> str:
        assert java.stdin is not None
        assert java.stdout is not None
        java.stdin.write(f"{directory}\n")
        return java.stdout.readline()

    assert f'"messages_retained": {stored[3] // 2}' in measure(benchmark, stored, work)
