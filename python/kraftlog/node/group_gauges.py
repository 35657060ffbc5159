"""Counts the groups and shards of a node's coordinators for metrics, on any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftlog.metrics.groups import GroupCounts, ShardCounts

if TYPE_CHECKING:
    from kraftlog.coordinator.group.group_shard import GroupShard
    from kraftlog.runtime.coordinator.shard_registry import ShardRegistry

__all__ = ["count_groups", "count_shards"]


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
    return ShardCounts(len(runners) - active, active)
