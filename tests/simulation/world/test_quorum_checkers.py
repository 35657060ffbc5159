"""What the checkers of logs and quorums say of replicas that break a rule."""

from __future__ import annotations

import math
from collections import Counter, deque
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from kraftlog._kraftlog import encode_batch, encode_values
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.control_records import LeaderChange, VotersChange
from kraftlog.raft.elections import Elections
from kraftlog.raft.messages import FetchRequest
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.voter_set import Voter, VoterSet
from kraftlog.runtime.raft.control_records import to_control_message
from kraftlog.runtime.raft.driver import RaftDriver
from kraftlog.runtime.raft.log_machine import Proposed
from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig
from kraftlog.testing import Cluster, InvariantViolationError
from kraftlog.testing.world.acknowledgement_checker import AcknowledgementChecker, PendingAnswers
from kraftlog.testing.world.followed_log import FollowedLog, LogRules
from kraftlog.testing.world.quorum_checker import QuorumChecker
from kraftlog.testing.world.story import Story
from kraftlog.types import ElectionState, ReplicaKey, SnapshotId, Uuid
from kraftlog.wire.records import encode_control_record

RULES = LogRules(order="ORDER", matching="MATCHING")


class Batches:
    """A log of the given batches: base offset, end offset, epoch, and what is in it."""

    def __init__(self, *batches):
        self.batches = batches

    def read(self, offset, *, max_bytes, end_offset):
        del max_bytes
        data = b"".join(
            encode_values([content] * (end - base), timestamps=1, base_offset=base, partition_leader_epoch=epoch)
            for base, end, epoch, content in self.batches
            if end > offset and end <= end_offset
        )
        return SimpleNamespace(read=lambda: data)


def follow(batches, written=None, *, start=0, end=None):
    log = FollowedLog("replica", "key", Batches(*batches), RULES, {} if written is None else written)
    found = list(log.follow(start, batches[-1][1] if end is None else end))
    return log, found


def test_a_log_is_read_once_and_again_from_where_it_was_cut():
    log, found = follow([(0, 2, 1, b"a"), (2, 3, 1, b"b"), (3, 5, 4, b"c")])
    assert [(batch.base_offset, batch.end_offset, batch.leader_epoch) for batch in found] == [
        (0, 2, 1),
        (2, 3, 1),
        (3, 5, 4),
    ]
    assert list(log.follow(0, 5)) == []
    log._log = Batches((0, 2, 1, b"a"), (2, 4, 2, b"d"))
    assert [batch.base_offset for batch in log.follow(0, 2)] == []
    assert [batch.base_offset for batch in log.follow(0, 4)] == [2]
    log.check_epochs([(1, 0), (2, 2), (5, 4)], 0)
    log.check_epochs([(2, 3)], 3)
    for wrong in ([(1, 0)], [(1, 0), (2, 3)], [(2, 0)]):
        with pytest.raises(InvariantViolationError, match="ORDER"):
            log.check_epochs(wrong, 0)


@pytest.mark.parametrize(("log_start", "is_compared"), [(0, True), (1, True), (2, False)])
def test_what_was_deleted_need_not_have_been_the_same(log_start, is_compared):
    written = {}
    follow([(0, 2, 2, b"b"), (2, 3, 2, b"c")], written)
    log, _ = follow([(0, 2, 1, b"a")], written)
    log._log = Batches((0, 2, 1, b"a"), (2, 3, 2, b"c"))
    if is_compared:
        with pytest.raises(InvariantViolationError, match="MATCHING"):
            list(log.follow(log_start, 3))
    else:
        assert [batch.base_offset for batch in log.follow(log_start, 3)] == [2]


@pytest.mark.parametrize(
    "batches",
    [
        [(0, 2, 1, b"a"), (3, 4, 1, b"b")],
        [(0, 2, 2, b"a"), (2, 4, 1, b"b")],
        [(1, 2, 1, b"a")],
    ],
)
def test_offsets_are_contiguous_and_epochs_never_fall(batches):
    with pytest.raises(InvariantViolationError, match="ORDER"):
        follow(batches)


def test_a_log_that_ends_before_its_end_offset_lacks_batches():
    with pytest.raises(InvariantViolationError, match="ORDER"):
        follow([(0, 2, 1, b"a")], end=5)


def test_a_log_may_start_within_its_first_batch():
    assert len(follow([(0, 4, 1, b"a"), (4, 5, 1, b"b")], start=2)[1]) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([(0, 2, 1, b"a")], [(0, 2, 1, b"b")]),
        ([(0, 2, 1, b"a"), (2, 3, 3, b"b")], [(0, 2, 2, b"a"), (2, 3, 3, b"b")]),
    ],
)
def test_logs_match_up_to_the_same_offset_and_epoch(first, second):
    written = {}
    follow(first, written)
    follow(first, written)
    with pytest.raises(InvariantViolationError, match="MATCHING"):
        follow(second, written)


