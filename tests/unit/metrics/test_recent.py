"""Times and rates of the last windows, as coordinators measure them."""

from __future__ import annotations

import random

import pytest

from kraftlog.metrics.coordinator import CoordinatorMetrics, ShardCounts
from kraftlog.metrics.recent import RecentLatencies, RecentRates
from kraftlog.metrics.sensor import SampledSensor

MS = 1_000_000


@pytest.mark.parametrize("largest_us", [50, 5_000, 3_000_000])
def test_quantiles_are_exact_to_two_percent(largest_us: int) -> None:
    rng = random.Random(largest_us)
    values_us = sorted(rng.randrange(largest_us) for _ in range(10_000))
    latencies = RecentLatencies()
    for value_us in values_us:
        latencies.record(value_us * 1000)
    found = latencies.value()
    assert found.maximum == values_us[-1] / 1000
    for quantile, value_ms in zip((0.5, 0.95, 0.99, 0.999), found[1:], strict=True):
        expected_ms = values_us[int(quantile * len(values_us)) - 1] / 1000
        assert value_ms == pytest.approx(expected_ms, rel=0.02, abs=0.001)


def test_the_longest_times_there_are_have_buckets() -> None:
    latencies = RecentLatencies()
    for duration_ns in (-5, 0, 1 << 40, 1 << 60):
        latencies.record(duration_ns)
    assert latencies.value().maximum == (1 << 60) / MS
    assert latencies.value().p50 == 0


def test_a_window_and_the_one_before_it_count() -> None:
    latencies = RecentLatencies()
    latencies.record(9 * MS, 3)
    latencies.rotate()
    latencies.record(2 * MS)
    assert latencies.value().maximum == 9
    latencies.rotate()
    assert latencies.value().maximum == 2
    latencies.rotate()
    assert latencies.value() == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("seed", range(30))
def test_a_rate_is_the_one_that_kafka_computes_from_single_events(seed: int) -> None:
    """``SampledSensor`` keeps each event; here only counters at the ends of windows are kept."""
    rng = random.Random(seed)
    counter = [0]
    rates = RecentRates(lambda: (counter[0],), 0)
    sensor = SampledSensor()
    sensor.record(0, 0)  # both begin their first window now
    now_ms = 0
    for _ in range(200):
        now_ms += rng.choice((1, 100, 5_000, 20_000, 31_000, 61_000, 200_000))
        rates.begin_event(now_ms)
        count = rng.randrange(5)
        counter[0] += count
        sensor.record(count, now_ms)
        later_ms = now_ms + rng.choice((1, 1_000, 29_000, 45_000, 59_999, 60_000))
        (rate,) = rates.per_second(later_ms)
        assert rate == pytest.approx(sensor.rate(later_ms))


def test_a_coordinator_reads_its_times_under_the_names_of_kafka() -> None:
    clock = [0]
    measured = CoordinatorMetrics(clock_ns=lambda: clock[0])
    begun_ns = measured.begin()
    clock[0] = 3 * MS
    measured.on_processed(begun_ns)
    measured.on_flushed(lingered_ns=1 * MS, duration_ns=2 * MS)
    clock[0] = 8 * MS
    measured.on_committed(5, 3 * MS)
    measured.on_loaded(7.0)
    begun_ns = measured.begin()
    clock[0] = 40 * MS
    measured.end(begun_ns)
    clock[0] = 30_000 * MS
    found = {reading.name: reading.value for reading in measured.read(ShardCounts(1, 2, 3))}
    assert found["event-processing-time-ms-max"] == 3
    assert found["event-purgatory-time-ms-p999"] == pytest.approx(5, rel=0.02)
    assert found["batch-linger-time-ms-p50"] == pytest.approx(1, rel=0.02)
    assert found["batch-flush-time-ms-max"] == 2
    assert found["batch-flush-rate"] == pytest.approx(1 / 30)
    assert found["partition-load-time-max"] == 7
    assert found["thread-idle-ratio-avg"] == pytest.approx(1 - 35 / 30_000)
    clock[0] = 90_000 * MS
    quiet = {reading.name: reading.value for reading in measured.read(ShardCounts())}
    assert (quiet["event-processing-time-ms-max"], quiet["thread-idle-ratio-avg"]) == (0, 1)
