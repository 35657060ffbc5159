"""Consumer groups (KIP-848): offsets with member epochs, records, descriptions and settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_fixture import ConsumerShard, make_group_shard, topic_id, two_members
from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest

# -- offsets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member_id", "epoch", "partitions", "version", "code"),
    [
        ("A", 3, (0,), 9, ErrorCode.NONE),
        ("A", 3, (0,), 8, ErrorCode.UNSUPPORTED_VERSION),
        ("A", 4, (0,), 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("A", 2, (0, 3), 9, ErrorCode.NONE),
        ("A", 2, (0, 4), 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("A", 1, (0,), 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("X", 3, (0,), 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, (0,), 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_are_checked_against_the_member_epoch(
    member_id: str, epoch: int, partitions: tuple[int, ...], version: int, code: int
) -> None:
    """NGRP-74, NGRP-75, NGRP-76, NGRP-77."""
    s = two_members()
    s.beat("A", 2, {"t": [0, 1, 2, 3]})
    assert s.commit(member_id, epoch, *partitions, version=version) == [code] * len(partitions)


def test_an_empty_group_takes_the_commits_of_an_administrator() -> None:
    """NGRP-77."""
    s = ConsumerShard()
    s.join("A")
    s.beat("A", -1)
    assert s.commit("", -1, 0) == [0]


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("A", 2, ErrorCode.NONE),
        ("A", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("X", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_reading_offsets_is_checked_against_the_member_epoch(member_id: str | None, epoch: int, code: int) -> None:
    """NGRP-78."""
    s = ConsumerShard()
    s.join("A")
    assert s.shard.fetch_error("g", member_id, epoch) == code


def test_transactional_commits_of_a_stale_epoch_have_an_illegal_generation() -> None:
    """NGRP-79."""
    s = ConsumerShard()
    s.join("A")
    group = s.shard._consumers.groups["g"]
    assert group.commit_error("A", 9, api_version=5, is_transactional=True) == ErrorCode.ILLEGAL_GENERATION
    assert group.commit_error("X", 2, api_version=5, is_transactional=True) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_kept() -> None:
    """NGRP-80, NGRP-81, NGRP-82."""
    s = ConsumerShard({"t": 1, "u": 1})
    s.join("A")
    s.commit("A", 2, 0)
    s.commit("A", 2, 0, topic="u")
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
        )
        for name in ("t", "u")
    ]
    s.shard.delete_offsets("token", OffsetDeleteRequest(group_id="g", topics=topics))
    s.run()
    codes = [topic.partitions[0].error_code for topic in s.answers[-1].topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    s.shard.delete_group("token", "g", s.now_ms)
    s.run()
    assert s.answers[-1].error_code == ErrorCode.NON_EMPTY_GROUP
    s.beat("A", -1)
    s.advance(s.config.offsets_retention_ms)
    assert (list(s.shard.list_groups()), dict(s.shard.committed("g"))) == ([], {})


# -- records -----------------------------------------------------------------------------------------------------------


def kinds(records: list[CoordinatorRecord]) -> list[int]:
    return [record.key.API_KEY if record.value is not None else -record.key.API_KEY for record in records]


def test_records_of_joining_leaving_and_deleting() -> None:
    """NGRP-92, NGRP-93, NGRP-94; a minus sign is a tombstone."""
    s = ConsumerShard()
    s.held = []
    s.join("A")
    append = s.held[0]
    assert kinds(list(append.records)) == [5, 3, 7, 6, 8]
    assert s.answers == []
    s.held = None
    s.finish(append)
    s.run()
    assert s.got(s.answers[-1])[0] == 2
    s.log.clear()
    s.beat("A", -1)
    assert kinds(s.log) == [-8, -7, -5, 3]
    s.log.clear()
    s.shard.delete_group("token", "g", s.now_ms)
    s.run()
    assert (s.answers[-1].error_code, kinds(s.log)) == (0, [-6, -4, -3])


def test_compaction_may_leave_the_new_owner_before_the_old_one() -> None:
    """NGRP-95: A gave partition 6 up, B has it; only the last record of each key is left, B's first."""
    s = two_members()
    s.beat("A", 2, {"t": [0, 1, 2, 3]})
    s.beat("B", 3, {})
    latest = {record.key: record for record in s.log}
    old = next(record for record in s.log if record.key.API_KEY == 8 and record.key.member_id == "A")
    order = [record for record in latest.values() if record.key.API_KEY != 8]
    of_a, of_b = sorted(
        (record for record in latest.values() if record.key.API_KEY == 8), key=lambda record: record.key.member_id
    )
    other = make_group_shard(s.config, topics=s.topics)
    for record in (*order, of_b, old, of_a):
        other.replay(record, now_ms=0)
    other.finish_loading(0)
    group = other._consumers.groups["g"]
    assert all(group.is_owned(topic_id("t"), partition) for partition in range(7))
    group.remove("A")
    assert [group.is_owned(topic_id("t"), partition) for partition in range(7)] == [False] * 4 + [True] * 3