# One replica of a quorum, with a log in a real directory


def key(number):
    return ReplicaKey(number, Uuid(bytes([number] * 16)))


def voters(*numbers):
    return VoterSet(Voter(key(number)) for number in numbers)


class Leading(Leader):
    """A leader whose followers fetched when ``heard_ms`` says, by their ids."""

    def __init__(self, epoch, epoch_start_offset):
        self.epoch, self.epoch_start_offset = epoch, epoch_start_offset
        self.voters, self.is_voter, self.high_watermark = voters(1, 2, 3), True, None
        self.heard_ms = {}

    def progress(self, now_ms):
        del now_ms
        return [
            SimpleNamespace(key=voter.key, last_fetch_ms=self.heard_ms.get(voter.key.node_id)) for voter in self.voters
        ]


class Replica:
    """A process whose core and disk say what a test wants."""

    def __init__(self, path, checker, number=1):
        self.checker = checker
        self.files = MetadataLog(path / f"replica-{number}", MetadataLogConfig(), now_ms=1, clean_shutdown=True)
        self.core = SimpleNamespace(
            role=SimpleNamespace(epoch=1),
            epoch=1,
            is_leader=False,
            is_voter=True,
            is_own_voter_change_uncommitted=False,
            high_watermark=None,
            log_end_offset=0,
            log=SimpleNamespace(end_offset=0, last_epoch=0),
            voters=voters(1, 2, 3),
            voters_offset=None,
            unanswered_count=0,
            config=SimpleNamespace(fetch_timeout_ms=1000),
        )
        # A count that is never what it was: something may have changed.
        self.driver = SimpleNamespace(stored_state=ElectionState(epoch=1), flushed_end_offset=0, told_count=math.nan)
        self.machine = SimpleNamespace(
            acknowledged=[],
            node_id=number,
            name=f"controller-{number}",
            start_count=1,
            disk_number=0,
            directory_id=key(number).directory_id,
            has_bad_disk=False,
            has_ended_within_event=False,
            is_disk_failing=False,
            clock_ms=lambda: self.now_ms,
            world=SimpleNamespace(now_ns=0),
            replicated_log=SimpleNamespace(raft=self.core, driver=self.driver, log=self.files, pending=deque()),
        )
        self.now_ms = 1

    def lead(self, epoch=1, *, epoch_start_offset=0):
        role = self.core.role = Leading(epoch, epoch_start_offset)
        self.core.is_leader, self.core.epoch = True, epoch
        return role

    def append(self, epoch, *contents, control=()):
        base = self.files.log_end_offset
        if control:
            pairs = [encode_control_record(to_control_message(record)) for record in control]
            data = encode_batch(
                [(1, name, value, ()) for name, value in pairs],
                base_offset=base,
                partition_leader_epoch=epoch,
                control=True,
            )
        else:
            data = encode_values(list(contents), timestamps=1, base_offset=base, partition_leader_epoch=epoch)
        self.files.append_fetched([data], epoch=epoch)
        self.core.log.end_offset = self.core.log_end_offset = self.files.log_end_offset
        self.core.log.last_epoch = epoch
        return base

    def look(self, **shown):
        for name, value in shown.items():
            target = self.driver if hasattr(self.driver, name) else self.core
            setattr(target, name, value)
        self.checker.after_turn(self.machine)

    def restart(self):
        self.machine.start_count += 1

    def propose(self, last_offset, epoch=1):
        """The answer of an operation that proposed records up to that offset."""
        answer = Future()
        payload = SimpleNamespace(future=answer)
        self.machine.replicated_log.pending.append(Proposed(last_offset, last_offset, epoch, 1, 1, payload))
        return answer


@pytest.fixture
def quorum(tmp_path):
    nodes = {}
    checker = QuorumChecker(nodes, Story(SimpleNamespace(now_ms=0.0)))
    replicas = [Replica(tmp_path, checker, number) for number in (1, 2, 3)]
    nodes.update({replica.machine.node_id: replica.machine for replica in replicas})
    yield replicas
    for replica in replicas:
        replica.files.close()


