"""Requests of group members that name more than a shard handles in one event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from group_fixture import make_group_shard
from kraftlog.coordinator.group.config import OWNED_TOPICS_MAX, PROTOCOLS_MAX, SUBSCRIBED_NAMES_MAX
from kraftlog.coordinator.group.consumer_requests import check_heartbeat as check_consumer
from kraftlog.coordinator.group.share_groups import check_heartbeat as check_share
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


def consumer(**fields: Any) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1, **fields)
    check_consumer(request, 1, ["uniform"])


def share(**fields: Any) -> None:
    check_share(ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1, **fields))


def names(count: int) -> dict[str, Any]:
    return {"subscribed_topic_names": ["t"] * count}


def owned(count: int) -> dict[str, Any]:
    topic = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=Uuid.ZERO, partitions=[0])
    return {"topic_partitions": [topic] * count}


@pytest.mark.parametrize(
    ("check", "fields", "limit"),
    [
        (consumer, names, SUBSCRIBED_NAMES_MAX),
        (consumer, owned, OWNED_TOPICS_MAX),
        (share, names, SUBSCRIBED_NAMES_MAX),
    ],
)
def test_heartbeat_beyond_the_bound_is_invalid(
    check: Callable[..., None], fields: Callable[[int], dict[str, Any]], limit: int
) -> None:
    check(**fields(limit))
    with pytest.raises(KafkaError) as raised:
        check(**fields(limit + 1))
    assert raised.value.code == ErrorCode.INVALID_REQUEST
    assert str(limit) in (raised.value.message or "")


def test_join_with_too_many_protocols_is_invalid() -> None:
    shard: Any = make_group_shard()
    for count, code in ((PROTOCOLS_MAX, ErrorCode.NONE), (PROTOCOLS_MAX + 1, ErrorCode.INVALID_REQUEST)):
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name=str(index)) for index in range(count)]
        request = JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocols=protocols)
        assert shard._membership.request_error(request) == code


@pytest.mark.parametrize("field", ["group_id", "member_id", "rack_id"])
def test_heartbeat_with_a_blank_name_is_invalid(field: str) -> None:
    for check, make in (
        (lambda request: check_consumer(request, 1, ["uniform"]), ConsumerGroupHeartbeatRequest),
        (check_share, ShareGroupHeartbeatRequest),
    ):
        fields: dict[str, Any] = {"group_id": "g", "member_id": "m", "member_epoch": 1}
        check(make(**fields))
        with pytest.raises(KafkaError) as raised:
            check(make(**fields | {field: " "}))
        assert raised.value.code == ErrorCode.INVALID_REQUEST
