"""A wall clock that is set neither ends nor prolongs what coordinators wait for."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlog.runtime.steady_clock import SteadyClock

HOUR_MS = 3_600_000


class Machine:
    def __init__(self):
        self.wall, self.monotonic = 1_700_000_000_000, 5_000_000_000
        self.clock = SteadyClock(lambda: self.wall, lambda: self.monotonic)

    def passes(self, ms, step_ms=100):
        """Time passes, and the clock is read meanwhile; returns what it shows."""
        for _ in range(ms // step_ms):
            self.wall += step_ms
            self.monotonic += step_ms * 1_000_000
            self.clock.now_ms()
        return self.clock.now_ms()


@pytest.mark.parametrize("by_ms", [-24 * HOUR_MS, -HOUR_MS, HOUR_MS, 24 * HOUR_MS])
def test_a_wall_clock_that_is_set_is_caught_up_with_slowly(by_ms):
    machine = Machine()
    before = machine.clock.now_ms()
    machine.wall += by_ms
    assert machine.clock.now_ms() == before
    passed = machine.passes(10_000) - before
    assert passed == (11_000 if by_ms > 0 else 9_000)


def test_it_shows_the_wall_clock_again_in_the_end():
    machine = Machine()
    machine.wall += 2_000
    assert machine.passes(19_000) < machine.wall
    assert machine.passes(2_000) == machine.wall
    assert machine.passes(60_000) == machine.wall


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws slowly
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-(10**9), 10**9)), max_size=30))
def test_it_never_goes_back_and_is_a_tenth_off_at_most(steps):
    machine = Machine()
    for passed_ms, set_by_ms in steps:
        before = machine.clock.now_ms()
        machine.wall = max(0, machine.wall + passed_ms + set_by_ms)
        machine.monotonic += passed_ms * 1_000_000
        shown_ms = machine.clock.now_ms() - before
        assert passed_ms * 0.9 - 1 <= shown_ms <= passed_ms * 1.1 + 1
