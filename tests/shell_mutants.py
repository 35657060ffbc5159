"""Bugs that KRaft's files, replica layer and timers once had, ready to be put back, each with what notices."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from kraftlog.errors import ErrorCode, KraftlogError, LogError
from kraftlog.partition.assignment import Assignment
from kraftlog.raft.effects import SendRequest
from kraftlog.raft.followership import Followership
from kraftlog.raft.replica_state import ReplicaState
from kraftlog.storage import snapshot_file
from kraftlog.storage.atomic_file import flush_directory
from kraftlog.storage.election_store import ElectionStore
from kraftlog.storage.snapshot_file import Snapshot, encode_snapshot, list_snapshots, read_snapshot, write_snapshot
from kraftlog.testing import InvariantViolationError, Simulation, SimulationConfig
from kraftlog.types import Epoch, Offset, SnapshotId
from oracle.partition_effects import AssignEpochStart
from oracle.partition_replica import PartitionReplica

# What notices: each passes with the code as it is, and fails with the bug.


def unknown_version_is_refused(folder):
    (folder / "quorum-state").write_text(
        '{"leaderId":1,"leaderEpoch":5,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":2}'
    )
    with pytest.raises(LogError, match="data_version"):
        ElectionStore(folder).read()


def snapshot_is_on_disk_before_its_name(folder):
    steps = []
    fsync, rename = os.fsync, os.replace

    def note_fsync(descriptor):
        steps.append("directory" if Path(f"/proc/self/fd/{descriptor}").resolve() == folder.resolve() else "file")
        fsync(descriptor)

    def note_rename(source, target):
        steps.append("name")
        rename(source, target)

    with patch("os.fsync", note_fsync), patch("os.replace", note_rename):
        write_snapshot(folder, SnapshotId(Offset(3), Epoch(1)), b"data")
    assert steps == ["file", "name", "directory"]


def unfinished_snapshot_is_none(folder):
    (folder / "00000000000000000003-0000000001.checkpoint.part").write_bytes(b"half")
    assert list_snapshots(folder) == []


def snapshot_has_header_and_footer(folder):
    path = folder / "some.checkpoint"
    path.write_bytes(encode_snapshot(Snapshot(values=[b"x"]), epoch=Epoch(1), now_ms=5))
    try:
        assert read_snapshot(path).values == [b"x"]
    except KraftlogError as error:
        pytest.fail(str(error))


def leader(end_offset=10):
    one = PartitionReplica(
        node_id=1, flush_on_ack=False, min_insync_replicas=1, log_end_offset=end_offset, flushed_offset=0,
        high_watermark=0,
    )  # fmt: skip
    one.handle_assignment(Assignment(leader_id=1, leader_epoch=5, partition_epoch=0, replicas=(1,), isr=(1,)), 0)
    return one


def zombie_is_found_out_by_its_epoch(folder):
    assert leader().check_leader_epoch(6) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leader().check_leader_epoch(4) == ErrorCode.FENCED_LEADER_EPOCH


def epoch_starts_with_leadership(folder):
    assert AssignEpochStart(5, 10) in leader().take_effects()


def old_metadata_changes_nothing(folder):
    one = leader()
    one.handle_assignment(Assignment(leader_id=2, leader_epoch=4, partition_epoch=9, replicas=(1, 2), isr=(2,)), 0)
    assert (one.leader_id, one.leader_epoch) == (1, 5)


def seed_is_well(seed, *rules, **options):
    def notices(folder):
        try:
            Simulation(SimulationConfig(seed=seed, **options)).run()
        except InvariantViolationError as error:
            assert error.identifier in rules
            raise

    return notices


# The bugs


def _take_any_version(self, data, _was=ElectionStore._decode):
    return _was(self, {**data, "data_version": min(1, data["data_version"])})


def _rename_before_flushing(path, data, *, temporary=None, syncs_directory=True):
    temporary.write_bytes(data)
    os.replace(temporary, path)
    flush_directory(path.parent)


def _name_it_at_once(directory):
    return sorted(
        one
        for entry in os.scandir(directory)
        if (one := SnapshotId.parse(entry.name.removesuffix(".part"))) is not None
    )


def _frame_nothing(records, **options):
    return b""


def _check_no_epoch(self, current_leader_epoch, *, needs_leader=True):
    return ErrorCode.NONE


def _begin_without_an_epoch(self, _was=PartitionReplica.take_effects):
    return [effect for effect in _was(self) if not isinstance(effect, AssignEpochStart)]


def _believe_any_metadata(self, assignment, now_ms, _was=PartitionReplica.handle_assignment):
    self.leader_epoch = self.partition_epoch = -1
    _was(self, assignment, now_ms)


def _send_without_waiting(self, destination, request, now_ms, *, flushed_to=None):
    correlation_id = self.connections.on_sent(destination.node_id, request, now_ms)
    self.effects.append(SendRequest(destination=destination, correlation_id=correlation_id, request=request))
    return correlation_id


def _poll_at_once(self, now_ms, _was=Followership.next_deadline_ms):
    return now_ms


QUIET = {"voter_count": 3, "observer_count": 0, "is_dynamic": True, "fault_count": 20}

# The bug, what is replaced by what, and what notices.
SHELL_MUTANTS = [
    ("KAFKA-15412", ElectionStore, "_decode", _take_any_version, unknown_version_is_refused),
    ("KAFKA-14273", snapshot_file, "replace_file", _rename_before_flushing, snapshot_is_on_disk_before_its_name),
    (
        "unfinished snapshot taken for one",
        sys.modules[__name__],
        "list_snapshots",
        _name_it_at_once,
        unfinished_snapshot_is_none,
    ),
    ("KAFKA-14183", snapshot_file, "_control_batch", _frame_nothing, snapshot_has_header_and_footer),
    ("KAFKA-6880", PartitionReplica, "check_leader_epoch", _check_no_epoch, zombie_is_found_out_by_its_epoch),
    ("KAFKA-7415", PartitionReplica, "take_effects", _begin_without_an_epoch, epoch_starts_with_leadership),
    (
        "older metadata believed",
        PartitionReplica,
        "handle_assignment",
        _believe_any_metadata,
        old_metadata_changes_nothing,
    ),
    ("KAFKA-10533", ReplicaState, "send", _send_without_waiting, seed_is_well(1, "INV-13", "INV-03", **QUIET)),
    ("KAFKA-17751", Followership, "next_deadline_ms", _poll_at_once, seed_is_well(2, "INV-32", **QUIET)),
]
