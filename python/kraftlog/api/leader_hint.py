"""Where the leader is: what NOT_LEADER answers carry so that clients need no metadata round trip (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlog.api.cluster_view import BrokerAddress, broker_address
from kraftlog.errors import ErrorCode

if TYPE_CHECKING:
    from kraftlog.controller.image import MetadataImage
    from kraftlog.types import Uuid

__all__ = ["LeaderHint", "leader_addresses", "leader_hint"]

_HINTED_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """The leader that the metadata names now."""

    leader_id: int
    leader_epoch: int


def leader_hint(image: MetadataImage, topic_id: Uuid, index: int, error_code: int) -> LeaderHint | None:
    """The current leader when the error is one that a hint helps with."""
    if error_code not in _HINTED_ERRORS:
        return None
    topic = image.topics.by_id(topic_id)
    partition = topic.partitions.get(index) if topic is not None else None
    if partition is None:
        return None
    return LeaderHint(partition.leader, partition.leader_epoch)


def leader_addresses(image: MetadataImage, broker_ids: Iterable[int], listener_name: str) -> list[BrokerAddress]:
    """Where leaders are reached on the listener the request came in on, by id; without those it does not reach."""
    brokers = (image.cluster.brokers.get(broker_id) for broker_id in sorted(broker_ids))
    addresses = (broker_address(broker, listener_name) for broker in brokers if broker is not None)
    return [address for address in addresses if address is not None]
