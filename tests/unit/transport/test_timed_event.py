"""Waits of one task, one after the other, each with its own limit; in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from kraftlog.testing.world.machine import Machine
from kraftlog.testing.world.world import World
from kraftlog.transport.timed_event import TimedEvent


def run(work):
    """What ``work(loop, event)`` returns, on a simulated machine."""

    async def begin():
        return await work(asyncio.get_running_loop(), TimedEvent())

    with World(1) as world:
        return world.run(Machine(world, "m"), begin())


def test_wait_ends_at_its_limit_or_when_the_event_is_set():
    async def work(loop, event):
        begun_s = loop.time()
        assert not await event.wait_until(begun_s + 5)
        assert 5 <= loop.time() - begun_s < 5.01
        loop.call_later(2, event.set)
        assert await event.wait_until(begun_s + 60)
        assert 7 <= loop.time() - begun_s < 7.01
        assert await event.wait_until(begun_s + 60)
        event.clear()
        assert not await event.wait_until(begun_s)

    run(work)


@pytest.mark.parametrize("limits_s", [(10, 20), (20, 10)])
def test_timer_of_an_earlier_wait_neither_ends_nor_outlasts_a_later_one(limits_s):
    async def work(loop, event):
        begun_s = loop.time()
        loop.call_later(1, event.set)
        assert await event.wait_until(begun_s + limits_s[0])
        event.clear()
        assert not await event.wait_until(begun_s + limits_s[1])
        assert limits_s[1] <= loop.time() - begun_s < limits_s[1] + 0.01

    run(work)


def test_wait_without_a_limit_outlasts_the_timer_of_the_one_before():
    async def work(loop, event):
        loop.call_later(1, event.set)
        assert await event.wait_until(loop.time() + 10)
        event.clear()
        loop.call_later(30, event.set)
        assert await event.wait_until()
        return loop.time()

    assert run(work) > 30


def test_many_waits_with_the_same_limit_make_one_timer():
    async def work(loop, event):
        made = []
        call_at = loop.call_at
        loop.call_at = lambda *arguments: made.append(arguments) or call_at(*arguments)
        limit_s = loop.time() + 100
        for _ in range(50):
            loop.call_soon(event.set)
            assert await event.wait_until(limit_s)
            event.clear()
        return len(made)

    assert run(work) == 1


def test_wait_that_is_cancelled_leaves_no_timer():
    async def work(loop, event):
        waiting = asyncio.ensure_future(event.wait_until(loop.time() + 100))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task waits"):
            await event.wait_until()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert event._timer is None
        assert not await event.wait_until(loop.time() + 1)

    run(work)
