"""A simulated machine: a clock, a processor that runs one loop, threads as events, and a disk."""

from __future__ import annotations

import asyncio
import random
from asyncio import _set_running_loop
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kraftlog._kraftlog import FlushPool
from kraftlog.storage.memory_path import MEMORY_ROOT, MemoryPath, add_disk, remove_disk, unused_name
from kraftlog.testing.world.machine_loop import MachineLoop
from kraftlog.testing.world.stepped_executor import SteppedExecutor
from kraftlog.testing.world.stepped_worker import SteppedWorker
from kraftlog.testing.world.world import EPOCH_MS

if TYPE_CHECKING:
    from kraftlog._kraftlog import MemoryDisk
    from kraftlog.host import Step
    from kraftlog.testing.world.network import ListeningSocket, SimulatedSocket
    from kraftlog.testing.world.world import Event, World

__all__ = ["FLUSH_MS", "Machine"]

T = TypeVar("T")

# Least and most time of an fsync.
FLUSH_MS = (0.1, 2.0)
# How long a callback takes. The clock goes on while it runs, so that bounds of turns are met.
_CALLBACK_NS = 5_000
_CLOCK_READ_NS = 200
# A `finally` clause that waits has to be left once more for each time.
_CLOSE_ATTEMPTS = 10
# How often a loop with something to run lets others come first: between any two iterations, but seldom.
_YIELD_SHARE = 0.125


class _Pool:
    """A pool of flushes, and how many of its flushes have an event that is still to come."""

    __slots__ = ("due_count", "native")

    def __init__(self, native: FlushPool) -> None:
        self.native = native
        self.due_count = 0


