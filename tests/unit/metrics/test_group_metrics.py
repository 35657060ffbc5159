"""Metrics of groups: names and values that Kafka 4.3.1 gives them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from classic_fixture import ClassicShard, two_classic_members
from group_fixture import two_members
from kraftlog.metrics import Metrics
from kraftlog.metrics.groups import GroupMetrics
from kraftlog.node.group_gauges import count_groups, count_shards


def _registry(*shards: Any, loading: int = 0) -> Any:
    runners = [SimpleNamespace(shard=shard, is_loaded=True) for shard in shards]
    runners += [SimpleNamespace(shard=None, is_loaded=False)] * loading
    return SimpleNamespace(runners=lambda: list(runners))


def test_groups_are_counted_by_protocol_and_state_as_long_as_the_broker_runs() -> None:
    classic, _, _ = two_classic_members()
    empty = ClassicShard()
    assert empty.commit("a", 5) == empty.commit("b", 6, partition=1) == 0
    groups = _registry(classic.shard, empty.shard, two_members().shard, loading=2)
    metrics = Metrics()
    registered = GroupMetrics(
        metrics,
        counts=lambda: count_groups(groups),
        shards=lambda: count_shards(groups),
        share_shards=lambda: count_shards(_registry()),
    )
    found = metrics.snapshot()
    assert {name: value for name, value in found.items() if value} == {
        "GroupMetadataManager.NumOffsets": 2,
        "GroupMetadataManager.NumGroups": 2,
        "GroupMetadataManager.NumGroupsStable": 1,
        "GroupMetadataManager.NumGroupsEmpty": 1,
        "group-coordinator-metrics.group-count{protocol=classic}": 2,
        "group-coordinator-metrics.group-count{protocol=consumer}": 1,
        "group-coordinator-metrics.consumer-group-count{state=reconciling}": 1,
        "group-coordinator-metrics.num-partitions{state=loading}": 2,
        "group-coordinator-metrics.num-partitions{state=active}": 3,
    }
    assert found["share-coordinator-metrics.num-partitions{state=active}"] == 0
    assert found["group-coordinator-metrics.share-group-count{state=stable}"] == 0
    registered.close()
    assert dict(metrics.snapshot()) == {}


def test_a_group_that_comes_while_groups_are_listed_disturbs_nothing() -> None:
    """Metrics are read on another thread than the coordinator's."""
    shard = ClassicShard()
    assert shard.commit("a", group_id="first") == shard.commit("b", group_id="second") == 0
    begun = shard.shard.list_groups()
    seen = [next(begun).group_id]
    assert shard.commit("c", group_id="third") == 0
    seen += [group.group_id for group in begun]
    assert sorted(seen) == ["first", "second"]
    assert sorted(group.group_id for group in shard.shard.list_groups()) == ["first", "second", "third"]
