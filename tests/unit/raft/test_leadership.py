"""Decisions of a leader about proposals, fetches and its own end, at their boundaries."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.control_records import VotersChange
from kraftlog.raft.effects import AppendRecords, HighWatermarkAdvanced, Notice, SendResponse
from kraftlog.raft.messages import FetchRequest, FetchSnapshotRequest
from kraftlog.types import Epoch, EpochEndOffset, Offset, SnapshotId
from raft_fixture import fetch, follower_of, key, leader_of, voter_set

# The log of the fixture ends at 3 in epoch 1; the LeaderChange of the leader of epoch 2 is at 3.
END = 4


def answers(effects):
    return [effect.response for effect in effects if isinstance(effect, SendResponse)]


def asked(core, offset, *, node_id=2, last=2, epoch=None, max_wait_ms=500, high_watermark=None, now_ms=0):
    """Answers to a fetch, and to those that waited, at ``now_ms``."""
    request = FetchRequest(
        replica_key=key(node_id),
        current_leader_epoch=core.epoch if epoch is None else Epoch(epoch),
        fetch_offset=Offset(offset),
        last_fetched_epoch=Epoch(last),
        max_wait_ms=max_wait_ms,
        **({} if high_watermark is None else {"high_watermark": Offset(high_watermark)}),
    )
    core.handle_request(node_id, request, now_ms)
    return answers(core.take_effects())


# Proposals


@pytest.mark.parametrize(("epoch", "code"), [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (2, None), (None, None)])
def test_proposal_for_an_epoch_that_is_over_is_refused(epoch, code):
    core = leader_of(1)
    if code is None:
        assert core.propose([b"x"], 0, epoch=epoch) == END
        return
    with pytest.raises(KafkaError) as caught:
        core.propose([b"x"], 0, epoch=Epoch(epoch))
    assert caught.value.code == code
    assert core.log_end_offset == END


def test_proposal_for_a_later_epoch_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="epoch"):
        leader_of(1).propose([b"x"], 0, epoch=Epoch(3))


@pytest.mark.parametrize(("size_bytes", "is_taken"), [(100, True), (101, False)])
def test_batch_may_be_as_large_as_the_limit_and_no_larger(size_bytes, is_taken):
    core = leader_of(1, max_batch_bytes=100)
    if is_taken:
        assert core.propose([b"x"], 0, size_bytes=size_bytes) == END
        return
    with pytest.raises(KafkaError) as caught:
        core.propose([b"x"], 0, size_bytes=size_bytes)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(("second_bytes", "batches"), [(40, [2]), (41, [1, 1])])
def test_proposals_share_a_batch_while_they_fit_into_one(second_bytes, batches):
    core = leader_of(1, max_batch_bytes=100, append_linger_ms=10)
    assert core.propose([b"a"], 0, size_bytes=60) == END
    assert core.propose([b"b"], 0, size_bytes=second_bytes) == END + 1
    core.handle_timeout(0)
    appended = [effect for effect in core.take_effects() if isinstance(effect, AppendRecords)]
    core.on_flushed(core.log.end_offset, 10)
    core.handle_timeout(10)
    appended += [effect for effect in core.take_effects() if isinstance(effect, AppendRecords)]
    assert [len(effect.records) for effect in appended] == batches


# Fetches


@pytest.mark.parametrize("wrong", [{"max_wait_ms": -1}, {"offset": -1}, {"last": -1}, {"last": 3}])
def test_fetch_with_impossible_fields_is_invalid(wrong):
    core = leader_of(1, 2, 3)
    response = asked(core, **{"offset": 3, "last": 1, **wrong})[0]
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert core.progress(0)[1].log_end_offset is None


@pytest.mark.parametrize(
    ("epoch", "last", "code"),
    [(1, 1, ErrorCode.FENCED_LEADER_EPOCH), (2, 1, 0), (3, 1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_fetch_of_another_epoch_is_refused_and_acknowledges_nothing(epoch, last, code):
    core = leader_of(1, 2, 3)
    assert asked(core, 3, last=last, epoch=epoch)[0].error_code == code
    assert core.progress(0)[1].log_end_offset == (None if code else 3)


def test_fetch_that_diverges_acknowledges_nothing():
    core = leader_of(1, 2, 3)
    assert asked(core, 5, last=1)[0].diverging_epoch == EpochEndOffset(Epoch(1), Offset(3))
    assert core.progress(0)[1].log_end_offset is None
    assert core.high_watermark is None


def test_fetch_with_the_id_of_the_leader_is_refused_and_noted():
    core = leader_of(1, 2, 3)
    fetched = fetch(core, 1, END, directory=9)
    assert [response.error_code for response in answers(fetched)] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert [type(effect) for effect in fetched if isinstance(effect, Notice)] == [Notice]


@pytest.mark.parametrize(("known", "is_answered"), [(3, True), (4, False), (5, False)])
def test_fetch_at_the_end_waits_unless_its_sender_knows_a_lower_high_watermark(known, is_answered):
    core = leader_of(1, 2, 3)
    fetch(core, 2, END)
    assert core.high_watermark == END
    assert bool(asked(core, END, node_id=3, high_watermark=known)) == is_answered


@pytest.mark.parametrize(("now_ms", "count"), [(499, 0), (500, 1)])
def test_fetch_that_waits_is_answered_when_its_time_is_over_and_not_before(now_ms, count):
    core = leader_of(1, 2, 3)
    assert asked(core, END) == []
    core.handle_timeout(now_ms)
    assert len(answers(core.take_effects())) == count


def test_fetch_that_waits_is_answered_by_an_append_and_only_where_it_has_something_new():
    core = leader_of(1, 2, 3)
    assert asked(core, END) == []
    core.propose([b"x"], 0)
    core.handle_timeout(0)
    assert [response.read_offset for response in answers(core.take_effects())] == [END]


@pytest.mark.parametrize(
    ("position", "code"),
    [(-1, ErrorCode.POSITION_OUT_OF_RANGE), (0, 0), (9, 0), (10, ErrorCode.POSITION_OUT_OF_RANGE)],
)
def test_piece_of_a_snapshot_begins_within_it(position, code):
    core = leader_of(1)
    snapshot_id = SnapshotId(Offset(3), Epoch(1))
    core.on_snapshot_created(snapshot_id, 10)
    core.handle_request(
        2,
        FetchSnapshotRequest(
            replica_key=key(2), current_leader_epoch=core.epoch, snapshot_id=snapshot_id, position=position, max_bytes=4
        ),
        0,
    )
    response = answers(core.take_effects())[0]
    assert response.error_code == code
    assert response.read_bytes == (0 if code else min(4, 10 - position))


# Its own end


def remove_the_leader(core):
    """Take the leader out of the voter set; the record's offset."""
    offset = core._replica.append_control([VotersChange(voters=voter_set(2, 3))])
    core.on_flushed(core.log.end_offset, 0)
    core.take_effects()
    return offset


