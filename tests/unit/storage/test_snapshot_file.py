from __future__ import annotations

import contextlib

import pytest

from batch_rows import GOLDEN
from kraftlog._kraftlog import read_batches
from kraftlog.errors import CorruptRecordError
from kraftlog.storage.snapshot_file import (
    SNAPSHOT_RECORDS_PER_BATCH,
    Snapshot,
    SnapshotId,
    delete_snapshot,
    encode_snapshot,
    list_snapshots,
    read_snapshot,
    write_snapshot,
)
from kraftlog.types import Epoch, Offset

KAFKA = (
    GOLDEN / "kraft/logs/standalone/02-stopped/node-1/__cluster_metadata-0/00000000000000000131-0000000001.checkpoint"
)


def snapshot_id(end_offset, epoch):
    return SnapshotId(Offset(end_offset), Epoch(epoch))


def test_name_round_trip_and_other_names_are_none():
    assert snapshot_id(45, 1).file_name == "00000000000000000045-0000000001.checkpoint"
    assert SnapshotId.parse("00000000000000000045-0000000001.checkpoint") == snapshot_id(45, 1)
    for name in ("bootstrap.checkpoint", "00000000000000000045-0000000001.checkpoint.part", "45-1.checkpoint"):
        assert SnapshotId.parse(name) is None


def test_kafkas_checkpoint_is_written_again_with_the_same_structure(tmp_path):
    snapshot = read_snapshot(KAFKA)
    assert snapshot.kraft_version == 1
    path = write_snapshot(tmp_path, snapshot_id(131, 1), encode_snapshot(snapshot, epoch=Epoch(1), now_ms=7))
    assert read_snapshot(path) == snapshot
    ours, kafkas = read_batches(path.read_bytes()), read_batches(KAFKA.read_bytes())
    assert [(one.base_offset, one.last_offset, one.is_control, one.size_bytes) for one in ours] == [
        (one.base_offset, one.last_offset, one.is_control, one.size_bytes) for one in kafkas
    ]


def test_many_records_go_into_several_batches(tmp_path):
    values = [b"\x01\x14\x00\x00"] * (2 * SNAPSHOT_RECORDS_PER_BATCH + 1)
    data = encode_snapshot(Snapshot(values=values), epoch=Epoch(9), now_ms=1)
    batches = read_batches(data)
    assert [one.record_count for one in batches] == [1, 1024, 1024, 1, 1]
    assert [one.base_offset for one in batches] == [0, 1, 1025, 2049, 2050]
    assert {one.partition_leader_epoch for one in batches} == {9}


def test_damaged_or_unfinished_files_are_refused(tmp_path):
    data = KAFKA.read_bytes()
    path = tmp_path / "00000000000000000131-0000000001.checkpoint"
    for cut in (0, 10, 166, len(data) - 75, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(CorruptRecordError):
            read_snapshot(path)
    for position in range(0, len(data), 97):
        broken = bytearray(data)
        broken[position] ^= 0x10
        path.write_bytes(bytes(broken))
        with contextlib.suppress(CorruptRecordError):
            assert read_snapshot(path) == read_snapshot(KAFKA)  # bits no CRC covers: offsets and the epoch
    path.write_bytes(data + data)
    with pytest.raises(CorruptRecordError, match="follows the snapshot footer"):
        read_snapshot(path)


def test_list_is_sorted_and_clears_left_overs(tmp_path):
    for name in (
        "00000000000000000200-0000000002.checkpoint",
        "00000000000000000045-0000000001.checkpoint",
        "00000000000000000300-0000000002.checkpoint.part",
        "00000000000000000000.log",
    ):
        (tmp_path / name).touch()
    assert list_snapshots(tmp_path) == [snapshot_id(45, 1), snapshot_id(200, 2)]
    assert not list(tmp_path.glob("*.part"))
    delete_snapshot(tmp_path, snapshot_id(45, 1))
    delete_snapshot(tmp_path, snapshot_id(45, 1))
    assert list_snapshots(tmp_path) == [snapshot_id(200, 2)]
