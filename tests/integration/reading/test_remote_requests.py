"""How much is asked of a store: indexes, ranges and columns decide which bytes are not fetched."""

from __future__ import annotations

import pickle
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kraftlog
from faulty_files import FaultyFiles, Request
from kraftlog._kraftlog import encode_batch
from kraftlog.reading import RemoteLog, fetch_counts
from s3_fixture import S3Server, s3_server

ROWS = 64
BATCHES = 800
SEGMENTS = 2
MIB = 1 << 20


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments of 50 MB with batches of 64 KB, each in the index; record ``n`` has timestamp ``n``."""
    directory = tmp_path_factory.mktemp("logs")
    (directory / "t-0").mkdir()
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
        stem = directory / "t-0" / f"{base:020}"
        stem.with_suffix(".log").write_bytes(data)
        # A segment that is written to has an index of 10 MiB, which is zeros at its end.
        stem.with_suffix(".index").write_bytes(index + bytes(10 * MIB - len(index)))
        stem.with_suffix(".timeindex").write_bytes(times)
    return directory


TOTAL = ROWS * BATCHES * SEGMENTS


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(skip_instance_cache=True)


def open_log(directory: Path, files: FaultyFiles) -> RemoteLog:
    log = kraftlog.open_log(str(directory / "t-0"), filesystem=files)
    assert isinstance(log, RemoteLog)
    return log


def size_of(requests: list[Request]) -> int:
    return sum(request.size_bytes for request in requests)


def rows_of(scan: kraftlog.reading.Scan) -> int:
    return sum(len(rows) for rows in scan)


def test_everything_is_fetched_once(directory: Path, files: FaultyFiles):
    log = open_log(directory, files)
    before = fetch_counts()
    scan = log.scan(columns=["value"])
    files.requests.clear()
    assert rows_of(scan) == TOTAL
    reads = files.reads_of("")
    assert size_of(reads) == log.size_bytes == scan.report().bytes_read
    # Windows of 1, 4 and then 8 MiB.
    assert len(reads) <= SEGMENTS * (2 + 50 / 8 + 1)
    assert max(read.size_bytes for read in reads) == 8 * MIB
    # The object is compared with the listing when it is met and when its last bytes are there.
    counts = fetch_counts() - before
    assert counts.reads == len(reads)
    assert counts.checks <= 2 * SEGMENTS + 1
    assert counts.lists == counts.retries == 0


def test_an_offset_range_fetches_about_its_bytes(directory: Path, files: FaultyFiles):
    log = open_log(directory, files)
    start, records = 20_000, 6400  # 6.4 MB in the middle of the first segment
    scan = log.scan(start_offset=start, end_offset=start + records)
    assert rows_of(scan) == records
    wanted = records * 1020
    assert wanted <= size_of(files.reads_of(".log")) <= wanted + 2 * 66_000
    # Of the index as much as it can have entries, not the zeros behind.
    assert size_of(files.reads_of(".index")) < 700_000
    assert len(files.reads_of(".index")) == 1
    assert len(files.reads_of("")) <= 6


def test_one_record_is_two_requests(directory: Path, files: FaultyFiles):
    log = open_log(directory, files)
    assert rows_of(log.scan(start_offset=40_000, end_offset=40_001)) == 1
    assert size_of(files.reads_of(".log")) <= 200_000
    assert len(files.reads_of(".log")) <= 3


def test_a_time_is_found_by_the_indexes(directory: Path, files: FaultyFiles):
    log = open_log(directory, files)
    found = log.offset_for_timestamp(TOTAL - 3 * ROWS)
    assert found is not None
    assert found.offset == TOTAL - 3 * ROWS
    assert size_of(files.reads_of(".log")) < 3 * MIB
    files.requests.clear()
    # In the middle too, where much could be fetched behind the record that is asked for.
    assert log.offset_for_timestamp(30_000) is not None
    assert size_of(files.reads_of(".log")) < MIB
    files.requests.clear()
    assert rows_of(log.scan(from_timestamp=TOTAL - 3 * ROWS)) == 3 * ROWS
    assert size_of(files.reads_of(".log")) < 3 * MIB


def test_a_time_range_by_offsets_fetches_about_its_bytes(directory: Path, files: FaultyFiles):
    log = open_log(directory, files)
    start, end = log.offset_for_timestamp(30_000), log.offset_for_timestamp(33_000)
    assert start is not None
    assert end is not None
    files.requests.clear()
    assert rows_of(log.scan(start_offset=start.offset, end_offset=end.offset)) == 3000
    assert size_of(files.reads_of(".log")) < 3000 * 1020 + 4 * 66_000


def test_a_split_asks_for_its_range_and_no_index(directory: Path):
    planner = FaultyFiles(skip_instance_cache=True)
    scan = open_log(directory, planner).scan()
    splits = scan.splits(split_bytes=16 * MIB)
    # Planned by the indexes, and the end of the log by its last batches.
    assert size_of(planner.reads_of(".log")) < MIB
    assert len(planner.reads_of(".index")) == SEGMENTS
    assert len(splits) == 8
    total = 0
    for split in splits:
        again = pickle.loads(pickle.dumps(split))
        files = again.sources[0].path.objects[0].location.filesystem
        assert rows_of(again) > 0
        total += rows_of(split)
        assert not files.reads_of("index")
        assert size_of(files.reads_of(".log")) <= split.size_bytes + 66_000
        assert len(files.reads_of(".log")) <= 6
    assert total == TOTAL


def test_headers_of_large_batches_are_fetched_alone(tmp_path: Path, files: FaultyFiles):
    """From 1 MiB on, a batch whose header says enough is stepped over if headers are trusted; else it is read whole."""
    (tmp_path / "t-0").mkdir()
    big = b"".join(encode_batch([(at, b"", bytes(2 * MIB), [])], base_offset=at) for at in range(20))
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(big)
    log = open_log(tmp_path, files)
    assert pa.table(log.scan(columns=["offset"], check_crc=False))["offset"].to_pylist() == list(range(20))
    assert size_of(files.reads_of(".log")) < 10 * MIB
    files.requests.clear()
    assert pa.table(log.scan(columns=["offset"]))["offset"].to_pylist() == list(range(20))
    assert size_of(files.reads_of(".log")) >= 40 * MIB
    files.requests.clear()
    assert pa.table(log.batches())["base_offset"].to_pylist() == list(range(20))
    assert size_of(files.reads_of(".log")) < 10 * MIB


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[S3Server]:
    with s3_server() as running:
        running.upload(directory, "kafka-logs")
        yield running


@pytest.mark.parametrize("library", ["s3fs", "pyarrow"])
def test_a_store_is_asked_no_more_than_that(server: S3Server, library: str):
    """What the server sees: one listing, and of a range in the middle its bytes."""
    arguments: dict[str, Any] = {"storage_options": server.s3fs_options}
    if library == "pyarrow":
        from pyarrow.fs import S3FileSystem

        arguments = {"filesystem": S3FileSystem(**server.pyarrow_options)}
    with server.counted() as seen:
        scan = kraftlog.scan("s3://logs/kafka-logs", start_offsets=20_000, end_offsets=26_400, **arguments)
    methods = Counter(request.method for request in seen)
    assert methods["LIST"] == 1
    assert methods["GET"] == 0
    with server.counted() as seen:
        assert rows_of(scan) == 6400
    methods = Counter(request.method for request in seen)
    assert methods["LIST"] == 0
    assert methods["GET"] <= 6
    assert methods["HEAD"] <= 6
    assert 6400 * 1020 <= size_of([request for request in seen if request.method == "GET"]) <= 6400 * 1020 + 900_000
