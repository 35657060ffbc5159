"""Damaged directories through ``open_log``: a documented exception or rows that the sound directory has, never a crash.

Each round damages a copy of golden partitions and reads it in a process of its own with bounded address space. A longer
run: ``KRAFTLOG_FUZZ_ROUNDS=2000 pytest tests/property/test_open_log_fuzz.py -s``; ``KRAFTLOG_FUZZ_SEED`` repeats one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from batch_rows import GOLDEN

PARTITIONS = sorted((GOLDEN / "topics" / "node-1").glob("g-*")) + sorted(
    (GOLDEN / "topics" / "killed-node-2").glob("g-*")
)
ROUNDS = int(os.environ.get("KRAFTLOG_FUZZ_ROUNDS", "48"))
SEED = int(os.environ.get("KRAFTLOG_FUZZ_SEED", "20241121"))
ROUNDS_PER_PROCESS = 12
# A golden partition has less than a megabyte; batches decompress to a few more.
ADDRESS_SPACE_BYTES = 1 << 31
HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\xff\xff\xff", b"\x80\x00\x00\x00")


def damage(rng: random.Random, directory: Path) -> str:
    """One defect somewhere in a directory; says which."""
    files = sorted(path for path in directory.iterdir() if path.is_file() and not path.is_symlink())
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data) + 1)
    other = rng.choice(files)
    kind = rng.choice(
        [
            "truncate",
            "flip",
            "splice",
            "swap",
            "zeros",
            "count",
            "missing",
            "extra",
            "name",
            "directory",
            "link",
            "mode",
        ]
    )
    if kind == "truncate":
        path.write_bytes(data[:at])
    elif kind == "flip" and data:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    elif kind == "splice":
        piece = other.read_bytes()
        start = rng.randrange(len(piece) + 1)
        data[at : at + rng.randrange(50)] = piece[start : start + rng.randrange(200)]
        path.write_bytes(data)
    elif kind == "swap":
        piece = other.read_bytes()
        other.write_bytes(data)
        path.write_bytes(piece)
    elif kind == "zeros":
        data[at:] = bytes(len(data) - at + rng.randrange(100))
        path.write_bytes(data)
    elif kind == "count":
        data[at : at + 4] = rng.choice(HUGE)
        path.write_bytes(data)
    elif kind == "missing":
        path.unlink()
    elif kind == "extra":
        name = rng.choice(
            ["00000000000000000007.log", "x.log", "99999999999999999999.log", "9223372036854775807.log", "a"]
        )
        (directory / name).write_bytes(data)
    elif kind == "name":
        path.rename(directory / rng.choice(["0.log", "00000000000000000001.log", "9223372036854775807.index"]))
    elif kind == "directory":
        path.unlink()
        path.mkdir()
    elif kind == "link":
        path.unlink()
        path.symlink_to(rng.choice([path.name, "/dev/null", "nowhere", str(other)]))
    else:
        path.chmod(0)
    return f"{kind} {path.name} at {at}"


# Runs in the process of its own: argv has a JSON list of [damaged, sound] directories.
READER = r"""
import faulthandler, hashlib, json, resource, sys
faulthandler.enable()
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
import kraftlog
from kraftlog import _kraftlog
from kraftlog.errors import KraftlogError
import pyarrow

# Arrow libraries pass an error of a stream on in exceptions of their own, text and all.
ALLOWED = (KraftlogError, OSError, pyarrow.ArrowException)

def rows(directory, **options):
    table = pyarrow.table(kraftlog.open_log(directory).scan(**options))
    # As numbers: Kafka takes times that Python's datetime has no room for.
    columns = [table["offset"], table["timestamp"].cast("int64"), table["key"], table["value"]]
    return set(zip(*(column.to_pylist() for column in columns)))

def attempt(what, call):
    try:
        return call()
    except ALLOWED as error:
        text = str(error)
        assert text and len(text) < 2000, (what, text)
        assert "/" in text or "position" in text or "offset" in text, (what, text)
        return None

for damaged, sound in json.loads(sys.argv[1]):
    print(damaged, flush=True)
    expected = rows(sound, check_crc=True, include_control=True)
    log = attempt("open_log", lambda: kraftlog.open_log(damaged))
    if log is not None:
        for name in ("segments", "size_bytes", "log_start_offset", "log_end_offset", "leader_epochs", "topic_id",
                     "last_stable_offset", "high_watermark"):
            attempt(name, lambda: getattr(log, name))
        attempt("producers", lambda: log.producers())
        attempt("aborted", lambda: log.aborted_transactions())
        attempt("offset_for_timestamp", lambda: log.offset_for_timestamp(1_600_000_000_000))
    for options in (
        {},
        {"binary_type": "binary_view", "threads": 2},
        {"binary_type": "large_binary", "on_corrupt": "skip"},
        {"isolation_level": "read_committed", "on_corrupt": "skip"},
        {"memory_map": True},
        {"start_offset": 50, "end_offset": 500},
    ):
        found = attempt(options, lambda: rows(damaged, check_crc=True, include_control=True, **options))
        extra = (found or set()) - expected
        assert not extra, (options, sorted(extra, key=str)[:3])
    for columns in (["offset"], ["timestamp", "headers"], ["leader_epoch", "producer_id", "is_control"]):
        attempt(columns, lambda: pyarrow.table(kraftlog.open_log(damaged).scan(columns=columns)))
    attempt("verify", lambda: json.loads(_kraftlog.verify_files([damaged])))
print("done", flush=True)
"""


@pytest.mark.parametrize("process", range((ROUNDS + ROUNDS_PER_PROCESS - 1) // ROUNDS_PER_PROCESS))
def test_damaged_directories_end_in_a_message_or_in_rows_of_the_sound_one(process: int, tmp_path: Path) -> None:
    jobs = []
    defects = []
    for number in range(process * ROUNDS_PER_PROCESS, min(ROUNDS, (process + 1) * ROUNDS_PER_PROCESS)):
        rng = random.Random(f"{SEED} {number}")
        sound = rng.choice(PARTITIONS)
        damaged = tmp_path / str(number) / sound.name
        shutil.copytree(sound, damaged)
        defects.append(f"{number} {sound.name}: {'; '.join(damage(rng, damaged) for _ in range(rng.randint(1, 3)))}")
        jobs.append((str(damaged), str(sound)))
    done = subprocess.run(
        [sys.executable, "-c", READER, json.dumps(jobs), str(ADDRESS_SPACE_BYTES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    for path in tmp_path.rglob("*"):
        if not path.is_symlink() and not stat.S_IMODE(path.stat().st_mode):
            path.chmod(0o600)
    is_well = done.returncode == 0 and done.stdout.endswith("done\n")
    assert is_well, "\n".join([f"seed {SEED}", *defects, done.stdout[-400:], done.stderr[-3000:]])
