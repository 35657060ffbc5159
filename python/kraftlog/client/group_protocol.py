"""Which of the two group protocols a consumer uses."""

from __future__ import annotations

from kraftlog.client.broker_assigned_membership import CONSUMER_GROUP_HEARTBEAT_KEY, BrokerAssignedMembership
from kraftlog.client.classic_membership import ClassicMembership
from kraftlog.client.config import ClientConfig
from kraftlog.client.driver import ConsumerDriver
from kraftlog.client.group_membership import GroupMembership
from kraftlog.client.group_offsets import GroupOffsets

__all__ = ["membership_kinds"]

# Version 0 wants the coordinator to choose member ids; 1 takes the client's (KIP-1082).
HEARTBEAT_VERSION_MIN = 1


async def membership_kinds(
    config: ClientConfig, group: GroupOffsets, driver: ConsumerDriver
) -> tuple[type[GroupMembership], ...]:
    """The memberships to try by ``group.protocol``, each when the one before it was answered UNSUPPORTED_VERSION.

    Kafka lists the API of KIP-848 even while it is switched off, and answers with that error.
    """
    protocol: str = config["group.protocol"]
    if protocol == "classic":
        return (ClassicMembership,)
    if protocol == "consumer":
        return (BrokerAssignedMembership,)

    async def is_offered() -> bool:
        connection = await driver.connections.connect(await group.coordinator())
        version = connection.common_version(CONSUMER_GROUP_HEARTBEAT_KEY)
        return version is not None and version >= HEARTBEAT_VERSION_MIN

    # An assignor that was named says which protocol the application means.
    if "partition.assignment.strategy" in config.given:
        return (ClassicMembership,)
    timeout_s = config["max.poll.interval.ms"] / 1000
    if await group.retried(is_offered, timeout_s):
        return (BrokerAssignedMembership, ClassicMembership)
    return (ClassicMembership,)
