"""The group shard under a hand-driven clock: answers by token, appends confirmed or failed by the test."""

from __future__ import annotations

from typing import Any

import pytest

from classic_fixture import SUBSCRIPTION, ClassicShard, protocols
from kraftlog.coordinator.group.config import GroupConfig
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from kraftlog.wire.messages.leave_group import LeaveGroupRequest
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest


def test_join_without_member_id_is_given_one_and_joins_with_it() -> None:
    h = ClassicShard()
    first = h.join("t1")
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("client-")
    joined = h.join("t2", first.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, first.member_id)
    assert [m.metadata for m in joined.members] == [SUBSCRIPTION]


def test_join_before_version_4_is_not_asked_for_a_member_id() -> None:
    assert ClassicShard().join("t", version=3).error_code == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 10**9}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_join_bad_request_is_refused(fields: dict[str, Any], code: int) -> None:
    assert ClassicShard().join("t", **fields).error_code == code


def test_join_unknown_member_of_unknown_group_is_refused() -> None:
    assert ClassicShard().join("t", "ghost").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_leader_assignment_reaches_every_member_and_the_log() -> None:
    h = ClassicShard(group_initial_rebalance_delay_ms=3_000)
    a = h.new_member("a")
    b = h.new_member("b")
    assert "a" not in h.answers
    h.advance(3_000)
    h.advance(3_000)
    leader = h.answers["a"].leader
    assert {h.answers["a"].generation_id, h.answers["b"].generation_id} == {1}
    follower = b if leader == a else a
    assert h.sync("s-f", follower, 1) is None
    assert h.sync("s-l", leader, 1, {a: b"A", b: b"B"}).error_code == 0
    assert h.answers["s-f"].assignment == (b"B" if follower == b else b"A")
    value = h.log[-1].value
    assert {m.member_id: bytes(m.assignment) for m in value.members} == {a: b"A", b: b"B"}
    assert h.heartbeat(a, 1) == 0
    assert h.heartbeat(a, 7) == ErrorCode.ILLEGAL_GENERATION


