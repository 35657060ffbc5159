"""Members of classic groups: joining, static members, states, with plain values."""

from __future__ import annotations

import re
from typing import Any

import pytest

from classic_fixture import SUBSCRIPTION, ClassicShard, protocols, two_classic_members
from kraftlog.coordinator.group.classic_group import ClassicGroup, GroupState
from kraftlog.coordinator.group.member import Member
from kraftlog.errors import ErrorCode

UUID_TEXT = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.mark.spec("CGRP-10")
@pytest.mark.parametrize(("session_ms", "code"), [(5_999, 26), (6_000, 79), (1_800_000, 79), (1_800_001, 26), (-1, 26)])
def test_a_session_timeout_outside_the_limits_is_refused(session_ms: int, code: int) -> None:
    assert ClassicShard().join("t", session_timeout_ms=session_ms).error_code == code


@pytest.mark.spec("CGRP-12")
def test_a_first_join_is_given_an_id_and_makes_no_member() -> None:
    h = ClassicShard()
    answer = h.join("t", version=4)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert re.fullmatch(f"client-{UUID_TEXT}", answer.member_id)
    assert (h.state, h.described().members) == ("Empty", ())


@pytest.mark.spec("CGRP-13")
def test_before_version_4_a_join_makes_a_member_at_once() -> None:
    h = ClassicShard(group_initial_rebalance_delay_ms=3_000)
    assert h.join("t", version=3) is None
    assert (h.state, len(h.described().members)) == ("PreparingRebalance", 1)
    h.advance(3_000)
    assert (h.answers["t"].error_code, h.answers["t"].generation_id) == (0, 1)


@pytest.mark.spec("CGRP-14")
def test_an_id_that_does_not_join_in_time_is_forgotten() -> None:
    h = ClassicShard()
    member_id = h.join("t").member_id
    h.advance(9_999)
    h.advance(1)
    assert h.join("late", member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("CGRP-15")
def test_an_unknown_id_is_refused_with_and_without_a_group() -> None:
    h = ClassicShard()
    assert h.join("t1", "ghost").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert tuple(h.shard.list_groups()) == ()
    h.stable()
    assert h.join("t2", "ghost").error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("CGRP-16", "CGRP-17")
def test_protocols_have_to_suit_every_member() -> None:
    h = ClassicShard()
    assert h.join("t1", protocol_type="").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.join("t2", protocols=()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    h.join("t3", version=3, **protocols(("range", b""), ("sticky", b"")))
    h.sync("s", h.answers["t3"].member_id, 1)
    for token, fields in {
        "t4": {"protocol_type": "connect"},
        "t5": protocols(("roundrobin", b"")),
        "t6": {"protocol_type": ""},
        "t7": {"protocols": ()},
    }.items():
        assert h.join(token, **fields).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.join("t8", **protocols(("roundrobin", b""), ("sticky", b""))).error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.spec("CGRP-18")
def test_an_empty_group_takes_another_protocol_type() -> None:
    h = ClassicShard()
    a = h.stable()
    h.leave((a, None))
    assert h.state == "Empty"
    assert h.join("t", version=3, protocol_type="connect").error_code == 0
    assert h.described().protocol_type == "connect"


@pytest.mark.spec("CGRP-19")
def test_the_first_rebalance_waits_and_each_new_member_extends_it() -> None:
    h = ClassicShard(group_initial_rebalance_delay_ms=3_000)
    fields = {"version": 3, "rebalance_timeout_ms": 7_000}
    h.join("a", **fields)
    h.advance(2_999)
    h.join("b", **fields)
    h.advance(1)
    assert not h.answers, "the second member extends the delay"
    h.join("c", **fields)
    h.advance(2_999)
    h.advance(1)
    assert not h.answers, "so does the third"
    h.join("d", **fields)
    h.advance(999)
    assert not h.answers
    h.advance(1)
    assert {h.answers[token].generation_id for token in "abcd"} == {1}, "the rebalance timeout ends all waiting"


@pytest.mark.spec("CGRP-19")
def test_the_first_rebalance_does_not_wait_for_ids_that_were_handed_out() -> None:
    # Kafka completes it when the delay is over; only later rebalances wait for pending members.
    h = ClassicShard(group_initial_rebalance_delay_ms=3_000)
    h.join("a", version=3)
    h.join("b-id")
    h.advance(3_000)
    assert h.answers["a"].generation_id == 1


@pytest.mark.spec("CGRP-20")
def test_a_rebalance_ends_when_all_members_and_handed_out_ids_have_joined() -> None:
    h = ClassicShard()
    a = h.stable()
    b = h.join("b-id").member_id
    c = h.join("c-id").member_id
    h.join("b", b)
    h.join("a2", a)
    assert not h.answers.keys() & {"a2", "b"}, "an id was handed out and has not joined"
    h.join("c", c)
    assert [h.answers[token].generation_id for token in ("a2", "b", "c")] == [2, 2, 2]
    assert {h.answers[token].protocol_name for token in ("a2", "b", "c")} == {"range"}
    assert {h.answers[token].leader for token in ("a2", "b", "c")} == {a}
    assert {(m.member_id, m.metadata) for m in h.answers["a2"].members} == {(x, SUBSCRIPTION) for x in (a, b, c)}
    assert h.answers["b"].members == h.answers["c"].members == ()


@pytest.mark.spec("CGRP-21", "CGRP-23")
def test_static_members_outlast_a_rebalance_that_they_miss() -> None:
    h = ClassicShard()
    fields: dict[str, Any] = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 10_000}
    static = h.join("s", group_instance_id="i", **fields).member_id
    dynamic = h.join("d-id", **fields).member_id
    h.join("d", dynamic, **fields)
    h.join("s2", static, group_instance_id="i", **fields)
    h.sync("s2-sync", static, 2, {})
    h.sync("d-sync", dynamic, 2)
    assert h.answers["s2"].leader == static
    new = h.join("n-id", **fields).member_id
    h.join("n", new, **fields)
    h.advance(10_000)
    assert {m.member_id for m in h.described().members} == {static, new}
    assert (h.answers["n"].leader, h.answers["n"].generation_id) == (new, 3), "the leader did not join"
    assert {m.member_id for m in h.answers["n"].members} == {static, new}


@pytest.mark.spec("CGRP-22")
def test_a_rebalance_that_nobody_joined_goes_on_for_static_members() -> None:
    h = ClassicShard()
    fields: dict[str, Any] = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 10_000}
    a = h.join("a", group_instance_id="i1", **fields).member_id
    h.join("b", group_instance_id="i2", **fields)
    h.advance(10_000)
    assert "b" in h.answers, "the first rebalance ended without a"
    h.leave((h.answers["b"].member_id, "i2"))
    assert h.state == "PreparingRebalance"
    for _ in range(3):
        h.advance(10_000)
        assert h.state == "PreparingRebalance"
    assert h.join("a2", a, group_instance_id="i1", **fields).error_code == 0


