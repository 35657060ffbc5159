"""Metrics of groups: names and values that Kafka 4.3.1 gives them."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from classic_fixture import ClassicShard, two_classic_members
from group_fixture import two_members
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.metrics import Metrics
from kraftlog.metrics.groups import GroupMetrics, ShardCounts
from kraftlog.node.group_gauges import count_groups, count_shards


def _registry(*shards: Any, loading: int = 0, failed: int = 0) -> Any:
    runners = [SimpleNamespace(shard=shard, is_loaded=True, has_failed=False) for shard in shards]
    runners += [SimpleNamespace(shard=None, is_loaded=False, has_failed=False)] * loading
    runners += [SimpleNamespace(shard=None, is_loaded=False, has_failed=True)] * failed
    return SimpleNamespace(runners=lambda: list(runners))


def _group_metrics(metrics: Metrics, events: GroupEvents | None = None, **counters: Any) -> GroupMetrics:
    made = GroupMetrics(
        metrics,
        events=(events or GroupEvents()).values,
        share_topic="__share_group_state",
        clock_ns=counters.pop("clock_ns", lambda: 1_000_000_000),
    )
    none = _registry()
    made.register(
        **{"counts": lambda: count_groups(none), "shards": ShardCounts, "share_shards": ShardCounts} | counters
    )
    return made


def test_groups_are_counted_by_protocol_and_state_as_long_as_the_broker_runs() -> None:
    classic, _, _ = two_classic_members()
    empty = ClassicShard()
    assert empty.commit("a", 5) == empty.commit("b", 6, partition=1) == 0
    groups = _registry(classic.shard, empty.shard, two_members().shard, loading=2, failed=1)
    metrics = Metrics()
    registered = _group_metrics(
        metrics,
        counts=lambda: count_groups(groups),
        shards=lambda: count_shards(groups),
        share_shards=lambda: count_shards(_registry()),
    )
    found = metrics.snapshot()
    assert {name: value for name, value in found.items() if value and not math.isnan(float(value))} == {
        "GroupMetadataManager.NumOffsets": 2,
        "GroupMetadataManager.NumGroups": 2,
        "GroupMetadataManager.NumGroupsStable": 1,
        "GroupMetadataManager.NumGroupsEmpty": 1,
        "group-coordinator-metrics.group-count{protocol=classic}": 2,
        "group-coordinator-metrics.group-count{protocol=consumer}": 1,
        "group-coordinator-metrics.consumer-group-count{state=reconciling}": 1,
        "group-coordinator-metrics.num-partitions{state=loading}": 2,
        "group-coordinator-metrics.num-partitions{state=active}": 3,
        "group-coordinator-metrics.num-partitions{state=failed}": 1,
        "group-coordinator-metrics.thread-idle-ratio-avg": 1.0,
        "share-coordinator-metrics.thread-idle-ratio-avg": 1.0,
    }
    assert found["share-coordinator-metrics.num-partitions{state=active}"] == 0
    assert found["group-coordinator-metrics.share-group-count{state=stable}"] == 0
    registered.close()
    assert dict(metrics.snapshot()) == {}


def test_what_happens_to_groups_is_counted_and_has_a_rate() -> None:
    """Kafka counts an offset when a shard decides on it, and a rebalance of a classic group when it is stored."""
    events = GroupEvents()
    clock = [0]
    metrics = Metrics()
    measured = _group_metrics(metrics, events, clock_ns=lambda: clock[0])
    group = ClassicShard(events=events)
    measured.runtime.begin()
    assert group.commit("1") == group.commit("2", partition=1) == group.commit("3") == 0
    group.delete_offsets("delete", "orders", "unknown")
    two_classic_members(events=events)
    two_members(events=events)
    clock[0] = 10_000_000_000
    found = metrics.snapshot()
    prefix = "group-coordinator-metrics."
    assert {name.removeprefix(prefix): value for name, value in found.items() if name.endswith("-count") and value} == {
        "offset-commit-count": 3,
        "offset-deletion-count": 1,
        "group-completed-rebalance-count": events.completed_rebalances,
        "consumer-group-rebalance-count": events.consumer_rebalances,
    }
    assert events.completed_rebalances >= 1
    assert events.consumer_rebalances >= 2
    # Ten seconds of the first window and, as in Kafka, a whole one before it.
    assert found[f"{prefix}offset-commit-rate"] == 3 / 40
    clock[0] = 70_000_000_000
    assert metrics.snapshot()[f"{prefix}offset-commit-rate"] == 0


def test_expired_offsets_are_counted() -> None:
    events = GroupEvents()
    group = ClassicShard(events=events, offsets_retention_ms=1_000, offsets_retention_check_interval_ms=500)
    assert group.commit("1") == group.commit("2", partition=1) == 0
    group.advance(5_000)
    assert events.offset_expirations == 2


def test_writes_of_share_states_are_measured_and_the_deleted_records_named() -> None:
    clock = [0]
    metrics = Metrics()
    measured = _group_metrics(metrics, clock_ns=lambda: clock[0])
    measured.share_runtime.begin()
    measured.share_states.on_write(4)
    measured.share_states.on_write(8)
    measured.share_states.on_write(None)
    measured.share_states.on_pruned(7, 42)
    clock[0] = 30_000_000_000
    found = metrics.snapshot()
    prefix = "share-coordinator-metrics."
    assert found[f"{prefix}write-total"] == 3
    assert found[f"{prefix}write-rate"] == 0.1
    assert (found[f"{prefix}write-latency-avg"], found[f"{prefix}write-latency-max"]) == (6.0, 8.0)
    assert found[prefix + "last-pruned-offset{topic=__share_group_state,partition=7}"] == 42


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
