"""Checkpoints written piece by piece: what is in the file, and when it counts."""

from __future__ import annotations

import errno
import itertools
import os
import stat

import pytest

from kraftlog._kraftlog import read_batches
from kraftlog.errors import LogError
from kraftlog.storage.snapshot_file import encode_snapshot, list_snapshots, read_snapshot
from kraftlog.storage.snapshot_writer import SnapshotWriter
from kraftlog.types import Epoch, Offset, SnapshotId, Uuid
from kraftlog.wire.messages.control_records import VotersRecord
from kraftlog.wire.records import decode_control_record

ID = SnapshotId(Offset(45), Epoch(3))
VOTERS = VotersRecord(
    version=0,
    voters=(
        VotersRecord.Voter(
            voter_id=1,
            voter_directory_id=Uuid(bytes([1] * 16)),
            endpoints=(VotersRecord.Endpoint(name="CONTROLLER", host="a", port=9093),),
            k_raft_version_feature=VotersRecord.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        ),
    ),
)


def writer(directory, *, kraft_version=1, voters=None, **options):
    return SnapshotWriter(
        directory,
        ID,
        last_contained_log_timestamp=7,
        kraft_version=kraft_version,
        voters=voters,
        now_ms=99,
        **options,
    )


def control_names(batch):
    return [type(decode_control_record(key, value)[1]).__name__ for _, _, key, value, _ in batch.records()]


@pytest.mark.spec("SNAP-07", "SNAP-08", "SNAP-09", "SNAP-10")
@pytest.mark.parametrize(
    ("kraft_version", "voters", "names"),
    [
        (1, VOTERS, ["SnapshotHeaderRecord", "KRaftVersionRecord", "VotersRecord"]),
        (1, None, ["SnapshotHeaderRecord", "KRaftVersionRecord"]),
        (0, None, ["SnapshotHeaderRecord"]),
    ],
)
def test_control_batches_offsets_and_epoch(tmp_path, kraft_version, voters, names):
    with writer(tmp_path, kraft_version=kraft_version, voters=voters) as one:
        one.append([b"a", b"b"])
        one.append([b"c"])
        size_bytes = one.freeze()
    data = (tmp_path / ID.file_name).read_bytes()
    assert size_bytes == len(data)
    first, middle, last = read_batches(data)
    assert (first.is_control, middle.is_control, last.is_control) == (True, False, True)
    assert control_names(first) == names
    assert control_names(last) == ["SnapshotFooterRecord"]
    offsets = [offset for batch in (first, middle, last) for offset, *_ in batch.records()]
    assert offsets == list(range(len(names) + 3 + 1))
    assert {batch.partition_leader_epoch for batch in (first, middle, last)} == {ID.epoch}
    snapshot = read_snapshot(tmp_path / ID.file_name)
    assert (snapshot.values, snapshot.voters, snapshot.last_contained_log_timestamp) == ([b"a", b"b", b"c"], voters, 7)
    assert encode_snapshot(snapshot, epoch=ID.epoch, now_ms=99) == data


@pytest.mark.spec("SNAP-08")
def test_voter_set_at_kraft_version_0_is_refused_and_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match=r"kraft\.version 0 has no Voters"):
        writer(tmp_path, kraft_version=0, voters=VOTERS)
    assert not list(tmp_path.iterdir())


@pytest.mark.spec("SNAP-12")
def test_frozen_or_closed_checkpoint_takes_nothing_more(tmp_path):
    with writer(tmp_path) as one:
        one.append([b"a"])
        one.freeze()
        for action in (lambda: one.append([b"b"]), one.freeze):
            with pytest.raises(LogError, match="frozen or closed"):
                action()
    assert read_snapshot(tmp_path / ID.file_name).values == [b"a"]
    with writer(tmp_path) as two:
        two.close()
        with pytest.raises(LogError):
            two.freeze()


@pytest.mark.spec("SNAP-13", "SNAP-53")
def test_close_without_freeze_leaves_nothing_and_tells_nobody(tmp_path):
    told = []
    with writer(tmp_path, on_frozen=told.append) as one:
        one.append([b"a"] * 5000)
        assert [path.name.endswith(".checkpoint.part") for path in tmp_path.iterdir()] == [True]
        assert list_snapshots(tmp_path) == []
    assert not list(tmp_path.iterdir())
    assert told == []


@pytest.mark.spec("SNAP-14", "SNAP-53")
def test_freeze_makes_it_durable_read_only_and_named_before_anybody_is_told(tmp_path, monkeypatch):
    steps = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        steps.append("sync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        real_fsync(descriptor)

    def replace(source, target):
        steps.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    with writer(tmp_path, on_frozen=steps.append) as one:
        one.append([b"a"])
        assert steps == []
        one.freeze()
    assert steps == ["sync file", "rename", "sync directory", ID]
    assert [path.name for path in tmp_path.iterdir()] == [ID.file_name]
    assert stat.S_IMODE((tmp_path / ID.file_name).stat().st_mode) == 0o444


@pytest.mark.spec("SNAP-15", "SNAP-53")
@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_failed_freeze_leaves_no_checkpoint_and_tells_nobody(tmp_path, monkeypatch, broken):
    told = []

    def fail(*_):
        raise OSError(errno.ENOSPC, "no space")

    with writer(tmp_path, on_frozen=told.append) as one:
        one.append([b"a"])
        with monkeypatch.context() as patch:
            patch.setattr(os, broken, fail)
            with pytest.raises(OSError, match="no space"):
                one.freeze()
    assert told == []
    assert not list(tmp_path.iterdir())
    assert list_snapshots(tmp_path) == []


@pytest.mark.spec("SNAP-17")
def test_large_checkpoint_is_written_batch_by_batch(tmp_path):
    """Values come from a generator; what is in memory is never more than one batch of them."""
    sizes = []
    value = b"x" * 1000

    def values():
        for number in range(20_000):
            if number % 1024 == 0:
                sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
            yield value

    with writer(tmp_path) as one:
        one.append(values())
        one.freeze()
    assert len(sizes) == 20
    assert all(later - earlier > 1_000_000 for earlier, later in itertools.pairwise(sizes))
    assert len(read_snapshot(tmp_path / ID.file_name).values) == 20_000
