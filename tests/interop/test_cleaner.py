"""Compaction of kraftlog beside Kafka's own ``Cleaner`` on copies of the same directories.

Uncompressed segments and all sidecars have to come out byte for byte alike; compressed bytes depend on the library, so
those batches are compared decoded. Inputs: every partition of the golden node, and random histories with idempotent
and transactional producers, tombstones and markers, cleaned three times as time goes on.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from batch_rows import GOLDEN, describe_batch
from interop.harness import HERE, Java
from interop.kafka_tools import assert_dump_accepts, dump, files_with
from kraftlog._kraftlog import Log, LogConfig, encode_batch, read_batches

# Kafka drops producers that are idle by the system clock when it opens a log.
NOW_MS = time.time_ns() // 1_000_000
EXPIRATION_MS = (1 << 31) - 1  # as in CleanLog.java
RETENTION_MS = 60_000
SEGMENT_BYTES = 1 << 20
SEED = int(os.environ.get("KRAFTLOG_CLEANER_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
HISTORIES = int(os.environ.get("KRAFTLOG_CLEANER_HISTORIES", "12"))
FIGURES = (
    "next_dirty_offset",
    "messages_retained",
    "bytes_read",
    "map_messages_read",
    "invalid_messages",
)


def config(**settings: Any) -> LogConfig:
    return LogConfig(
        segment_bytes=SEGMENT_BYTES, cleanup_policy="compact", producer_id_expiration_ms=EXPIRATION_MS, **settings
    )


def open_log(directory: Path, **settings: Any) -> Log:
    log = Log.open(directory, config=config(**settings), now_ms=NOW_MS, clean_shutdown=True)
    log.update_high_watermark(log.log_end_offset)
    return log


def kafka_cleans(
    java: Java, directories: Iterable[Path], *, now_ms: int, buffer_bytes: int = 1 << 20
) -> dict[str, dict[str, Any]]:
    """Run Kafka's Cleaner over each; its figures by directory name."""
    settings = f"segment.bytes={SEGMENT_BYTES}"
    names = [str(directory) for directory in directories]
    source = str(HERE / "java" / "CleanLog.java")
    done = java.tool(source, str(buffer_bytes), str(now_ms), str(RETENTION_MS), settings, *names, timeout=300)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["partition"]: row for row in rows}


def we_clean(directory: Path, *, now_ms: int, buffer_bytes: int = 1 << 20) -> Any:
    log = open_log(directory)
    report = log.clean(
        first_dirty_offset=log.log_start_offset,
        first_uncleanable_offset=log.log_end_offset,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        dedupe_buffer_bytes=buffer_bytes,
    )
    log.close()
    return report


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith(".deleted")}


def described(data: bytes) -> list[dict[str, Any]]:
    """Batches without what follows from compressed bytes."""
    rows = [describe_batch(batch) for batch in read_batches(data)]
    for row in rows:
        if row["compression"] != "none":
            del row["position"], row["size"], row["batchLength"], row["crc"]
        else:
            del row["position"]
    return rows


def assert_same_directory(ours: Path, kafkas: Path) -> bool:
    """True when even the compressed bytes are equal, and so all files are."""
    mine, theirs = files(ours), files(kafkas)
    assert mine.keys() == theirs.keys(), ours
    differing = [name for name in sorted(mine) if mine[name] != theirs[name]]
    if not differing:
        return True
    for name in differing:
        suffix = Path(name).suffix
        if suffix == ".log":
            assert described(mine[name]) == described(theirs[name]), f"{ours / name}"
        else:
            # Positions in a segment follow from the sizes of compressed batches.
            assert suffix in (".index", ".timeindex"), f"{ours / name} differs"
            log_name = str(Path(name).with_suffix(".log"))
            assert log_name in differing, f"{ours / name} differs though the segment does not"
            assert any(batch.compression != "none" for batch in read_batches(mine[log_name])), f"{ours / name}"
    return False


def compare(java: Java, pairs: list[tuple[Path, Path]], *, now_ms: int, buffer_bytes: int = 1 << 20) -> int:
    """Clean each pair, kraftlog's and Kafka's copy, and compare; how many are alike to the last byte."""
    figures = kafka_cleans(java, [theirs for _, theirs in pairs], now_ms=now_ms, buffer_bytes=buffer_bytes)
    equal = 0
    for ours, theirs in pairs:
        kafka = figures[ours.name]
        report = we_clean(ours, now_ms=now_ms, buffer_bytes=buffer_bytes)
        if "error" in kafka:
            # Kafka's own cleaner gives up on timestamps that its broker accepted: the partition is never compacted.
            assert "Invalid negative timestamp" in kafka["error"], kafka
            continue
        found = {name: getattr(report, name) for name in FIGURES}
        assert found == {name: kafka[name] for name in FIGURES}, ours
        equal += assert_same_directory(ours, theirs)
    return equal


@pytest.mark.parametrize("buffer_bytes", [1 << 20, 24 * 150], ids=["ample", "full"])
@pytest.mark.slow
def test_golden_partitions_come_out_as_from_kafka(java: Java, tmp_path: Path, buffer_bytes: int) -> None:
    pairs = []
    for source in sorted((GOLDEN / "topics" / "node-1").iterdir()):
        if not list(source.glob("*.log")) if source.is_dir() else True:
            continue
        ours, theirs = tmp_path / "ours" / source.name, tmp_path / "kafka" / source.name
        shutil.copytree(source, ours, copy_function=shutil.copyfile)
        log = open_log(ours)
        if log.segments()[-1].size_bytes:
            log.roll(NOW_MS)  # the active segment is never cleaned
        log.close()
        shutil.copytree(ours, theirs)
        pairs.append((ours, theirs))
    assert len(pairs) > 20
    assert compare(java, pairs, now_ms=NOW_MS, buffer_bytes=buffer_bytes) >= 9
    segments = [ours for ours, _ in pairs if sum(path.stat().st_size for path in ours.glob("*.log"))]
    assert_dump_accepts(java, *segments, has_gaps=True)


