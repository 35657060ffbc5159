"""Puts together what share groups need on a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftlog.node.settings import share_broker_settings, share_coordinator_settings
from kraftlog.runtime.coordinator.share_coordinator import share_coordinator
from kraftlog.runtime.share.persister import ShareStatePersister
from kraftlog.runtime.share.share_admin import ShareAdmin
from kraftlog.runtime.share.share_service import ShareService

if TYPE_CHECKING:
    from kraftlog.node.broker_links import BrokerLinks
    from kraftlog.node.config import NodeConfig
    from kraftlog.node.group_gauges import GroupGauges
    from kraftlog.runtime.coordinator.shard_registry import CommittedMetadata, TaskGroup, TopicCreator
    from kraftlog.runtime.replica.registry import Partitions

__all__ = ["share_groups"]


def share_groups(
    config: NodeConfig,
    *,
    now_ms: Callable[[], int],
    metadata: CommittedMetadata,
    partitions: Partitions,
    topics: TopicCreator,
    tasks: TaskGroup,
    links: BrokerLinks,
    gauges: GroupGauges,
) -> tuple[ShareService, ShareAdmin]:
    """The service for members, and the one for the group coordinator."""
    coordinator = share_coordinator(
        share_coordinator_settings(config),
        now_ms=now_ms,
        metadata=metadata,
        partitions=partitions,
        topics=topics,
        tasks=tasks,
        meter=gauges.groups.share_runtime,
        state_meter=gauges.groups.share_states,
    )
    persister = ShareStatePersister(config.node_id, coordinator, links, metadata)
    service = ShareService(
        share_broker_settings(config),
        replicas=partitions,
        coordinator=coordinator,
        persister=persister,
        metadata=metadata,
        tasks=tasks,
        now_ms=now_ms,
        meter=gauges.shares,
    )
    admin = ShareAdmin(config.node_id, persister, links, metadata=metadata, find_partition=partitions.get, tasks=tasks)
    return service, admin
