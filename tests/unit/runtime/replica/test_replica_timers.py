"""Timers of the replicas end with them."""

from __future__ import annotations

import asyncio

from kraftlog.runtime.replica.replica_timers import ReplicaTimers
from kraftlog.testing.world.machine import Machine
from kraftlog.testing.world.world import World


def test_work_is_done_once_or_again_and_again_until_the_timers_stop():
    with World(1) as world:
        machine = Machine(world, "m")
        done = []

        async def begin():
            timers = ReplicaTimers(asyncio.get_running_loop())
            timers.once(1, done.append, "once")
            timers.once(100, done.append, "never")
            timers.every(2_000, lambda: done.append("every"), delay_ms=500)
            return timers

        timers = world.run(machine, begin())
        world.run_for(5_000)
        assert done == ["every", "once", "every", "every"]
        assert len(machine.pending_timers()) == 2
        timers.stop()
        timers.once(1, done.append, "too late")
        assert machine.pending_timers() == []
        world.run_for(200_000)
        assert len(done) == 4
