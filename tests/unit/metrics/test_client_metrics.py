"""What clients measure, by a clock that the test moves."""

from __future__ import annotations

import math

import pytest

from kraftlog.metrics.client_requests import ClientRequests
from kraftlog.metrics.consumer import ConsumerMetrics, PartitionProgress
from kraftlog.metrics.producer import ProducerMetrics, ProducerState
from kraftlog.types import TopicPartition

MS = 1_000_000
HOUR_MS = 3_600_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        return self.now_ns

    def forward(self, ms):
        self.now_ns += ms * MS


@pytest.fixture
def clock():
    return Clock()


def values(readings):
    return {(reading.name, *(value for _, value in reading.tags)): reading.value for reading in readings}


def test_requests_are_measured_by_kind_and_by_node(clock):
    counters = [0, 0, 0, 0, 0, 0]
    requests = ClientRequests(lambda: tuple(counters), {"beat": ((12, 68), "heartbeats")}, clock_ns=clock)
    for api_key, node_id, latency_ms in ((12, 1, 4), (68, 2, 8), (3, 1, 1)):
        begun_ns = requests.begin()
        clock.forward(latency_ms)
        counters[:] = [2, 1, counters[2] + 1, counters[3] + 1, counters[4] + 100, counters[5] + 1000]
        requests.on_answer(api_key, node_id, begun_ns, 7)
    beat = requests.by_kind["beat"]
    assert (beat.latency_ms.average(requests.now_ms()), beat.latency_ms.maximum(requests.now_ms())) == (6, 8)
    assert beat.throttle_ms.maximum(requests.now_ms()) == 7
    clock.forward(2_000)
    assert beat.seconds_since(requests.now_ms()) == 2.001
    found = values(requests.read())
    assert found["connection-count",] == 1
    assert found["request-total",] == found["response-total",] == 3
    assert (found["outgoing-byte-total",], found["incoming-byte-total",]) == (300, 3000)
    assert found["incoming-byte-rate",] == pytest.approx(3000 / 32.013)
    by_node = values(requests.read_nodes())
    assert (by_node["response-total", "node-1"], by_node["response-total", "node-2"]) == (2, 1)
    assert by_node["request-latency-avg", "node-1"] == 2.5


def test_lag_and_records_of_a_consumer(clock):
    progress = [PartitionProgress(T0, 5, 20, None), PartitionProgress(T1, None, None, 3)]
    metrics = ConsumerMetrics(lambda: (0,) * 6, lambda: progress, clock_ns=clock)
    before = metrics.snapshot()
    assert before["consumer-fetch-manager-metrics.records-consumed-total"] == 0
    assert math.isnan(before["consumer-fetch-manager-metrics.records-lag-max"])
    for lag, lead in ((10, 15), (5, 20)):
        metrics.on_records(T0, 5, lag, lead)
    metrics.on_bytes("t", 700)
    metrics.on_fetched(900)
    found = metrics.snapshot()

    def fetched(name):
        return found[f"consumer-fetch-manager-metrics.{name}"]

    assert fetched("records-consumed-total") == fetched("records-consumed-total{topic=t}") == 10
    assert fetched("bytes-consumed-total{topic=t}") == 700
    assert fetched("fetch-size-max") == 900
    assert (fetched("records-lag-max"), fetched("records-lead-min")) == (10, 15)
    assert fetched("records-lag{topic=t,partition=0}") == 5
    assert fetched("records-lag-avg{topic=t,partition=0}") == 7.5
    assert fetched("preferred-read-replica{topic=t,partition=0}") == -1
    assert fetched("preferred-read-replica{topic=t,partition=1}") == 3
    assert "consumer-fetch-manager-metrics.records-lag{topic=t,partition=1}" not in found
    assert found["consumer-coordinator-metrics.assigned-partitions"] == 2


def test_partitions_that_are_gone_leave_no_sensors(clock):
    progress = [PartitionProgress(T0, 1, 1, None)]
    metrics = ConsumerMetrics(lambda: (0,) * 6, lambda: progress, clock_ns=clock)
    metrics.on_records(T0, 1, 1, 1)
    progress[:] = [PartitionProgress(T1, 1, 1, None)]
    metrics.on_records(T1, 1, 1, 1)
    progress.append(PartitionProgress(T0, 2, 2, None))
    found = metrics.snapshot()
    assert "consumer-fetch-manager-metrics.records-lag-max{topic=t,partition=1}" in found
    assert "consumer-fetch-manager-metrics.records-lag-max{topic=t,partition=0}" not in found


def test_polls_and_rebalances_of_a_consumer(clock):
    metrics = ConsumerMetrics(lambda: (0,) * 6, list, clock_ns=clock)
    for _ in range(3):
        metrics.on_poll()
        clock.forward(300)
        metrics.on_poll_end()
        clock.forward(700)
    metrics.on_rebalanced(40)
    clock.forward(2_000)
    found = metrics.snapshot()
    assert found["consumer-metrics.time-between-poll-avg"] == 1000
    assert found["consumer-metrics.poll-idle-ratio-avg"] == pytest.approx(0.3)
    assert found["consumer-metrics.last-poll-seconds-ago"] == 3
    assert found["consumer-coordinator-metrics.rebalance-total"] == 1
    assert found["consumer-coordinator-metrics.rebalance-rate-per-hour"] == pytest.approx(1, rel=0.01)
    assert found["consumer-coordinator-metrics.rebalance-latency-max"] == 40
    assert found["consumer-coordinator-metrics.last-rebalance-seconds-ago"] == 2


def test_batches_of_a_producer(clock):
    state = ProducerState(1000, 1200, 2, 1)
    metrics = ProducerMetrics(lambda: (0,) * 6, lambda: state, clock_ns=clock)
    metrics.on_request(30)
    metrics.on_batch("t", 10, 500, 0.004)
    metrics.on_batch("u", 20, 700, 0.006)
    metrics.on_batch("u", 20, 700, None)
    metrics.on_failure("u", 20)
    with metrics.timed("flush"):
        clock.forward(5)
    found = metrics.snapshot()
    assert found["producer-metrics.record-send-total"] == 30
    assert found["producer-topic-metrics.record-send-total{topic=t}"] == 10
    assert found["producer-topic-metrics.byte-total{topic=u}"] == 700
    assert found["producer-metrics.record-retry-total"] == found["producer-metrics.record-error-total"] == 20
    assert (found["producer-metrics.batch-size-avg"], found["producer-metrics.batch-size-max"]) == (600, 700)
    assert found["producer-metrics.record-queue-time-max"] == 6
    assert found["producer-metrics.records-per-request-avg"] == 30
    assert found["producer-metrics.buffer-available-bytes"] == 0
    assert found["producer-metrics.requests-in-flight"] == 2
    assert found["producer-metrics.flush-time-ns-total"] == 5 * MS