@dataclass
class History:
    """A random life of one partition, written to any number of copies alike."""

    seed: int
    sequences: dict[int, int] = field(default_factory=dict)
    open_transactions: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def records(self, now_ms: int) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        rng = self.rng
        return [
            (
                now_ms + rng.randrange(-5000, 5000),
                None if rng.random() < 0.02 else b"key-%d" % rng.randrange(60),
                None if rng.random() < 0.2 else rng.randbytes(rng.randrange(120)),
                [("h", rng.randbytes(5))] if rng.random() < 0.2 else [],
            )
            for _ in range(rng.randrange(1, 12))
        ]

    def batch(self, now_ms: int) -> tuple[bytes, str]:
        rng = self.rng
        producer_id = rng.choice([-1, 1, 2, 3, 4, 5])
        if producer_id in self.open_transactions and rng.random() < 0.3:
            self.open_transactions.discard(producer_id)
            key = b"\x00\x00\x00" + bytes([rng.random() < 0.6])
            marker: list[Any] = [(now_ms, key, b"\x00\x00\x00\x00\x00\x07", [])]
            flags: dict[str, Any] = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "transactional": True,
                "control": True,
            }
            return encode_batch(marker, **flags), "coordinator"
        records = self.records(now_ms)
        options: dict[str, Any] = {}
        if producer_id > 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(records)
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        if producer_id > 2:
            options["transactional"] = True
            self.open_transactions.add(producer_id)
        return encode_batch(records, **options), "client"

    def append(self, logs: list[Log], batches: int, now_ms: int) -> None:
        for _ in range(batches):
            data, origin = self.batch(now_ms)
            rolls = self.rng.random() < 0.05
            for log in logs:
                # A keyless record is refused by a compacted topic; it may have come before the topic was compacted.
                log.update_config(LogConfig(segment_bytes=SEGMENT_BYTES, producer_id_expiration_ms=EXPIRATION_MS))
                log.append_as_leader(data, leader_epoch=3, now_ms=now_ms, origin=origin)  # type: ignore[arg-type]
                if rolls:
                    log.roll(now_ms)


@pytest.mark.slow
def test_random_histories_come_out_as_from_kafka(java: Java, tmp_path: Path) -> None:
    print(f"KRAFTLOG_CLEANER_SEED={SEED} KRAFTLOG_CLEANER_HISTORIES={HISTORIES}")
    histories = [History(SEED + number) for number in range(HISTORIES)]
    pairs = [(tmp_path / "ours" / f"h-{number}", tmp_path / "kafka" / f"h-{number}") for number in range(HISTORIES)]
    now_ms = NOW_MS
    for clean in range(3):
        for history, pair in zip(histories, pairs, strict=True):
            for directory in pair:
                directory.parent.mkdir(exist_ok=True)
            logs = [open_log(directory, retention_ms=-1) for directory in pair]
            history.append(logs, 120, now_ms)
            for log in logs:
                log.roll(now_ms)
                log.close()
        now_ms += RETENTION_MS * clean
        equal = compare(java, pairs, now_ms=now_ms)
        assert equal == len(pairs), f"clean {clean}: only {equal} of {len(pairs)} alike"
    assert_dump_accepts(java, *[ours for ours, _ in pairs], has_gaps=True)


def records_of(directory: Path) -> list[Any]:
    """Every record of the cleaned segments, whatever the format of its batch."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    return [record for batch in read_batches(data) for record in batch.records()]


def test_old_message_formats_keep_the_records_that_kafka_keeps(java: Java, tmp_path: Path) -> None:
    """A set of v0 or v1 that loses messages becomes a batch with us and stays one of its format with Kafka."""
    pairs = []
    for seed in range(6):
        ours, theirs = tmp_path / "ours" / f"old-{seed}", tmp_path / "kafka" / f"old-{seed}"
        ours.mkdir(parents=True)
        segment = ours / f"{0:020}.log"
        java.tool(str(HERE / "java" / "RecordFiles.java"), "write", str(segment), "0", str(seed), "0", "1", "2")
        log = Log.open(ours, config=config(), now_ms=NOW_MS)
        assert log.size_bytes == segment.stat().st_size
        log.roll(NOW_MS)
        log.close()
        shutil.copytree(ours, theirs)
        pairs.append((ours, theirs))
    figures = kafka_cleans(java, [theirs for _, theirs in pairs], now_ms=NOW_MS)
    dropped = 0
    for ours, theirs in pairs:
        before = len(records_of(ours))
        report = we_clean(ours, now_ms=NOW_MS)
        assert "error" not in figures[ours.name], figures[ours.name]
        assert records_of(ours) == records_of(theirs)
        assert report.messages_retained == figures[ours.name]["messages_retained"]
        dropped += before - report.messages_retained
    assert dropped
    segments = [path for ours, _ in pairs for path in files_with(ours, ".log")]
    dump(java, segments, "--deep-iteration", has_gaps=True)
