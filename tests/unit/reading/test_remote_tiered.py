"""Tiered storage laid out by hand: which copy of a segment is read where copies overlap, differ or are missing."""

from __future__ import annotations

import struct
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import CorruptRecordError, LogError
from kraftlog.reading import LeaderEpoch, RemoteLog
from kraftlog.reading.remote_tiered import Copy, chosen_copies
from kraftlog.types import Uuid

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAA-1"
BATCH = 10


def name_of_copy() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def write_copy(
    directory: Path, base: int, end: int, epochs: Sequence[tuple[int, int]], *, value: bytes = b"v", whole: bool = True
) -> Path:
    """A copy of a segment as LocalTieredStorage has it; records are ``value`` and their offset."""
    directory.mkdir(parents=True, exist_ok=True)
    data, index = bytearray(), bytearray()
    for first in range(base, end, BATCH):
        last = min(first + BATCH, end) - 1
        index += struct.pack(">II", last - base, len(data))
        epoch = max((number for number, start in epochs if start <= first), default=0)
        records = [(1000 + at, b"k", value + b"%d" % at, []) for at in range(first, last + 1)]
        batch = bytearray(encode_batch(records, base_offset=first))
        batch[12:16] = struct.pack(">i", epoch)  # which the checksum does not cover
        data += batch
    stem = f"{base:020}-{name_of_copy()}"
    (directory / f"{stem}.log").write_bytes(data)
    (directory / f"{stem}.index").write_bytes(index)
    if whole:
        lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs), ""]
        (directory / f"{stem}.leader_epoch_checkpoint").write_text("\n".join(lines))
    return directory / f"{stem}.log"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "kafka-tiered-storage" / f"orders-3-{TOPIC_ID}"


def values_of(scan: kraftlog.reading.Scan) -> list[bytes]:
    return pa.table(scan)["value"].to_pylist()


def values(start: int, end: int, value: bytes = b"v") -> list[bytes]:
    return [value + b"%d" % at for at in range(start, end)]


def check_all_ways(directory: Path, wanted: list[bytes]) -> RemoteLog:
    """The same rows from one thread and several, by splits, and from the middle."""
    log = kraftlog.open_log(directory)
    assert isinstance(log, RemoteLog)
    assert (log.topic, log.partition, log.topic_id) == ("orders", 3, Uuid.parse(TOPIC_ID))
    assert values_of(log.scan()) == wanted
    assert values_of(log.scan(threads=3)) == wanted
    parts = log.scan().splits(split_bytes=300)
    assert len(parts) > 2
    assert [value for part in parts for value in values_of(part)] == wanted
    middle = len(wanted) // 2
    assert values_of(log.scan(start_offset=log.log_start_offset + middle)) == wanted[middle:]
    assert values_of(kraftlog.scan(directory.parent, topics="orders")) == wanted
    assert values_of(kraftlog.scan(f"file://{directory.parent}")) == wanted
    return log


def test_copies_that_join_are_one_log(directory: Path):
    for base, end in ((0, 100), (100, 200), (200, 250)):
        write_copy(directory, base, end, [(0, 0)])
    log = check_all_ways(directory, values(0, 250))
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 250, 250)
    assert log.leader_epochs == (LeaderEpoch(0, 0),)
    assert kraftlog.LogDir(directory.parent).topics[0].topic_id == log.topic_id


def test_copies_that_overlap_after_a_change_of_leader_give_each_offset_once(directory: Path):
    # The new leader rolls at other offsets, and copies some again.
    write_copy(directory, 0, 100, [(0, 0)])
    write_copy(directory, 100, 180, [(0, 0)])
    write_copy(directory, 150, 300, [(0, 0), (2, 180)])
    # Copied twice, and one that lies within another.
    write_copy(directory, 150, 300, [(0, 0), (2, 180)])
    write_copy(directory, 20, 60, [(0, 0)])
    log = check_all_ways(directory, values(0, 300))
    assert log.leader_epochs == (LeaderEpoch(0, 0), LeaderEpoch(2, 180))
    assert [(segment.base_offset, segment.end_offset) for segment in log.segments] == [(0, 100), (100, 150), (150, 300)]


def test_what_a_leader_truncated_is_not_read(directory: Path):
    # The leader of epoch 1 copied up to 200; that of epoch 2 began at 120 and has other records from there on.
    write_copy(directory, 0, 100, [(1, 0)])
    write_copy(directory, 100, 200, [(1, 0)], value=b"lost")
    write_copy(directory, 110, 160, [(1, 0), (2, 120)], value=b"lost")
    write_copy(directory, 120, 220, [(1, 0), (2, 120)])
    log = kraftlog.open_log(directory)
    wanted = [*values(0, 100), *values(100, 120, b"lost"), *values(120, 220)]
    assert values_of(log.scan()) == wanted
    assert values_of(log.scan(threads=2)) == wanted
    assert [value for part in log.scan().splits(split_bytes=300) for value in values_of(part)] == wanted


def test_copies_that_are_not_finished_are_left_out(directory: Path, caplog: pytest.LogCaptureFixture):
    write_copy(directory, 0, 100, [(0, 0)])
    write_copy(directory, 100, 150, [(0, 0)], value=b"half", whole=False)
    write_copy(directory, 100, 200, [(0, 0)])
    check_all_ways(directory, values(0, 200))
    assert "1 copies of segments are not finished and are not read" in caplog.text


def test_a_missing_copy_is_an_error(directory: Path):
    write_copy(directory, 0, 100, [(0, 0)])
    write_copy(directory, 110, 200, [(0, 0)])
    with pytest.raises(LogError, match=r"no copy has the offsets from 100 up to 110, behind .*00000000000000000000-"):
        kraftlog.open_log(directory)


def test_a_batch_that_two_copies_cut_differently_is_an_error():
    """No broker does that: batches are copied as they are, and truncated between batches."""
    # Bounds are told by the copies: here the second says that it begins within a batch of the first.
    first = Copy({}, 0, 100, (LeaderEpoch(0, 0),))
    second = Copy({}, 95, 200, (LeaderEpoch(0, 0),))
    chosen, _ = chosen_copies("x", [first, second])
    assert [(copy.base_offset, end) for copy, end in chosen] == [(0, 95), (95, 200)]


def test_a_batch_across_the_end_of_its_copy_is_refused(directory: Path):
    write_copy(directory, 0, 100, [(0, 0)])
    write_copy(directory, 95, 200, [(0, 0)])
    log = kraftlog.open_log(directory)
    with pytest.raises(CorruptRecordError, match="the batch goes on behind offset 95, from which on another copy"):
        list(log.scan())


def test_names_with_dashes_and_underscores_are_taken_apart(tmp_path: Path):
    directory = tmp_path / "a-1-b_c.d-12-_-AAAAAAAAAAAAAAAAAA-7"
    write_copy(directory, 0, 20, [(0, 0)])
    log = kraftlog.open_log(directory)
    assert (log.topic, log.partition) == ("a-1-b_c.d", 12)
    assert kraftlog.LogDir(tmp_path).topics[0].name == "a-1-b_c.d"


def test_a_file_of_epochs_that_is_none_is_named(directory: Path):
    log = write_copy(directory, 0, 20, [(0, 0)])
    log.with_suffix(".leader_epoch_checkpoint").write_text("0\n7\n0 0\n")
    with pytest.raises(LogError, match=r"leader_epoch_checkpoint: not a checkpoint: .* 7 entries promised, 1 found"):
        kraftlog.open_log(directory)