def test_a_failed_append_takes_the_change_back_but_not_what_later_ones_wrote() -> None:
    """What B's join decided on top of A's is kept; A's own records are gone."""
    s = ConsumerShard()
    s.join("Z")
    s.held = []
    s.beat("Z", 2, rack_id="r1")
    s.beat("Z", 2, rack_id="r2")
    first, second = s.held
    s.held = None
    s.finish(first, int(ErrorCode.NOT_ENOUGH_REPLICAS))
    assert s.answers[-1].error_code == 0  # that of the first join
    s.finish(second)
    s.run()
    assert [answer.error_code for answer in s.answers[-2:]] == [ErrorCode.NOT_ENOUGH_REPLICAS, 0]
    assert s.described().members[0].rack_id == "r2"
    s.append_error = int(ErrorCode.NOT_ENOUGH_REPLICAS)
    before = s.described()
    assert s.join("B").error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    s.append_error = 0
    assert s.described() == before


def test_a_new_group_whose_first_join_fails_does_not_exist() -> None:
    """NGRP-87: nothing is shown that is not committed."""
    s = ConsumerShard()
    s.append_error = int(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert s.join("A", subscribed_topic_names=()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert list(s.shard.list_groups()) == []
    assert s.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_describing_waits_for_what_it_shows() -> None:
    """NGRP-83, NGRP-87."""
    s = ConsumerShard()
    s.held = []
    s.join("A", rack_id="r", instance_id="i")
    s.shard.describe_consumer_group("token", "g")
    s.run()
    assert s.answers == []
    append = s.held[0]
    s.held = None
    s.finish(append)
    s.run()
    group = s.answers[-1]
    member = group.members[0]
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        2,
        2,
        "uniform",
    )
    assert replace(member, assignment=member.target_assignment) == member
    assert (member.member_id, member.instance_id, member.rack_id, member.client_id, member.client_host) == (
        "A",
        "i",
        "r",
        "client",
        "/127.0.0.1",
    )
    assert (member.member_epoch, member.subscribed_topic_names, member.subscribed_topic_regex) == (2, ("t",), "")
    assert member.member_type == 1


def test_group_settings_are_bounded_by_the_broker() -> None:
    """NGRP-89, NGRP-91."""
    s = ConsumerShard()
    s.settings["g"] = {"consumer.heartbeat.interval.ms": "99999", "consumer.session.timeout.ms": "50000"}
    assert s.join("A").heartbeat_interval_ms == 15_000
    s.advance(49_999)
    assert [member.member_id for member in s.described().members] == ["A"]
    s.advance(1)
    assert s.described().members == []


def test_an_empty_classic_group_gives_way_and_keeps_its_offsets() -> None:
    """NGRP-88, NGRP-90, NGRP-99."""
    s = ConsumerShard()
    assert s.commit("", -1, 0, version=8) == [0]
    assert [group.group_type for group in s.shard.list_groups()] == ["classic"]
    s.join("A")
    assert [(g.group_type, g.protocol_type, g.group_state) for g in s.shard.list_groups()] == [
        ("consumer", "consumer", "Stable")
    ]
    assert ("t", 0) in s.shard.committed("g")
    assert s.shard.describe_group("g", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
