"""Directories that change under a scan, damage that is skipped, and segments in the formats before record batches."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kraftlog
from batch_rows import GOLDEN
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import CorruptRecordError, OffsetOutOfRangeError

THREADS = [1, 3]


def batch(base_offset: int, count: int = 10) -> bytes:
    records = [(1000 + at, b"k%d" % at, b"v" * 200, []) for at in range(base_offset, base_offset + count)]
    return encode_batch(records, base_offset=base_offset)


def write_segment(directory: Path, batches: list[bytes], *, suffix: str = "", index: bool = False) -> Path:
    directory.mkdir(exist_ok=True)
    (base_offset,) = struct.unpack_from(">q", batches[0])
    path = directory / f"{base_offset:020}.log{suffix}"
    path.write_bytes(b"".join(batches))
    if index:
        positions = [sum(map(len, batches[:number])) for number in range(len(batches))]
        (directory / f"{base_offset:020}.index{suffix}").write_bytes(
            b"".join(
                struct.pack(">II", struct.unpack_from(">q", batch)[0] + 9 - base_offset, position)
                for batch, position in zip(batches, positions, strict=True)
            )
        )
    return path


def write_log(directory: Path) -> kraftlog.Log:
    """Three segments of 1000 records."""
    for base in (0, 1000, 2000):
        write_segment(directory, [batch(at) for at in range(base, base + 1000, 10)])
    return kraftlog.open_log(directory)


def offsets(stream: Any) -> list[int]:
    return [offset for rows in stream for offset in pa.record_batch(rows)["offset"].to_pylist()]


def first_rows(log: kraftlog.Log, **options: Any) -> tuple[Any, list[int]]:
    """A pass that has listed the directory and opened its first segment only."""
    rows = iter(log.scan(columns=["offset", "value"], batch_rows=100, **options))
    return rows, pa.record_batch(next(rows))["offset"].to_pylist()


def test_what_is_appended_or_rolled_later_is_not_part_of_a_pass(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0")
    rows, found = first_rows(log)
    write_segment(log.path, [batch(3000)])
    assert found + offsets(rows) == list(range(3000))
    assert offsets(log.scan()) == list(range(3010))


def test_a_deleted_segment_that_is_open_is_read_to_its_end(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0")
    rows, found = first_rows(log, end_offset=1000)
    (log.path / f"{0:020}.log").unlink()
    assert found + offsets(rows) == list(range(1000))


def test_retention_under_a_scan_is_an_error_that_names_the_new_start(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0")
    rows, found = first_rows(log)
    for base in (0, 1000):
        (log.path / f"{base:020}.log").rename(log.path / f"{base:020}.log.deleted")
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 1000 is outside \[2000, "):
        found.extend(offset for row in rows for offset in pa.record_batch(row)["offset"].to_pylist())
    assert found == list(range(1000))


def test_compaction_that_merges_segments_under_a_scan_loses_and_repeats_nothing(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0")
    rows, found = first_rows(log)
    for base in (0, 1000):
        (log.path / f"{base:020}.log").rename(log.path / f"{base:020}.log.deleted")
    survivors = [batch(at) for at in range(0, 2000, 50)]
    write_segment(log.path, survivors)
    found += offsets(rows)
    # The first segment as it was when the pass opened it, the second as compaction left it.
    compacted = [at + more for at in range(0, 2000, 50) for more in range(10)]
    assert found == [*range(1000), *(at for at in compacted if at >= 1000), *range(2000, 3000)]
    assert offsets(log.scan()) == [*compacted, *range(2000, 3000)]


def test_compaction_under_a_scan_by_threads_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Three pieces are in flight when the last segments are merged; none of these is open yet."""
    directory = tmp_path / "t-0"
    for base in range(0, 10_000, 1000):
        write_segment(directory, [batch(at) for at in range(base, base + 1000, 10)])
    rows, found = first_rows(kraftlog.open_log(directory), threads=2)
    for base in (6000, 7000, 8000):
        (directory / f"{base:020}.log").rename(directory / f"{base:020}.log.deleted")
    write_segment(directory, [batch(at) for at in range(6000, 9000, 50)])
    found += offsets(rows)
    compacted = [at + more for at in range(6000, 9000, 50) for more in range(10)]
    assert found == [*range(6000), *compacted, *range(9000, 10_000)]


