"""Windows of samples, idle time, distributions and meters."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from kraftlog.metrics.histogram import Histogram
from kraftlog.metrics.idle_ratio import IdleRatio
from kraftlog.metrics.meter import Meter
from kraftlog.metrics.sensor import SampledSensor

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "metrics" / "sampled-stats.json"


@pytest.mark.spec("METR-10", "METR-12")
@pytest.mark.parametrize("run", json.loads(GOLDEN.read_text()))
def test_sampled_sensor_says_what_kafkas_stats_say(run):
    sensor = SampledSensor()
    for now_ms, value, rate, average, maximum in run:
        if value is not None:
            sensor.record(value, now_ms)
        expected = [rate, math.nan if average is None else average, math.nan if maximum is None else maximum]
        found = [sensor.rate(now_ms), sensor.average(now_ms), sensor.maximum(now_ms)]
        assert found == pytest.approx(expected, nan_ok=True), now_ms


def test_sampled_sensor_without_values():
    sensor = SampledSensor()
    assert sensor.rate(0) == 0
    assert math.isnan(sensor.average(0))
    assert math.isnan(sensor.maximum(0))
    sensor.record(4, 0)
    assert sensor.rate(30_000) == 4 / 30
    assert sensor.rate(60_000) == 0
    assert math.isnan(sensor.maximum(60_000))


def test_idle_ratio_forgets_what_is_older_than_two_windows():
    second = 1_000_000_000
    idle = IdleRatio(0)
    assert idle.value(0) == idle.value(10 * second) == 1
    idle.record_busy(10 * second, 20 * second)
    assert idle.value(20 * second) == idle.value(20 * second) == 0.5
    idle.record_busy(30 * second, 31 * second)
    assert idle.value(40 * second) == pytest.approx(1 - 11 / 40)
    idle.record_busy(70 * second, 75 * second)
    assert idle.value(80 * second) == pytest.approx(1 - 6 / 50)
    assert idle.value(200 * second) == 1


def test_histogram_keeps_count_and_total_of_all_and_quantiles_of_the_newest():
    histogram = Histogram()
    assert histogram.value().mean == histogram.value().maximum == 0
    values = list(range(1, 101))
    random.Random(3).shuffle(values)
    for value in values:
        histogram.record(value, 0)
    value = histogram.value()
    assert (value.count, value.total, value.minimum, value.maximum, value.mean) == (100, 5050, 1, 100, 50.5)
    assert dict(value.quantiles)[0.5] == 50.5
    assert dict(value.quantiles)[0.99] == pytest.approx(99.99)
    for _ in range(2000):
        histogram.record(1000, 3600)
    value = histogram.value()
    assert value.count == 2100
    assert dict(value.quantiles)[0.5] == 1000


def test_meter_rates_follow_and_fade():
    meter = Meter(0.0)
    meter.mark(10, 1.0)
    assert (meter.value(2.0).count, meter.value(2.0).one_minute_rate) == (10, 0)
    assert meter.value(5.0).one_minute_rate == meter.value(5.0).fifteen_minute_rate == 2
    assert meter.value(65.0).one_minute_rate == pytest.approx(2 / math.e)
    for second in range(70, 1300, 5):
        meter.mark(5, float(second))
    assert meter.value(1300.0).one_minute_rate == pytest.approx(1, rel=1e-3)
    assert meter.value(1300.0).count == 10 + 5 * len(range(70, 1300, 5))
