"""The metrics of a broker's replicas under Kafka's names."""

from __future__ import annotations

from kraftlog.metrics import Metrics
from kraftlog.metrics.replica import FetcherCounts, ReplicaCounts, ReplicaMetrics


def test_fetchers_and_moves_have_the_gauges_of_kafkas_fetcher_managers() -> None:
    metrics = Metrics()
    replicas = ReplicaMetrics(
        metrics,
        counts=ReplicaCounts,
        fetchers=lambda: FetcherCounts(max_lag=7, min_fetch_rate=0.5, failed_partitions=2, dead_loops=1),
        moves=lambda: FetcherCounts(max_lag=70, min_fetch_rate=1.5, failed_partitions=20, dead_loops=10),
    )
    names = ("MaxLag", "MinFetchRate", "FailedPartitionsCount", "DeadThreadCount")
    for manager, client_id, values in (
        ("ReplicaFetcherManager", "Replica", (7, 0.5, 2, 1)),
        ("ReplicaAlterLogDirsManager", "ReplicaAlterLogDirs", (70, 1.5, 20, 10)),
    ):
        snapshot = metrics.snapshot()
        assert tuple(snapshot[f"{manager}.{name}{{clientId={client_id}}}"] for name in names) == values
    replicas.close()
    assert not metrics.snapshot()
