"""Share groups under a hand-driven clock: membership, assignment and which share partitions they use."""

from __future__ import annotations

from typing import Any

import pytest

from group_fixture import ConsumerShard, FakeTopics, make_group_shard, topic_id
from kraftlog.coordinator.effects import AppendRecords, CoordinatorRecord, Emit, Respond
from kraftlog.coordinator.group.assignors.simple import assign_simple
from kraftlog.coordinator.group.assignors.specification import Assignment, GroupSpec, MemberSpec
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.coordinator.group.share_groups import ShareStatesDue
from kraftlog.errors import ErrorCode
from kraftlog.runtime.coordinator.record_codec import decode_group_record, encode_records
from kraftlog.types import Uuid
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

Got = tuple[int, dict[str, list[int]] | None]


class ShareShard:
    """A group shard, a clock, and a share coordinator that sets up what it is asked for unless ``is_slow``."""

    def __init__(self, topics: dict[str, int] | None = None, **config: Any) -> None:
        self.topics = FakeTopics({"t": 4} if topics is None else topics)
        self.settings: dict[str, dict[str, str]] = {}
        self.shard = make_group_shard(GroupConfig(**config), topics=self.topics, settings=self.settings)
        self.shard.finish_loading(0)
        self.now_ms = 0
        self.is_slow = False
        self.due: list[ShareStatesDue] = []
        self.answers: list[Any] = []
        self.log: list[CoordinatorRecord] = []

    def run(self) -> Any:
        while effects := self.shard.take_effects():
            for effect in effects:
                if isinstance(effect, Respond):
                    self.answers.append(effect.response)
                elif isinstance(effect, AppendRecords):
                    self.log += effect.records
                    self.shard.on_appended(effect.append_id, 0)
                elif isinstance(effect, Emit) and isinstance(effect.event, ShareStatesDue):
                    self.due.append(effect.event)
                    if not self.is_slow:
                        self.set_up(effect.event)
        return self.answers[-1] if self.answers else None

    def set_up(self, due: ShareStatesDue) -> None:
        self.shard.shares.on_states_initialized(due.group_id, dict(due.topics), {}, self.now_ms)

    def beat(self, member: str, epoch: int, **fields: Any) -> Any:
        values: dict[str, Any] = {"group_id": "g", "member_id": member, "member_epoch": epoch} | fields
        request = ShareGroupHeartbeatRequest(**values)
        self.shard.shares.heartbeat("t", request, ClientInfo("c", "/h", 1), self.now_ms)
        return self.run()

    def join(self, member: str, *topics: str) -> Any:
        return self.beat(member, 0, subscribed_topic_names=topics or ("t",))

    def got(self, answer: Any) -> Got:
        assert answer.error_code == 0, answer
        parts = answer.assignment
        names = {topic_id(name): name for name in self.topics.counts}
        return answer.member_epoch, None if parts is None else {
            names[part.topic_id]: list(part.partitions) for part in parts.topic_partitions
        }

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.shard.handle_timeout(self.now_ms)
        self.run()

    def described(self, group_id: str = "g") -> Any:
        self.shard.shares.describe("t", group_id)
        return self.run()


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "epoch", "fields", "code"),
    [
        ("", 0, {}, ErrorCode.INVALID_REQUEST),
        ("m" * 37, 0, {}, ErrorCode.INVALID_REQUEST),
        ("A", 0, {"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ("A", 0, {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ("A", 0, {"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ("A", -2, {}, ErrorCode.INVALID_REQUEST),
        ("A", 3, {}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("A", -1, {}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_wrong_heartbeat_is_refused_and_leaves_no_group(
    member: str, epoch: int, fields: dict[str, Any], code: int
) -> None:
    """SHGR-05, SHGR-07."""
    s = ShareShard()
    answer = s.beat(member, epoch, **({"subscribed_topic_names": ["t"]} | fields))
    assert (answer.error_code, list(s.shard.list_groups()), s.log) == (code, [], [])


def test_epochs_are_checked_and_zero_joins_again() -> None:
    """SHGR-07, SHGR-08."""
    s = ShareShard()
    s.join("A")
    s.advance(2_000)
    assert s.got(s.beat("A", 2)) == (3, {"t": [0, 1, 2, 3]})
    assert s.beat("X", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert s.beat("X", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert s.beat("A", 4).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert s.beat("A", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert s.got(s.beat("A", 2)) == (3, None)
    assert s.got(s.join("A")) == (3, {"t": [0, 1, 2, 3]})


def test_a_full_group_takes_nobody_new() -> None:
    """SHGR-09."""
    s = ShareShard(group_share_max_size=1)
    assert s.join("A").error_code == 0
    assert s.join("B").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert s.join("A").error_code == 0


def test_ids_of_other_groups_are_not_found() -> None:
    """SHGR-10."""
    s = ConsumerShard()
    s.join("A")
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="B", subscribed_topic_names=["t"])
    s.shard.shares.heartbeat("t", request, ClientInfo("c", "/h", 1), 0)
    s.run()
    assert s.answers[-1].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "is not a share group" in s.answers[-1].error_message
    s.shard.shares.describe("t", "g")
    s.run()
    assert (s.answers[-1].error_code, s.answers[-1].group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_members_of_other_protocols_cannot_join_a_share_group() -> None:
    """CGRP-107."""
    s = ShareShard()
    s.join("A")
    client = ClientInfo("c", "/h", 9)
    s.shard.join_group("t", JoinGroupRequest(group_id="g", session_timeout_ms=10_000), client, 0)
    assert s.run().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    s.shard.commit_offsets("t", _commit(), 0, api_version=9)
    assert s.run().topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert [group.group_type for group in s.shard.list_groups()] == ["share"]


def _commit() -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id="g", topics=[topic])


# -- membership --------------------------------------------------------------------------------------------------------


def test_partitions_come_once_their_state_is_set_up() -> None:
    """SHGR-12."""
    s = ShareShard()
    s.is_slow = True
    answer = s.join("A")
    assert (s.got(answer), answer.heartbeat_interval_ms) == ((2, {}), 5_000)
    (due,) = s.due
    assert (due.group_id, due.state_epoch, dict(due.topics)) == ("g", 2, {topic_id("t"): ("t", frozenset(range(4)))})
    s.advance(2_000)
    assert s.got(s.beat("A", 2)) == (2, None)
    assert len(s.due) == 1
    s.set_up(due)
    s.run()
    assert s.got(s.beat("A", 2)) == (3, {"t": [0, 1, 2, 3]})


def test_a_set_up_that_nobody_finished_is_asked_for_again() -> None:
    """SHGR-12."""
    s = ShareShard()
    s.is_slow = True
    s.join("A")
    s.advance(29_999)
    s.beat("A", 2)
    assert len(s.due) == 1
    s.advance(1)
    s.beat("A", 2)
    assert len(s.due) == 2
    s.shard.shares.on_states_initialized("g", {}, dict(s.due[-1].topics), s.now_ms)
    s.run()
    s.beat("A", 2)
    assert len(s.due) == 3


def test_a_new_target_is_taken_over_in_one_step() -> None:
    """SHGR-11."""
    s = ShareShard(group_share_assignment_interval_ms=0)
    s.join("A")
    assert s.got(s.beat("A", 2)) == (3, {"t": [0, 1, 2, 3]})
    epoch, parts = s.got(s.join("B"))
    assert (epoch, parts is not None and len(parts["t"])) == (4, 2)
    epoch, kept = s.got(s.beat("A", 3))
    assert kept is not None
    assert parts is not None
    assert (epoch, sorted(kept["t"] + parts["t"])) == (4, [0, 1, 2, 3])


def test_a_member_that_missed_an_answer_gets_its_assignment_again() -> None:
    """It gives its subscription, as the Java client does after each error: ``isFullRequest`` of Kafka 4.3.1."""
    s = ShareShard(group_share_assignment_interval_ms=0)
    s.join("A")
    s.beat("A", 2)
    assert s.got(s.beat("A", 2)) == (3, None)
    written = len(s.log)
    assert s.got(s.beat("A", 2, subscribed_topic_names=("t",))) == (3, {"t": [0, 1, 2, 3]})
    assert s.got(s.beat("A", 3, subscribed_topic_names=("t",))) == (3, {"t": [0, 1, 2, 3]})
    assert s.got(s.beat("A", 3)) == (3, None)
    assert len(s.log) == written


def test_the_old_target_stays_for_the_assignment_interval() -> None:
    """SHGR-16."""
    s = ShareShard()
    s.join("A")
    assert s.got(s.beat("A", 2)) == (2, None)
    assert s.described().group_epoch == 3
    for _ in range(3):
        assert s.got(s.beat("A", 2)) == (2, None)
    group = s.described()
    assert (group.group_epoch, group.assignment_epoch) == (3, 2)
    s.advance(1_000)
    assert s.got(s.beat("A", 2))[0] == 3


def test_leaving_and_silence_raise_the_group_epoch() -> None:
    """SHGR-13."""
    s = ShareShard()
    s.join("A")
    s.join("B")
    epoch = s.described().group_epoch
    answer = s.beat("B", -1)
    assert (answer.error_code, answer.member_epoch, s.described().group_epoch) == (0, -1, epoch + 1)
    s.advance(44_999)
    assert [member.member_id for member in s.described().members] == ["A"]
    s.advance(1)
    group = s.described()
    assert (group.members, group.group_state, group.group_epoch) == ([], "Empty", epoch + 2)


def test_a_description_shows_members_and_what_they_have() -> None:
    """SHGR-17."""
    s = ShareShard()
    s.beat("A", 0, subscribed_topic_names=["t"], rack_id="r")
    s.advance(2_000)
    s.beat("A", 2)
    group = s.described()
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        3,
        3,
        "simple",
    )
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.member_epoch, member.client_id, member.client_host) == (
        "A",
        "r",
        3,
        "c",
        "/h",
    )
    assert list(member.subscribed_topic_names) == ["t"]
    (part,) = member.assignment.topic_partitions
    assert (part.topic_id, part.topic_name, part.partitions) == (topic_id("t"), "t", [0, 1, 2, 3])
    assert s.described("x").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_records_have_the_types_of_kafka_and_give_the_state_back() -> None:
    """SHGR-65."""
    s = ShareShard()
    s.join("A")
    s.advance(2_000)
    s.beat("A", 2)
    s.join("B")
    s.beat("B", -1)
    encoded = encode_records(s.log)
    assert {int.from_bytes(key[:2], "big") for key, _ in encoded} == {10, 11, 12, 13, 14, 15}
    loaded = make_group_shard(topics=s.topics)
    for key, value in encoded:
        for record in decode_group_record(key, value):
            loaded.replay(record, now_ms=0)
    loaded.finish_loading(0)
    before, after = s.shard.shares.groups["g"], loaded.shares.groups["g"]
    for name in ("epoch", "metadata_hash", "target_epoch", "members", "targets", "initialized", "initializing"):
        assert getattr(before, name) == getattr(after, name), name
    assert before.initialized == {topic_id("t"): ("t", frozenset(range(4)))}


def test_settings_of_the_group_count_within_the_bounds_of_the_broker() -> None:
    """SHGR-80."""
    s = ShareShard()
    s.settings["g"] = {"share.heartbeat.interval.ms": "7000", "share.session.timeout.ms": "99000"}
    assert s.join("A").heartbeat_interval_ms == 7_000
    s.advance(59_999)
    assert s.described().group_state == "Stable"
    s.advance(1)
    assert s.described().group_state == "Empty"


def test_a_deleted_topic_leaves_the_group() -> None:
    s = ShareShard({"t": 2, "u": 1}, group_share_assignment_interval_ms=0)
    s.join("A", "t", "u")
    assert s.got(s.beat("A", 2)) == (3, {"t": [0, 1], "u": [0]})
    s.topics.delete("u")
    s.shard.forget_topics({"u": topic_id("u")})
    s.run()
    assert s.shard.shares.groups["g"].initialized == {topic_id("t"): ("t", frozenset({0, 1}))}
    assert s.got(s.beat("A", 3)) == (4, {"t": [0, 1]})


# -- the simple assignor -----------------------------------------------------------------------------------------------

T, U = Uuid(b"t" * 16), Uuid(b"u" * 16)


def _assign(
    members: dict[str, list[Uuid]], partitions: dict[Uuid, int], before: dict[str, Assignment] | None = None
) -> dict[str, set[tuple[Uuid, int]]]:
    specs = {m: MemberSpec(topics=topics, assigned=(before or {}).get(m, {})) for m, topics in members.items()}
    is_homogeneous = len({tuple(topics) for topics in members.values()}) <= 1
    spec = GroupSpec(members=specs, partition_counts=partitions, is_homogeneous=is_homogeneous)
    targets = assign_simple(spec, {topic: list(range(count)) for topic, count in partitions.items()})
    return {m: {(topic, index) for topic, parts in target.items() for index in parts} for m, target in targets.items()}


def _as_assignment(parts: set[tuple[Uuid, int]]) -> Assignment:
    return {topic: [i for t, i in sorted(parts) if t == topic] for topic in {t for t, _ in parts}}


@pytest.mark.parametrize("count", range(1, 9))
def test_partitions_and_members_are_spread_evenly(count: int) -> None:
    """SHGR-14."""
    targets = _assign({f"m{number}": [T, U] for number in range(count)}, {T: 3, U: 2})
    sizes = [len(parts) for parts in targets.values()]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert set().union(*targets.values()) == {(T, 0), (T, 1), (T, 2), (U, 0), (U, 1)}
    if count <= 5:
        assert sum(sizes) == 5


def test_each_member_gets_only_what_it_subscribes_to() -> None:
    """SHGR-14."""
    targets = _assign({"a": [T], "b": [T, U], "c": [U]}, {T: 4, U: 2})
    assert {topic for topic, _ in targets["a"]} == {T}
    assert {topic for topic, _ in targets["c"]} == {U}
    assert set().union(*targets.values()) == {(T, index) for index in range(4)} | {(U, 0), (U, 1)}


def test_balance_comes_first_and_then_few_moves() -> None:
    """SHGR-15."""
    first = _assign({"a": [T], "b": [T]}, {T: 6})
    before = {member: _as_assignment(parts) for member, parts in first.items()}
    second = _assign({"a": [T], "b": [T], "c": [T]}, {T: 6}, before)
    assert [len(parts) for parts in second.values()] == [2, 2, 2]
    assert second["a"] < first["a"]
    assert second["b"] < first["b"]
    third = _assign({"a": [T], "c": [T]}, {T: 6}, {m: _as_assignment(second[m]) for m in ("a", "c")})
    assert third["a"] > second["a"]
    assert third["c"] > second["c"]
    assert [len(parts) for parts in third.values()] == [3, 3]
