"""Decisions of a follower about what a leader answers, at their boundaries."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.raft.effects import (
    AppendFetched,
    Fault,
    FlushLog,
    HighWatermarkAdvanced,
    SendRequest,
    TruncateLog,
    WriteSnapshotChunk,
)
from kraftlog.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    FetchedBatch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kraftlog.types import Epoch, EpochEndOffset, NodeId, Offset, SnapshotId
from raft_fixture import core_of, endpoints, follower_of, key, requests_of

LEADER = NodeId(2)


def batch(base, epoch, count=1):
    return FetchedBatch(base_offset=Offset(base), last_offset=Offset(base + count - 1), epoch=Epoch(epoch))


def answer(core, response, now_ms=0):
    """Let the leader answer the request under way; what the follower wants then, without its next request."""
    if not core.requests_under_way(now_ms):
        core.handle_timeout(now_ms)
        core.take_effects()
    under_way = [number for number in range(100) if core.is_expected(LEADER, number)]
    assert len(under_way) == 1
    core.handle_response(LEADER, under_way[0], response, now_ms)
    return [effect for effect in core.take_effects() if not isinstance(effect, SendRequest)]


def fetched(*batches, high_watermark=-1):
    return FetchResponse(leader_id=LEADER, leader_epoch=Epoch(2), high_watermark=high_watermark, batches=batches)


def appended(effects):
    return [
        (batch.base_offset, batch.epoch)
        for effect in effects
        if isinstance(effect, AppendFetched)
        for batch in effect.batches
    ]


# The log of the fixture ends at 3 in epoch 1; the follower is in epoch 2.


@pytest.mark.parametrize(
    ("batches", "taken"),
    [
        ([batch(3, 1), batch(4, 2)], [(3, 1), (4, 2)]),
        ([batch(3, 0)], []),  # an epoch below that of the log's last record
        ([batch(3, 2), batch(4, 1)], [(3, 2)]),  # the epoch of the batch before counts, not that of the old log
        ([batch(3, 3)], []),  # an epoch above the one that the replica is in
        ([batch(2, 1), batch(3, 1)], []),  # begins before the end of the log
        ([batch(4, 1)], []),  # leaves a gap
        ([batch(3, 1, count=2), batch(4, 1)], [(3, 1)]),  # the second overlaps the first
        ([batch(3, 1, count=2), batch(5, 1)], [(3, 1), (5, 1)]),
    ],
)
def test_batches_are_taken_up_to_the_first_that_does_not_continue_the_log(batches, taken):
    core = follower_of(1, 2, 3)
    effects = answer(core, fetched(*batches))
    assert appended(effects) == taken
    assert core.log.end_offset == (3 if not taken else batches[len(taken) - 1].last_offset + 1)
    assert any(isinstance(effect, FlushLog) for effect in effects) == bool(taken)


def test_answer_without_a_usable_batch_still_counts_as_contact_with_the_leader():
    core = follower_of(1, 2, 3)
    answer(core, fetched(batch(4, 1)), now_ms=100)
    assert core.role.has_fetched
    assert core.role.fetch_deadline_ms == 100 + core.config.fetch_timeout_ms


@pytest.mark.parametrize(("told", "known"), [(-1, None), (0, 0), (3, 3), (4, 4), (9, 4)])
def test_high_watermark_is_bounded_by_the_log_with_the_batches_of_the_same_answer(told, known):
    core = follower_of(1, 2, 3)
    effects = answer(core, fetched(batch(3, 1), high_watermark=told))
    assert core.high_watermark == known
    assert [effect.high_watermark for effect in effects if isinstance(effect, HighWatermarkAdvanced)] == (
        [] if known is None else [known]
    )


def test_high_watermark_that_did_not_move_is_not_announced_again():
    core = follower_of(1, 2, 3)
    answer(core, fetched(high_watermark=3))
    assert answer(core, fetched(high_watermark=3)) == []
    assert answer(core, fetched(high_watermark=2)) == []
    assert core.high_watermark == 3


@pytest.mark.parametrize(("end_offset", "is_fatal"), [(1, True), (2, False), (3, False)])
def test_truncation_below_the_high_watermark_is_fatal_and_at_it_is_not(end_offset, is_fatal):
    core = follower_of(1, 2, 3)
    answer(core, fetched(high_watermark=2))
    diverging = EpochEndOffset(Epoch(1), Offset(end_offset))
    effects = answer(core, FetchResponse(leader_id=LEADER, leader_epoch=Epoch(2), diverging_epoch=diverging))
    assert any(isinstance(effect, Fault) and effect.is_fatal for effect in effects) == is_fatal
    assert core.is_halted == is_fatal
    cut = [effect.end_offset for effect in effects if isinstance(effect, TruncateLog)]
    assert cut == ([2] if end_offset == 2 else [])
    assert core.log.end_offset == (2 if end_offset == 2 else 3)


def test_a_leader_that_resigns_without_a_commit_of_its_own_keeps_what_it_knew_to_be_committed():
    core = follower_of(1, 2, 3)
    answer(core, fetched(high_watermark=2))
    now_ms = core.next_timeout_ms()
    core.handle_timeout(now_ms)
    for _ in range(2):  # the pre-vote and the vote
        for node_id, sent in requests_of(core).items():
            if isinstance(sent.request, VoteRequest):
                granted = VoteResponse(leader_epoch=core.epoch, vote_granted=True)
                core.handle_response(node_id, sent.correlation_id, granted, now_ms)
    assert core.is_leader
    assert core.high_watermark is None
    core.resign(now_ms)
    epoch = Epoch(core.epoch + 1)
    core.handle_request(
        LEADER,
        BeginQuorumEpochRequest(voter_key=key(1), leader_id=LEADER, leader_epoch=epoch, leader_endpoints=endpoints(2)),
        now_ms,
    )
    core.take_effects()
    diverging = EpochEndOffset(Epoch(1), Offset(1))
    told = FetchResponse(leader_id=LEADER, leader_epoch=epoch, diverging_epoch=diverging)
    sent = [number for number in range(100) if core.is_expected(LEADER, number)]
    core.handle_response(LEADER, sent[-1], told, now_ms)
    assert core.is_halted
    assert [effect for effect in core.take_effects() if isinstance(effect, TruncateLog)] == []


@pytest.mark.parametrize(("end_offset", "is_fatal"), [(1, True), (2, False), (5, False)])
def test_snapshot_that_ends_below_the_high_watermark_takes_the_place_of_nothing(end_offset, is_fatal):
    core = follower_of(1, 2, 3)
    answer(core, fetched(high_watermark=2))
    told = SnapshotId(Offset(end_offset), Epoch(1))
    effects = answer(core, FetchResponse(leader_id=LEADER, leader_epoch=Epoch(2), snapshot_id=told))
    assert any(isinstance(effect, Fault) and effect.is_fatal for effect in effects) == is_fatal
    assert (core.role.download is None) == is_fatal


@pytest.mark.parametrize("diverging", [(-1, 2), (1, -1)])
def test_diverging_epoch_below_zero_truncates_nothing_and_is_no_contact(diverging):
    core = follower_of(1, 2, 3)
    told = EpochEndOffset(Epoch(diverging[0]), Offset(diverging[1]))
    assert answer(core, FetchResponse(leader_id=LEADER, leader_epoch=Epoch(2), diverging_epoch=told)) == []
    assert core.log.end_offset == 3
    assert not core.role.has_fetched


def test_truncation_takes_back_the_voter_set_of_what_is_cut():
    core = follower_of(1, 2, 3)
    replica = core._replica
    replica.voters.add(Offset(2), core_of(1, 2).voters)
    assert core.voters.ids == (1, 2)
    diverging = EpochEndOffset(Epoch(1), Offset(2))
    answer(core, FetchResponse(leader_id=LEADER, leader_epoch=Epoch(2), diverging_epoch=diverging))
    assert core.voters.ids == (1, 2, 3)


@pytest.mark.parametrize("snapshot_id", [(-1, 1), (0, 1), (5, -1)])
def test_snapshot_id_below_zero_or_of_nothing_begins_no_download(snapshot_id):
    core = follower_of(1, 2, 3)
    told = SnapshotId(Offset(snapshot_id[0]), Epoch(snapshot_id[1]))
    answer(core, FetchResponse(leader_id=LEADER, leader_epoch=Epoch(2), snapshot_id=told))
    assert core.role.download is None
    assert not core.role.has_fetched


def download_of(core, end_offset=5):
    snapshot_id = SnapshotId(Offset(end_offset), Epoch(2))
    answer(core, FetchResponse(leader_id=LEADER, leader_epoch=Epoch(2), snapshot_id=snapshot_id))
    return snapshot_id


def piece(core, snapshot_id, *, position, size, chunk):
    return answer(
        core,
        FetchSnapshotResponse(
            leader_id=LEADER,
            leader_epoch=Epoch(2),
            snapshot_id=snapshot_id,
            position=position,
            size_bytes=size,
            chunk_bytes=chunk,
        ),
    )


def test_piece_at_another_position_ends_the_download_and_writes_nothing():
    core = follower_of(1, 2, 3)
    snapshot_id = download_of(core)
    piece(core, snapshot_id, position=0, size=10, chunk=4)
    effects = piece(core, snapshot_id, position=3, size=10, chunk=4)
    assert not any(isinstance(effect, WriteSnapshotChunk) for effect in effects)
    assert [effect.is_fatal for effect in effects if isinstance(effect, Fault)] == [False]
    assert core.role.download is None


@pytest.mark.parametrize(("chunk", "goes_on"), [(0, False), (1, True)])
def test_empty_piece_that_does_not_end_the_snapshot_ends_the_download(chunk, goes_on):
    core = follower_of(1, 2, 3)
    piece(core, download_of(core), position=0, size=10, chunk=chunk)
    assert (core.role.download is not None) == goes_on


def test_complete_download_is_not_asked_for_again_before_it_is_installed():
    core = follower_of(1, 2, 3)
    piece(core, download_of(core), position=0, size=4, chunk=4)
    core.handle_timeout(core.role.fetch_deadline_ms - 1)
    asked = [effect.request for effect in core.take_effects() if isinstance(effect, SendRequest)]
    assert not any(isinstance(request, FetchRequest | FetchSnapshotRequest) for request in asked)


@pytest.mark.parametrize(("before_ms", "role"), [(1, "follower"), (0, "prospective")])
def test_voter_stands_for_election_at_the_fetch_deadline_and_not_before(before_ms, role):
    core = follower_of(1, 2, 3)
    core.handle_timeout(core.role.fetch_deadline_ms - before_ms)
    assert core.role.name == role


def test_observer_whose_leader_is_silent_follows_on_and_may_grant_a_pre_vote():
    core = follower_of(2, 3, local=9)
    answer(core, fetched())
    assert core.role.has_fetched
    core.handle_timeout(core.role.fetch_deadline_ms)
    assert core.role.name == "follower"
    assert not core.role.has_fetched


# What the voter set should be told about this replica


def correction(core):
    return core._followership._correction(core.role)


def test_voter_corrects_an_entry_that_differs_and_leaves_one_that_does_not():
    core = follower_of(1, 2, 3)
    assert correction(core) is None
    changed = follower_of(1, 2, 3, max_kraft_version=2)
    assert isinstance(correction(changed), UpdateVoterRequest)


def test_observer_asks_to_join_only_where_it_may():
    options = {"local": 9, "auto_join": True}
    assert isinstance(correction(follower_of(2, 3, **options)), AddVoterRequest)
    assert correction(follower_of(2, 3, local=9)) is None
    assert correction(follower_of(2, 3, **options, can_become_voter=False)) is None


def test_observer_with_a_new_directory_id_has_the_old_one_removed_before_it_joins():
    core = follower_of(1, 2, 3, auto_join=True)
    object.__setattr__(core.config, "local_key", key(1, directory=8))
    core._replica.local_key = key(1, directory=8)
    core._replica._asked_voters = None
    request = correction(core)
    assert isinstance(request, RemoveVoterRequest)
    assert request.voter_key == key(1)


@pytest.mark.parametrize(
    ("error", "is_taken", "is_fine"),
    [
        (0, True, True),
        (ErrorCode.UNSUPPORTED_VERSION, True, True),
        (ErrorCode.REQUEST_TIMED_OUT, False, True),
        (ErrorCode.VOTER_NOT_FOUND, False, False),
    ],
)
def test_answer_to_a_correction_decides_whether_it_is_told_again(error, is_taken, is_fine):
    core = follower_of(1, 2, 3)
    response = UpdateVoterResponse(top_level_error_code=error, leader_id=LEADER, leader_epoch=Epoch(2))
    assert core._followership.handle_update_voter_response(response, 0) == is_fine
    assert core.role.has_updated_leader == is_taken