def test_one_vote_per_epoch(quorum):
    replica = quorum[0]
    replica.look(stored_state=ElectionState(epoch=1, voted_key=key(2)))
    replica.look(stored_state=ElectionState(epoch=1, leader_id=2))
    replica.look(stored_state=ElectionState(epoch=1, voted_key=ReplicaKey(2)))
    replica.restart()
    with pytest.raises(InvariantViolationError, match="INV-02"):
        replica.look(stored_state=ElectionState(epoch=1, voted_key=key(3)))


def test_a_leader_that_has_resigned_appends_nothing(quorum):
    replica = quorum[0]
    replica.lead()
    replica.append(1, b"a")
    replica.look()
    replica.core.is_leader = False
    replica.look(role=Resigned(1, local_id=1, deadline_ms=5))
    replica.look(flushed_end_offset=1)
    assert replica.checker.looked["INV-18"] == 1
    replica.append(1, b"b")
    with pytest.raises(InvariantViolationError, match="INV-18"):
        replica.look()


def test_an_epoch_is_raised_with_the_pre_votes_of_a_majority(quorum):
    replica = quorum[0]
    candidate = Candidate(2, local_key=key(1), voters=voters(1, 2, 3), deadline_ms=9)
    replica.look()
    replica.checker.note_pre_vote(2, 1, 1)
    replica.look(role=candidate)
    replica.checker.note_pre_vote(2, 1, 1)  # of the epoch before
    with pytest.raises(InvariantViolationError, match="INV-26"):
        replica.look(role=Candidate(3, local_key=key(1), voters=voters(1, 2, 3), deadline_ms=9))


def test_what_was_durable_is_there_at_the_next_start(quorum):
    replica = quorum[0]
    replica.append(1, b"a", b"b")
    replica.look(flushed_end_offset=2)
    replica.restart()
    replica.look()
    replica.core.log.end_offset = 1
    replica.machine.has_ended_within_event = True  # it may have truncated what was not committed
    replica.restart()
    replica.look()
    replica.checker._shown[1, 0] = replica.checker._durable[1, 0] = 2
    replica.restart()
    with pytest.raises(InvariantViolationError, match="INV-06"):
        replica.look()


def commit(quorum, holders):
    """Replica 1 leads, and commits two records that so many replicas hold."""
    leader = quorum[0]
    role = leader.lead()
    for replica in quorum[:holders]:
        replica.append(1, b"a", b"b")
        replica.look(flushed_end_offset=2)
    role.high_watermark = 2
    leader.look(high_watermark=2)
    return role


def test_a_majority_holds_what_is_committed(quorum):
    commit(quorum, 2)


def test_a_leader_does_not_commit_what_it_holds_alone(quorum):
    with pytest.raises(InvariantViolationError, match="INV-06"):
        commit(quorum, 1)


def test_a_leader_shows_no_high_watermark_below_its_epoch(quorum):
    quorum[0].lead(epoch_start_offset=2)
    for replica in quorum:
        replica.append(1, b"a", b"b")
        replica.look(flushed_end_offset=2)
    quorum[0].core.role.high_watermark = 2
    with pytest.raises(InvariantViolationError, match="INV-11"):
        quorum[0].look(high_watermark=2)


def test_a_follower_shows_no_high_watermark_that_no_leader_had(quorum):
    quorum[1].append(1, b"a")
    with pytest.raises(InvariantViolationError, match="INV-05"):
        quorum[1].look(high_watermark=1)


def test_a_leader_that_was_removed_does_not_lead_on(quorum):
    role = commit(quorum, 2)
    role.is_voter = False
    quorum[0].look(is_voter=False, voters_offset=2, is_own_voter_change_uncommitted=True, unanswered_count=0)
    with pytest.raises(InvariantViolationError, match="INV-23"):
        quorum[0].look(voters_offset=1, stored_state=ElectionState(epoch=1, leader_id=1))


def test_an_observer_is_no_candidate(quorum):
    role = Candidate.__new__(Candidate)
    role.epoch = 2
    with pytest.raises(InvariantViolationError, match="INV-29"):
        quorum[0].look(role=role, is_voter=False)


def test_two_fetches_are_not_under_way_at_once(quorum):
    fetch = FetchRequest.__new__(FetchRequest)
    quorum[0].core.requests_under_way = lambda _: (fetch,)
    quorum[0].look(unanswered_count=2)
    quorum[0].core.requests_under_way = lambda _: (fetch, fetch)
    with pytest.raises(InvariantViolationError, match="INV-30"):
        quorum[0].look(flushed_end_offset=1)


