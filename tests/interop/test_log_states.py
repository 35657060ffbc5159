"""Partition directories as crashes leave them, opened by Kafka's UnifiedLog and by us: the same log, the same bytes."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.harness import HERE, Java
from kraftlog._kraftlog import Log, LogConfig, encode_batch, recover_segment

SEGMENT_BYTES = 4096
SETTINGS = {"internal.segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "512", "retention.ms": "-1"}
# Kafka asks the clock itself when it forgets producers.
NOW_MS = time.time_ns() // 1_000_000
FAR = 2**31 - 1


def log_config(policy: str = "delete", *, preallocate: bool = False) -> LogConfig:
    return LogConfig(
        segment_bytes=SEGMENT_BYTES,
        index_interval_bytes=512,
        retention_ms=-1,
        cleanup_policy=policy,
        preallocate=preallocate,
        producer_id_expiration_ms=2**31 - 1,
    )


def marker(producer_id: int, *, abort: bool, now_ms: int) -> bytes:
    key = b"\0\0" + (b"\0\0" if abort else b"\0\1")
    return encode_batch(
        [(now_ms, key, b"\0\0\0\0\0\x03", ())],
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def fill(log: Log, *, steps: int = 150, seed: int = 1) -> None:
    """Plain, idempotent and transactional batches in three leader epochs, some transactions aborted, one left open."""
    rng = random.Random(seed)
    sequences = {100: 0, 200: 0, 300: 0}
    for step in range(steps):
        now_ms, epoch = NOW_MS + step * 10, 1 + step * 3 // steps
        producer_id = rng.choice([-1, 100, 200, 300])
        count = rng.randint(1, 4)
        records = [
            (now_ms + number, f"k{rng.randint(0, 30)}".encode(), rng.randbytes(60), ()) for number in range(count)
        ]
        if producer_id < 0:
            batch = encode_batch(records)
        else:
            batch = encode_batch(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                transactional=producer_id >= 200,
            )
            sequences[producer_id] += count
        log.append_as_leader(batch, leader_epoch=epoch, now_ms=now_ms)
        if producer_id >= 200 and rng.random() < 0.4:
            end = marker(producer_id, abort=rng.random() < 0.5, now_ms=now_ms)
            log.append_as_leader(end, leader_epoch=epoch, now_ms=now_ms, origin="coordinator")


def bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020}.{suffix}"


def closed(directory: Path, *, policy: str = "delete") -> None:
    log = Log.open(directory, config=log_config(policy), now_ms=NOW_MS)
    fill(log)
    log.close()


def killed(directory: Path, *, preallocate: bool = False) -> None:
    """The files of a log that was never closed."""
    source = directory.with_name(directory.name + ".running")
    log = Log.open(source, config=log_config(preallocate=preallocate), now_ms=NOW_MS)
    fill(log)
    log.flush()
    shutil.copytree(source, directory)
    log.close()
    shutil.rmtree(source)


def merged(directory: Path, first: int, count: int, suffix: str) -> list[int]:
    """Write what compaction would make of some segments: every second batch, under the first one's name."""
    chosen = bases(directory)[first : first + count]
    batches: list[bytes] = []
    for base in chosen:
        data, position = (directory / name(base, "log")).read_bytes(), 0
        while position < len(data):
            end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            batches.append(data[position:end])
            position = end
    kept = b"".join(batches[:-1:2] + batches[-1:])
    aside = directory.with_name("aside")
    aside.mkdir()
    (aside / name(chosen[0], "log")).write_bytes(kept)
    recover_segment(aside / name(chosen[0], "log"), index_interval_bytes=512)
    for kind in ("log", "index", "timeindex"):
        (aside / name(chosen[0], kind)).rename(directory / (name(chosen[0], kind) + suffix))
    shutil.rmtree(aside)
    return chosen


def rename_all(directory: Path, base_offset: int, suffix: str) -> None:
    for kind in ("log", "index", "timeindex", "txnindex"):
        path = directory / name(base_offset, kind)
        if path.exists():
            path.rename(path.with_name(path.name + suffix))


def state_torn(directory: Path) -> None:
    killed(directory)
    with (directory / name(bases(directory)[-1], "log")).open("ab") as file:
        file.write(random.Random(2).randbytes(100))


