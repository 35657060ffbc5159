from __future__ import annotations

import contextlib
import re

import pytest

from batch_rows import GOLDEN
from kraftlog._kraftlog import read_batches
from kraftlog.errors import CorruptRecordError
from kraftlog.storage import snapshot_file
from kraftlog.storage.snapshot_file import (
    SNAPSHOT_RECORDS_PER_BATCH,
    Snapshot,
    SnapshotId,
    check_snapshot,
    encode_snapshot,
    list_snapshots,
    mark_deleted,
    read_snapshot,
    read_snapshot_timestamp,
    remove_left_overs,
    write_snapshot,
)
from kraftlog.storage.snapshot_writer import new_part_path
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
    assert [(our.base_offset, our.last_offset, our.is_control, our.size_bytes) for our in ours] == [
        (kafka.base_offset, kafka.last_offset, kafka.is_control, kafka.size_bytes) for kafka in kafkas
    ]


def test_many_records_go_into_several_batches(tmp_path):
    values = [b"\x01\x14\x00\x00"] * (2 * SNAPSHOT_RECORDS_PER_BATCH + 1)
    data = encode_snapshot(Snapshot(values=values), epoch=Epoch(9), now_ms=1)
    batches = read_batches(data)
    assert [batch.record_count for batch in batches] == [1, 1024, 1024, 1, 1]
    assert [batch.base_offset for batch in batches] == [0, 1, 1025, 2049, 2050]
    assert {batch.partition_leader_epoch for batch in batches} == {9}


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


@pytest.mark.spec("SNAP-52")
def test_names_of_finished_partial_and_deleted_checkpoints_and_of_others(tmp_path):
    kept = (
        "00000000000000000200-0000000002.checkpoint",
        "00000000000000000045-0000000001.checkpoint",
        "00000000000000000000.log",
        "bootstrap.checkpoint.part",
        "45-1.checkpoint",
        "0000000000000000004x-0000000001.checkpoint",
        "00000000000000000045-0000000001.checkpoint.old",
        "00000000000000000045-0000000001.checkpoint.deleted.bak",
    )
    left_over = (
        "00000000000000000300-0000000002-8301112.checkpoint.part",
        "00000000000000000300-0000000002.checkpoint.part",
        "00000000000000000045-0000000001.checkpoint.deleted",
    )
    for name in kept + left_over:
        (tmp_path / name).touch()
    assert list_snapshots(tmp_path) == [snapshot_id(45, 1), snapshot_id(200, 2)]
    remove_left_overs(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    part = new_part_path(tmp_path, snapshot_id(45, 1))
    assert re.fullmatch(r"00000000000000000045-0000000001-\d+\.checkpoint\.part", part.name)
    assert part != new_part_path(tmp_path, snapshot_id(45, 1))
    assert mark_deleted(tmp_path, snapshot_id(45, 1)).name == "00000000000000000045-0000000001.checkpoint.deleted"
    assert mark_deleted(tmp_path, snapshot_id(45, 1)) is None
    assert list_snapshots(tmp_path) == [snapshot_id(200, 2)]


def test_timestamp_is_read_from_the_header_alone(tmp_path):
    assert read_snapshot_timestamp(KAFKA) == read_snapshot(KAFKA).last_contained_log_timestamp > 0
    cut = tmp_path / KAFKA.name
    header_size = read_batches(KAFKA.read_bytes())[0].size_bytes
    cut.write_bytes(KAFKA.read_bytes()[:header_size])
    assert read_snapshot_timestamp(cut) == read_snapshot_timestamp(KAFKA)
    for data in (b"", KAFKA.read_bytes()[: header_size - 1], bytes(8) + b"\x7f\xff\xff\xff" + bytes(90)):
        cut.write_bytes(data)
        with pytest.raises(CorruptRecordError):
            read_snapshot_timestamp(cut)


def test_a_checkpoint_is_read_in_parts(tmp_path, monkeypatch):
    """Whatever the size of a part is: batches may begin and end anywhere in it, and be larger."""
    values = [b"%d" % number * 50 for number in range(5_000)]
    path = tmp_path / "00000000000000005000-0000000001.checkpoint"
    path.write_bytes(encode_snapshot(Snapshot(values=values), epoch=Epoch(1), now_ms=1))
    for part_bytes in (100, 5_000, 1 << 20):
        monkeypatch.setattr(snapshot_file, "_PART_BYTES", part_bytes)
        snapshot = check_snapshot(path)
        assert (snapshot.values, snapshot.path) == ([], path)
        assert list(snapshot.each_value()) == values


def test_damage_in_a_later_part_is_named_with_its_position(tmp_path, monkeypatch):
    path = tmp_path / "00000000000000005000-0000000001.checkpoint"
    data = bytearray(encode_snapshot(Snapshot(values=[b"x" * 100] * 5_000), epoch=Epoch(1), now_ms=1))
    data[-400] ^= 1
    path.write_bytes(data)
    monkeypatch.setattr(snapshot_file, "_PART_BYTES", 4_096)
    with pytest.raises(CorruptRecordError, match=r"5000-0000000001.checkpoint.*from position [1-9]\d+ on"):
        check_snapshot(path)
    path.write_bytes(data[:-400])
    with pytest.raises(CorruptRecordError):
        check_snapshot(path)
