"""Virtual time and the machines that live in it."""

from __future__ import annotations

import gc
import heapq
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from kraftlog.testing.world.foreign_code import VirtualTime
from kraftlog.testing.world.network import Network

if TYPE_CHECKING:
    import asyncio

__all__ = ["EPOCH_MS", "Event", "StuckError", "World"]

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
"""When a world begins, milliseconds since 1970."""
# Finalizers run at the same events in every run: the collector is not left to its own thresholds.
_EVENTS_PER_COLLECTION = 20_000
# So many collections go over what is new, and one over everything.
_COLLECTIONS_PER_FULL = 16


class StuckError(Exception):
    """Nothing will ever happen again, and what was waited for has not happened."""


class Inhabitant(Protocol):
    """A machine, as the world knows it."""

    name: str
    address: str
    loop: Any

    def close(self) -> None:
        """The world ends."""


class Event(list[Callable[[], None] | None]):
    """Something that happens at a moment of the world, unless it is cancelled before.

    Holds one action; None once it has happened or was cancelled, so that a timer and its event, which know each other,
    are free then. Thousands are made for a second of virtual time: making a list calls no Python.
    """

    __slots__ = ()

    def cancel(self) -> None:
        """Let it not happen."""
        self[0] = None


class World:
    """Machines, the network between them, and one clock that stands still while anything computes.

    Everything follows from the seed: which machine runs next, how long a message, a flush or a turn of a loop takes.

    Args:
        seed: Of all chance in this world.

    Attributes:
        now_ns: Nanoseconds since the world began.
        rng: Source of chance; whatever draws from it changes what comes after.
        network: Connects the machines.
        machines: By name, those that run and those that were stopped.
        event_count: Events so far.
        watchers: Called with a machine after each turn of its loop; what one raises ends the run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_ns = 0
        self.rng = random.Random(seed)
        self.network = Network(self)
        self.machines: dict[str, Inhabitant] = {}
        self.event_count = 0
        self.watchers: list[Callable[[Any], None]] = []
        self._events: list[tuple[int, int, Event]] = []
        self._next_number = 0
        self._virtual_time = VirtualTime(seed)
        self._virtual_time.begin()
        self._collects = gc.isenabled()
        gc.disable()
        # What was there before this world, modules above all, is not gone over by its collections.
        gc.freeze()

    @property
    def now_ms(self) -> float:
        """Milliseconds since the world began."""
        return self.now_ns / 1e6

    def wall_ms(self) -> int:
        """What a right wall clock shows, milliseconds since 1970."""
        return EPOCH_MS + self.now_ns // 1_000_000

    def at(self, at_ns: int, action: Callable[[], None]) -> Event:
        """Let something happen at ``at_ns``, or now if that is past."""
        self._next_number = number = self._next_number + 1
        at_ns = max(at_ns, self.now_ns)
        event = Event((action,))
        # A tuple of numbers first: comparing them runs no Python, hence no collection, which could push too.
        heapq.heappush(self._events, (at_ns, number, event))
        return event

    def pending_actions(self) -> list[Callable[[], None]]:
        """What is to happen, in no order."""
        return [event[0] for _, _, event in self._events if event[0] is not None]

    def after_ms(self, delay_ms: float, action: Callable[[], None]) -> Event:
        """Let something happen in ``delay_ms``."""
        return self.at(self.now_ns + int(delay_ms * 1e6), action)

    def address_of(self, name: str) -> str:
        """The address of a machine by its name; an address is its own.

        Raises:
            OSError: There is no such machine.
        """
        if name in self.machines:
            return self.machines[name].address
        if any(machine.address == name for machine in self.machines.values()):
            return name
        raise OSError(-2, f"{name}: name or service not known")

    def start(self, machine: Inhabitant, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task on a machine."""
        return machine.loop.create_task(coroutine)  # type: ignore[no-any-return]

    def run(self, machine: Inhabitant, coroutine: Coroutine[Any, Any, T], *, within_ms: float = 60_000) -> T:
        """Run a task on a machine to its end while the world goes on; returns or raises what it does.

        Raises:
            TimeoutError: It is not done after ``within_ms`` of virtual time.
        """
        task = self.start(machine, coroutine)
        self.run_until(task.done, within_ms=within_ms)
        return task.result()

    def close(self) -> None:
        """End every machine and give back what the world holds of the process."""
        self._events.clear()
        for machine in self.machines.values():
            machine.close()
        self._virtual_time.end()
        gc.unfreeze()
        # The next world would freeze what this one leaves, and no collection within it would go over that.
        gc.collect()
        if self._collects:
            gc.enable()

    def __enter__(self) -> Self:
        """The world itself; ``close`` follows."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def step(self) -> bool:
        """Let the next event happen; False when there is none."""
        events = self._events
        while events:
            at_ns, _, event = heapq.heappop(events)
            action = event[0]
            if action is None:
                continue
            event[0] = None
            self.now_ns = at_ns
            self.event_count += 1
            if self.event_count % _EVENTS_PER_COLLECTION == 0:
                is_full = self.event_count % (_EVENTS_PER_COLLECTION * _COLLECTIONS_PER_FULL) == 0
                gc.collect(2 if is_full else 1)
            action()
            return True
        return False

    def run_for(self, duration_ms: float) -> None:
        """Let time pass."""
        end_ns = self.now_ns + int(duration_ms * 1e6)
        events, step = self._events, self.step
        while events and events[0][0] <= end_ns:
            step()
        self.now_ns = end_ns

    def run_until(self, condition: Callable[[], bool], *, within_ms: float) -> None:
        """Let time pass until ``condition()`` holds; it is asked after each event.

        Raises:
            TimeoutError: It does not hold after ``within_ms`` of virtual time.
            StuckError: No event is left.
        """
        end_ns = self.now_ns + int(within_ms * 1e6)
        while not condition():
            if self._events and self._events[0][0] > end_ns:
                msg = f"not within {within_ms:g} ms of virtual time (seed {self.seed}, at {self.now_ms:.3f} ms)"
                raise TimeoutError(msg)
            if not self.step():
                msg = f"nothing will happen any more (seed {self.seed}, at {self.now_ms:.3f} ms)"
                raise StuckError(msg)
