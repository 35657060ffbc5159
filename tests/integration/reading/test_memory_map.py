"""Mapped segments that become shorter: an error and zeros, never a signal that ends the process."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch

BATCH_ROWS = 100
# Four mapped windows of 4 MiB.
BATCHES = 1500


def write_log(directory: Path) -> Path:
    """A sealed segment of about 16 MiB and an empty active one."""
    directory.mkdir(parents=True)
    batch = bytearray(encode_batch([(number, b"key", bytes([number]) * 100, []) for number in range(BATCH_ROWS)]))
    with (directory / f"{0:020}.log").open("wb") as log:
        for number in range(BATCHES):
            struct.pack_into(">q", batch, 0, number * BATCH_ROWS)
            log.write(batch)
    (directory / f"{BATCHES * BATCH_ROWS:020}.log").touch()
    return directory


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("binary_type", ["binary", "binary_view"])
@pytest.mark.parametrize("threads", [1, 3])
def test_mapped_rows_are_those_that_are_read(tmp_path: Path, binary_type: str, threads: int) -> None:
    log = kraftlog.open_log(write_log(tmp_path / "t-0"))
    read = pa.table(log.scan(binary_type=binary_type))
    mapped = pa.table(log.scan(binary_type=binary_type, memory_map=True, threads=threads))
    assert mapped.equals(read)
    assert mapped.num_rows == BATCHES * BATCH_ROWS
    part = pa.table(log.scan(start_offset=77_777, end_offset=99_999, memory_map=True, columns=["offset"]))
    assert part["offset"].to_pylist() == list(range(77_777, 99_999))


TRUNCATE_WHILE_SCANNING = """
import os, sys
import pyarrow as pa
import kraftlog
from kraftlog.errors import CorruptRecordError

path, binary_type, check = sys.argv[1:]
log = kraftlog.open_log(path)
kept, rows = [], 0
try:
    for batch in log.scan(binary_type=binary_type, memory_map=True, check_crc=check == "crc", batch_rows=1000):
        kept.append(pa.record_batch(batch))
        rows += len(batch)
        if rows == 2000:
            os.truncate(os.path.join(path, "0" * 20 + ".log"), 100_000)
    print("no error")
except CorruptRecordError as error:
    print(error)
for batch in kept:      # views outlive the scan; what is gone reads as zeros
    for value in batch["value"].to_pylist():
        assert len(value) == 100 and (set(value) <= {value[0]} or 0 in value), value
offsets = [offset for batch in kept for offset in batch["offset"].to_pylist()]
assert offsets == list(range(len(offsets)))
print(len(offsets))
"""


@pytest.mark.parametrize("binary_type", ["binary", "binary_view"])
@pytest.mark.parametrize("check", ["crc", "none"])
def test_a_file_that_shrinks_under_a_mapping_is_an_error(tmp_path: Path, binary_type: str, check: str) -> None:
    path = write_log(tmp_path / "t-0")
    done = run(TRUNCATE_WHILE_SCANNING, str(path), binary_type, check)
    assert done.returncode == 0, done
    message, rows = done.stdout.splitlines()
    assert "00000000000000000000.log position" in message
    assert "became shorter while it was mapped" in message
    assert 2000 <= int(rows) < BATCHES * BATCH_ROWS


OTHER_FAULT = """
import ctypes, mmap, os, sys
import kraftlog

path = sys.argv[1]
if sys.argv[2] == "handled":
    libc = ctypes.CDLL(None)
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: os._exit(42))
    libc.signal(7, handler)
for batch in kraftlog.open_log(path).scan(memory_map=True):
    pass
with open(sys.argv[3], "w+b") as other:
    other.truncate(1 << 16)
    mapped = mmap.mmap(other.fileno(), 1 << 16, access=mmap.ACCESS_READ)
    other.truncate(0)
    ctypes.string_at(ctypes.addressof(ctypes.py_object(mapped)), 1)
    print(mapped[5])
"""


@pytest.mark.parametrize(("kind", "expected"), [("plain", -signal.SIGBUS), ("handled", 42)])
def test_faults_in_memory_of_others_are_left_to_them(tmp_path: Path, kind: str, expected: int) -> None:
    path = write_log(tmp_path / "t-0")
    assert run(OTHER_FAULT, str(path), kind, str(tmp_path / "other")).returncode == expected