def test_removed_leader_resigns_when_the_high_watermark_passes_its_removal_and_not_at_it():
    core = leader_of(1, 2, 3)
    removal = remove_the_leader(core)
    fetch(core, 2, removal)
    fetch(core, 3, removal)
    assert core.high_watermark == removal  # everything before the removal is committed, the removal is not
    assert core.is_leader
    fetch(core, 2, removal + 1)
    assert core.is_leader  # one of the two voters that are left
    fetch(core, 3, removal + 1)
    assert core.role.name == "resigned"
    assert core.high_watermark == removal + 1


def test_leader_that_stays_a_voter_does_not_resign_when_a_removal_is_committed():
    core = leader_of(1, 2, 3)
    core._replica.append_control([VotersChange(voters=voter_set(1, 2))])
    core.on_flushed(core.log.end_offset, 0)
    fetch(core, 2, core.log.end_offset)
    assert core.high_watermark == core.log.end_offset
    assert core.is_leader


def test_own_log_of_a_removed_leader_counts_for_no_majority():
    core = leader_of(1, 2, 3)
    remove_the_leader(core)
    fetch(core, 2, core.log.end_offset)
    assert core.high_watermark is None


@pytest.mark.parametrize(("directory", "acknowledged"), [(2, END), (8, None)])
def test_voter_with_a_new_directory_id_does_not_inherit_what_the_old_one_acknowledged(directory, acknowledged):
    core = leader_of(1, 2, 3)
    fetch(core, 2, END)
    voters = voter_set(1, 2, 3)
    old = voters.get(2)
    changed = voters.with_removed(old.key)
    changed = changed.with_added(type(old)(key(2, directory), old.endpoints, 0, 1))
    core.role.set_voters(changed)
    progress = {replica.key: replica.log_end_offset for replica in core.progress(0)}
    assert progress[key(2, directory)] == acknowledged


@pytest.mark.parametrize(("before_ms", "role"), [(1, "leader"), (0, "resigned")])
def test_leader_without_a_majority_resigns_at_the_end_of_its_check_and_not_before(before_ms, role):
    core = leader_of(1, 2, 3)
    core.handle_timeout(core.role.check_quorum_deadline_ms - before_ms)
    assert core.role.name == role


def test_confirmation_is_refused_by_whoever_does_not_lead():
    with pytest.raises(KafkaError) as caught:
        follower_of(1, 2, 3).confirm_leadership(0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_high_watermark_is_announced_once_for_each_move():
    core = leader_of(1, 2, 3)
    assert [effect.high_watermark for effect in fetch(core, 2, END) if isinstance(effect, HighWatermarkAdvanced)] == [
        END
    ]
    assert not any(isinstance(effect, HighWatermarkAdvanced) for effect in fetch(core, 2, END))
    assert not any(isinstance(effect, HighWatermarkAdvanced) for effect in fetch(core, 3, END))