def test_sync_failed_append_is_told_and_starts_a_rebalance() -> None:
    h = ClassicShard()
    a = h.new_member("a")
    h.append_error = int(ErrorCode.NOT_COORDINATOR)
    assert h.sync("s", a, 1, {a: b"A"}).error_code == ErrorCode.NOT_COORDINATOR
    assert h.heartbeat(a, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_second_member_makes_the_first_rejoin() -> None:
    h = ClassicShard()
    a = h.stable()
    b = h.new_member("b")
    assert h.heartbeat(a, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert h.join("a2", a).generation_id == 2
    assert h.answers["b"].generation_id == 2
    assert {m.member_id for m in h.answers["a2"].members} == {a, b}


def test_rebalance_member_that_does_not_rejoin_is_dropped() -> None:
    h = ClassicShard()
    h.stable()
    b = h.new_member("b")
    for _ in range(31):
        h.advance(1_000)
    assert h.answers["b"].leader == b
    assert len(h.answers["b"].members) == 1


def test_session_timeout_empties_the_group() -> None:
    h = ClassicShard()
    a = h.stable()
    h.advance(10_000)
    assert h.heartbeat(a, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.shard.describe_group("g", 6).group_state == "Empty"
    assert h.log[-1].value.members == ()


def test_sync_deadline_drops_members_that_never_sync() -> None:
    h = ClassicShard()
    a = h.new_member("a")
    for _ in range(31):
        h.heartbeat(a, 1)
        h.advance(1_000)
    assert h.shard.describe_group("g", 6).group_state == "Empty"


def test_leave_last_member_empties_and_unknown_member_disturbs_nothing() -> None:
    h = ClassicShard()
    a = h.stable()
    ghost = LeaveGroupRequest(group_id="g", members=(LeaveGroupRequest.MemberIdentity(member_id="ghost"),))
    assert h.shard.leave_group(ghost, 5, 0).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat(a, 1) == 0
    request = LeaveGroupRequest(group_id="g", members=(LeaveGroupRequest.MemberIdentity(member_id=a),))
    assert h.shard.leave_group(request, 5, 0).members[0].error_code == 0
    h.run()
    assert h.shard.describe_group("g", 6).group_state == "Empty"


def test_static_member_restart_keeps_assignment_without_rebalance() -> None:
    h = ClassicShard()
    first = h.join("a", group_instance_id="i1")
    h.sync("s", first.member_id, 1, {first.member_id: b"A"})
    again = h.join("b", group_instance_id="i1")
    assert (again.error_code, again.generation_id, again.skip_assignment) == (0, 1, True)
    assert again.member_id != first.member_id
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=first.member_id, group_instance_id="i1")
    assert h.shard.heartbeat(request, 0).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert h.sync("s2", again.member_id, 1).assignment == b"A"


OWNED = b"\x00\x03\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x04gen1\x00\x00\x00\x00"


def two_static_members(h: ClassicShard) -> tuple[str, str]:
    """The leader's and the follower's id in a stable group of generation 1, assignments A and B."""
    fields = protocols(("sticky", SUBSCRIPTION), ("range", SUBSCRIPTION))
    h.join("a", group_instance_id="i1", **fields)
    h.join("b", group_instance_id="i2", **fields)
    h.join("a2", h.answers["a"].member_id, group_instance_id="i1", **fields)
    leader, follower = h.answers["a2"], h.answers["b"]
    h.sync("s2", follower.member_id, leader.generation_id)
    h.sync("s1", leader.member_id, leader.generation_id, {leader.member_id: b"A", follower.member_id: b"B"})
    return leader.member_id, follower.member_id


@pytest.mark.spec("CGRP-54")
def test_static_member_rejoin_with_other_metadata_keeps_the_generation() -> None:
    # A cooperative-sticky member brings the partitions that it owns, so its metadata differs at every join.
    h = ClassicShard()
    _, follower = two_static_members(h)
    generation = h.answers["b"].generation_id
    again = h.join("b2", group_instance_id="i2", **protocols(("sticky", OWNED), ("range", SUBSCRIPTION)))
    assert (again.error_code, again.generation_id) == (0, generation)
    assert again.member_id != follower
    assert h.sync("s3", again.member_id, generation).assignment == b"B"
    described = h.shard.describe_group("g", 5)
    assert described.group_state == "Stable"
    assert {member.member_id: bytes(member.member_metadata) for member in described.members}[again.member_id] == OWNED
    stored = {member.member_id: bytes(member.subscription) for member in h.log[-1].value.members}
    assert stored[again.member_id] == OWNED


@pytest.mark.spec("CGRP-56")
def test_static_member_rejoin_that_changes_the_protocol_rebalances() -> None:
    h = ClassicShard()
    leader, _ = two_static_members(h)
    generation = h.answers["b"].generation_id
    assert h.join("b2", group_instance_id="i2", **protocols(("range", SUBSCRIPTION))) is None
    assert h.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.spec("CGRP-55")
@pytest.mark.parametrize("version", [5, 8, 9])
def test_static_leader_rejoin_is_told_its_role_from_version_9_on(version: int) -> None:
    h = ClassicShard()
    old_id, _ = two_static_members(h)
    fields = protocols(("sticky", OWNED), ("range", SUBSCRIPTION))
    again = h.join("a3", version=version, group_instance_id="i1", **fields)
    assert again.error_code == 0
    if version >= 9:
        assert (again.leader, again.skip_assignment, len(again.members)) == (again.member_id, True, 2)
    else:
        assert (again.leader, again.skip_assignment, again.members) == (old_id, False, ())


@pytest.mark.spec("CGRP-59")
def test_static_member_rejoin_that_cannot_be_stored_is_undone() -> None:
    h = ClassicShard()
    _, follower = two_static_members(h)
    generation = h.answers["b"].generation_id
    h.append_error = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    again = h.join("b2", group_instance_id="i2", **protocols(("sticky", OWNED), ("range", SUBSCRIPTION)))
    assert (again.error_code, again.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    h.append_error = 0
    assert h.heartbeat(follower, generation) == 0
    described = {member.member_id: bytes(member.member_metadata) for member in h.shard.describe_group("g", 5).members}
    assert described[follower] == SUBSCRIPTION


def test_commit_is_visible_only_once_appended() -> None:
    h = ClassicShard()
    h.held = []
    assert h.commit("c") is None
    assert h.shard.committed("g") == {}
    h.shard.on_appended(h.held[0].append_id, 0)
    h.run()
    committed = h.shard.committed("g")[("orders", 0)]
    assert (committed.offset, committed.leader_epoch, committed.metadata) == (5, 3, "m")
    assert h.held[0].records[0].value_version == 4


def test_commit_failed_append_is_told_and_changes_nothing() -> None:
    h = ClassicShard()
    h.append_error = int(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert h.commit("c") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert h.shard.committed("g") == {}


def test_commit_checks_membership_generation_and_metadata_size() -> None:
    h = ClassicShard()
    assert h.commit("c0", generation_id_or_member_epoch=4) == ErrorCode.ILLEGAL_GENERATION
    a = h.stable()
    assert h.commit("c1") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit("c2", generation_id_or_member_epoch=2, member_id=a) == ErrorCode.ILLEGAL_GENERATION
    assert h.commit("c3", generation_id_or_member_epoch=1, member_id="ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.commit("c4", generation_id_or_member_epoch=1, member_id=a) == 0
    size = GroupConfig().offset_metadata_max_bytes
    fields = {"generation_id_or_member_epoch": 1, "member_id": a}
    assert h.commit("c5", metadata="x" * (size + 1), **fields) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert h.commit("c7", metadata="\u20ac" * size, **fields) == ErrorCode.NONE
    assert h.commit("c6", metadata="x" * size, **fields) == 0


def test_replay_gives_the_same_groups_and_offsets() -> None:
    h = ClassicShard()
    a = h.stable()
    h.commit("c", generation_id_or_member_epoch=1, member_id=a)
    other = ClassicShard()
    for record in h.log:
        other.shard.replay(record, now_ms=0)
    other.shard.finish_loading(0)
    assert other.shard.committed("g") == h.shard.committed("g")
    assert other.shard.describe_group("g", 6) == h.shard.describe_group("g", 6)
    assert other.heartbeat(a, 1) == 0


def test_offsets_expire_after_the_group_is_empty_long_enough() -> None:
    day = 24 * 3_600_000
    h = ClassicShard(offsets_retention_ms=day, offsets_retention_check_interval_ms=1_000)
    h.commit("c")
    h.advance(day - 1)
    assert h.shard.committed("g")
    h.advance(1_000)
    assert not h.shard.committed("g")
    assert tuple(h.shard.list_groups()) == ()
    assert h.log[-1].value is None


def test_delete_group_only_when_empty() -> None:
    h = ClassicShard()
    a = h.stable()
    h.commit("c", generation_id_or_member_epoch=1, member_id=a)
    h.shard.delete_group("d1", "g", h.now_ms)
    h.shard.delete_group("d2", "nobody", h.now_ms)
    h.run()
    assert h.answers["d1"].error_code == ErrorCode.NON_EMPTY_GROUP
    assert h.answers["d2"].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    h.advance(10_000)
    h.shard.delete_group("d3", "g", h.now_ms)
    h.run()
    assert h.answers["d3"].error_code == 0
    assert not h.shard.committed("g")
    assert h.shard.describe_group("g", 5).group_state == "Dead"


def test_delete_offsets_of_a_subscribed_topic_is_refused() -> None:
    h = ClassicShard()
    a = h.stable()
    h.commit("c", generation_id_or_member_epoch=1, member_id=a)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(
        name="orders", partitions=(OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0),)
    )
    h.shard.delete_offsets("d", OffsetDeleteRequest(group_id="g", topics=(topic,)))
    h.run()
    assert h.answers["d"].topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    h.advance(10_000)
    h.shard.delete_offsets("d2", OffsetDeleteRequest(group_id="g", topics=(topic,)))
    h.run()
    assert h.answers["d2"].topics[0].partitions[0].error_code == 0
    assert not h.shard.committed("g")


def test_timeouts_called_early_or_twice_change_nothing() -> None:
    h = ClassicShard()
    a = h.stable()
    before = h.shard.describe_group("g", 6)
    for _ in range(3):
        h.shard.handle_timeout(h.now_ms)
    h.run()
    assert h.shard.describe_group("g", 6) == before
    assert h.heartbeat(a, 1) == 0