def state_damaged_middle(directory: Path) -> None:
    killed(directory)
    path = directory / name(bases(directory)[2], "log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)


def state_preallocated(directory: Path) -> None:
    killed(directory, preallocate=True)
    assert (directory / name(bases(directory)[-1], "log")).stat().st_size == SEGMENT_BYTES


def state_rolled(directory: Path) -> None:
    """A new segment exists, its index files and the snapshot do not yet."""
    killed(directory)
    log = Log.open(directory, config=log_config(), now_ms=NOW_MS)
    base = log.roll(NOW_MS)
    log.close()
    (directory / name(base, "index")).unlink()
    (directory / name(base, "timeindex")).unlink()
    (directory / name(base, "snapshot")).unlink(missing_ok=True)


def state_cleaned(directory: Path) -> None:
    closed(directory)
    merged(directory, 1, 2, ".cleaned")


def state_swap(directory: Path) -> None:
    closed(directory)
    merged(directory, 1, 2, ".swap")


def state_swap_and_cleaned_index(directory: Path) -> None:
    closed(directory)
    chosen = merged(directory, 1, 2, ".swap")
    path = directory / (name(chosen[0], "timeindex") + ".swap")
    path.rename(path.with_suffix(".cleaned"))


def state_swap_old_half_deleted(directory: Path) -> None:
    closed(directory)
    chosen = merged(directory, 1, 3, ".swap")
    rename_all(directory, chosen[1], ".deleted")
    (directory / name(chosen[1], "snapshot")).rename(directory / (name(chosen[1], "snapshot") + ".deleted"))


def state_swap_index_left(directory: Path) -> None:
    """The .log has its name already, the .index is still .swap."""
    closed(directory)
    chosen = merged(directory, 1, 2, ".new")
    for base in chosen:
        rename_all(directory, base, ".deleted")
    (directory / (name(chosen[0], "log") + ".new")).rename(directory / name(chosen[0], "log"))
    for kind in ("index", "timeindex"):
        path = directory / (name(chosen[0], kind) + ".new")
        path.rename(path.with_suffix(".swap"))


def far_batches() -> list[tuple[int, bytes]]:
    places = [0, 50, FAR - 1, FAR + 2, 2 * FAR, 4 * FAR]
    return [(base, encode_batch([(NOW_MS + base % 1000, b"k", b"v", ())] * 3, base_offset=base)) for base in places]


def state_overflow(directory: Path) -> None:
    directory.mkdir()
    (directory / name(0, "log")).write_bytes(b"".join(data for _, data in far_batches()))


def state_overflow_half_split(directory: Path) -> None:
    state_overflow(directory)
    data = dict(far_batches())
    (directory / (name(4 * FAR, "log") + ".swap")).write_bytes(data[4 * FAR])
    (directory / (name(FAR + 2, "log") + ".cleaned")).write_bytes(data[FAR + 2] + data[2 * FAR])
    (directory / (name(0, "log") + ".cleaned")).write_bytes(data[0] + data[50] + data[FAR - 1])


def state_lost_indexes(directory: Path) -> None:
    closed(directory)
    found = bases(directory)
    (directory / name(found[0], "index")).unlink()
    (directory / name(found[2], "index")).unlink()
    (directory / name(999_999, "timeindex")).write_bytes(b"orphan")


def state_stray_snapshots(directory: Path) -> None:
    closed(directory)
    (directory / name(3, "snapshot")).write_bytes(b"stray")
    newest = max(directory.glob("*.snapshot"))
    newest.write_bytes(newest.read_bytes()[:-7])


@dataclass(frozen=True)
class State:
    make: Callable[[Path], None]
    is_clean: bool = False
    recovery_point: int = 0
    policy: str = "delete"


STATES = {
    "clean": State(closed, is_clean=True),
    "clean-unmarked": State(closed),
    "killed": State(killed),
    "killed-recovery-point": State(killed, recovery_point=150),
    "torn": State(state_torn),
    "torn-recovery-point": State(state_torn, recovery_point=200),
    "damaged-middle": State(state_damaged_middle),
    "preallocated": State(state_preallocated),
    "rolled": State(state_rolled),
    "cleaned": State(state_cleaned, is_clean=True, policy="compact"),
    "swap": State(state_swap, is_clean=True, policy="compact"),
    "swap-unclean": State(state_swap, policy="compact"),
    "swap-and-cleaned-index": State(state_swap_and_cleaned_index, is_clean=True, policy="compact"),
    "swap-old-half-deleted": State(state_swap_old_half_deleted, is_clean=True, policy="compact"),
    "swap-index-left": State(state_swap_index_left, is_clean=True, policy="compact"),
    "overflow": State(state_overflow, policy="compact"),
    "overflow-half-split": State(state_overflow_half_split, policy="compact"),
    "lost-indexes": State(state_lost_indexes, is_clean=True),
    "stray-snapshots": State(state_stray_snapshots, is_clean=True),
}


def ours(directory: Path, state: State, *, threads: int = 1) -> str:
    """The line that OpenLogs prints."""
    log = Log.open(
        directory,
        config=log_config(state.policy),
        now_ms=NOW_MS,
        recovery_point=state.recovery_point,
        clean_shutdown=state.is_clean,
        recovery_threads=threads,
    )
    segments = ",".join(f"{segment.base_offset}:{segment.size_bytes}" for segment in log.segments())
    epochs = ",".join(f"{epoch}:{start}" for epoch, start in log.epoch_entries())
    producers = ",".join(
        f"{producer[0]}:{producer[1]}"
        for producer in sorted((p.producer_id, p.last_sequence) for p in log.active_producers())
    )
    line = f"{log.log_start_offset} {log.log_end_offset} [{segments}] [{epochs}] [{producers}]"
    log.close()
    return line


def contents(directory: Path) -> dict[str, bytes]:
    """Files by name; what waits for its removal does not count."""
    found = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
    found = {name: data for name, data in found.items() if not name.endswith(".deleted")}
    found.pop("partition.metadata", None)
    if found.get("leader-epoch-checkpoint") == b"0\n0\n":
        found["leader-epoch-checkpoint"] = b""  # no epochs: Kafka makes the file and writes nothing into it
    return found


@pytest.fixture(scope="module")
def opened(java: Java, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path, Path]]:
    """For each state: Kafka's line, the directory as Kafka left it, and an untouched copy."""
    folder = tmp_path_factory.mktemp("states")
    lines = []
    for key, state in STATES.items():
        made = folder / f"{key}-made" / "t-0"
        made.parent.mkdir()
        state.make(made)
        shutil.copytree(made, folder / f"{key}-kafka" / "t-0")
        words = [
            str(folder / f"{key}-kafka" / "t-0"),
            "clean" if state.is_clean else "unclean",
            str(state.recovery_point),
        ]
        words += ["0", f"cleanup.policy={state.policy}", *(f"{key}={value}" for key, value in SETTINGS.items())]
        lines.append("\t".join(words))
    done = java.tool(str(HERE / "java" / "OpenLogs.java"), text_input="\n".join(lines) + "\n", timeout=280)
    answers = done.stdout.splitlines()
    assert len(answers) == len(STATES), done.stdout + done.stderr
    return {
        key: (answer, folder / f"{key}-kafka" / "t-0", folder / f"{key}-made" / "t-0")
        for key, answer in zip(STATES, answers, strict=True)
    }


@pytest.mark.spec("DISK-31", "DISK-39", "DISK-41")
@pytest.mark.parametrize("key", STATES)
def test_kafka_and_we_find_the_same_log(key, opened, tmp_path):
    state = STATES[key]
    answer, by_kafka, made = opened[key]
    assert not answer.startswith("failed"), answer
    for threads in (1, 3):
        by_us = tmp_path / str(threads) / "t-0"
        by_us.parent.mkdir()
        shutil.copytree(made, by_us)
        assert ours(by_us, state, threads=threads) == answer
        left, right = contents(by_us), contents(by_kafka)
        assert sorted(left) == sorted(right)
        assert [name for name in left if left[name] != right[name]] == []


@pytest.mark.parametrize("key", STATES)
def test_what_one_closed_the_other_opens(key, opened, tmp_path):
    answer, by_kafka, _ = opened[key]
    taken = tmp_path / "t-0"
    shutil.copytree(by_kafka, taken)
    assert ours(taken, State(closed, is_clean=True, policy=STATES[key].policy)) == answer
