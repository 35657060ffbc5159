"""Groups that change between the classic protocol and that of KIP-848 while their members go on."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from group_fixture import ConsumerShard, topic_id
from kraftlog.coordinator.group.config import ClientInfo, MigrationPolicy
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.leave_group import LeaveGroupRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest

CLIENT = ClientInfo("client", "/127.0.0.1", 9)


def subscription(version: int, *topics: str, owned: tuple[int, ...] = ()) -> bytes:
    parts = [ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=owned)] if owned else []
    message = ConsumerProtocolSubscription(topics=topics or ("t",), owned_partitions=parts if version else ())
    return struct.pack(">h", version) + message.encode(version)


def assignment(version: int, *partitions: int, user_data: bytes | None = None) -> bytes:
    part = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=partitions)
    return struct.pack(">h", version) + ConsumerProtocolAssignment(
        assigned_partitions=[part], user_data=user_data
    ).encode(version)


def partitions_of(data: bytes, version: int) -> list[int]:
    assert struct.unpack_from(">h", data)[0] == version
    decoded = ConsumerProtocolAssignment.decode(data[2:], version)
    return [partition for part in decoded.assigned_partitions for partition in part.partitions]


def ask(s: ConsumerShard, method: str, request: Any, *args: Any) -> Any:
    before = len(s.answers)
    getattr(s.shard, method)(f"token {before}", request, *args, s.now_ms)
    s.run()
    return s.answers[-1] if len(s.answers) > before else None


def classic_join(s: ConsumerShard, member_id: str, metadata: bytes, **fields: Any) -> Any:
    defaults: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    }
    return ask(s, "join_group", JoinGroupRequest(member_id=member_id, **(defaults | fields)), CLIENT)


def classic_sync(s: ConsumerShard, member_id: str, generation_id: int, data: bytes | None = None) -> Any:
    part = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=data)] if data else []
    request = SyncGroupRequest(group_id="g", member_id=member_id, generation_id=generation_id, assignments=part)
    return ask(s, "sync_group", request)


def classic_beat(s: ConsumerShard, member_id: str, generation_id: int) -> int:
    request = HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation_id)
    code: int = s.shard.heartbeat(request, s.now_ms).error_code
    s.run()
    return code


def classic_group(version: int = 1, data: bytes | None = None, **config: Any) -> tuple[ConsumerShard, str]:
    """One classic member, stable in generation 1 with all of t (7)."""
    s = ConsumerShard(group_initial_rebalance_delay_ms=0, **config)
    member_id: str = classic_join(s, "", subscription(version)).member_id
    assert classic_join(s, member_id, subscription(version)).generation_id == 1
    assert classic_sync(s, member_id, 1, data or assignment(version, *range(7))).error_code == 0
    return s, member_id


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_classic_group_is_upgraded_when_a_new_member_joins(version: int) -> None:
    """NGRP-97, NGRP-85, CGRP-101, CGRP-102."""
    s, old = classic_group(version)
    s.advance(2_000)
    s.log.clear()
    assert s.got(s.join("A")) == (2, {})
    assert {record.key.API_KEY for record in s.log if record.value is None} == {2}
    group = s.described()
    assert {member.member_id: member.member_type for member in group.members} == {old: 0, "A": 1}
    kept = s.targets()[old]["t"]
    assert classic_beat(s, old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert classic_sync(s, old, 1).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = classic_join(s, old, subscription(version, owned=tuple(range(7))))
    assert (joined.error_code, joined.leader, joined.members, joined.protocol_name) == (0, "", (), "range")
    if version:  # a cooperative member still owns everything: it gives up first
        assert joined.generation_id == 1
        assert partitions_of(classic_sync(s, old, 1).assignment, version) == kept
        assert classic_beat(s, old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        joined = classic_join(s, old, subscription(version, owned=tuple(kept)))
    assert joined.generation_id == 2
    assert partitions_of(classic_sync(s, old, 2).assignment, version) == kept
    assert classic_beat(s, old, 2) == 0
    assert s.got(s.beat("A", 2, {})) == (2, {"t": sorted(set(range(7)) - set(kept))})


@pytest.mark.parametrize(
    ("config", "data"),
    [
        ({"group_consumer_migration_policy": MigrationPolicy.DISABLED}, None),
        ({"group_consumer_migration_policy": MigrationPolicy.DOWNGRADE}, None),
        ({"group_consumer_max_size": 0}, None),
        ({}, assignment(1, 0, user_data=b"mine")),
        ({}, b"\xff"),
    ],
)
def test_a_classic_group_that_may_not_be_upgraded_goes_on(config: dict[str, Any], data: bytes | None) -> None:
    """NGRP-26, NGRP-98."""
    s, old = classic_group(1, data, **config)
    assert s.join("A").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert classic_beat(s, old, 1) == 0
    assert [group.group_type for group in s.shard.list_groups()] == ["classic"]


def test_members_that_wait_are_told_to_join_again_when_the_group_is_upgraded() -> None:
    """NGRP-100."""
    s, _ = classic_group()
    second: str = classic_join(s, "", subscription(1)).member_id
    assert classic_join(s, second, subscription(1)) is None
    s.join("A")
    waiting = [answer.error_code for answer in s.answers if getattr(answer, "member_id", "") == second]
    assert waiting[-1] == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_group_is_classic_again_when_its_last_new_member_leaves() -> None:
    """NGRP-101, CGRP-105."""
    s, old = classic_group()
    s.join("A")
    s.log.clear()
    s.beat("A", -1)
    assert s.log[-1].key.API_KEY == 2
    group = s.shard.describe_group("g", 6)
    assert (group.group_state, [member.member_id for member in group.members]) == ("PreparingRebalance", [old])
    assert classic_beat(s, old, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert classic_join(s, old, subscription(1)).generation_id == 3


@pytest.mark.parametrize(
    "config", [{"group_consumer_migration_policy": MigrationPolicy.UPGRADE}, {"group_max_size": 0}]
)
def test_the_group_stays_when_it_may_not_be_downgraded(config: dict[str, Any]) -> None:
    """CGRP-105."""
    s, _ = classic_group(**({} if "group_max_size" in config else config))
    object.__setattr__(s.config, "group_max_size", config.get("group_max_size", s.config.group_max_size))
    s.join("A")
    s.beat("A", -1)
    assert [group.group_type for group in s.shard.list_groups()] == ["consumer"]


@pytest.mark.parametrize(
    ("config", "fields", "code"),
    [
        (
            {"group_consumer_migration_policy": MigrationPolicy.DISABLED},
            {},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        ({}, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({}, {"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_consumer_max_size": 1}, {}, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ({}, {"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({}, {}, ErrorCode.MEMBER_ID_REQUIRED),
    ],
)
def test_classic_members_join_a_consumer_group(config: dict[str, Any], fields: dict[str, Any], code: int) -> None:
    """CGRP-100, CGRP-104."""
    s = ConsumerShard(**config)
    s.join("A")
    assert classic_join(s, "", subscription(1), **fields).error_code == code


def test_a_member_of_the_new_protocol_may_not_use_classic_requests() -> None:
    """CGRP-103."""
    s = ConsumerShard()
    s.join("A")
    assert classic_beat(s, "A", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert classic_sync(s, "A", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_members_of_the_new_protocol_by_their_ids() -> None:
    """As Kafka 4.3.1 does, with the request that classic members leave by."""
    s = ConsumerShard()
    s.join("A")
    s.join("B")
    named = [LeaveGroupRequest.MemberIdentity(member_id=member_id) for member_id in ("A", "nobody")]
    left = s.shard.leave_group(LeaveGroupRequest(group_id="g", members=named), 5, 0)
    assert [member.error_code for member in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert s.beat("A", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert s.beat("B", 2).error_code == 0


def test_a_classic_member_that_does_not_join_again_is_removed() -> None:
    """CGRP-102."""
    s, old = classic_group()
    s.advance(2_000)
    s.join("A")
    for _ in range(6):
        assert classic_beat(s, old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        s.advance(5_000)
    assert classic_beat(s, old, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_consumer_group_gives_way_to_a_classic_member() -> None:
    """CGRP-106."""
    s = ConsumerShard(group_initial_rebalance_delay_ms=0)
    s.join("A")
    s.commit("A", 2, 0)
    s.beat("A", -1)
    member_id: str = classic_join(s, "", subscription(1)).member_id
    assert classic_join(s, member_id, subscription(1)).generation_id == 1
    assert [group.group_type for group in s.shard.list_groups()] == ["classic"]
    assert s.shard.committed("g")["t", 0].topic_id == topic_id("t")
