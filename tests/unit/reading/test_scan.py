"""Scans over directories made here: bounds, projections, ends of files, errors."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import kraftlog
from kraftlog import reading
from kraftlog._kraftlog import decode_batches, decode_cells, encode_batch, plan_splits
from kraftlog.errors import CorruptRecordError, OffsetOutOfRangeError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def batch(
    base_offset: int, count: int, *, compression: str = "none", base_time: int = 1000, headers: bool = False
) -> bytes:
    records = [
        (
            base_time + number,
            None if number % 5 == 4 else b"k%d" % (base_offset + number),
            None if number % 7 == 6 else b"v" * (number % 40),
            [("h", b"x"), ("empty", None)] if headers and number % 3 == 0 else [],
        )
        for number in range(count)
    ]
    return encode_batch(records, base_offset=base_offset, compression=compression)


def write_log(directory: Path, *segments: list[bytes]) -> Path:
    directory.mkdir(parents=True)
    for batches in segments:
        (base_offset,) = struct.unpack_from(">q", batches[0])
        (directory / f"{base_offset:020}.log").write_bytes(b"".join(batches))
    return directory


def offsets(stream: kraftlog.reading.ArrowStream) -> list[int]:
    return pa.table(stream)["offset"].to_pylist()


def test_bounds_cut_inside_batches_and_across_segments(tmp_path: Path) -> None:
    log = kraftlog.open_log(
        write_log(tmp_path / "t-0", [batch(0, 10), batch(10, 10)], [batch(20, 10, compression="zstd"), batch(30, 10)])
    )
    for start, end in [(0, 40), (3, 4), (9, 11), (15, 35), (39, 100), (40, 41), (25, 25)]:
        assert offsets(log.scan(start_offset=start, end_offset=end)) == list(range(start, min(end, 40)))


def test_rows_of_a_batch_are_bounded_and_none_is_lost(tmp_path: Path) -> None:
    log = kraftlog.open_log(write_log(tmp_path / "t-0", [batch(0, 100, compression="lz4"), batch(100, 23)]))
    sizes = [len(rows) for rows in log.scan(batch_rows=7)]
    assert sizes == [7] * 17 + [4]
    assert offsets(log.scan(batch_rows=7)) == list(range(123))
    assert max(len(rows) for rows in log.scan(batch_bytes=100)) < 20
    assert offsets(log.scan(batch_bytes=1)) == list(range(123))


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("binary_type", ["binary", "large_binary", "binary_view"])
def test_projection_changes_columns_not_rows(compression: str, binary_type: str) -> None:
    data = batch(5, 300, compression=compression, headers=True)
    whole = pa.record_batch(decode_batches(data, binary_type=binary_type, topic="t", partition=3))
    whole.validate(full=True)
    for columns in (
        ["value"],
        ["offset"],
        ["headers", "key"],
        ["topic", "partition"],
        ["timestamp", "timestampType"],
        [],
    ):
        part = pa.record_batch(decode_batches(data, columns=columns, binary_type=binary_type, topic="t", partition=3))
        assert part.num_rows == 300
        for name in columns:
            assert part[name].equals(whole["timestamp_type" if name == "timestampType" else name])


def test_the_largest_timestamp_is_an_exclusive_end_too(tmp_path: Path) -> None:
    largest = 2**63 - 1
    log = kraftlog.open_log(write_log(tmp_path / "t-0", [batch(0, 3, base_time=largest - 2)]))
    for columns in (["offset"], ["offset", "timestamp"], None):
        assert offsets(log.scan(columns=columns, to_timestamp=largest)) == [0, 1]
        assert offsets(log.scan(columns=columns, to_timestamp=largest - 1)) == [0]
        assert offsets(log.scan(columns=columns, from_timestamp=largest)) == [2]
        assert offsets(log.scan(columns=columns)) == [0, 1, 2]


def test_a_path_without_logs_says_what_is_there(tmp_path: Path) -> None:
    segment = next(write_log(tmp_path / "logs" / "orders-0", [batch(0, 3)]).glob("*.log"))
    for read in (kraftlog.scan, kraftlog.open_log, kraftlog.LogDir):
        with pytest.raises(NotADirectoryError, match=r"0000\.log is a file; give .* such as .*/logs/orders-0, or"):
            read(segment)
        with pytest.raises(FileNotFoundError, match=r"no directory .*/nowhere"):
            read(tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileNotFoundError, match=r"/empty is neither a log directory nor .*: it is empty"):
        kraftlog.scan(empty)
    (empty / "dbus-1").mkdir()  # as in /etc
    (empty / "hosts").touch()
    for paths in (empty, [tmp_path / "logs", empty]):
        with pytest.raises(FileNotFoundError, match=r"/empty is neither .*: it has dbus-1, hosts; no directory of a"):
            kraftlog.scan(paths)
        with pytest.raises(FileNotFoundError, match="it has dbus-1, hosts"):
            reading.scan_batches(paths)
    (empty / "meta.properties").touch()
    assert offsets(kraftlog.scan(empty)) == []


def test_timestamps_filter_records(tmp_path: Path) -> None:
    log = kraftlog.open_log(write_log(tmp_path / "t-0", [batch(0, 10, base_time=1000), batch(10, 10, base_time=500)]))
    assert offsets(log.scan(from_timestamp=1004)) == [4, 5, 6, 7, 8, 9]
    assert offsets(log.scan(to_timestamp=503)) == [10, 11, 12]
    moment = dt.datetime(1970, 1, 1, 0, 0, 1, 8000, tzinfo=dt.UTC)
    assert offsets(log.scan(from_timestamp=moment)) == [8, 9]
    with pytest.raises(ValueError, match="time zone"):
        log.scan(from_timestamp=moment.replace(tzinfo=None))


def test_truncated_end_of_the_last_segment_is_the_end(tmp_path: Path) -> None:
    whole, cut = batch(0, 10), batch(10, 10)
    log = kraftlog.open_log(write_log(tmp_path / "t-0", [whole, cut[:-1]]))
    assert offsets(log.scan()) == list(range(10))
    assert log.log_end_offset == 10


def test_zeros_at_the_end_of_the_last_segment_are_the_end(tmp_path: Path) -> None:
    log = kraftlog.open_log(write_log(tmp_path / "t-0", [batch(0, 10), bytes(4096)]))
    assert offsets(log.scan()) == list(range(10))
    assert log.log_end_offset == 10


def test_truncated_inner_segment_is_corrupt(tmp_path: Path) -> None:
    first = batch(0, 10)
    log = kraftlog.open_log(write_log(tmp_path / "t-0", [first, batch(10, 10)[:-1]], [batch(20, 5)]))
    with pytest.raises(CorruptRecordError, match=rf"00000000000000000000.log position {len(first)}: .*within a batch"):
        list(log.scan())


@pytest.mark.parametrize("compression", CODECS)
def test_wrong_checksum_names_file_and_position_after_the_rows_before(tmp_path: Path, compression: str) -> None:
    first, second = batch(0, 10), bytearray(batch(10, 10, compression=compression))
    second[-1] ^= 1
    log = kraftlog.open_log(write_log(tmp_path / "t-0", [first, bytes(second), batch(20, 10)]))
    found: list[int] = []
    with pytest.raises(CorruptRecordError, match=rf"00000000000000000000.log position {len(first)}: CRC 0x.* 0x"):
        found.extend(offset for rows in log.scan() for offset in pa.record_batch(rows)["offset"].to_pylist())
    assert found == list(range(10))
    with pytest.raises(pa.ArrowInvalid, match=rf"position {len(first)}: CRC"):
        pa.table(log.scan())


def test_errors_of_arguments_come_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        kraftlog.open_log(tmp_path / "t-0")
    with pytest.raises(FileNotFoundError):
        kraftlog.scan(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="orders"):
        kraftlog.scan(tmp_path, topics=["orders"])
    with pytest.raises(ValueError, match="partition's directory"):
        kraftlog.open_log(tmp_path)
    log = kraftlog.open_log(write_log(tmp_path / "t-0", [batch(10, 10)]))
    with pytest.raises(OffsetOutOfRangeError, match="before the log start offset 10"):
        log.scan(start_offset=9)
    with pytest.raises(ValueError, match='no column "vaule"'):
        log.scan(columns=["vaule"])
    with pytest.raises(ValueError, match="asked for twice"):
        log.scan(columns=["value", "value"])
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        log.scan(from_timestamp=2**63)
    with pytest.raises(ValueError, match="batch_rows"):
        log.scan(batch_rows=0)
    with pytest.raises(ValueError, match="binary_type"):
        log.scan(binary_type="utf8")  # type: ignore[arg-type]


def test_log_start_offset_checkpoint_hides_what_was_deleted(tmp_path: Path) -> None:
    log = kraftlog.open_log(write_log(tmp_path / "t-0", [batch(0, 10)]))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\nother 0 5\nt 0 4\n")
    assert log.log_start_offset == 4
    assert offsets(log.scan()) == [4, 5, 6, 7, 8, 9]
    assert offsets(kraftlog.scan(tmp_path)) == [4, 5, 6, 7, 8, 9]


def test_wrong_index_costs_no_records(tmp_path: Path) -> None:
    first = batch(0, 10)
    path = write_log(tmp_path / "t-0", [first, batch(10, 10), batch(20, 10)])
    log = kraftlog.open_log(path)
    rnd = random.Random(5)
    for entries in (
        [(19, len(first))],
        [(19, len(first) + 1)],
        [(3, 2**31), (19, 7)],
        [(rnd.randrange(2**32), rnd.randrange(2**32)) for _ in range(40)],
        [(0, 0)] * 100,
    ):
        (path / f"{0:020}.index").write_bytes(b"".join(struct.pack(">II", *entry) for entry in entries) + b"\1")
        (path / f"{0:020}.timeindex").write_bytes(b"\xff" * 13)
        for start in (0, 5, 10, 15, 25, 29):
            assert offsets(log.scan(start_offset=start)) == list(range(start, 30))
        assert log.log_end_offset == 30


def test_splits_hold_every_offset_once_without_an_index(tmp_path: Path) -> None:
    path = write_log(tmp_path / "t-0", [batch(at, 10) for at in range(0, 500, 10)], [batch(500, 10)])
    whole = pa.table(kraftlog.open_log(path).scan())
    for split_bytes in (1, 1000, 5000, 1 << 20):
        splits = plan_splits(path, split_bytes=split_bytes, start_offset=3, end_offset=507)
        parts = [
            kraftlog.open_log(path).scan(start_offset=split.start_offset, end_offset=split.end_offset)
            for split in splits
        ]
        assert pa.concat_tables([pa.table(part) for part in parts]).equals(whole.slice(3, 504))


CELLS = [batch(0, 3), None, b"", batch(3, 2, compression="zstd") + batch(5, 1), batch(9, 1)[:-1]]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_decoded_cells_are_kept_apart(kind: pa.DataType) -> None:
    cells = pa.array([b"before", *CELLS], kind).slice(1)
    lists, after, bad = decode_cells(cells, columns=["offset"], keep_truncated=True)
    assert (after, bad) == (5, 0)
    assert [cell and [row["offset"] for row in cell] for cell in pa.array(lists).to_pylist()] == [
        [0, 1, 2],
        None,
        [],
        [3, 4, 5],
        [],
    ]


def test_a_bad_cell_is_named_or_null() -> None:
    cells = pa.array([*CELLS[:4], batch(7, 2) + batch(9, 1)[:-1], b"x" * 100, batch(12, 1)], pa.binary())
    with pytest.raises(CorruptRecordError, match=r"^row 1004 position \d+: \d+ bytes are not a whole batch"):
        decode_cells(cells, first_row=1000)
    damaged = bytearray(batch(40, 2))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError, match=r"^row 1 position 0: .*CRC.*base_offset 40"):
        decode_cells(pa.array([b"", bytes(damaged)]))
    columns = ["offset", "value", "headers", "leader_epoch", "compression", "sequence", "timestampType", "is_control"]
    lists, after, bad = decode_cells(cells, on_error="null", columns=columns)
    assert (after, bad) == (7, 2)
    found = [cell and [row["offset"] for row in cell] for cell in pa.array(lists).to_pylist()]
    assert found == [[0, 1, 2], None, [], [3, 4, 5], None, None, [12]]
    pa.array(lists).validate(full=True)


def test_cells_are_decoded_in_bounded_pieces() -> None:
    one = encode_batch([(1, None, bytes(100_000), [])] * 10, compression="zstd")
    cells = pa.array([one] * 20)
    start, pieces = 0, []
    while start < len(cells):
        lists, start, _ = decode_cells(cells, start=start, columns=["value"], batch_bytes=2_500_000)
        pieces.append(len(lists))
    assert pieces == [2] * 10
    lists, after, _ = decode_cells(cells, columns=["value"], batch_bytes=1000)
    assert (after, len(pa.array(lists)[0])) == (1, 10)  # one cell that is larger than the bound


def test_views_outlive_the_bytes_they_were_read_from(tmp_path: Path) -> None:
    log = kraftlog.open_log(write_log(tmp_path / "t-0", [batch(0, 2000), batch(2000, 500, compression="lz4")]))
    kept = list(log.scan(binary_type="binary_view", batch_rows=64))
    for _ in range(3):
        list(log.scan(binary_type="binary_view", batch_rows=64))
    values = [value for rows in kept for value in pa.record_batch(rows)["value"].to_pylist()]
    assert values == pa.table(log.scan())["value"].to_pylist()


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_end_in_an_error_or_in_rows(seed: int) -> None:
    rnd = random.Random(seed)
    good = [batch(0, 20, compression=codec, headers=True) for codec in CODECS]
    for _ in range(2000):
        data = bytearray(rnd.choice(good))
        for _ in range(rnd.randrange(1, 4)):
            data[rnd.randrange(12, len(data))] = rnd.randrange(256)
        if rnd.random() < 0.2:
            del data[rnd.randrange(len(data)) :]
        for binary_type in ("binary", "binary_view"):
            try:
                rows = pa.record_batch(decode_batches(bytes(data), binary_type=binary_type, check_crc=False))
            except CorruptRecordError:
                continue
            rows.validate(full=True)


def test_random_bytes_are_refused_or_too_short() -> None:
    rnd = random.Random(9)
    for _ in range(500):
        data = rnd.randbytes(rnd.randrange(400))
        with contextlib.suppress(CorruptRecordError):
            assert len(decode_batches(data)) == 0
