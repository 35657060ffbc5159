"""A generation of a classic group: sync, heartbeat, sessions and leaving, with plain values."""

from __future__ import annotations

import pytest

from classic_fixture import SUBSCRIPTION, ClassicShard, protocols, two_classic_members
from kraftlog.errors import ErrorCode


@pytest.mark.spec("CGRP-35")
def test_a_sync_is_checked_for_member_then_generation_then_protocol() -> None:
    h = ClassicShard()
    assert h.sync("s1", "x", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    a = h.stable()
    wrong = {"protocol_type": "consumer", "protocol_name": "sticky"}
    assert h.sync("s2", "x", 9, **wrong).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.sync("s3", a, 9, **wrong).error_code == ErrorCode.ILLEGAL_GENERATION
    assert h.sync("s4", a, 1, **wrong).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = {"protocol_type": "connect", "protocol_name": "range"}
    assert h.sync("s5", a, 1, **other).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    h.leave((a, None))
    assert h.sync("s6", a, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("CGRP-36", "CGRP-38")
def test_a_sync_is_answered_at_once_in_a_stable_group_and_refused_in_a_rebalance() -> None:
    h, a, b = two_classic_members()
    assert h.sync("s", b, 2).assignment == b"B"
    h.join("a3", a)
    assert h.sync("s2", b, 2).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.spec("CGRP-37")
def test_followers_wait_for_the_commit_of_the_assignment() -> None:
    h = ClassicShard()
    a = h.stable()
    b = h.join("b-id").member_id
    c = h.join("c-id").member_id
    h.join("b", b)
    h.join("c", c)
    h.join("a2", a)
    assert h.sync("sb", b, 2) is None
    h.held = []
    assert h.sync("sa", a, 2, {a: b"A", b: b"B"}) is None
    assert h.sync("sc", c, 2) is None
    assert h.state == "CompletingRebalance"
    (append,) = h.held
    h.shard.on_appended(append.append_id, 0)
    h.run()
    assert [h.answers[token].assignment for token in ("sa", "sb", "sc")] == [b"A", b"B", b""]
    assert h.state == "Stable"


@pytest.mark.spec("CGRP-37")
@pytest.mark.parametrize("error_code", [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_the_assignment_of_a_generation_is_stored_while_that_of_the_one_before_still_is(error_code: int) -> None:
    """The leader's assignment was left out: all members waited for it until their rebalance timeout."""
    h, a, b = two_classic_members()
    h.join("a3", a)
    h.join("b3", b)
    h.held = []
    assert h.sync("sa3", a, 3, {a: b"old"}) is None
    h.join("b4", b, protocols=protocols(("range", SUBSCRIPTION + b"changed"))["protocols"])
    h.join("a4", a)
    assert h.answers["sa3"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert h.sync("sb4", b, 4) is None
    assert h.sync("sa4", a, 4, {a: b"A", b: b"B"}) is None
    before, now = h.held
    h.shard.on_appended(before.append_id, error_code)
    h.run()
    assert h.state == "CompletingRebalance"
    h.shard.on_appended(now.append_id, 0)
    h.run()
    assert [h.answers[token].assignment for token in ("sa4", "sb4")] == [b"A", b"B"]
    assert h.state == "Stable"


@pytest.mark.spec("CGRP-39")
def test_an_assignment_that_cannot_be_stored_is_told_to_all_and_forgotten() -> None:
    h, a, b = two_classic_members()
    h.join("a3", a)
    h.join("b3", b)
    h.append_error = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert h.sync("sb", b, 3) is None
    assert h.sync("sa", a, 3, {a: b"new"}).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.answers["sb"].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert h.state == "PreparingRebalance"
    assert [m.member_assignment for m in h.described().members] == [b"", b""]


@pytest.mark.spec("CGRP-40")
@pytest.mark.parametrize("is_stable", [False, True])
def test_a_member_that_never_syncs_is_removed(is_stable: bool) -> None:
    h = ClassicShard()
    a = h.stable()
    b = h.new_member("b")
    h.join("a2", a)
    silent = b if is_stable else a
    alive = a if is_stable else b
    assert (h.sync("s", alive, 2, {}) is not None) is is_stable
    for _ in range(29):
        h.advance(1_000)
        assert {h.heartbeat(member_id, 2) for member_id in (a, b)} == {0}
    h.advance(1_000)
    assert [m.member_id for m in h.described().members] == [alive]
    assert h.heartbeat(silent, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat(alive, 2) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.spec("CGRP-40")
def test_a_group_whose_members_all_synced_is_left_alone() -> None:
    h, a, b = two_classic_members()
    for _ in range(60):
        h.advance(1_000)
        assert (h.heartbeat(a, 2), h.heartbeat(b, 2)) == (0, 0)
    assert h.state == "Stable"


@pytest.mark.spec("CGRP-41")
def test_waiting_syncs_end_with_a_new_rebalance() -> None:
    h = ClassicShard()
    a = h.stable()
    b = h.new_member("b")
    h.join("a2", a)
    assert h.sync("sb", b, 2) is None
    h.leave((a, None))
    assert h.answers["sb"].error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.spec("CGRP-42")
def test_heartbeats_by_state() -> None:
    h = ClassicShard()
    assert h.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    a = h.new_member("a")
    assert h.state == "CompletingRebalance"
    assert h.heartbeat(a, 1) == 0
    h.sync("s", a, 1, {})
    assert h.heartbeat(a, 1) == 0
    assert h.heartbeat(a, 2) == ErrorCode.ILLEGAL_GENERATION
    assert h.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    h.new_member("b")
    assert h.heartbeat(a, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    h.leave((a, None))
    h.leave((h.answers["b"].member_id, None))
    assert h.state == "Empty"
    assert h.heartbeat(a, 1) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("CGRP-43", "CGRP-44")
def test_a_session_lasts_from_the_last_heartbeat_join_sync_or_commit() -> None:
    h, a, b = two_classic_members()
    for number in range(3):
        h.advance(9_999)
        h.heartbeat(a, 2)
        assert h.commit(f"c{number}", generation_id_or_member_epoch=2, member_id=b) == 0
    h.advance(9_999)
    h.heartbeat(a, 2)
    h.sync("s", b, 2)
    h.advance(9_999)
    h.heartbeat(a, 2)
    assert h.state == "Stable"
    h.advance(1)
    assert [m.member_id for m in h.described().members] == [a]
    assert h.heartbeat(a, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    h.advance(10_000)
    assert h.described().members == (), "in a rebalance too"


@pytest.mark.spec("CGRP-44")
def test_a_commit_in_a_rebalance_keeps_the_session() -> None:
    h, a, b = two_classic_members()
    h.join("a3", a)
    h.advance(9_999)
    assert h.commit("c", generation_id_or_member_epoch=2, member_id=b) == 0
    h.advance(9_999)
    assert len(h.described().members) == 2


@pytest.mark.spec("CGRP-45")
def test_a_member_that_waits_for_an_answer_stays_and_has_a_session_again_afterwards() -> None:
    h, a, b = two_classic_members()
    h.join("a3", a)
    h.advance(9_000)
    h.heartbeat(b, 2)
    h.advance(9_000)
    assert len(h.described().members) == 2, "a waits in JoinGroup"
    h.join("b3", b)
    h.sync("sb", b, 3)
    h.advance(9_000)
    h.heartbeat(a, 3)
    h.advance(9_000)
    assert len(h.described().members) == 2, "b waits in SyncGroup"
    h.sync("sa", a, 3, {})
    h.advance(9_999)
    assert h.state == "Stable"
    h.advance(1)
    assert h.described().members == ()


@pytest.mark.spec("CGRP-46", "CGRP-47")
def test_leaving_one_by_one_or_as_a_list() -> None:
    h, a, b = two_classic_members()
    assert h.leave(("x", None), version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.leave((a, None), version=2).error_code == 0
    answer = h.leave(("x", None), (b, None), version=3)
    assert answer.error_code == 0
    assert [(m.member_id, m.error_code) for m in answer.members] == [("x", ErrorCode.UNKNOWN_MEMBER_ID), (b, 0)]
    unknown = h.leave((a, None), (b, None), group_id="absent")
    assert (unknown.error_code, [m.error_code for m in unknown.members]) == (0, [ErrorCode.UNKNOWN_MEMBER_ID] * 2)


@pytest.mark.spec("CGRP-48")
def test_static_members_are_removed_by_their_instance_id() -> None:
    h = ClassicShard()
    member_id = h.join("s", group_instance_id="i").member_id
    answer = h.leave(("", "other"), ("x", "i"), ("", "i"))
    codes = [m.error_code for m in answer.members]
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, 0]
    assert h.heartbeat(member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.state == "Empty"


@pytest.mark.spec("CGRP-49")
def test_an_id_that_was_handed_out_is_forgotten_when_it_leaves() -> None:
    h = ClassicShard()
    member_id = h.join("t").member_id
    assert [m.error_code for m in h.leave((member_id, None)).members] == [0]
    assert h.join("t2", member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("CGRP-50")
def test_a_waiting_join_ends_when_the_member_is_removed() -> None:
    h = ClassicShard()
    h.stable()
    b = h.new_member("b")
    h.leave((b, None))
    assert h.answers["b"].error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("CGRP-51")
def test_a_batch_that_leaves_causes_one_rebalance_and_all_of_them_empty_the_group() -> None:
    h, a, b = two_classic_members()
    c = h.join("c-id").member_id
    h.join("c", c)
    h.join("a3", a)
    h.join("b3", b)
    h.sync("s", a, 3, {})
    h.leave((a, None), (b, None))
    assert h.heartbeat(c, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    assert h.join("c4", c).generation_id == 4, "one rebalance for both"
    h.leave((c, None))
    value = h.log[-1].value
    assert (h.state, value.generation, value.protocol, value.members) == ("Empty", 5, None, ())
