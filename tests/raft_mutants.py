"""Bugs that KRaft once had, ready to be put back: tests show that each is noticed."""

from __future__ import annotations

from dataclasses import replace

from kraftlog.raft.config import RaftConfig
from kraftlog.raft.connections import Connections
from kraftlog.raft.control_records import VotersChange
from kraftlog.raft.elections import Elections
from kraftlog.raft.followership import Followership
from kraftlog.raft.leadership import Leadership
from kraftlog.raft.log import LogState
from kraftlog.raft.messages import VoteResponse
from kraftlog.raft.reconfiguration import Reconfiguration
from kraftlog.raft.replica_state import ReplicaState
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.types import Epoch, Offset


def _start_as_anything_but_resigned(self, stored, now_ms, deadline_ms, _was=ReplicaState._role_to_start_in):
    role = _was(self, stored, now_ms, deadline_ms)
    return Unattached(role.epoch, deadline_ms=deadline_ms) if isinstance(role, Resigned) else role


def _grant_to_the_up_to_date(self, candidate, *, is_log_up_to_date, pre_vote):
    return is_log_up_to_date


def _truncate_below_the_high_watermark(self, role, diverging, now_ms, _was=Followership._truncate):
    self._replica.committed_end_offset = Offset(0)
    return _was(self, role, diverging, now_ms)


def _begin_the_epoch_one_earlier(self, epoch, *, epoch_start_offset, _was=Leader.__init__, **options):
    _was(self, epoch, epoch_start_offset=Offset(epoch_start_offset - 1), **options)


def _accept_any_cluster(self, cluster_id):
    return False


def _do_nothing(self, *arguments):
    """What should have been done is not."""


def _count_itself_for_ever(self, voters, _was=Leader.set_voters):
    own = self.voters.get(self.leader_id)
    return _was(self, voters if voters.get(self.leader_id) else voters.with_added(own))


def _follow_without_a_vote(self, epoch, leader_id, leader_endpoints, now_ms, _was=ReplicaState.become_follower):
    _was(self, epoch, leader_id, leader_endpoints, now_ms)
    self.role._voted_key = None
    self.persist()


def _follow_whoever_is_named(self, leader_id, epoch):
    return True


def _resign_within_the_epoch(self, role, now_ms, _was=Elections.poll_resigned):
    """The election timer of a resigned replica leads to Unattached in the same epoch."""
    if role.deadline_ms is not None and now_ms >= role.deadline_ms:
        self._replica.role = Unattached(role.epoch, deadline_ms=now_ms + 1000)
        return
    _was(self, role, now_ms)


def _append_any_epoch(self, response, _was=Followership._append):
    role, replica = self._replica.role, self._replica
    known, role.epoch = role.epoch, Epoch(99)
    _was(self, response)
    role.epoch = known
    assert replica.role is role


def _change_before_the_epoch_commits(self, *, needs_kraft_version, _was=Reconfiguration._check_no_change_under_way):
    role = self._replica.role
    if isinstance(role, Leader) and role.high_watermark is None:
        return None
    return _was(self, needs_kraft_version=needs_kraft_version)


def _keep_endpoints(self, leader_id, epoch, endpoints, now_ms, _was=Elections.learn_leader):
    if not (isinstance(self._replica.role, Follower) and epoch == self._replica.epoch):
        _was(self, leader_id, epoch, endpoints, now_ms)


def _let_everything_wait(self, source, request, now_ms, _was=Leadership.handle_fetch):
    _was(self, source, request if request.max_wait_ms == 0 else replace(request, high_watermark=Offset(99)), now_ms)


def _let_the_diverging_wait(self, request, now_ms, _was=Leadership._read):
    return replace(_was(self, request, now_ms), diverging_epoch=None)


def _send_the_log_from_its_start(self, offset, last_epoch, _was=LogState.check_fetch):
    return None if offset == self.start_offset == 0 else _was(self, offset, last_epoch)


def _lead_on_after_resigning(self):
    return self.role.leader_id


def _ask_the_first_for_ever(self, destinations, now_ms, rng):
    first = destinations[0] if destinations else None
    return first if first is not None and self.is_ready(first.node_id, now_ms) else None


def _append_one_by_one(self, records, _was=ReplicaState.append):
    for record in records:
        _was(self, [record])