@pytest.mark.spec("CGRP-24")
def test_the_first_member_leads_until_it_leaves() -> None:
    h, a, b = two_classic_members()
    assert h.answers["a"].leader == h.answers["a2"].leader == a
    h.leave((a, None))
    assert h.join("b3", b).leader == b


@pytest.mark.spec("CGRP-25")
def test_the_protocol_is_the_one_that_most_members_put_first_among_the_common_ones() -> None:
    h = ClassicShard(group_initial_rebalance_delay_ms=3_000)
    h.join("a", version=3, **protocols(("only-a", b""), ("range", b""), ("sticky", b"")))
    h.join("b", version=3, **protocols(("sticky", b""), ("range", b"")))
    h.join("c", version=3, **protocols(("sticky", b""), ("range", b"")))
    h.advance(3_000)
    h.advance(3_000)
    assert {h.answers[token].protocol_name for token in "abc"} == {"sticky"}


@pytest.mark.spec("CGRP-26")
def test_a_follower_that_joins_again_unchanged_hears_the_current_generation() -> None:
    h, a, b = two_classic_members()
    again = h.join("b3", b)
    assert (again.error_code, again.generation_id, again.leader, again.members) == (0, 2, a, ())
    assert h.state == "Stable"


@pytest.mark.spec("CGRP-27")
def test_the_leader_and_a_changed_follower_start_a_rebalance() -> None:
    h, a, b = two_classic_members()
    assert h.join("a3", a) is None
    assert h.state == "PreparingRebalance"
    h, a, b = two_classic_members()
    assert h.join("b3", b, **protocols(("range", b"other"))) is None
    assert h.heartbeat(a, 2) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.spec("CGRP-28")
