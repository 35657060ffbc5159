"""What metrics cost: for a turn of a replica, for a batch, for a scrape. None of it grows with the records.

Expected: a turn builds one tuple of eleven values and two sums, about 2 us beside a turn of some tens; a batch adds two
windows, about 2 us; a scrape of 80 metrics is text, below a millisecond.
"""

from __future__ import annotations

import time

import kraftlog
from kraftlog.metrics import Metrics, to_prometheus_text
from kraftlog.metrics.raft import RaftMetrics
from kraftlog.runtime.raft.raft_gauges import raft_state
from raft_fixture import leader_of


def test_turn_of_a_leader(benchmark):
    benchmark.group = "metrics: one turn"
    core, metrics = leader_of(1, 2, 3), RaftMetrics(Metrics())

    def turn():
        start_ns = time.monotonic_ns()
        end_ns = time.monotonic_ns()
        metrics.on_turn(raft_state(core, end_ns // 1_000_000), start_ns, end_ns)

    benchmark(turn)
    assert metrics.state.state == "leader"


def test_batch_of_a_leader(benchmark):
    benchmark.group = "metrics: one batch appended and committed"
    metrics = RaftMetrics(Metrics())
    metrics.on_role("leader")

    def batch():
        metrics.on_appended(10_000, 10_000)
        metrics.on_committed(10_000)

    benchmark(batch)


def test_scrape_of_a_broker(benchmark):
    benchmark.group = "metrics: one scrape"
    with kraftlog.Broker() as broker:
        text = benchmark(lambda: to_prometheus_text(broker.metrics()))
    benchmark.extra_info["bytes"] = len(text)
    assert "kafka_server_raft_metrics_current_leader 1" in text