def _keep_epochs_that_are_cut_off(self, end_offset):
    self.end_offset = end_offset
    self.flushed_end_offset = min(self.flushed_end_offset, end_offset)


def _grant_nothing(self, candidate, *, is_log_up_to_date, pre_vote):
    return False


def _wait_for_the_commit_of_voters(self, offset, record, _was=ReplicaState.apply_control):
    if not (isinstance(record, VotersChange) and isinstance(self.role, Follower)):
        _was(self, offset, record)


def _learn_nothing_from_votes(self, node_id, response, now_ms, _was=Elections.learn_from):
    return None if isinstance(response, VoteResponse) else _was(self, node_id, response, now_ms)


def _count_by_the_old_voters(self, voters, _was=Leader.set_voters):
    return False if len(voters) < len(self.voters) else _was(self, voters)


# The bug, the name that is replaced, by what, and the scenario that notices.
MUTANTS = [
    ("KAFKA-10527", ReplicaState, "_role_to_start_in", _start_as_anything_but_resigned, "starting_states"),
    ("KAFKA-10661", Resigned, "can_grant_vote", _grant_to_the_up_to_date, "starting_states"),
    ("KAFKA-12460", Followership, "_truncate", _truncate_below_the_high_watermark, "follower_truncates"),
    ("KAFKA-12619", Leader, "__init__", _begin_the_epoch_one_earlier, "election_by_majority"),
    ("KAFKA-12440", ReplicaState, "is_other_cluster", _accept_any_cluster, "leader_answers_fetches"),
    ("KAFKA-15489", RaftConfig, "check_quorum_ms", 1 << 40, "leader_resigns_without_majority"),
    ("KAFKA-16144", Leader, "keep_alone", _do_nothing, "single_voter_gets_a_second"),
    ("KAFKA-16530", Leader, "set_voters", _count_itself_for_ever, "remove_leader_steps_down"),
    ("KAFKA-16927", Elections, "learn_leader", _keep_endpoints, "begin_quorum_epoch"),
    ("KAFKA-17067", ReplicaState, "is_voter", True, "observer_replicates"),
    ("KAFKA-17641", ReplicaState, "become_follower", _follow_without_a_vote, "pre_vote_lost_and_found"),
    ("KAFKA-18379", Elections, "poll_resigned", _resign_within_the_epoch, "leader_resigns_without_majority"),
    ("KAFKA-18723", Followership, "_append", _append_any_epoch, "follower_replicates"),
    ("two leaders in an epoch", Elections, "is_consistent", _follow_whoever_is_named, "begin_quorum_epoch"),
    ("KIP-1166 not heeded", Leadership, "handle_fetch", _let_everything_wait, "leader_defers_fetches"),
    (
        "change before the epoch commits (Ongaro 2015)",
        Reconfiguration,
        "_check_no_change_under_way",
        _change_before_the_epoch_commits,
        "add_voter",
    ),
    ("KAFKA-10826", Leadership, "linger_end_ms", None, "proposals"),
    ("KAFKA-15100", Leadership, "_read", _let_the_diverging_wait, "leader_answers_fetches"),
    ("KAFKA-15078", LogState, "check_fetch", _send_the_log_from_its_start, "leader_sends_to_the_snapshot"),
    ("KAFKA-17333", ReplicaState, "leader_id", property(_lead_on_after_resigning), "leader_resigns_without_majority"),
    ("KAFKA-19354", Connections, "choose", _ask_the_first_for_ever, "follower_finds_a_new_leader"),
    ("KAFKA-12376", ReplicaState, "append", _append_one_by_one, "proposals"),
    ("KAFKA-10706", LogState, "truncate_to", _keep_epochs_that_are_cut_off, "follower_truncates"),
    ("etcd 8501", Elections, "handle_pre_vote_unsupported", _do_nothing, "pre_vote_not_supported"),
    ("etcd 8334", Follower, "can_grant_vote", _grant_nothing, "votes_where_a_leader_is_known"),
    ("etcd 12359", Leader, "set_voters", _count_by_the_old_voters, "remove_voter"),
    ("openraft 1796", Elections, "learn_from", _learn_nothing_from_votes, "pre_vote_lost_and_found"),
    ("camunda 57386", ReplicaState, "apply_control", _wait_for_the_commit_of_voters, "follower_truncates"),
]
