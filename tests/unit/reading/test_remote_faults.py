"""Stores that fail: what may pass is tried again, everything else is an error that says where, and never a row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kraftlog
from faulty_files import FaultyFiles
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import CorruptRecordError, RemoteLogError
from kraftlog.reading import RemoteLog, fetch_counts
from kraftlog.reading.remote_fetch import RetryPolicy
from kraftlog.reading.remote_files import location_of

ROWS, BATCHES = 50, 60
KIB = 1 << 10


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A partition of 3000 records of 1000 B, in two segments."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    for base in (0, ROWS * BATCHES // 2):
        batches = [
            encode_batch(
                [(base + n * ROWS + at, b"k", os.urandom(1000), []) for at in range(ROWS)], base_offset=base + n * ROWS
            )
            for n in range(BATCHES // 2)
        ]
        (directory / f"{base:020}.log").write_bytes(b"".join(batches))
    return directory


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(skip_instance_cache=True)


def read_until_error(scan: kraftlog.reading.Scan, error: type[Exception]) -> tuple[int, str]:
    """Rows before the error, and what it says."""
    rows = 0
    batches = iter(scan)
    while True:
        try:
            batch = next(batches, None)
        except error as caught:
            return rows, str(caught)
        assert batch is not None, "no error came"
        rows += len(batch)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Delays between tries, which are not waited for."""
    delays: list[float] = []
    monkeypatch.setattr("kraftlog.reading.remote_fetch.time.sleep", delays.append)
    return delays


def open_log(directory: Path, files: Any) -> RemoteLog:
    log = kraftlog.open_log(str(directory), filesystem=files)
    assert isinstance(log, RemoteLog)
    return log.with_window(256 * KIB)


def test_timeouts_that_pass_are_tried_again(directory: Path, files: FaultyFiles, no_waiting: list[float]):
    wanted = pa.table(kraftlog.open_log(directory).scan())
    fails = {"left": 0}

    def fail_twice(_path: str, _start: int, _end: int) -> None:
        fails["left"] = (fails["left"] + 1) % 3
        if fails["left"]:
            raise TimeoutError("read timed out")

    before = fetch_counts()
    files.on_read = fail_twice
    for threads in (1, 2):
        assert pa.table(open_log(directory, files).scan(threads=threads)).equals(wanted)
    assert (fetch_counts() - before).retries >= 20
    assert len(no_waiting) >= 20
    assert 0.05 <= min(no_waiting) <= max(no_waiting) <= 1


def test_an_error_that_stays_names_url_position_and_offset(
    directory: Path, files: FaultyFiles, no_waiting: list[float]
):
    def fail_late(_path: str, start: int, _end: int) -> None:
        if start >= 512 * KIB:
            raise TimeoutError("read timed out")

    files.on_read = fail_late
    scan = open_log(directory, files).scan()
    rows, message = read_until_error(scan, RemoteLogError)
    # Whole batches before it were given.
    assert rows == (512 * KIB) // (len((directory / f"{0:020}.log").read_bytes()) // (BATCHES // 2)) * ROWS
    assert f"{directory}/{0:020}.log" in message
    assert f"offset {rows}:" in message
    assert "TimeoutError: read timed out (5 attempts)" in message
    assert len(no_waiting) >= 4


def test_a_denied_request_is_not_tried_again(directory: Path, files: FaultyFiles):
    asked: list[tuple[str, int, int]] = []

    def deny(path: str, start: int, end: int) -> None:
        asked.append((path, start, end))
        raise PermissionError("Access Denied")

    files.on_read = deny
    with pytest.raises(RemoteLogError, match=r"00000000000000000000\.log position 0, offset 0: PermissionError"):
        next(iter(open_log(directory, files).scan()))
    assert asked
    assert len(asked) == len(set(asked))


def test_short_reads_are_tried_again_and_end_in_an_error(directory: Path, files: FaultyFiles):
    wanted = pa.table(kraftlog.open_log(directory).scan())
    state = {"count": 0, "always": False}

    def shorten(path: str, start: int, end: int) -> bytes | None:
        state["count"] += 1
        if state["always"] or state["count"] % 2:
            return Path(path).read_bytes()[start : end - 7]
        return None

    files.on_read = shorten
    assert pa.table(open_log(directory, files).scan()).equals(wanted)
    state["always"] = True
    with pytest.raises(RemoteLogError, match="ShortReadError: 262137 bytes came of the 262144 from 0 on"):
        list(open_log(directory, files).scan())


