"""The metadata image as a client on one listener may see it: brokers it can reach, leaders, replicas that are gone."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kraftlog.errors import ErrorCode

if TYPE_CHECKING:
    from kraftlog.controller.cluster_image import BrokerImage
    from kraftlog.controller.image import MetadataImage
    from kraftlog.controller.topic_image import PartitionImage

__all__ = [
    "CLUSTER_OPERATIONS",
    "GROUP_OPERATIONS",
    "TOPIC_OPERATIONS",
    "BrokerAddress",
    "PartitionView",
    "broker_address",
    "reachable_brokers",
    "some_broker_id",
    "view_partition",
]

# AclOperation codes.
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = 3, 4, 5, 6, 7, 8, 9
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 10, 11, 12


def _bit_field(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


# What each kind of resource supports; without an authorizer everybody may do all of it.
TOPIC_OPERATIONS: Final = _bit_field(
    (_READ, _WRITE, _CREATE, _DESCRIBE, _DELETE, _ALTER, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
)
GROUP_OPERATIONS: Final = _bit_field((_READ, _DESCRIBE, _DELETE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS))
CLUSTER_OPERATIONS: Final = _bit_field(
    (_CREATE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE, _ALTER, _DESCRIBE)
)

_NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker is reached on one listener."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition's leader as a client may use it; ``leader_id`` is -1 when there is none to use."""

    error_code: int
    leader_id: int
    leader_epoch: int
    offline_replicas: tuple[int, ...]


def broker_address(broker: BrokerImage, listener_name: str) -> BrokerAddress | None:
    """Where a broker is reached on that listener, None when it has none of that name."""
    for end_point in broker.end_points:
        if end_point.name == listener_name:
            return BrokerAddress(broker.broker_id, end_point.host, end_point.port, broker.rack, broker.fenced)
    return None


def _has_listener(broker: BrokerImage, listener_name: str) -> bool:
    """As ``broker_address``, without its cost: clients ask for thousands of partitions at once."""
    return any(end_point.name == listener_name for end_point in broker.end_points)


def reachable_brokers(image: MetadataImage, listener_name: str, *, include_fenced: bool = False) -> list[BrokerAddress]:
    """Brokers that have the listener, by id; fenced ones only when asked for."""
    addresses = (
        broker_address(broker, listener_name)
        for _, broker in sorted(image.cluster.brokers.items())
        if include_fenced or not broker.fenced
    )
    return [address for address in addresses if address is not None]


def some_broker_id(image: MetadataImage, preferred: int) -> int:
    """A broker that takes requests meant for the controller: all of them do; -1 when none lives."""
    alive = [broker_id for broker_id, broker in image.cluster.brokers.items() if not broker.fenced]
    return preferred if preferred in alive else min(alive, default=-1)


def view_partition(
    image: MetadataImage, partition: PartitionImage, listener_name: str, gone: AbstractSet[int] = frozenset()
) -> PartitionView:
    """What to tell a client on ``listener_name`` about a partition.

    LEADER_NOT_AVAILABLE when the leader is fenced or among ``gone``, LISTENER_NOT_FOUND when it is there but not on
    this listener (older clients are told LEADER_NOT_AVAILABLE instead: the caller knows the version).
    """
    brokers = image.cluster.brokers
    offline = tuple(
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        if (broker := brokers.get(replica)) is None
        or broker.fenced
        or not _has_listener(broker, listener_name)
        or not broker.has_online_directory(directory)
    )
    leader = brokers.get(partition.leader)
    if leader is None or leader.fenced or partition.leader in gone:
        code: int = ErrorCode.LEADER_NOT_AVAILABLE
    elif not _has_listener(leader, listener_name):
        code = ErrorCode.LISTENER_NOT_FOUND
    else:
        return PartitionView(ErrorCode.NONE, partition.leader, partition.leader_epoch, offline)
    return PartitionView(code, _NO_LEADER, partition.leader_epoch, offline)
