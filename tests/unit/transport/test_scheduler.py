"""Scheduler: who is served when, on a clock that stands still but for the work."""

from __future__ import annotations

from kraftlog.transport.scheduler import SLICE_S, TURN_S, Scheduler, Weight


class Loop:
    """Runs what was to be called soon when a test says so."""

    def __init__(self):
        self.soon = []

    def call_soon(self, callback):
        self.soon.append(callback)

    def turn(self):
        calls, self.soon = self.soon, []
        for call in calls:
            call()
        return len(calls)


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


class Work:
    """Uses whole slices until its work is done, and notes each."""

    def __init__(self, name, clock, served, slices):
        self.name, self.clock, self.served, self.slices = name, clock, served, slices

    def serve(self, slice_end_s):
        self.clock.now_s = slice_end_s
        self.served.append(self.name)
        self.slices -= 1
        return Weight.HEAVY if self.slices > 0 else None


def make():
    loop, clock, served = Loop(), Clock(), []
    return loop, clock, Scheduler(loop, clock), served


def test_heavy_work_is_served_in_a_round():
    loop, clock, scheduler, served = make()
    for name in "abc":
        scheduler.add(Work(name, clock, served, 3), Weight.HEAVY)
    while loop.turn():
        pass
    assert "".join(served) == "abcabcabc"
    assert len(scheduler) == 0


def test_one_turn_of_the_loop_serves_for_a_bounded_time():
    loop, clock, scheduler, served = make()
    for number in range(50):
        scheduler.add(Work(number, clock, served, 20_000), Weight.HEAVY)
    before_s = clock.now_s
    loop.turn()
    assert clock.now_s - before_s <= TURN_S + SLICE_S
    assert served == [0, 1, 2, 3]
    loop.turn()
    assert served == [0, 1, 2, 3, 4, 5, 6, 7]


def test_light_work_comes_before_new_and_new_before_heavy():
    loop, clock, scheduler, served = make()
    scheduler.add(Work("heavy", clock, served, 100), Weight.HEAVY)
    scheduler.add(Work("new", clock, served, 1), Weight.UNKNOWN)
    scheduler.add(Work("light", clock, served, 1), Weight.LIGHT)
    loop.turn()
    assert served == ["light", "new", "heavy", "heavy"]


def test_no_flood_of_light_or_new_work_starves_heavy_work():
    loop, clock, scheduler, served = make()
    scheduler.add(Work("heavy", clock, served, 100), Weight.HEAVY)
    for _ in range(10):
        for _ in range(20):
            scheduler.add(Work("light", clock, served, 1), Weight.LIGHT)
            scheduler.add(Work("new", clock, served, 1), Weight.UNKNOWN)
        loop.turn()
    assert served.count("heavy") == 10
    assert served.count("new") == 10


def test_what_used_up_its_slice_goes_behind_what_is_new():
    loop, clock, scheduler, served = make()
    scheduler.add(Work("first", clock, served, 50), Weight.UNKNOWN)
    loop.turn()
    scheduler.add(Work("second", clock, served, 1), Weight.UNKNOWN)
    loop.turn()
    assert served == ["first"] * 4 + ["second"] + ["first"] * 3


def test_work_at_once_is_bounded_until_the_queue_had_its_turn():
    loop, clock, scheduler, served = make()
    admitted = 0
    while scheduler.admits(clock.now_s):
        admitted += 1
        clock.now_s += SLICE_S
        scheduler.ended(clock.now_s)
    assert admitted == 4
    assert not scheduler.admits(clock.now_s)
    scheduler.add(Work("a", clock, served, 1), Weight.LIGHT)
    assert not scheduler.admits(clock.now_s)
    loop.turn()
    assert served == ["a"]
    assert scheduler.admits(clock.now_s)


def test_work_at_once_begins_anew_after_a_pause():
    _, clock, scheduler, _ = make()
    assert scheduler.admits(clock.now_s)
    clock.now_s += 1.0
    scheduler.ended(clock.now_s)
    assert not scheduler.admits(clock.now_s)
    clock.now_s += 0.002
    assert scheduler.admits(clock.now_s)


def test_work_that_ends_in_its_own_slice_is_not_run_again():
    loop, clock, scheduler, served = make()
    scheduler.add(Work("a", clock, served, 1), Weight.LIGHT)
    loop.turn()
    assert loop.turn() == 0
    assert served == ["a"]
