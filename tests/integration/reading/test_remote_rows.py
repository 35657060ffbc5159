"""Remote directories give the rows of the local scan, through fsspec and pyarrow.fs, whatever the range sizes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from pyarrow import fs

import kraftlog
from kraftlog.reading import RemoteLog, ScanOptions, scan_batches
from kraftlog.reading.engine_scan import Scan
from s3_fixture import S3Server, s3_server

NODE = Path(__file__).resolve().parents[2] / "golden" / "topics" / "node-1"


@pytest.fixture(scope="module")
def memory_url() -> str:
    fsspec.filesystem("memory").put(str(NODE), "/remote-rows", recursive=True)
    return "memory://remote-rows"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        running.upload(NODE, "node-1")
        yield running


@pytest.fixture(scope="module", params=["memory", "file", "pyarrow", "s3fs", "pyarrow-s3"])
def place(request: pytest.FixtureRequest, memory_url: str) -> Any:
    """Path and arguments of the golden topics in several file systems."""
    if request.param == "memory":
        return memory_url, {}
    if request.param == "file":
        return f"file://{NODE}", {}
    if request.param == "pyarrow":
        return str(NODE), {"filesystem": fs.LocalFileSystem()}
    running = request.getfixturevalue("server")
    if request.param == "s3fs":
        return "s3://logs/node-1", {"storage_options": running.s3fs_options}
    return "s3://logs/node-1", {"filesystem": fs.S3FileSystem(**running.pyarrow_options)}


@pytest.mark.slow
@pytest.mark.parametrize(("isolation_level", "threads"), [("read_uncommitted", 1), ("read_committed", 3)])
def test_rows_of_all_golden_topics_equal_those_of_the_local_scan(place: Any, isolation_level: Any, threads: int):
    url, arguments = place
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "headers", "batch_position", "leader_epoch"]
    options: dict[str, Any] = {"isolation_level": isolation_level, "columns": columns}
    wanted = pa.table(kraftlog.scan(NODE, **options))
    scan = kraftlog.scan(url, threads=threads, **options, **arguments)
    assert wanted.num_rows > 10_000
    assert pa.table(scan).equals(wanted)
    again: Scan = pickle.loads(pickle.dumps(scan))
    assert pa.table(again).equals(wanted)


def test_splits_hold_each_row_once_and_can_be_pickled(place: Any):
    url, arguments = place
    topics = ["g-none", "g-txn", "g-compact", "g-segment-1mib"]
    for options in ({}, {"isolation_level": "read_committed"}):
        wanted = pa.table(kraftlog.scan(NODE, topics=topics, **options))
        scan = kraftlog.scan(url, topics=topics, **options, **arguments)
        # Each one unpickled opens the file system anew.
        splits = [pickle.loads(pickle.dumps(split)) for split in scan.splits(split_bytes=100_000)]
        assert len(splits) > 5
        assert pa.concat_tables([pa.table(split) for split in splits]).equals(wanted)


def test_facts_equal_those_of_the_local_directory(memory_url: str):
    local, remote = kraftlog.LogDir(NODE), kraftlog.LogDir(memory_url)
    assert remote.topics == local.topics
    assert remote.checkpoints == local.checkpoints
    assert remote.meta_properties == local.meta_properties
    assert remote.was_clean_shutdown == local.was_clean_shutdown
    assert remote.size_bytes == local.size_bytes
    assert repr(remote) == "LogDir('memory://remote-rows')"
    names = ["topic_id", "log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset", "leader_epochs"]
    for wanted, found in zip(local.partitions(), remote.partitions(), strict=True):
        assert isinstance(found, RemoteLog)
        assert (found.topic, found.partition) == (wanted.topic, wanted.partition)
        assert {name: getattr(found, name) for name in names} == {name: getattr(wanted, name) for name in names}
        assert found.producers() == wanted.producers()
        assert found.aborted_transactions() == wanted.aborted_transactions()
        assert pa.table(found.batches(check_crc=True)).equals(pa.table(wanted.batches(check_crc=True)))
        for timestamp in (0, 1_700_000_000_000, 2**62):
            assert found.offset_for_timestamp(timestamp) == wanted.offset_for_timestamp(timestamp)
    assert pa.table(scan_batches(memory_url)).equals(pa.table(scan_batches(NODE)))


def test_offset_and_time_bounds_equal_those_of_the_local_scan(memory_url: str):
    for name in ("g-none-0", "g-zstd-0", "g-timestamps-0", "g-compact-0", "g-deleterecords-0", "g-logappend-0"):
        local, remote = kraftlog.open_log(NODE / name), kraftlog.open_log(f"{memory_url}/{name}")
        times = pa.table(local.scan(columns=["timestamp"]))["timestamp"].cast(pa.int64()).to_pylist()
        first, end = local.log_start_offset, local.log_end_offset
        third = (end - first) // 3
        for options in (
            {"start_offset": first + third, "end_offset": end - third},
            {"start_offset": end},
            {"from_timestamp": sorted(times)[len(times) // 2]},
            {"to_timestamp": sorted(times)[len(times) // 2]},
            {"end": "high_watermark"},
            {"start_offset": first + third, "from_timestamp": sorted(times)[len(times) // 4]},
        ):
            for threads in (1, 2):
                wanted = pa.table(local.scan(**options, threads=threads))
                assert pa.table(remote.scan(**options, threads=threads)).equals(wanted), (name, options)
        assert remote.scan(start_offset=first + 1).sources[0].start_offset == first + 1


def test_windows_of_any_size_give_the_same_rows(memory_url: str):
    """Batches that lie across the ends of windows are put together."""
    log = kraftlog.open_log(f"{memory_url}/g-segment-1mib-0")
    assert isinstance(log, RemoteLog)
    wanted = pa.table(kraftlog.open_log(NODE / "g-segment-1mib-0").scan())
    for binary_type in ("binary", "binary_view"):
        scan = log.with_window(1).scan(binary_type=binary_type)
        assert pa.table(scan).cast(wanted.schema).equals(wanted)


def test_a_log_without_any_index_is_read_from_its_start(tmp_path: Path):
    for name in ("g-none-0", "g-txn-0"):
        (tmp_path / name).mkdir()
        for segment in (NODE / name).glob("*.log"):
            (tmp_path / name / segment.name).write_bytes(segment.read_bytes())
    for options in ({}, {"isolation_level": "read_committed"}):
        local, remote = kraftlog.scan(tmp_path, **options), kraftlog.scan(f"file://{tmp_path}", **options)
        wanted = pa.table(local)
        assert wanted.num_rows > 500
        assert pa.table(remote).equals(wanted)
        parts = [pa.table(split) for split in remote.splits(split_bytes=10_000)]
        assert len(parts) > 3
        assert pa.concat_tables(parts).equals(wanted)


def test_an_odd_index_costs_requests_and_no_rows(tmp_path: Path):
    source = NODE / "g-none-0"
    target = tmp_path / "g-none-0"
    target.mkdir()
    for file in source.iterdir():
        data = bytearray(file.read_bytes())
        if file.suffix == ".index" and len(data) >= 16:
            data[7] ^= 0x5  # the first entry points into a batch
            data[-8:] = b"\xff" * 8
        (target / file.name).write_bytes(data)
    wanted = pa.table(kraftlog.open_log(source).scan(start_offset=500, end_offset=900))
    remote = kraftlog.open_log(f"file://{target}")
    for threads in (1, 2):
        assert pa.table(remote.scan(start_offset=500, end_offset=900, threads=threads)).equals(wanted)
    parts = remote.scan(start_offset=500, end_offset=900).splits(split_bytes=4096)
    assert pa.concat_tables([pa.table(part) for part in parts]).equals(wanted)


def test_options_that_make_no_sense_are_refused(tmp_path: Path, memory_url: str):
    with pytest.raises(ValueError, match="storage options are for URLs"):
        kraftlog.scan(tmp_path, storage_options={"key": "x"})
    with pytest.raises(ValueError, match="local directories have no storage options"):
        kraftlog.scan(f"file://{tmp_path}", storage_options={"key": "x"})
    with pytest.raises(ValueError, match="give one of both"):
        kraftlog.LogDir("memory://x", filesystem=fs.LocalFileSystem(), storage_options={"key": "x"})
    with pytest.raises(TypeError, match=r"must be of fsspec or pyarrow\.fs, not str"):
        kraftlog.LogDir("memory://x", filesystem="s3")
    with pytest.raises(FileNotFoundError, match="no files in memory://not-there"):
        kraftlog.LogDir("memory://not-there")
    with pytest.raises(FileNotFoundError, match="no partition of topic nope in memory://remote-rows"):
        kraftlog.scan(memory_url, topics=["nope"])
    with pytest.raises(ValueError, match="memory://remote-rows is not a partition's directory"):
        kraftlog.open_log(memory_url)


def test_schema_is_known_without_reading(memory_url: str):
    scan = kraftlog.scan(memory_url, topics=["g-none"])
    assert pa.schema(scan).equals(pa.schema(kraftlog.scan(NODE, topics=["g-none"])))
    assert isinstance(scan.options, ScanOptions)