def test_a_member_that_joins_again_before_the_sync_gets_the_same_answer() -> None:
    h = ClassicShard()
    a = h.stable()
    b = h.new_member("b")
    first = h.join("a2", a)
    assert h.join("a3", a) == first
    assert len(first.members) == 2
    assert h.join("b2", b) == h.answers["b"]
    assert h.join("b3", b, **protocols(("range", b"other"))) is None
    assert h.state == "PreparingRebalance"


@pytest.mark.spec("CGRP-29")
def test_a_full_group_takes_no_new_member_but_those_it_has() -> None:
    h, a, b = two_classic_members(group_max_size=2)
    refused = h.join("c")
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert h.join("b3", b).error_code == 0, "in Stable"
    h.join("a3", a)
    h.join("b4", b)
    assert h.answers["a3"].generation_id == 3
    assert h.state == "CompletingRebalance"
    assert h.join("c2").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.join("b5", b).error_code == 0, "in CompletingRebalance"


@pytest.mark.spec("CGRP-29", "CGRP-97")
def test_the_first_to_join_stay_in_a_group_that_became_too_large() -> None:
    h, a, b = two_classic_members()
    other = h.reloaded(group_max_size=1)
    assert other.state == "PreparingRebalance"
    joined = other.join("b3", b)
    assert joined is None
    refused = other.join("a3", a)
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert [m.member_id for m in other.described().members] == [b]
    assert other.answers["b3"].generation_id == 3


