"""What is measured of the coordinators of groups on a node; read on any thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.metrics.groups import GroupCounts, GroupMetrics, ShardCounts
from kraftlog.metrics.share import InFlight, SharedMetrics, SharePartitionMeter
from kraftlog.vocabulary import SHARE_GROUP_STATE_TOPIC

if TYPE_CHECKING:
    from kraftlog.coordinator.group.group_shard import GroupShard
    from kraftlog.metrics import Metrics
    from kraftlog.runtime.coordinator.shard_registry import ShardRegistry
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["GroupGauges", "count_groups", "count_shards"]


class GroupGauges:
    """The metrics of groups and share groups.

    Args:
        metrics: Where they are read, from ``register`` until ``close``.

    Attributes:
        events: For the group coordinator.
        groups: For the group coordinator and the share coordinator.
        shares: For share partitions.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.events = GroupEvents()
        self.groups = GroupMetrics(metrics, events=self.events.values, share_topic=SHARE_GROUP_STATE_TOPIC)
        self.shares = SharedMetrics(metrics)

    def register(self, groups: ShardRegistry[GroupShard], shares: ShareService) -> None:
        """Offer the metrics of these."""
        self.groups.register(
            counts=lambda: count_groups(groups),
            shards=lambda: count_shards(groups),
            share_shards=lambda: count_shards(shares.coordinator),
        )
        self.shares.register(lambda: _in_flight(shares))

    def close(self) -> None:
        """The broker is gone."""
        self.groups.close()
        self.shares.close()


def _in_flight(shares: ShareService) -> Iterator[InFlight]:
    for live in shares.live_partitions():
        record_count, batch_count = live.in_flight
        key = live.key
        meter = live.meter
        if isinstance(meter, SharePartitionMeter):
            yield InFlight(key.group_id, live.partition.topic, key.partition, record_count, batch_count, meter)


def count_groups(groups: ShardRegistry[GroupShard]) -> GroupCounts:
    """The groups of the loaded shards by protocol and state, while the loop may change them."""
    counts = GroupCounts()
    for runner in groups.runners():
        if runner.is_loaded:
            for group in runner.shard.list_groups():
                getattr(counts, group.group_type)[group.group_state] += 1
            counts.offsets += runner.shard.offset_count()
    return counts


def count_shards(coordinator: ShardRegistry[Any]) -> ShardCounts:
    """The shards of a coordinator."""
    runners = coordinator.runners()
    active = sum(runner.is_loaded for runner in runners)
    failed = sum(runner.has_failed for runner in runners)
    return ShardCounts(len(runners) - active - failed, active, failed)