def test_a_leader_without_a_majority_resigns(quorum):
    leader = quorum[0]
    role = commit(quorum, 2)

    def look_at(*times_ms):
        for now_ms in times_ms:
            leader.now_ms, leader.machine.world.now_ns = now_ms, now_ms * 1_000_000
            leader.look()

    look_at(600, 2_000, 3_000)
    role.heard_ms[2] = 2_500
    look_at(4_000, 5_000, 6_000)  # its timers may be late once
    role.heard_ms[2] = 5_900
    look_at(7_000, 9_500)
    with pytest.raises(InvariantViolationError, match="INV-28"):
        look_at(10_500)


def test_an_operation_succeeds_once_its_records_are_committed(quorum):
    leader = quorum[0]
    answers = [leader.propose(offset) for offset in range(4)]
    leader.look()
    answers[0].set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))  # which promises nothing
    commit(quorum, 2)
    leader.machine.replicated_log.pending.popleft()
    answers[1].set_result(None)
    leader.look()
    assert leader.checker.looked["INV-12"] == 1
    answers[2].set_result(None)
    with pytest.raises(InvariantViolationError, match="INV-12"):
        leader.look()


def test_the_next_leader_has_what_was_acknowledged(quorum):
    checker, (first, same, short) = AcknowledgementChecker(Counter()), quorum
    answers = PendingAnswers(first.machine.replicated_log)
    first.propose(1).set_result(None)
    checker.check(first.machine, answers, committed=2)
    for replica in (first, same):
        replica.append(1, b"a", b"b")
        replica.append(2, b"c")
        checker.check_leader(replica.machine, replica.files)
    short.append(1, b"a")
    with pytest.raises(InvariantViolationError, match="INV-12"):
        checker.check_leader(short.machine, short.files)
    short.append(2, b"x")
    with pytest.raises(InvariantViolationError, match="INV-12"):
        checker.check_leader(short.machine, short.files)
    first.propose(1, epoch=2).set_result(None)
    with pytest.raises(InvariantViolationError, match="INV-12"):
        checker.check(first.machine, answers, committed=3)


def test_callers_of_a_quorum_are_told_of_what_is_committed_and_stays(quorum):
    checker, (first, second, other) = AcknowledgementChecker(Counter()), quorum
    for replica, epoch in ((first, 1), (second, 1), (other, 2)):
        replica.append(epoch, b"a", b"b")

    def told(replica, *offsets):
        replica.machine.acknowledged = list(offsets)
        checker.check_callers(replica.machine, replica.files, committed=2)
        assert not replica.machine.acknowledged

    told(first, 0)
    told(second, 0, 1)
    checker.check_leader(second.machine, second.files)
    with pytest.raises(InvariantViolationError, match="INV-12"):
        checker.check_leader(other.machine, other.files)
    with pytest.raises(InvariantViolationError, match="INV-12"):
        told(other, 1)
    with pytest.raises(InvariantViolationError, match="INV-12"):
        told(first, 2)


def test_nothing_is_truncated_below_the_high_watermark(quorum):
    commit(quorum, 2)
    replica = quorum[1]
    replica.look(high_watermark=2)
    replica.append(1, b"c")
    replica.look()
    replica.files.truncate_to(2)
    replica.core.log.end_offset = 2
    replica.look()
    replica.files.truncate_to(0)
    replica.core.log.end_offset = replica.core.log_end_offset = 0
    with pytest.raises(InvariantViolationError, match=r"INV-05|INV-10"):
        replica.look()


def test_the_epoch_that_the_core_knows_is_that_of_its_log(quorum):
    replica = quorum[0]
    replica.append(1, b"a")
    replica.core.log.last_epoch = 2
    replica.core.epoch = replica.core.role.epoch = 2
    replica.look()  # effects wait until epoch 2 is stored
    with pytest.raises(InvariantViolationError, match="INV-14"):
        replica.look(stored_state=ElectionState(epoch=2))


def lead_and_change(replica, *sets, committed=1):
    """A leader appends its first records, and then sets of voters, one batch for each."""
    role = replica.lead()
    replica.append(1, control=[LeaderChange(leader_id=1, voters=(1, 2, 3), granting_voters=(1, 2))])
    replica.look(flushed_end_offset=1)
    role.high_watermark = replica.core.high_watermark = committed
    for set_ in sets:
        offset = replica.append(1, control=[VotersChange(voters=set_)])
        replica.core.voters, replica.core.voters_offset = set_, offset
    replica.checker._high_watermark = 9
    replica.look()


def test_one_change_of_voters_at_a_time_each_of_one_voter(quorum):
    lead_and_change(quorum[0], voters(1, 2))


