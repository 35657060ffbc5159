"""The group raft-metrics, told by hand, with a clock of its own."""

from __future__ import annotations

import math
import threading

import pytest

from kraftlog.metrics.raft import RAFT_STATES, RaftMetrics, RaftState
from kraftlog.metrics.registry import Metrics


class Clock:
    def __init__(self):
        self.now_ns = 1_000_000_000_000

    def __call__(self):
        return self.now_ns

    def wait_ms(self, time_ms):
        self.now_ns += time_ms * 1_000_000


class Measured:
    def __init__(self):
        self.clock = Clock()
        self.registry = Metrics()
        self.metrics = RaftMetrics(self.registry, clock_ns=self.clock)

    def __getitem__(self, name):
        return self.registry.snapshot()[f"raft-metrics.{name}"]

    def turn(self, **changes):
        self.metrics.on_turn(RaftState(**changes), self.clock.now_ns, self.clock.now_ns)


def test_values_before_anything_happened():
    measured = Measured()
    expected = {
        "current-state": "unattached",
        "current-leader": -1,
        "current-vote": -1,
        "current-vote-directory-id": "AAAAAAAAAAAAAAAAAAAAAA",
        "current-epoch": 0,
        "high-watermark": -1,
        "log-end-offset": 0,
        "log-end-epoch": 0,
        "number-unknown-voter-connections": 0,
        "number-of-voters": 0,
        "fetch-records-rate": 0,
        "append-records-rate": 0,
        "poll-idle-ratio-avg": 1,
    }
    assert {name: measured[name] for name in expected} == expected
    for name in ("commit-latency-avg", "commit-latency-max", "election-latency-avg", "election-latency-max"):
        assert math.isnan(measured[name])
    assert "raft-metrics.number-of-observers" not in measured.registry.snapshot()
    assert "raft-metrics.uncommitted-voter-change" not in measured.registry.snapshot()


@pytest.mark.spec("METR-10", "APPD-21")
def test_commit_latency_is_from_append_to_commit_for_each_batch_by_its_records():
    measured = Measured()
    measured.metrics.on_role("leader")
    measured.metrics.on_appended(1, 1)
    measured.clock.wait_ms(10)
    measured.metrics.on_appended(3, 2)
    measured.clock.wait_ms(20)
    measured.metrics.on_committed(2)
    assert (measured["commit-latency-avg"], measured["commit-latency-max"]) == (30, 30)
    measured.clock.wait_ms(10)
    measured.metrics.on_committed(3)
    assert (measured["commit-latency-avg"], measured["commit-latency-max"]) == (22.5, 30)
    measured.clock.wait_ms(60_000)
    assert math.isnan(measured["commit-latency-max"])


@pytest.mark.spec("METR-10")
def test_what_a_former_leader_appended_counts_for_nothing():
    measured = Measured()
    measured.metrics.on_role("leader")
    measured.metrics.on_appended(1, 1)
    measured.metrics.on_role("unattached")
    measured.metrics.on_role("follower")
    measured.metrics.on_committed(1)
    assert math.isnan(measured["commit-latency-max"])


@pytest.mark.spec("METR-11")
@pytest.mark.parametrize("end", ["leader", "follower"])
def test_election_latency_is_one_value_from_the_last_start_to_leader_or_follower(end):
    measured = Measured()
    measured.metrics.on_role("prospective")
    measured.clock.wait_ms(1000)
    measured.metrics.on_role("candidate")
    measured.clock.wait_ms(30)
    measured.metrics.on_role("unattached")
    measured.clock.wait_ms(20)
    assert math.isnan(measured["election-latency-avg"])
    measured.metrics.on_role(end)
    assert (measured["election-latency-avg"], measured["election-latency-max"]) == (50, 50)
    measured.clock.wait_ms(500)
    measured.metrics.on_role("follower")
    assert measured["election-latency-max"] == 50
    measured.metrics.on_role("prospective")
    measured.clock.wait_ms(10)
    measured.metrics.on_role("follower")
    assert (measured["election-latency-avg"], measured["election-latency-max"]) == (30, 50)


@pytest.mark.spec("METR-12")
def test_rates_are_totals_by_the_seconds_of_the_windows():
    measured = Measured()
    measured.metrics.on_appended(12, 12)
    measured.metrics.on_fetched(3)
    assert (measured["append-records-rate"], measured["fetch-records-rate"]) == (0.4, 0.1)
    measured.clock.wait_ms(30_000)
    measured.metrics.on_appended(21, 9)
    assert measured["append-records-rate"] == 0.7
    measured.clock.wait_ms(30_000)
    assert (measured["append-records-rate"], measured["fetch-records-rate"]) == (0.3, 0)


@pytest.mark.spec("METR-13")
def test_idle_ratio_is_a_half_when_half_of_the_time_was_waited():
    measured = Measured()
    for _ in range(8):
        start_ns = measured.clock.now_ns
        measured.clock.wait_ms(500)
        measured.metrics.on_turn(RaftState(), start_ns, measured.clock.now_ns)
        measured.clock.wait_ms(500)
    assert measured["poll-idle-ratio-avg"] == measured["poll-idle-ratio-avg"] == 0.5


@pytest.mark.spec("METR-05")
def test_high_watermark_never_goes_back():
    measured = Measured()
    found = []
    for high_watermark in (-1, 4, 7, -1, 7, 9):
        measured.turn(high_watermark=high_watermark)
        found.append(measured["high-watermark"])
    assert found == [-1, 4, 7, 7, 7, 9]


@pytest.mark.spec("METR-14")
def test_close_takes_every_metric_back_and_another_replica_may_register():
    measured = Measured()
    with pytest.raises(ValueError, match="raft-metrics are registered already"):
        RaftMetrics(measured.registry)
    assert len(measured.registry.snapshot()) == 17
    measured.metrics.close()
    assert not measured.registry.snapshot()
    second = RaftMetrics(measured.registry)
    measured.metrics.close()  # late and harmless: what is there now belongs to the second
    second.on_turn(RaftState(epoch=3), 0, 0)
    assert measured["current-epoch"] == 3


@pytest.mark.spec("METR-16")
def test_another_thread_reads_whole_states_and_stops_nobody():
    """Each state has the same number everywhere: a reader that sees two of them has seen a torn value."""
    measured = Measured()
    measured.turn(leader_id=0, epoch=0, log_end_offset=0)
    is_over = threading.Event()
    torn = []
    readings = 0

    def read():
        nonlocal readings
        while not is_over.is_set():
            snapshot = measured.registry.snapshot()
            seen = {snapshot[f"raft-metrics.{name}"] for name in ("current-leader", "current-epoch", "log-end-offset")}
            torn.extend(seen if len(seen) > 1 else ())
            readings += 1

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    number = 0
    while readings < 300 or number < 3000:
        number += 1
        measured.turn(leader_id=number, epoch=number, log_end_offset=number, state=RAFT_STATES[number % 8])
        measured.metrics.on_appended(number, 1)
        measured.metrics.on_committed(number)
    is_over.set()
    for reader in readers:
        reader.join()
    assert not torn
