"""Where the leader is: what NOT_LEADER answers carry so that clients need no metadata round trip (KIP-951)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.types import Uuid

__all__ = ["LeaderHint", "broker_end_point", "leader_hint"]

_HINTED_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """The leader the metadata names now."""

    leader_id: int
    leader_epoch: int


def leader_hint(node: Node, topic_id: Uuid, index: int, error_code: int) -> LeaderHint | None:
    """The current leader when the error is one that a hint helps with."""
    if error_code not in _HINTED_ERRORS:
        return None
    topic = node.metadata.image.topics.by_id(topic_id)
    partition = topic.partitions.get(index) if topic is not None else None
    if partition is None:
        return None
    return LeaderHint(partition.leader, partition.leader_epoch)


def broker_end_point(node: Node, broker_id: int, listener_name: str) -> tuple[str, int, str | None] | None:
    """Host, port and rack of a broker on the listener the request came in on."""
    broker = node.metadata.image.cluster.brokers.get(broker_id)
    if broker is None:
        return None
    for end_point in broker.end_points:
        if end_point.name == listener_name:
            return end_point.host, end_point.port, broker.rack
    return None