@pytest.mark.parametrize("threads", THREADS)
def test_a_swap_file_stands_for_the_segment_that_is_gone(tmp_path: Path, threads: int) -> None:
    """Kafka has renamed one of two merged segments away, and not yet given the new file its name."""
    log = write_log(tmp_path / "t-0")
    write_segment(log.path, [batch(at) for at in range(0, 2000, 50)], suffix=".swap", index=True)
    assert offsets(log.scan(threads=threads)) == list(range(3000))
    (log.path / f"{0:020}.log").rename(log.path / f"{0:020}.log.deleted")
    compacted = [at + more for at in range(0, 2000, 50) for more in range(10)]
    serial = offsets(log.scan())
    assert serial == [*compacted, *range(2000, 3000)]
    assert offsets(log.scan(start_offset=1234)) == [at for at in serial if at >= 1234]
    (log.path / f"{1000:020}.log").rename(log.path / f"{1000:020}.log.deleted")
    assert offsets(log.scan(threads=threads)) == serial


def test_a_topic_that_is_deleted_under_a_scan_is_a_missing_file(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0")
    rows, _ = first_rows(log)
    log.path.rename(tmp_path / "t-0.0123456789abcdef0123456789abcdef-delete")
    with pytest.raises(FileNotFoundError, match="t-0"):
        offsets(rows)


def test_a_tail_that_a_follower_truncates_is_the_end(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0")
    path = log.path / f"{2000:020}.log"
    rows = iter(log.scan(start_offset=2000, batch_rows=100, batch_bytes=1 << 10, columns=["offset", "value"]))
    found = pa.record_batch(next(rows))["offset"].to_pylist()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 3 + 5)
    found += offsets(rows)
    assert found == list(range(2000, 2000 + len(found)))
    assert offsets(log.scan(start_offset=2000)) == list(range(2000, 2330))


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("start", [0, 1500, 1770])
def test_damage_is_skipped_and_counted(tmp_path: Path, threads: int, start: int) -> None:
    batches = [batch(at) for at in range(1000, 2000, 10)]
    size = len(batches[0])
    broken_records, broken_length, broken_last = bytearray(batches[70]), bytearray(batches[80]), bytearray(batches[99])
    broken_records[-3] ^= 1
    broken_length[8:12] = struct.pack(">i", 5)
    broken_last[-1] ^= 1
    batches[70], batches[80], batches[99] = bytes(broken_records), bytes(broken_length), bytes(broken_last)
    directory = tmp_path / "t-0"
    write_segment(directory, [batch(at) for at in range(0, 1000, 10)])
    path = write_segment(directory, batches, index=True)
    write_segment(directory, [batch(2000)])
    log = kraftlog.open_log(directory)
    good = [at for at in range(2010) if at // 10 not in {170, 180, 199}]
    for options in ({}, {"batch_rows": 3}, {"binary_type": "binary_view"}, {"columns": ["offset", "key"]}):
        scan = log.scan(on_corrupt="skip", start_offset=start, threads=threads, **options)
        assert offsets(scan) == [at for at in good if at >= start]
        report = scan.report()
        damaged = [(Path(skipped.path), skipped.position, skipped.end_position) for skipped in report.skipped]
        expected = [(path, number * size, (number + 1) * size) for number in (70, 80, 99)]
        assert damaged == [row for row in expected if 1000 + row[1] // size * 10 + 9 >= start]
        assert report.skipped_count == len(damaged)
        assert report.skipped[-1].reason.startswith("CRC 0x")
        assert report.skipped[-1].base_offset == 1990
    found: list[int] = []
    stream = (pa.record_batch(rows)["offset"].to_pylist() for rows in log.scan(threads=threads, batch_rows=64))
    with pytest.raises(CorruptRecordError, match=rf"00000000000000001000.log position {70 * size}: CRC .*offset 1700"):
        found.extend(offset for part in stream for offset in part)
    assert found == list(range(1700))


def test_a_bad_length_costs_one_batch_without_an_index_too(tmp_path: Path) -> None:
    batches = [batch(at) for at in range(0, 100, 10)]
    batches[4] = batches[4][:8] + struct.pack(">i", 5) + batches[4][12:]
    write_segment(tmp_path / "t-0", batches)
    write_segment(tmp_path / "t-0", [batch(100)])
    scan = kraftlog.open_log(tmp_path / "t-0").scan(on_corrupt="skip")
    assert offsets(scan) == [*range(40), *range(50, 110)]
    (skipped,) = scan.report().skipped
    assert (skipped.position, skipped.end_position) == (sum(map(len, batches[:4])), sum(map(len, batches[:5])))


def test_the_high_watermark_can_end_a_scan(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0")
    with pytest.raises(FileNotFoundError, match="replication-offset-checkpoint"):
        log.scan(end="high_watermark")
    assert log.high_watermark is None
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 1234\n")
    assert log.high_watermark == 1234
    assert offsets(log.scan(end="high_watermark")) == list(range(1234))
    assert offsets(log.scan(end="high_watermark", end_offset=7)) == list(range(7))
    write_segment(tmp_path / "new-0", [batch(5)])
    assert offsets(kraftlog.scan(tmp_path, end="high_watermark", topics="new")) == []
    with pytest.raises(ValueError, match="log_end or high_watermark"):
        log.scan(end="later")  # type: ignore[arg-type]


def test_offsets_and_partitions_of_many(tmp_path: Path) -> None:
    for name, base in (("a-0", 0), ("a-1", 20), ("b-0", 5)):
        write_segment(tmp_path / name, [batch(base), batch(base + 10)])

    def found(**options: Any) -> list[tuple[str, int, int]]:
        table = pa.table(kraftlog.scan(tmp_path, columns=["topic", "partition", "offset"], **options))
        return [(row["topic"], row["partition"], row["offset"]) for row in table.to_pylist()]

    everything = (
        [("a", 0, n) for n in range(20)] + [("a", 1, n) for n in range(20, 40)] + [("b", 0, n) for n in range(5, 25)]
    )
    assert found() == everything
    assert found(start_offsets=12, end_offsets=22) == [row for row in everything if 12 <= row[2] < 22]
    assert found(start_offsets={("a", 1): 30, 0: 7}) == [row for row in everything if row[2] >= (30 if row[1] else 7)]
    assert found(partitions=[1]) == [row for row in everything if row[1] == 1]
    assert found(partitions=[("b", 0), 1]) == [row for row in everything if row[:2] != ("a", 0)]
    with pytest.raises(OffsetOutOfRangeError):
        found(start_offsets={("a", 1): 3})
    with pytest.raises(ValueError, match="which is not scanned"):
        found(end_offsets={("c", 0): 3})
    with pytest.raises(FileNotFoundError, match="no partition 7"):
        found(partitions=[0, 7])


def legacy_rows(magic: int) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / "vectors" / f"batches-magic{magic}.jsonl.gz", "rt") as lines:
        return [row for row in map(json.loads, lines) if row["input"]["baseOffset"] > 0]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("binary_type", ["binary", "binary_view"])
def test_a_segment_with_all_three_formats_gives_its_rows(tmp_path: Path, threads: int, binary_type: str) -> None:
    sets = sorted([*legacy_rows(0), *legacy_rows(1)], key=lambda row: row["input"]["baseOffset"])
    parts: list[bytes] = []
    expected: list[int] = []
    for row in sets:
        numbers = [record["offset"] for batch in row["decoded"] for record in batch["records"]]
        if expected and numbers[0] <= expected[-1]:
            continue
        parts.append(bytes.fromhex(row["hex"]))
        expected += numbers
        parts.append(batch(numbers[-1] + 1, 3))
        expected += range(numbers[-1] + 1, numbers[-1] + 4)
    assert len(parts) > 60
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"".join(parts))
    log = kraftlog.open_log(directory)
    assert offsets(log.scan(binary_type=binary_type, threads=threads)) == expected
    assert offsets(log.scan(columns=["offset"], threads=threads)) == expected
    assert sum(len(rows) for rows in log.scan(columns=[])) == len(expected)
    assert offsets(log.scan(columns=["offset"], isolation_level="read_committed")) == expected
    middle = expected[len(expected) // 2]
    assert offsets(log.scan(start_offset=middle, columns=["offset"])) == [at for at in expected if at >= middle]
    parts_of_it = log.scan(columns=["offset"]).splits(split_bytes=4000)
    assert len(parts_of_it) > 5
    assert [offset for part in parts_of_it for offset in offsets(part)] == expected
    value = pa.table(log.scan(columns=["value"], end_offset=expected[0] + 1))["value"][0].as_py()
    assert value == base64.b64decode(sets[0]["input"]["records"][0]["value"] or "")
