"""What the metrics of groups are told of the coordinators of a node; any thread may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftlog.metrics.groups import GroupCounts, ShardCounts

if TYPE_CHECKING:
    from kraftlog.coordinator.group.group_shard import GroupShard
    from kraftlog.runtime.coordinator.shard_registry import ShardRegistry

__all__ = ["count_groups", "count_shards"]

_ATTEMPTS = 20


def count_groups(groups: ShardRegistry[GroupShard]) -> GroupCounts:
    """The groups of the loaded shards by protocol and state.

    The loop goes on meanwhile: what it changes while it is counted is counted again.
    """
    for _ in range(_ATTEMPTS):
        counts = GroupCounts()
        try:
            for runner in groups.runners():
                if runner.is_loaded:
                    for group in list(runner.shard.list_groups()):
                        getattr(counts, group.group_type)[group.group_state] += 1
                    counts.offsets += runner.shard.offset_count()
        except RuntimeError:  # a dictionary changed while it was read
            continue
        return counts
    return GroupCounts()


def count_shards(coordinator: ShardRegistry[Any]) -> ShardCounts:
    """The shards of a coordinator."""
    runners = coordinator.runners()
    active = sum(runner.is_loaded for runner in runners)
    return ShardCounts(len(runners) - active, active)