@pytest.mark.spec("CGRP-30")
def test_a_new_member_waits_five_minutes_for_its_first_answer() -> None:
    h = ClassicShard()
    fields: dict[str, Any] = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 1_000_000}
    a = h.join("a-id", **fields).member_id
    h.join("a", a, **fields)
    h.sync("a-sync", a, 1, {})
    h.join("b", version=3, **fields)
    for _ in range(59):
        h.advance(5_000)
        assert h.heartbeat(a, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert "b" not in h.answers, "its session timeout does not count"
    h.advance(5_000)
    assert h.answers["b"].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert [m.member_id for m in h.described().members] == [a]


@pytest.mark.spec("CGRP-32")
def test_a_group_whose_first_record_cannot_be_stored_is_forgotten() -> None:
    h = ClassicShard(group_initial_rebalance_delay_ms=3_000)
    h.held = []
    h.join("t", version=3)
    h.shard.on_appended(h.held[0].append_id, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    h.run()
    assert (h.answers["t"].error_code, h.answers["t"].member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert tuple(h.shard.list_groups()) == ()


@pytest.mark.spec("CGRP-33", "CGRP-94")
def test_joins_write_the_group_once_and_empty() -> None:
    h = ClassicShard(group_initial_rebalance_delay_ms=3_000)
    member_id = h.join("t").member_id
    (record,) = h.log
    value = record.value
    assert (record.key.group, value.protocol_type, value.generation, value.protocol) == ("g", "", 0, None)
    assert value.members == ()
    h.join("t2", member_id)
    h.join("t3", version=3)
    h.advance(3_000)
    h.advance(3_000)
    assert "t2" in h.answers
    assert len(h.log) == 1, "the rest is written when the leader brings the assignment"
    h.sync("s3", h.answers["t3"].member_id, 1)
    h.sync("s2", member_id, 1, {})
    assert [entry.value.generation for entry in h.log] == [0, 1]
    h.leave((member_id, None), (h.answers["t3"].member_id, None))
    assert [(entry.value.generation, len(entry.value.members)) for entry in h.log] == [(0, 0), (1, 2), (2, 0)]


@pytest.mark.spec("CGRP-52")
def test_a_static_member_joins_without_being_given_an_id_first() -> None:
    joined = ClassicShard().join("s", group_instance_id="i")
    assert joined.error_code == 0
    assert re.fullmatch(f"i-{UUID_TEXT}", joined.member_id)


@pytest.mark.spec("CGRP-53")
@pytest.mark.parametrize("waits_in", ["join", "sync"])
def test_a_static_member_that_comes_back_fences_its_old_id(waits_in: str) -> None:
    h = ClassicShard()
    h.join("a", group_instance_id="i1")
    old = h.join("b", group_instance_id="i2")
    assert old is None, "the first member has to join again"
    if waits_in == "sync":
        h.join("a2", h.answers["a"].member_id, group_instance_id="i1")
        h.sync("sync", h.answers["b"].member_id, 2, group_instance_id="i2")
    h.join("b2", group_instance_id="i2")
    waited = h.answers["b" if waits_in == "join" else "sync"]
    assert waited.error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.spec("CGRP-53")
def test_requests_of_a_replaced_static_member_are_fenced() -> None:
    h = ClassicShard()
    old = h.join("a", group_instance_id="i").member_id
    h.sync("s", old, 1, {})
    new = h.join("a2", group_instance_id="i").member_id
    assert new != old
    assert h.heartbeat(old, 1, group_instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert h.heartbeat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.join("a3", old, group_instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    fields = {"generation_id_or_member_epoch": 1, "member_id": old, "group_instance_id": "i"}
    assert h.commit("c", **fields) == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.spec("CGRP-57")
def test_a_static_member_replaced_before_the_sync_starts_a_rebalance() -> None:
    h = ClassicShard()
    h.join("a", group_instance_id="i")
    assert h.state == "CompletingRebalance"
    assert h.join("a2", group_instance_id="i").generation_id == 2
    assert h.state == "CompletingRebalance"


@pytest.mark.spec("CGRP-58")
def test_instance_and_member_id_have_to_belong_together() -> None:
    h = ClassicShard()
    h.join("a", group_instance_id="i")
    a = h.answers["a"].member_id
    h.sync("s", a, 1, {})
    for number, (member_id, instance_id, code) in enumerate(
        [("other", "i", ErrorCode.FENCED_INSTANCE_ID), (a, "unknown", ErrorCode.UNKNOWN_MEMBER_ID)]
    ):
        fields = {"group_instance_id": instance_id}
        assert h.join(f"j{number}", member_id, **fields).error_code == code
        assert h.sync(f"s{number}", member_id, 1, **fields).error_code == code
        assert h.heartbeat(member_id, 1, **fields) == code
        commit = {"generation_id_or_member_epoch": 1, "member_id": member_id, **fields}
        assert h.commit(f"c{number}", **commit) == code


@pytest.mark.spec("CGRP-89")
def test_only_a_stable_group_shows_subscriptions_and_assignments() -> None:
    h, a, b = two_classic_members()
    described = h.described()
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    assert [
        (m.member_id, m.client_id, m.client_host, m.member_metadata, m.member_assignment) for m in described.members
    ] == [(a, "client", "/127.0.0.1", SUBSCRIPTION, b"A"), (b, "client", "/127.0.0.1", SUBSCRIPTION, b"B")]
    h.join("a3", a)
    described = h.described()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [(m.member_id, m.member_metadata, m.member_assignment) for m in described.members] == [
        (a, b"", b""),
        (b, b"", b""),
    ]


ALLOWED = {
    (GroupState.PREPARING_REBALANCE, GroupState.EMPTY),
    (GroupState.EMPTY, GroupState.PREPARING_REBALANCE),
    (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE),
    (GroupState.STABLE, GroupState.PREPARING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE),
    (GroupState.COMPLETING_REBALANCE, GroupState.STABLE),
} | {(state, GroupState.DEAD) for state in GroupState}


@pytest.mark.spec("CGRP-109")
@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_a_group_changes_its_state_only_as_allowed(before: GroupState, after: GroupState) -> None:
    group = ClassicGroup("g", now_ms=0)
    group.state = before
    if (before, after) in ALLOWED:
        group.transition_to(after, now_ms=1)
        assert group.state is after
    else:
        with pytest.raises(AssertionError, match="cannot change"):
            group.transition_to(after, now_ms=1)


def test_a_thousand_members_join_in_time_linear_in_their_number() -> None:
    # Each join looked at every member before; 1 000 of them took seconds.
    group = ClassicGroup("g", now_ms=0)
    for number in range(1_000):
        member = Member(
            member_id=str(number),
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=1,
            session_timeout_ms=1,
            protocol_type="consumer",
            protocols=(("range", b""), (f"own-{number}", b"")),
        )
        assert group.supports_protocols("consumer", frozenset({"range"}))
        group.add(member)
        group.await_join(member, object())
    assert group.all_members_joined()
    assert group.candidate_protocols() == {"range"}
    assert not group.supports_protocols("consumer", frozenset({"own-1"}))
    group.take_join(group.members["7"])
    assert not group.all_members_joined()
    group.remove("7")
    assert group.all_members_joined()
