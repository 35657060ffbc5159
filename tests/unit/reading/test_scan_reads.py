"""How much a scan reads: indexes, headers and columns decide which bytes are not touched."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch

ROWS = 100
BATCHES = 40
SEGMENTS = 5
CHUNK = 512 << 10


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> kraftlog.Log:
    """Five segments of 40 batches with 100 records of 1000 B, indexed each; record ``n`` has timestamp ``n``."""
    directory = tmp_path_factory.mktemp("logs") / "t-0"
    directory.mkdir()
    offset = 0
    for _ in range(SEGMENTS):
        base, data, index, times = offset, bytearray(), bytearray(), bytearray()
        for _ in range(BATCHES):
            records = [(offset + at, b"key", bytes(1000), []) for at in range(ROWS)]
            last = offset + ROWS - 1
            index += struct.pack(">II", last - base, len(data))
            times += struct.pack(">qI", last, last - base)
            data += encode_batch(records, base_offset=offset)
            offset += ROWS
        stem = directory / f"{base:020}"
        stem.with_suffix(".log").write_bytes(data)
        stem.with_suffix(".index").write_bytes(index)
        stem.with_suffix(".timeindex").write_bytes(times)
    return kraftlog.open_log(directory)


def count(scan: kraftlog.reading.Scan) -> int:
    return sum(len(rows) for rows in scan)


TOTAL = ROWS * BATCHES * SEGMENTS


def test_everything_is_read_once(log: kraftlog.Log) -> None:
    scan = log.scan()
    assert count(scan) == TOTAL
    report = scan.report()
    assert log.size_bytes <= report.bytes_read <= log.size_bytes * 1.06
    assert (report.segments, report.batches, report.rows) == (SEGMENTS, BATCHES * SEGMENTS, TOTAL)


def test_an_offset_is_found_by_the_index(log: kraftlog.Log) -> None:
    scan = log.scan(start_offset=TOTAL - 1)
    assert count(scan) == 1
    assert scan.report().bytes_read < 256 << 10
    scan = log.scan(start_offset=TOTAL // 2, end_offset=TOTAL // 2 + 1)
    assert count(scan) == 1
    assert scan.report().bytes_read <= CHUNK
    assert scan.report().segments == 1


def test_a_time_is_found_by_the_index(log: kraftlog.Log) -> None:
    scan = log.scan(from_timestamp=TOTAL - 50)
    assert count(scan) == 50
    # A batch or two at the end of each earlier segment, and the one batch that matters.
    assert scan.report().bytes_read < 2 << 20
    assert scan.report().batches == 1


def test_a_time_index_that_lies_costs_no_rows(log: kraftlog.Log, tmp_path: Path) -> None:
    copy = tmp_path / "t-0"
    copy.mkdir()
    for path in log.path.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    segment = ROWS * BATCHES
    for number in range(SEGMENTS):
        name = f"{number * segment:020}.timeindex"
        (copy / name).write_bytes(struct.pack(">qI", 7, segment - 1))
    scan = kraftlog.open_log(copy).scan(from_timestamp=100, columns=["offset"])
    assert [offset for rows in scan for offset in pa.record_batch(rows)["offset"].to_pylist()] == list(
        range(100, TOTAL)
    )


@pytest.mark.parametrize(
    "columns", [[], ["offset"], ["topic", "partition"], ["sequence", "compression", "leader_epoch"]]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_headers_answer_what_they_can(log: kraftlog.Log, columns: list[str], threads: int) -> None:
    scan = log.scan(columns=columns, threads=threads, check_crc=False)
    assert count(scan) == TOTAL
    # 61 bytes of about 100 000, and a window where each segment begins.
    assert scan.report().bytes_read < log.size_bytes * 0.06
    checked = log.scan(columns=columns, threads=threads)
    assert count(checked) == TOTAL
    assert checked.report().bytes_read >= log.size_bytes


@pytest.mark.parametrize("size", [65_600, 100_000, 262_000])
def test_headers_of_large_batches_are_read_alone(tmp_path: Path, size: int) -> None:
    (tmp_path / "t-0").mkdir()
    data = b"".join(encode_batch([(1, None, bytes(size), [])], base_offset=number) for number in range(100))
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(data)
    scan = kraftlog.open_log(tmp_path / "t-0").scan(columns=[], check_crc=False)
    assert count(scan) == 100
    assert scan.report().bytes_read < (64 << 10) + 100 * 61 * 2


def test_rows_of_a_scan_by_headers_are_those_of_a_full_scan(log: kraftlog.Log) -> None:
    columns = ["offset", "sequence", "batch_base_offset", "batch_position", "compression", "is_control"]
    told = pa.table(log.scan(columns=columns, start_offset=1234, end_offset=TOTAL - 77))
    assert told.equals(
        pa.table(log.scan(columns=[*columns, "value"], start_offset=1234, end_offset=TOTAL - 77)).drop("value")
    )


def test_threads_keep_order_and_do_not_read_much_twice(log: kraftlog.Log) -> None:
    scan = log.scan(threads=3)
    assert pa.table(scan).equals(pa.table(log.scan()))
    assert scan.report().bytes_read <= log.size_bytes * 1.2


def test_a_scan_by_threads_can_be_left_at_any_time(log: kraftlog.Log) -> None:
    for taken in range(4):
        rows = iter(log.scan(threads=4, batch_rows=100))
        for _ in range(taken):
            next(rows)
        del rows


def test_splits_are_about_as_large_as_asked_and_hold_everything(log: kraftlog.Log) -> None:
    scan = log.scan(columns=["offset", "value"])
    for parts, most in [(scan.splits(4), 4), (scan.splits(split_bytes=1 << 20), 50), (scan.splits(1), 1)]:
        assert 1 <= len(parts) <= most
        assert [count(part) for part in parts if not count(part)] == []
        assert sum(count(part) for part in parts) == TOTAL
        assert sum(part.size_bytes for part in parts) == log.size_bytes
    # A cut lies at a batch, so that a part may have one batch more.
    assert all(part.size_bytes <= (1 << 20) + 110_000 for part in scan.splits(split_bytes=1 << 20))
    sizes = [part.size_bytes for part in scan.splits(4)]
    assert max(sizes) < 1.3 * min(sizes)
    with pytest.raises(ValueError, match="at least 1"):
        scan.splits(0)
