"""Metrics of transactions: what a coordinator loads and waits for, and what it is asked."""

from __future__ import annotations

import math
from typing import Any

from kraftlog.metrics import Metrics
from kraftlog.metrics.transaction import MarkerCounts, TransactionMetrics

LOAD = "transaction-coordinator-metrics.partition-load-time"


def test_transaction_metrics_have_the_names_of_kafka() -> None:
    metrics = Metrics()
    now_ns = 1_000_000_000
    measured = TransactionMetrics(metrics, markers=lambda: MarkerCounts(3, 2), clock_ns=lambda: now_ns)
    before = metrics.snapshot()
    assert math.isnan(float(before[f"{LOAD}-max"]))  # type: ignore[arg-type]
    measured.on_loaded(10.0)
    measured.on_loaded(30.0)
    measured.on_verified(4.0, 0)
    measured.on_verified(6.0, 2)
    found: dict[str, Any] = dict(metrics.snapshot())
    assert (found[f"{LOAD}-max"], found[f"{LOAD}-avg"]) == (30.0, 20.0)
    assert found["TransactionMarkerChannelManager.UnknownDestinationQueueSize"] == 3
    assert found["TransactionMarkerChannelManager.LogAppendRetryQueueSize"] == 2
    times = found["AddPartitionsToTxnManager.VerificationTimeMs"]
    assert (times.count, times.mean) == (2, 5.0)
    assert found["AddPartitionsToTxnManager.VerificationFailureRate"].count == 2
    measured.close()
    assert not metrics.snapshot()
