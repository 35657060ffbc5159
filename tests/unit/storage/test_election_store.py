from __future__ import annotations

import json
import os

import pytest

from kraftlog.errors import LogError
from kraftlog.storage.election_store import ElectionStore
from kraftlog.types import ElectionState, Epoch, NodeId, ReplicaKey, Uuid

LEADER = ElectionState(epoch=Epoch(3), leader_id=NodeId(1))
VOTED = ElectionState(epoch=Epoch(4), voted_key=ReplicaKey(NodeId(2), Uuid.parse("2Iyr024IQ0uAyQIgjhiQEQ")))


@pytest.mark.spec("DISK-02", "DISK-03")
def test_write_kraft_version_1_writes_kafkas_bytes(tmp_path):
    ElectionStore(tmp_path).write(LEADER, kraft_version=1)
    assert (tmp_path / "quorum-state").read_text() == (
        '{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


@pytest.mark.spec("DISK-01", "KVER-15")
def test_write_kraft_version_0_writes_kafkas_bytes(tmp_path):
    voters = [NodeId(11), NodeId(12), NodeId(13)]
    ElectionStore(tmp_path).write(ElectionState(epoch=Epoch(1), leader_id=NodeId(11)), kraft_version=0, voters=voters)
    assert (tmp_path / "quorum-state").read_text() == (
        '{"clusterId":"","leaderId":11,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":11},{"voterId":12},{"voterId":13}],"data_version":0}'
    )


@pytest.mark.spec("DISK-09", "DISK-10")
def test_absent_file_reads_as_none_and_clear_removes_it(tmp_path):
    store = ElectionStore(tmp_path)
    assert store.read() is None
    store.write(VOTED, kraft_version=1)
    assert store.read() == VOTED
    (tmp_path / "quorum-state.tmp").touch()
    store.clear()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("DISK-05")
def test_unknown_version_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "quorum-state"
    text = json.dumps({"leaderId": 1, "leaderEpoch": 3, "votedId": -1, "data_version": 2})
    path.write_text(text)
    with pytest.raises(LogError, match="unknown data_version 2"):
        ElectionStore(tmp_path).read()
    assert path.read_text() == text


@pytest.mark.spec("DISK-06")
@pytest.mark.parametrize(
    "text",
    ["", "  \n", "{", "[]", "7", "null", '{"leaderId":1}', '{"data_version":1,"leaderId":1,"leaderEpoch":2}',
     '{"data_version":1,"leaderId":1,"leaderEpoch":"2","votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"}',
     '{"data_version":1,"leaderId":1,"leaderEpoch":2,"votedId":-1}',
     '{"data_version":1,"leaderId":1,"leaderEpoch":-2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"}',
     '{"data_version":true,"leaderId":1,"leaderEpoch":2,"votedId":-1}'],
)  # fmt: skip
def test_broken_file_is_an_error_never_a_fresh_node(tmp_path, text):
    (tmp_path / "quorum-state").write_text(text)
    with pytest.raises(LogError, match="quorum-state"):
        ElectionStore(tmp_path).read()


def test_bytes_that_are_no_text_are_an_error(tmp_path):
    (tmp_path / "quorum-state").write_bytes(b"\xff\xfe{}")
    with pytest.raises(LogError, match="not UTF-8"):
        ElectionStore(tmp_path).read()


@pytest.mark.spec("DISK-08")
def test_left_over_temporary_file_is_ignored_and_removed(tmp_path):
    store = ElectionStore(tmp_path)
    store.write(LEADER, kraft_version=1)
    (tmp_path / "quorum-state.tmp").write_text('{"leaderId":9')
    assert store.read() == LEADER
    assert [path.name for path in tmp_path.iterdir()] == ["quorum-state"]


@pytest.mark.spec("DISK-07", "DISK-29", "DISK-28")
def test_write_fsyncs_the_file_before_the_rename_and_the_directory_after(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("rename"), replace(a, b)))
    ElectionStore(tmp_path).write(LEADER, kraft_version=1)
    assert events == [str(tmp_path / "quorum-state.tmp"), "rename", str(tmp_path)]


@pytest.mark.spec("DISK-11", "VOTE-27")
@pytest.mark.parametrize("broken", ["fsync", "replace", "write"])
def test_failed_write_raises_keeps_the_old_state_and_leaves_no_temporary_file(tmp_path, monkeypatch, broken):
    store = ElectionStore(tmp_path)
    store.write(LEADER, kraft_version=1)

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="No space left"):
        store.write(VOTED, kraft_version=1)
    monkeypatch.undo()
    assert store.read() == LEADER
    assert [path.name for path in tmp_path.iterdir()] == ["quorum-state"]