@pytest.mark.parametrize("when", ["at the start", "in the middle"])
def test_an_object_that_was_replaced_is_an_error(directory: Path, files: FaultyFiles, when: str):
    scan = open_log(directory, files).scan(batch_rows=ROWS)
    segment = directory / f"{0:020}.log"
    # Of the same size, with sound batches of other records: only its tag tells.
    other = segment.read_bytes()

    def replace(_path: str, start: int, _end: int) -> None:
        if start > 0 or when == "at the start":
            files.on_read = lambda _path, _start, _end: None
            target = directory / "new"
            target.write_bytes(other)
            os.utime(target, (1, 1))
            target.rename(segment)

    files.on_read = replace
    rows, message = read_until_error(scan, RemoteLogError)
    assert "the object is not the one that was listed" in message
    assert str(segment) in message
    if when == "at the start":
        assert rows == 0
    assert rows < ROWS * BATCHES // 2


def test_an_object_that_became_shorter_or_longer_is_an_error(directory: Path, files: FaultyFiles):
    segment = directory / f"{0:020}.log"
    data = segment.read_bytes()
    for changed in (data[: len(data) // 2], data + data[:100]):
        scan = open_log(directory, files).scan()
        segment.write_bytes(changed)
        with pytest.raises(RemoteLogError, match="the object is not the one that was listed"):
            list(scan)
        segment.write_bytes(data)


def test_an_object_that_is_gone_is_an_error(directory: Path, files: FaultyFiles):
    for threads in (1, 2):
        scan = open_log(directory, files).scan(threads=threads)
        segment = directory / f"{ROWS * BATCHES // 2:020}.log"
        data = segment.read_bytes()
        segment.unlink()
        rows, message = read_until_error(scan, RemoteLogError)
        assert rows == ROWS * BATCHES // 2
        assert str(segment) in message
        assert f"offset {ROWS * BATCHES // 2}:" in message or threads == 2
        segment.write_bytes(data)


def test_damaged_bytes_name_object_position_and_batch(directory: Path, files: FaultyFiles):
    segment = directory / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    size = len(data) // (BATCHES // 2)
    data[10 * size + 200] ^= 1
    segment.write_bytes(data)
    scan = open_log(directory, files).scan()
    rows, message = read_until_error(scan, CorruptRecordError)
    assert rows == 10 * ROWS
    assert f"{segment} position {10 * size}" in message
    assert f"(batch base_offset {10 * ROWS})" in message
    skipping = open_log(directory, files).scan(on_corrupt="skip")
    assert sum(len(rows) for rows in skipping) == ROWS * (BATCHES - 1)
    assert skipping.report().skipped[0].path == str(segment)


def test_a_segment_that_ends_within_a_batch_is_damage_unless_it_is_the_last(directory: Path, files: FaultyFiles):
    first, last = directory / f"{0:020}.log", directory / f"{ROWS * BATCHES // 2:020}.log"
    last.write_bytes(last.read_bytes()[:-10])
    assert sum(len(rows) for rows in open_log(directory, files).scan()) == ROWS * (BATCHES - 1)
    first.write_bytes(first.read_bytes()[:-10])
    for scan in (open_log(directory, files).scan(), *open_log(directory, files).scan().splits(count=1)):
        with pytest.raises(CorruptRecordError, match="the segment ends within a batch"):
            list(scan)


def test_a_copy_made_within_a_compaction_is_refused(directory: Path, files: FaultyFiles):
    (directory / f"{0:020}.log").rename(directory / f"{0:020}.log.swap")
    with pytest.raises(kraftlog.errors.LogError, match="compaction was replacing segments when this copy was made"):
        open_log(directory, files)


def test_secrets_are_nowhere_to_be_read(directory: Path):
    options = {
        "key": "AKIA-very-public",
        "secret": "hush-hush",
        "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"},
    }
    location = location_of("s3://user:pass-word@bucket/logs?x=token", storage_options=options)
    for text in (repr(location), str(location), location.hide("no hush-hush, no AKIA-very-public, no user:pass-word")):
        for secret in ("hush", "AKIA", "pass-word", "token"):
            assert secret not in text
    with pytest.raises((RemoteLogError, ValueError)) as caught:
        kraftlog.scan("s3://user:pass-word@127.0.0.1/logs", storage_options={"endpoint": "hush-hush"})
    assert "hush" not in str(caught.value)
    assert "pass-word" not in str(caught.value)


def test_delays_double_up_to_a_bound():
    policy = RetryPolicy(attempts=9, first_delay_s=0.1, last_delay_s=2)
    for failures, wanted in ((1, 0.1), (2, 0.2), (4, 0.8), (8, 2)):
        assert all(0.5 * wanted <= policy.delay_s(failures) <= 1.5 * wanted for _ in range(50))