@pytest.mark.parametrize(
    ("sets", "committed", "broken"),
    [
        ([voters(1, 2), voters(1, 2, 3)], 1, "INV-21"),
        ([voters(1, 2)], None, "INV-21"),
        ([voters(1, 2), voters(3, 4)], 2, "INV-20"),
    ],
)
def test_voters_change_one_by_one(quorum, sets, committed, broken):
    with pytest.raises(InvariantViolationError, match=broken):
        lead_and_change(quorum[0], *sets, committed=committed)


def test_a_change_of_voters_that_succeeded_is_committed(quorum):
    leader, gone = quorum[0], quorum[2].machine
    for replica in quorum:
        replica.machine.is_running = True
    lead_and_change(leader, voters(1, 2), committed=2)
    leader.checker.check_voter_change(gone, is_voter=False)
    assert leader.checker.looked["INV-24"] == 1
    with pytest.raises(InvariantViolationError, match="INV-24"):
        leader.checker.check_voter_change(gone, is_voter=True)
    leader.core.high_watermark = 1
    with pytest.raises(InvariantViolationError, match="INV-24"):
        leader.checker.check_voter_change(gone, is_voter=False)
    quorum[1].core.epoch = 2
    quorum[1].look()
    leader.checker.check_voter_change(gone, is_voter=True)  # nobody leads in epoch 2 so far


def test_a_replica_goes_by_the_voters_of_its_log(quorum):
    replica = quorum[0]
    replica.append(1, control=[VotersChange(voters=voters(1, 2))])
    with pytest.raises(InvariantViolationError, match="INV-19"):
        replica.look(voters_offset=0, flushed_end_offset=1)


def test_a_log_starts_where_a_checkpoint_ends(quorum):
    commit(quorum, 2)
    replica = quorum[1]
    replica.files._log.advance_log_start_offset(1)
    with pytest.raises(InvariantViolationError, match="INV-15"):
        replica.look(high_watermark=2)


def take_checkpoint(replica, *values, epoch=1):
    writer = replica.files.create_snapshot(SnapshotId(2, epoch), epoch=1, high_watermark=2, now_ms=1)
    writer.append(list(values))
    writer.freeze()
    replica.look(high_watermark=2)


def test_checkpoints_of_the_same_records_have_the_same_state(quorum):
    commit(quorum, 3)
    take_checkpoint(quorum[0], b"a", b"b")
    take_checkpoint(quorum[1], b"b", b"a")
    with pytest.raises(InvariantViolationError, match="INV-16"):
        take_checkpoint(quorum[2], b"a", b"c")


# Whole nodes whose shell is broken


def whole_cluster(seed):
    """Three controllers elect a leader, lose it, and elect another one."""
    settings = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    with Cluster(seed, controllers=3, brokers=1, properties=settings) as cluster:
        cluster.run_for(2_000)
        cluster.kill(cluster.controller)
        cluster.run_for(5_000)
        cluster.recover()
        return cluster.checkers.looked


def test_rules_about_messages_have_something_to_look_at():
    looked = whole_cluster(5)
    rules = "INV-02 INV-03 INV-06 INV-11 INV-13 INV-14 INV-15 INV-19 INV-25 INV-28 INV-30"
    for rule in rules.split():
        assert looked[rule], rule


def test_a_replica_that_acknowledges_before_its_flush_is_noticed(monkeypatch):
    monkeypatch.setattr(RaftDriver, "_send_when_durable", RaftDriver._send)
    with pytest.raises(InvariantViolationError, match=r"INV-13|INV-06"):
        whole_cluster(5)


def test_a_replica_that_shows_an_epoch_before_it_is_stored_is_noticed(monkeypatch):
    def persist_in_the_background(driver, effect):
        def write():
            driver._store.write(effect.state, kraft_version=effect.kraft_version, voters=driver.core.voters.ids)

        written = driver.loop.run_in_executor(driver._threads.log, write)
        written.add_done_callback(lambda _: setattr(driver, "_persisted", effect.state))

    monkeypatch.setattr(RaftDriver, "_persist", persist_in_the_background)
    monkeypatch.setattr(RaftDriver, "_check_persisted", lambda *_: None)
    with pytest.raises(InvariantViolationError, match="INV-03"):
        whole_cluster(5)


def test_a_pre_vote_that_is_kept_like_a_vote_is_noticed(monkeypatch):
    add_vote = Elections.handle_vote

    def handle_vote(elections, source, request, now_ms):
        replica = elections._replica
        if request.pre_vote and request.replica_epoch == replica.epoch and replica.role.voted_key is None:
            replica.add_vote(request.replica_key, now_ms)
        add_vote(elections, source, request, now_ms)

    monkeypatch.setattr(Elections, "handle_vote", handle_vote)
    with pytest.raises(InvariantViolationError, match="INV-25"):
        whole_cluster(5)