class Machine:
    """A host (``kraftlog.host.Host``) in a world. It is up from the beginning.

    Args:
        world: It is part of.
        name: Unique; also its name in the network.

    Attributes:
        address: In the simulated network.
        loop: Of the process that runs; a new one after each start.
        path: Root of its first disk.
        disks: What the process keeps when the machine stops.
        flush_ms, work_ms: Least and most time of an fsync, and of other blocking work.
        has_ended_within_event: Whether the last process did things in its last event that no watcher saw.
        clock_rate: How fast its clocks go, 1 is right; for timers that are set from here on.
        wall_offset_ms: How far its wall clock is off.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.network = world.network
        self.address = f"10.0.{len(world.machines) // 250}.{len(world.machines) % 250 + 1}"
        self._disk_names: list[str] = []
        self.disks: list[MemoryDisk] = []
        self.path = self.add_disk()
        self.flush_ms = FLUSH_MS
        self.work_ms = (0.02, 0.5)
        self.wall_offset_ms = 0
        self._rng = random.Random(world.rng.getrandbits(64))
        self._clock_rate = 1.0
        self._clock_base_ns = 0
        self._clock_since_ns = world.now_ns
        self._clock_offset_ns = -world.now_ns
        # Time that passed on this machine within the event that runs, ahead of the world.
        self._drift_ns = 0
        self._entered_ns = 0
        self._turn: Event | None = None
        self._is_entered = False
        self._free_at_ns = 0
        self._is_paused = False
        self._paused_since_ns = 0
        self.paused_ns = 0
        self.callback_count = 0
        self._incarnation = 0
        self._pools: list[_Pool] = []
        self.workers: list[SteppedWorker] = []
        # After which change of its disks the machine stops, and what stops it.
        self._last_change: int | None = None
        self.has_ended_within_event = False
        self._stop_at_change: Callable[[], None] = self.stop
        # What a stopped process left is kept: collecting it would run its `finally` clauses on a machine that is off.
        self._graveyard: list[Any] = []
        self.loop = MachineLoop(self)  # type: ignore[abstract]
        self.default_executor = SteppedExecutor(self, 8)
        world.machines[name] = self

    # Disks

    def add_disk(self) -> MemoryPath:
        """Another, empty disk; returns its root, which for all but the first is a directory of the first."""
        if self.disks:
            name = f"{self._disk_names[0]}/disk-{len(self.disks) + 1}"
        else:
            # The same in each process, as messages name files; not of the seed alone, as two worlds may have it.
            name = unused_name(f"{self.world.seed}-{self.name}")
        self._disk_names.append(name)
        self.disks.append(add_disk(name))
        return MemoryPath(MEMORY_ROOT, name)

    @property
    def disk(self) -> MemoryDisk:
        """The first one."""
        return self.disks[0]

    @property
    def change_count(self) -> int:
        """Operations since the last stop that changed or synced something on any disk."""
        return sum(disk.change_count for disk in self.disks)

    def replace_disk(self, index: int = 0) -> None:
        """Put an empty disk in the place of one; the process has to be stopped."""
        name = self._disk_names[index]
        remove_disk(name)
        self.disks[index] = add_disk(name)

    # Host

    def monotonic_ns(self) -> int:
        """Nanoseconds since the machine was made, by its own clock."""
        self._drift_ns = drift_ns = self._drift_ns + _CLOCK_READ_NS
        if self._clock_rate == 1.0:
            return self.world.now_ns + self._clock_offset_ns + drift_ns
        return self._clock_ns(self.world.now_ns) + drift_ns

    def monotonic_s(self) -> float:
        """The same in seconds."""
        self._drift_ns = drift_ns = self._drift_ns + _CLOCK_READ_NS
        if self._clock_rate == 1.0:
            return (self.world.now_ns + self._clock_offset_ns + drift_ns) / 1e9
        return (self._clock_ns(self.world.now_ns) + drift_ns) / 1e9

    def _clock_ns(self, world_ns: int) -> int:
        if self._clock_rate == 1.0:
            return world_ns + self._clock_offset_ns
        return self._clock_base_ns + int((world_ns - self._clock_since_ns) * self._clock_rate)

    def clock_ms(self) -> int:
        """What ``monotonic_ns`` shows, in milliseconds and without that a process reads it, which takes time."""
        return (self._clock_ns(self.world.now_ns) + self._drift_ns) // 1_000_000

    def wall_ms(self) -> int:
        """Its wall clock, which may be wrong; it goes on within an event as ``monotonic_ns`` does."""
        self._drift_ns = drift_ns = self._drift_ns + _CLOCK_READ_NS
        return EPOCH_MS + (self.world.now_ns + drift_ns) // 1_000_000 + self.wall_offset_ms

    def random_bits(self, count: int) -> int:
        """From the world's seed."""
        return self._rng.getrandbits(count)

    def listen(self, host: str, port: int, *, backlog: int, receive_buffer_bytes: int) -> ListeningSocket:
        """A socket of the simulated network."""
        del host, backlog, receive_buffer_bytes
        return self.world.network.listen(self, port)

    def executor(self, name: str, max_workers: int) -> SteppedExecutor:
        """Work that happens as events."""
        del name
        return SteppedExecutor(self, max_workers)

    def flush_pool(self, name: str) -> FlushPool:
        """Flushes that happen as events."""
        pool = FlushPool.stepped(name)
        self._pools.append(_Pool(pool))
        return pool

    def threads_at_most(self, count: int) -> int:
        """One: there is one order of everything."""
        del count
        return 1

    def worker(self, name: str, step: Step) -> SteppedWorker:
        """A thread whose steps happen as events."""
        del name
        worker = SteppedWorker(self, step)
        self.workers.append(worker)
        return worker

    def address_of(self, name: str) -> str:
        """The address of a machine by its name; an address is its own.

        Raises:
            OSError: There is no such machine.
        """
        return self.world.address_of(name)

    # Clock

    @property
    def clock_rate(self) -> float:
        """How fast its clocks go."""
        return self._clock_rate

    @clock_rate.setter
    def clock_rate(self, rate: float) -> None:
        self._clock_base_ns = self._clock_ns(self.world.now_ns)
        self._clock_since_ns = self.world.now_ns
        self._clock_offset_ns = self._clock_base_ns - self._clock_since_ns
        self._clock_rate = rate

    def at_monotonic_s(self, when_s: float, action: Callable[[], None]) -> Event:
        """An event at a moment of this machine's clock."""
        world = self.world
        # What this event has taken of the machine's time until now is over by then.
        ahead_ns = when_s * 1e9 - self._clock_ns(world.now_ns)
        return world.at(world.now_ns + int(ahead_ns / self._clock_rate) + 1, action)

    # Processor

    @property
    def is_paused(self) -> bool:
        """Whether its process is stopped and will go on."""
        return self._is_paused

    @property
    def is_running(self) -> bool:
        """Whether its process runs; it may be paused."""
        return not self.loop.has_ended

    def wake_up(self) -> None:
        """Its loop has something to run."""
        if self._turn is None and not self._is_paused and not self._is_entered:
            world = self.world
            # 1 to 20 microseconds; `randrange` takes thrice as long.
            soon_ns = world.now_ns + 1_000 + int(world.rng.random() * 19_000)
            free_ns = self._free_at_ns
            self._turn = world.at(max(soon_ns, free_ns), self._run_turn)

    def _run_turn(self) -> None:
        self._turn = None
        if not self._is_paused and not self.loop.has_ended:
            self._enter(self._iterate)

    def _iterate(self) -> None:
        """Run iterations of the loop, mostly as long as something is ready: nothing can come in between as quickly."""
        loop, chance = self.loop, self.world.rng.random
        while True:
            count = loop.turn()
            self.callback_count += count
            self._drift_ns += _CALLBACK_NS * count
            if loop.has_ended:
                return
            if loop.polled:
                loop.poll()
            if not loop.ready or chance() < _YIELD_SHARE:
                return

    def _work(self, work: Callable[[], object]) -> None:
        """Run something that is no iteration on the loop; mostly, the loop goes on with what came of it."""

        def run() -> None:
            work()
            if not self.loop.has_ended:
                if self.loop.polled:
                    self.loop.poll()
                if self.loop.ready and self.world.rng.random() >= _YIELD_SHARE:
                    self._iterate()

        self._enter(run)

    def _is_at_once(self) -> bool:
        """Whether the machine handles within this event what the event brings: mostly, if it is at rest."""
        return (
            self._turn is None
            and not self._is_paused
            and not self._is_entered
            and self._free_at_ns <= self.world.now_ns
            and self.world.rng.random() >= _YIELD_SHARE
        )

    def arrive(self, sock: SimulatedSocket, data: bytes) -> None:
        """Bytes of a connection are here."""
        if not self._is_at_once():
            sock.arrive(data)
            return
        if sock.take(data):
            self._enter(self._take_in, sock)

    def _take_in(self, sock: SimulatedSocket) -> None:
        loop = self.loop
        self._drift_ns += _CALLBACK_NS * loop.read(sock)
        if not loop.has_ended:
            if loop.polled:
                loop.poll()
            if loop.ready and self.world.rng.random() >= _YIELD_SHARE:
                self._iterate()

    def run_timer(self, loop: MachineLoop, timer: Any) -> None:
        """The time of a timer has come; one of a process that ended, whose successor has another loop, is dropped."""
        if loop is not self.loop or loop.has_ended or timer[1] is None:
            return
        if self._is_at_once():
            loop.ready.append(timer)
            self._enter(self._iterate)
        else:
            self.wake_up()
            loop.ready.append(timer)

    def _enter(self, work: Callable[..., object], *arguments: object) -> None:
        """Run something on the loop, and see what it set going in native code."""
        loop, world = self.loop, self.world
        now_ns = world.now_ns + self._clock_offset_ns if self._clock_rate == 1.0 else self._clock_ns(world.now_ns)
        drift_ns = self._drift_ns - now_ns + self._entered_ns
        self._drift_ns = drift_ns = max(drift_ns, 0)
        self._entered_ns = now_ns
        self._is_entered = True
        _set_running_loop(loop)
        try:
            work(*arguments)
        finally:
            _set_running_loop(None)
            self._is_entered = False
        self._free_at_ns = world.now_ns + self._drift_ns - drift_ns
        if self._last_change is not None and self.change_count >= self._last_change:
            # What was sent in this event is lost with the connections.
            self._stop_at_change()
            self.has_ended_within_event = True
            return
        for pool in self._pools:
            if pool.native.queued_count != pool.due_count:
                self._schedule_flushes(pool)
        if loop.ready:
            self.wake_up()
        for watch in world.watchers:
            watch(self)

    def _schedule_flushes(self, pool: _Pool) -> None:
        for _ in range(pool.native.queued_count - pool.due_count):
            pool.due_count += 1
            self.world.after_ms(self.world.rng.uniform(*self.flush_ms), self._bound(self._flush, pool))

    def _flush(self, pool: _Pool) -> None:
        pool.due_count -= 1
        if pool.native.queued_count:
            now_ms = self.wall_ms()
            for disk in self.disks:
                disk.set_now_ms(now_ms)
            index = self.world.rng.randrange(pool.native.queued_count)
            self._work(lambda: pool.native.run_next(index))

    def run_now(self, work: Callable[[], T]) -> T:
        """Run something outside of events that asks for its host: this machine; it takes no time."""
        _set_running_loop(self.loop)
        try:
            return work()
        finally:
            _set_running_loop(None)

    def after_work(self, action: Callable[[], None]) -> None:
        """Run ``action`` on this machine after the time that blocking work takes."""
        self.world.after_ms(self.world.rng.uniform(*self.work_ms), self._bound(self._work, action))

    def after_pause(self, pause_ms: float, action: Callable[[], None]) -> Event:
        """Run ``action`` on this machine after ``pause_ms``."""
        return self.world.after_ms(pause_ms, self._bound(self._work, action))

    def _bound(self, action: Callable[..., None], *arguments: Any) -> Callable[[], None]:
        """``action`` unless the process was stopped meanwhile; later if it is paused."""
        return partial(self._run_bound, self._incarnation, action, arguments)

    def _run_bound(self, incarnation: int, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if incarnation != self._incarnation:
            return
        if self._is_paused:
            self.world.after_ms(1, partial(self._run_bound, incarnation, action, arguments))
        else:
            action(*arguments)

    def socket_changed(self, sock: Any) -> None:
        """A socket of this machine has something to read, or room to write."""
        if not self.loop.has_ended:
            self.loop.socket_changed(sock)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """A task of the process that runs; forgotten when it is done."""
        self._graveyard.append(task)
        if len(self._graveyard) > 1024:
            self._graveyard = [
                relic for relic in self._graveyard if not (isinstance(relic, asyncio.Task) and relic.done())
            ]

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        """Tasks of the process that runs which are not done."""
        tasks = [relic for relic in self._graveyard if isinstance(relic, asyncio.Task)]
        return [task for task in tasks if task.get_loop() is self.loop and not task.done()]

    def pending_timers(self) -> list[asyncio.TimerHandle]:
        """Timers of the process that runs which are neither over nor cancelled."""
        actions = [action for action in self.world.pending_actions() if isinstance(action, partial)]
        return [action.args[1] for action in actions if action.args[:1] == (self.loop,)]

    def open_sockets(self) -> list[Any]:
        """Sockets of the process that runs, those on which it listens among them."""
        return [sock for sock in self.world.network.sockets.values() if sock.machine is self and sock.is_established]

    # Faults

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: connections stay, nothing is run."""
        if not self._is_paused:
            self._paused_since_ns = self.world.now_ns
        self._is_paused = True

    def resume(self) -> None:
        """Go on."""
        if self._is_paused:
            self.paused_ns += self.world.now_ns - self._paused_since_ns
        self._is_paused = False
        if self.loop.ready:
            self.wake_up()

    def stop_after_changes(self, changes: int | None, stop: Callable[[], None]) -> None:
        """Let the disks take so many further changes, then call ``stop``, which has to stop the machine.

        Nothing that is done later in the same event has an effect: the disks fail, and what is sent is lost.

        Args:
            changes: Writes, syncs and changes of names; None takes an earlier call back.
            stop: What is to happen.
        """
        first, *others = self.disks
        first.stop_after(changes, *others)
        self._last_change = None if changes is None else self.change_count + changes
        self._stop_at_change = stop

    def stop(self, *, data: Any = "nothing", names: Any = "nothing") -> None:
        """Kill the process, and with ``data`` or ``names`` the machine: lose what was not synced.

        Args:
            data: As ``MemoryDisk.crash``.
            names: Likewise.
        """
        self._incarnation += 1
        self._last_change = None
        self.has_ended_within_event = False
        self._is_paused = False
        dead = self.loop
        self._graveyard.append((dead, self.default_executor, self._pools))
        dead.close()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for sock in list(self.world.network.sockets.values()):
            if sock.machine is self:
                if hasattr(sock, "reset"):
                    sock.reset()
                sock.close()
        for disk in self.disks:
            disk.crash(data, names, seed=self.world.rng.getrandbits(64))
            disk.set_fault_seed(self.world.rng.getrandbits(64))
        self._pools = []
        self.workers = []

    def start(self) -> MachineLoop:
        """A loop for a new process, on the disk as it is."""
        if self.is_running:
            msg = f"{self.name} runs"
            raise RuntimeError(msg)
        self.loop = MachineLoop(self)  # type: ignore[abstract]
        self.default_executor = SteppedExecutor(self, 8)
        return self.loop

    def close(self) -> None:
        """The world ends."""
        if self.is_running:
            self.stop()
        relics, self._graveyard = self._graveyard, []
        for relic in relics:
            if isinstance(relic, asyncio.Task) and not relic.done():
                _end(relic)
        for name in self._disk_names:
            remove_disk(name)


def _end(task: asyncio.Task[Any]) -> None:
    """Run the ``finally`` clauses of a task whose loop is gone, here and not whenever it is collected."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was killed: there is nothing to warn of
    coroutine: Any = task.get_coro()
    for _ in range(_CLOSE_ATTEMPTS):
        try:
            coroutine.close()
        except RuntimeError:  # it waits for something else in a `finally` clause
            continue
        except BaseException:  # noqa: BLE001  of a process that is dead
            return
        return
