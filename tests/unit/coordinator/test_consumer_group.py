"""Consumer groups (KIP-848) under a hand-driven clock: heartbeats and how partitions move."""

from __future__ import annotations

from typing import Any

import pytest

from group_fixture import ConsumerShard, Parts, make_group_shard, topic_id, two_members
from kraftlog._kraftlog import TopicPattern
from kraftlog.coordinator.group.assignors import ASSIGNORS
from kraftlog.coordinator.group.config import ClientInfo
from kraftlog.coordinator.group.consumer_member import ConsumerMember, MemberState
from kraftlog.coordinator.group.reconciliation import Reconciliation
from kraftlog.errors import ErrorCode, KafkaError, LocalProtocolError
from kraftlog.types import Uuid
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "fields", "code"),
    [
        ("", 0, 1, {}, ErrorCode.INVALID_REQUEST),
        ("", 1, 0, {}, ErrorCode.INVALID_REQUEST),
        ("", -1, 0, {}, ErrorCode.INVALID_REQUEST),
        ("A", 0, 1, {"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ("A", 0, 1, {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ("A", 0, 1, {"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ("A", 0, 1, {"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ("A", 0, 1, {"topic_partitions": [_Owned()]}, ErrorCode.INVALID_REQUEST),
        ("A", 0, 1, {"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ("A", -2, 1, {}, ErrorCode.INVALID_REQUEST),
        ("A", -3, 1, {}, ErrorCode.INVALID_REQUEST),
        ("A", 0, 1, {"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ("A", 0, 1, {"subscribed_topic_regex": "["}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ("A", 5, 1, {}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("A", -1, 1, {}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("A", -2, 1, {"instance_id": "i"}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_request_that_contradicts_itself_is_refused_and_leaves_no_group(
    member_id: str, epoch: int, version: int, fields: dict[str, Any], code: int
) -> None:
    """NGRP-03, NGRP-04, NGRP-05, NGRP-06, NGRP-07, NGRP-08, NGRP-11."""
    s = ConsumerShard()
    defaults: dict[str, Any] = {
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **(defaults | fields)
    )
    s.shard.consumer_group_heartbeat("token", request, ClientInfo("c", "/h", version), 0)
    s.run()
    answer = s.answers[-1]
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (code, None, 0)
    assert (list(s.shard.list_groups()), s.log) == ([], [])


def test_a_request_without_group_id_is_refused() -> None:
    """NGRP-04."""
    s = ConsumerShard()
    s.shard.consumer_group_heartbeat("t", ConsumerGroupHeartbeatRequest(member_id="A"), ClientInfo("c", "/h", 1), 0)
    s.run()
    assert s.answers[-1].error_code == ErrorCode.INVALID_REQUEST


def test_version_0_without_member_id_is_given_one() -> None:
    """NGRP-03."""
    answer = ConsumerShard().join("", version=0)
    assert (answer.error_code, len(answer.member_id)) == (0, 22)


# -- epochs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (2, {"t": [0, 1, 2, 3, 4, 5, 6]})),
        ({"subscribed_topic_names": ()}, (1, {})),
        ({"subscribed_topic_names": ("absent",)}, (2, {})),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}, (1, {})),
    ],
)
def test_first_member_sets_the_epochs_of_a_new_group(fields: dict[str, Any], expected: tuple[int, Parts]) -> None:
    """NGRP-10, NGRP-19, NGRP-20, NGRP-27."""
    s = ConsumerShard()
    answer = s.join("A", **fields)
    assert s.got(answer) == expected
    assert answer.heartbeat_interval_ms == 5_000
    group = s.described()
    assert (group.group_epoch, group.assignment_epoch, group.group_state) == (expected[0], expected[0], "Stable")


@pytest.mark.parametrize(
    ("epoch", "owned", "code"),
    [
        (4, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, {"t": [6]}, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, {"t": [0, 3]}, ErrorCode.NONE),
        (3, None, ErrorCode.NONE),
    ],
)
def test_only_the_current_or_a_repeated_epoch_is_accepted(epoch: int, owned: Parts | None, code: int) -> None:
    """NGRP-12, NGRP-13, NGRP-14."""
    s = two_members()
    s.beat("A", 2)
    assert s.got(s.beat("A", 2, {"t": [0, 1, 2, 3]})) == (3, None)
    assert s.beat("A", epoch, owned).error_code == code
    assert s.beat("X", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert s.beat("X", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_epoch_0_again_and_full_requests_are_answered_with_the_assignment() -> None:
    """NGRP-15, NGRP-16, NGRP-17."""
    s = ConsumerShard()
    everything = {"t": [0, 1, 2, 3, 4, 5, 6]}
    s.join("A", rack_id="r", server_assignor="range")
    written = len(s.log)
    assert s.got(s.beat("A", 2)) == (2, None)
    assert s.got(s.beat("A", 2, everything, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"])) == (
        2,
        everything,
    )
    assert s.got(s.join("A")) == (2, everything)
    assert len(s.log) == written
    member = s.described().members[0]
    assert (member.rack_id, member.subscribed_topic_names, s.described().assignor_name) == ("r", ("t",), "range")


def test_only_subscriptions_raise_the_group_epoch() -> None:
    """NGRP-18."""
    s = ConsumerShard({"t": 2, "u": 1})
    s.join("A")
    for fields in ({"rack_id": "r"}, {"server_assignor": "range"}, {"rebalance_timeout_ms": 5}):
        assert s.got(s.beat("A", 2, **fields))[0] == 2
    s.advance(2_000)
    assert s.got(s.beat("A", 2, {"t": [0, 1]}, subscribed_topic_names=["t", "u"])) == (3, {"t": [0, 1], "u": [0]})


def test_topics_that_appear_grow_or_go_raise_the_epoch_with_the_next_heartbeat() -> None:
    """NGRP-20, NGRP-21."""
    s = ConsumerShard({"t": 1}, group_consumer_assignment_interval_ms=0)
    s.join("A", "t", "later")
    s.topics.set("other", 3)
    assert s.got(s.beat("A", 2)) == (2, None)
    s.topics.set("later", 2)
    assert s.got(s.beat("A", 2, {"t": [0]})) == (3, {"t": [0], "later": [0, 1]})
    s.topics.set("t", 2)
    assert s.got(s.beat("A", 3)) == (4, {"t": [0, 1], "later": [0, 1]})
    s.topics.delete("t")
    assert s.got(s.beat("A", 4, {"later": [0, 1]})) == (5, {"later": [0, 1]})


def test_a_full_group_takes_nobody_else() -> None:
    """NGRP-22."""
    s = ConsumerShard(group_consumer_max_size=1)
    s.join("A")
    assert s.join("B").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert s.join("A").error_code == 0


def test_the_assignor_named_by_most_members_is_used() -> None:
    """NGRP-23."""
    s = ConsumerShard(group_consumer_assignment_interval_ms=0)
    s.join("A", server_assignor="range")
    s.join("B")
    assert s.described().assignor_name == "range"
    s.join("C", server_assignor="uniform")
    s.join("D", server_assignor="uniform")
    assert s.described().assignor_name == "uniform"


def test_a_new_target_waits_for_the_assignment_interval() -> None:
    """NGRP-25, NGRP-104."""
    s = ConsumerShard()
    s.join("A")
    assert s.got(s.join("B")) == (2, {})
    assert s.got(s.join("C")) == (2, {})
    group = s.described()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Assigning", 4, 2)
    s.advance(1_000)
    s.beat("B", 2)
    assert s.targets() == {"A": {"t": [0, 1, 2]}, "B": {"t": [3, 4]}, "C": {"t": [5, 6]}}
    s.settings["g"] = {"consumer.assignment.interval.ms": "0"}
    s.join("D")
    assert s.described().assignment_epoch == 5


# -- reconciliation ----------------------------------------------------------------------------------------------------


def test_partitions_move_only_after_their_owner_gave_them_up() -> None:
    """NGRP-36, NGRP-37, NGRP-38, NGRP-40, NGRP-45, NGRP-104."""
    s = two_members()
    assert s.targets() == {"A": {"t": [0, 1, 2, 3]}, "B": {"t": [4, 5, 6]}}
    assert s.got(s.beat("A", 2)) == (2, {"t": [0, 1, 2, 3]})
    assert s.got(s.beat("A", 2)) == (2, None)
    assert s.got(s.beat("A", 2, {"t": [0, 1, 2, 3, 6]})) == (2, None)
    assert s.got(s.beat("B", 3, {})) == (3, None)
    assert s.described().group_state == "Reconciling"
    assert s.got(s.beat("A", 2, {"t": [0, 1, 2, 3]})) == (3, None)
    assert s.got(s.beat("B", 3, {})) == (3, {"t": [4, 5, 6]})
    assert s.described().group_state == "Stable"


def test_a_member_that_no_longer_owns_goes_to_its_target_in_one_step() -> None:
    """NGRP-39."""
    s = two_members()
    assert s.got(s.beat("A", 2, {"t": [0, 1, 2, 3]})) == (3, {"t": [0, 1, 2, 3]})


def test_what_a_member_gives_up_is_free_when_it_leaves_or_is_fenced() -> None:
    """NGRP-40, NGRP-46."""
    s = two_members()
    s.beat("A", 2)
    left = s.beat("A", -1)
    assert (left.error_code, left.member_id, left.member_epoch, left.assignment) == (0, "A", -1, None)
    s.advance(2_000)
    assert s.got(s.beat("B", 3, {})) == (4, {"t": [0, 1, 2, 3, 4, 5, 6]})


def test_an_unsubscribed_topic_leaves_the_assignment_before_a_new_target() -> None:
    """NGRP-43."""
    s = ConsumerShard({"t": 2, "u": 2})
    s.join("A", "t", "u")
    assert s.got(s.beat("A", 2, {"t": [0, 1], "u": [0, 1]}, subscribed_topic_names=["u"])) == (2, {"u": [0, 1]})
    assert s.described().group_state == "Assigning"
    member = s.described().members[0]
    assert {p.topic_name for p in member.assignment.topic_partitions} == {"t", "u"}


# -- leaving and time --------------------------------------------------------------------------------------------------


def test_silence_for_the_session_timeout_removes_a_member() -> None:
    """NGRP-47, NGRP-50."""
    s = ConsumerShard()
    s.join("A")
    s.advance(44_999)
    assert s.got(s.beat("A", 2)) == (2, None)
    s.advance(45_000)
    assert s.beat("A", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    group = s.described()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", 3, 2)
    assert s.got(s.join("B")) == (4, {"t": [0, 1, 2, 3, 4, 5, 6]})


def test_a_member_that_does_not_give_up_in_time_is_removed() -> None:
    """NGRP-48."""
    s = two_members()
    s.beat("A", 2)
    for _ in range(3):
        s.advance(9_999)
        s.beat("A", 2)
        s.beat("B", 3)
    s.advance(3)
    assert s.beat("A", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert s.got(s.beat("B", 3, {})) == (4, {"t": [0, 1, 2, 3, 4, 5, 6]})


def test_sessions_and_revocations_start_anew_after_loading() -> None:
    """NGRP-49, NGRP-96."""
    s = two_members()
    s.beat("A", 2)
    reloaded = ConsumerShard()
    reloaded.shard = make_group_shard(s.config, topics=s.topics)
    for record in s.log:
        reloaded.shard.replay(record, now_ms=100_000)
    reloaded.shard.finish_loading(100_000)
    reloaded.now_ms = 100_000
    assert reloaded.described() == s.described()
    reloaded.advance(29_999)
    assert reloaded.got(reloaded.beat("A", 2, {"t": [0, 1, 2, 3]})) == (3, None)
    reloaded.advance(15_001)
    assert [member.member_id for member in reloaded.described().members] == ["A"]


# -- static members ----------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_finds_its_partitions() -> None:
    """NGRP-51, NGRP-52, NGRP-53, NGRP-54, NGRP-55."""
    s = ConsumerShard()
    everything = {"t": [0, 1, 2, 3, 4, 5, 6]}
    assert s.got(s.join("A", instance_id="i")) == (2, everything)
    assert s.join("B", instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert s.beat("B", 2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert s.beat("B", -1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert s.beat("A", 2, instance_id="j").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert s.beat("A", -2, instance_id="i").member_epoch == -2
    group = s.described()
    assert (group.group_state, group.group_epoch, group.members[0].member_epoch) == ("Reconciling", 2, -2)
    assert s.got(s.join("B", instance_id="i")) == (2, everything)
    assert s.described().group_epoch == 2
    assert s.beat("A", 2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    s.beat("B", -2, instance_id="i")
    s.topics.set("u", 1)
    s.advance(2_000)
    assert s.got(s.join("C", "t", "u", instance_id="i"))[0] == 3


def test_a_static_member_that_stays_away_or_leaves_for_good_is_removed() -> None:
    """NGRP-56, NGRP-57."""
    s = ConsumerShard()
    s.join("A", instance_id="i")
    s.beat("A", -2, instance_id="i")
    s.advance(45_000)
    assert (s.described().group_state, s.described().group_epoch) == ("Empty", 3)
    s.join("B", instance_id="i")
    s.beat("B", -1, instance_id="i")
    assert (s.described().members, s.described().group_epoch) == ([], 5)


# -- regular expressions -----------------------------------------------------------------------------------------------


def test_a_regular_expression_is_resolved_after_the_answer() -> None:
    """NGRP-27, NGRP-28, NGRP-29, NGRP-32, NGRP-33, NGRP-34."""
    s = ConsumerShard({"foo": 1, "foo-2": 1, "a-foo": 1, "t": 1}, group_consumer_assignment_interval_ms=0)
    s.join("A", subscribed_topic_names=None, subscribed_topic_regex="foo.*")
    s.advance(0)
    assert s.got(s.beat("A", 1, {})) == (2, {"foo": [0], "foo-2": [0]})
    assert s.got(s.join("B", subscribed_topic_regex="foo.*")) == (3, {"t": [0]})
    s.beat("A", 2, {"foo": [0]})
    assert s.beat("B", 3, subscribed_topic_regex="").error_code == 0
    s.beat("A", 3, subscribed_topic_regex="", subscribed_topic_names=["t"])
    assert (s.log[-1].value is None) or any(
        record.value is None and getattr(record.key, "regular_expression", "") == "foo.*" for record in s.log
    )


def test_first_topics_of_a_group_do_not_wait_for_the_assignment_interval() -> None:
    """NGRP-25: the target of epoch 1, without any topic, delays none. Java's consumer asks again only after 5 s."""
    s = ConsumerShard({"foo": 1, "t": 1})
    assert s.got(s.join("A", subscribed_topic_names=None, subscribed_topic_regex="foo.*")) == (1, {})
    s.advance(0)
    assert s.got(s.beat("A", 1, {})) == (2, {"foo": [0]})
    s.beat("A", 2, {"foo": [0]}, subscribed_topic_names=("foo", "t"))
    assert (s.described().group_epoch, s.described().assignment_epoch) == (3, 2)


def test_a_regular_expression_that_matches_nothing_raises_no_epoch() -> None:
    s = ConsumerShard({"foo": 1})
    s.join("A", subscribed_topic_names=None, subscribed_topic_regex="bar")
    s.advance(0)
    assert s.got(s.beat("A", 1, {})) == (1, None)
    assert s.described().group_epoch == 1
    s.beat("A", 1, subscribed_topic_regex="foo")
    s.advance(0)
    assert s.got(s.beat("A", 1)) == (2, {"foo": [0]})


def test_new_topics_are_matched_at_most_once_in_ten_seconds() -> None:
    """NGRP-30."""
    s = ConsumerShard({"foo": 1}, group_consumer_assignment_interval_ms=0)
    s.join("A", subscribed_topic_names=None, subscribed_topic_regex="foo.*")
    s.advance(0)
    s.beat("A", 1, {})
    s.topics.set("foo-2", 1)
    s.advance(10_000)
    s.beat("A", 2)
    s.advance(0)
    assert s.described().group_epoch == 2
    s.advance(1)
    s.beat("A", 2)
    s.advance(0)
    assert s.got(s.beat("A", 2)) == (3, {"foo": [0], "foo-2": [0]})


def test_a_regular_expression_is_matched_against_many_topics_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # All names were matched in one turn of the loop, which 100 000 topics held up for long.
    s = ConsumerShard({f"topic-{number}": 1 for number in range(4_500)})
    turns: list[int] = []

    class Counting:
        def __init__(self, pattern: str) -> None:
            self.pattern = TopicPattern(pattern)
            self.cost = self.pattern.cost

        def matches(self, name: str) -> bool:
            turns[-1] += 1
            return self.pattern.matches(name)

    monkeypatch.setattr(s.topics, "compile", Counting, raising=False)
    turns.append(0)
    s.join("A", subscribed_topic_names=(), subscribed_topic_regex="topic-.*0")
    for _ in range(25):
        turns.append(0)
        s.advance(1)
    assert turns[:5] == [0, 240, 250, 250, 250]
    assert sum(turns) == 4_500
    s.advance(1_000)
    epoch, parts = s.got(s.beat("A", 1))
    assert parts is not None
    assert (epoch, len(parts)) == (2, 450)


@pytest.mark.parametrize(("pattern", "cost"), [("a?" * 200, 40), ("(?:a?){1000}", 250)])
def test_a_hostile_regular_expression_is_matched_against_few_topics_in_a_step(
    monkeypatch: pytest.MonkeyPatch, pattern: str, cost: int
) -> None:
    # One name takes up to 10 ms.
    s = ConsumerShard({f"topic-{number}": 1 for number in range(100)} | {"a" * 50: 1})
    spent: list[int] = []

    class Counting:
        def __init__(self, pattern: str) -> None:
            self.pattern = TopicPattern(pattern)
            self.cost = self.pattern.cost
            assert self.cost == cost

        def matches(self, name: str) -> bool:
            spent[-1] += cost
            return self.pattern.matches(name)

    monkeypatch.setattr(s.topics, "compile", Counting, raising=False)
    s.join("A", subscribed_topic_names=(), subscribed_topic_regex=pattern)
    while sum(spent) < 101 * cost:
        spent.append(0)
        s.advance(1)
        assert len(spent) < 1_000
    assert 0 < max(spent) < 250 + cost
    s.advance(1_000)
    assert s.got(s.beat("A", 1)) == (2, {"a" * 50: [0]})


@pytest.mark.parametrize("pattern", ["a" * 8_193, "a?" * 4_000, r"\pL" * 2_000, "(?iu)" + "k" * 4_000])
def test_a_regular_expression_that_takes_long_to_compile_is_refused(pattern: str) -> None:
    # 10 MB took 7.6 s, and case folding with Unicode 0.15 ms per class.
    s = ConsumerShard()
    assert s.join("A", subscribed_topic_regex=pattern).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_assignor_that_raises_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """NGRP-24."""
    s = ConsumerShard()
    s.join("A")
    s.advance(2_000)
    before, described = list(s.log), s.described()

    def fail(_group: object) -> Any:
        raise ValueError("no")

    monkeypatch.setitem(ASSIGNORS, "uniform", fail)
    assert s.join("B").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (s.log, s.described()) == (before, described)
    monkeypatch.undo()
    assert s.got(s.join("B")) == (3, {})


def test_a_member_may_change_the_version_of_its_heartbeats() -> None:
    """NGRP-35: version 0 cannot say a regular expression, and keeps the one that version 1 gave."""
    s = ConsumerShard({"t": 2, "u": 2})
    fields = {"rebalance_timeout_ms": 30_000}
    epoch, _ = s.got(s.beat("A", 0, {}, subscribed_topic_regex="u", **fields))
    s.advance(2_000)
    s.advance(2_000)
    epoch, parts = s.got(s.beat("A", epoch, {}, version=0))
    assert parts == {"u": [0, 1]}
    assert s.described().members[0].subscribed_topic_regex == "u"
    epoch, parts = s.got(s.beat("A", epoch, subscribed_topic_names=("t",), subscribed_topic_regex=""))
    assert list(s.described().members[0].subscribed_topic_names) == ["t"]
    with pytest.raises(LocalProtocolError, match="subscribed_topic_regex"):
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="A", subscribed_topic_regex="u").encode(0)


def test_partitions_that_nobody_has_and_those_just_given_up_are_given_at_once() -> None:
    """NGRP-41."""
    t = topic_id("t")
    member = ConsumerMember(
        member_id="A",
        epoch=5,
        previous_epoch=5,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned={t: {1: 5}},
        pending_revocation={t: {2: 5}},
    )
    owners = {(t, 1), (t, 2), (t, 4)}

    def step(target: tuple[int, ...], owned: frozenset[int]) -> ConsumerMember:
        return Reconciliation(
            target_epoch=6,
            target={t: target},
            subscribed=frozenset({t}),
            is_owned=lambda topic, partition: (topic, partition) in owners,
            owned={t: owned},
        ).step(member)

    assert step((1, 2, 3), frozenset({1, 2})) is member, "still to be given up"
    moved = step((1, 2, 3), frozenset({1}))
    assert (moved.epoch, moved.state, moved.assigned) == (6, MemberState.STABLE, {t: {1: 5, 2: 6, 3: 6}})
    moved = step((1, 3, 4), frozenset({1}))
    assert (moved.state, moved.assigned) == (MemberState.UNRELEASED_PARTITIONS, {t: {1: 5, 3: 6}})


def test_a_member_in_a_state_of_a_newer_broker_has_to_give_up_everything() -> None:
    """NGRP-44."""
    t = topic_id("t")
    member = ConsumerMember(member_id="A", epoch=5, previous_epoch=5, state=MemberState.UNKNOWN, assigned={t: {1: 5}})

    def step(owned: dict[Uuid, frozenset[int]] | None) -> ConsumerMember:
        return Reconciliation(
            target_epoch=6,
            target={t: (2,)},
            subscribed=frozenset({t}),
            is_owned=lambda _topic, partition: partition == 1,
            owned=owned,
        ).step(member)

    for owned in (None, {t: frozenset({1})}):
        with pytest.raises(KafkaError) as fenced:
            step(owned)
        assert fenced.value.code == ErrorCode.FENCED_MEMBER_EPOCH
    moved = step({})
    assert (moved.epoch, moved.state, moved.assigned) == (6, MemberState.STABLE, {t: {2: 6}})


@pytest.mark.parametrize(
    ("subscriptions", "is_homogeneous"),
    [
        ([(("t", "u"), ""), (("u", "t"), "")], True),
        ([((), "t|u"), ((), "t|u")], True),
        ([(("t",), ""), (("t", "u"), "")], False),
        ([(("t", "u"), ""), ((), "t|u")], False),
        ([((), "t|u"), ((), "u|t")], False),
        ([(("t",), "t|u"), (("t",), "t|u")], False),
    ],
)
def test_the_algorithm_follows_from_what_members_say_not_from_what_it_matches(
    subscriptions: list[tuple[tuple[str, ...], str]], is_homogeneous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NGRP-73."""
    seen: list[bool] = []
    uniform = ASSIGNORS["uniform"]

    def assign(group: Any) -> Any:
        seen.append(group.is_homogeneous)
        return uniform(group)

    monkeypatch.setitem(ASSIGNORS, "uniform", assign)
    s = ConsumerShard({"t": 2, "u": 2})
    for number, (names, regex) in enumerate(subscriptions):
        fields = {"subscribed_topic_regex": regex} if regex else {}
        s.join(str(number), *(names or ("t",)), **({"subscribed_topic_names": names} | fields))
    s.advance(2_000)
    for number in range(len(subscriptions)):
        s.beat(str(number), s.described().members[number].member_epoch, {})
    assert seen[-1] is is_homogeneous
