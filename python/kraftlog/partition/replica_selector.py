"""The replica that a consumer should read from (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["LEADER_SELECTOR", "RACK_AWARE_SELECTOR", "ReplicaView", "select_by_rack"]

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica as the leader knows it.

    Attributes:
        rack: Of its broker; None if the broker has none.
        log_end_offset: Exclusive.
        behind_ms: Time since it had everything.
    """

    broker_id: int
    rack: str | None
    log_end_offset: int
    behind_ms: int


def select_by_rack(rack: str, leader_rack: str | None, followers: Iterable[ReplicaView]) -> int | None:
    """The follower in the consumer's rack that has most, as Kafka's ``RackAwareReplicaSelector`` selects.

    Args:
        rack: Of the consumer; empty if it names none.
        leader_rack: Of the leader, which serves its own rack.
        followers: The in-sync followers that have the offset and can be reached.

    Returns:
        The id of the broker, None for the leader.
    """
    if not rack or leader_rack == rack:
        return None
    in_rack = [follower for follower in followers if follower.rack == rack]
    best = max(in_rack, key=lambda view: (view.log_end_offset, -view.behind_ms, view.broker_id), default=None)
    return None if best is None else best.broker_id
