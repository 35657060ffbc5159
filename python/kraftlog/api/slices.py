"""Handlers of requests with many entries: they give up the event loop from time to time.

A handler with ``@sliced`` is a generator. It yields where others may be served, and returns the response. A request
that is answered before the first of these places gets a plain response; what is left of a larger one is run by
``SlicedRequest`` in slices that the scheduler grants.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from kraftlog._kraftlog import Discard
from kraftlog.transport.scheduler import Weight

if TYPE_CHECKING:
    from kraftlog.transport.scheduler import Scheduler

__all__ = [
    "ENTRIES_PER_SLICE",
    "LARGE_ENTRIES",
    "LOOKUPS_PER_SLICE",
    "PARTITIONS_PER_APPEND",
    "Pauses",
    "SlicedRequest",
    "Slices",
    "at_once",
    "counted_in_slices",
    "discard",
    "in_slices",
    "in_turns",
    "sliced",
    "taking_turns",
    "unique_in_slices",
]

P = ParamSpec("P")
T = TypeVar("T")

Slices = Generator[asyncio.Future[Any] | None, None, T]
"""Work that yields where others may be served, or a future that it waits for, and returns its result."""

# Entries between two places where others may be served: some hundred microseconds of work.
ENTRIES_PER_SLICE: Final = 64

# The same for entries that are only compared or looked up.
LOOKUPS_PER_SLICE: Final = 1024

# Objects that are freed between two looks at the clock.
_OBJECTS_PER_STEP: Final = 256

# Partitions whose offsets a coordinator stores in one event and one append; more follow in further ones.
PARTITIONS_PER_APPEND: Final = 512

# Handlers of the hot path are generators only for requests with more entries than this.
LARGE_ENTRIES: Final = 256


class Pauses:
    """Counts entries over nested loops.

    Args:
        every: How many entries may be handled between two places where others are served.

    Attributes:
        total: Entries so far.
    """

    __slots__ = ("_every", "_next", "total")

    def __init__(self, every: int = ENTRIES_PER_SLICE) -> None:
        self.total = 0
        self._every = self._next = every

    def is_due(self) -> bool:
        """Count an entry; whether others may be served now."""
        self.total += 1
        if self.total < self._next:
            return False
        self._next += self._every
        return True


def at_once(slices: Slices[T]) -> T:
    """The result of work that waits for nothing, without giving up the loop."""
    while True:
        try:
            next(slices)
        except StopIteration as stop:
            result: T = stop.value
            return result


def in_slices(items: Iterable[T], every: int = ENTRIES_PER_SLICE) -> Slices[list[T]]:
    """``list(items)``, with a place where others may be served after each ``every`` items."""
    results: list[T] = []
    rest = iter(items)
    while True:
        before = len(results)
        results.extend(islice(rest, every))
        if len(results) - before < every:
            return results
        yield None


def unique_in_slices(items: Iterable[T], every: int = LOOKUPS_PER_SLICE) -> Slices[dict[T, None]]:
    """``dict.fromkeys(items)``, with a place where others may be served after each ``every`` items."""
    results: dict[T, None] = {}
    rest = iter(items)
    while True:
        some = list(islice(rest, every))
        results.update(dict.fromkeys(some))
        if len(some) < every:
            return results
        yield None


def counted_in_slices(items: Iterable[T], every: int = LOOKUPS_PER_SLICE) -> Slices[Counter[T]]:
    """``Counter(items)``, with a place where others may be served after each ``every`` items."""
    counts: Counter[T] = Counter()
    rest = iter(items)
    while True:
        some = list(islice(rest, every))
        counts.update(some)
        if len(some) < every:
            return counts
        yield None


async def in_turns(items: Iterable[T], every: int = ENTRIES_PER_SLICE) -> list[T]:
    """As ``in_slices``, in a coroutine: the loop turns after each ``every`` items."""
    return await taking_turns(in_slices(items, every))


async def taking_turns(slices: Slices[T]) -> T:
    """The result of slices, in a coroutine: the loop turns where others may be served."""
    while True:
        try:
            awaited = next(slices)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if awaited is None:
            await asyncio.sleep(0)
        elif not awaited.done():
            await asyncio.wait([awaited])


def sliced(handle: Callable[P, Slices[T]]) -> Callable[P, T | Slices[T]]:
    """A handler that returns the response, or the rest of the generator if the request has many entries."""

    @wraps(handle)
    def begin(*args: P.args, **kwargs: P.kwargs) -> T | Slices[T]:
        slices = handle(*args, **kwargs)
        try:
            next(slices)
        except StopIteration as stop:
            result: T = stop.value
            return result
        return slices

    return begin


class SlicedRequest:
    """A request that is handled in slices; see ``Served``.

    Attributes:
        future: Ends with what the handler returns, or with the result of the future that it returns.
        is_kept: Whether the work is completed if the future is cancelled, since it changes something; else it ends.
        on_decoded: See ``Undecoded``.
    """

    __slots__ = ("_awaited", "_scheduler", "_slices", "future", "is_kept", "on_decoded")

    def __init__(self, loop: asyncio.AbstractEventLoop, scheduler: Scheduler, slices: Slices[Any]) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()
        self._scheduler = scheduler
        self._slices = slices
        self._awaited: asyncio.Future[Any] | None = None
        self.is_kept = False
        self.on_decoded: Callable[[], None] | None = None
        self.future.add_done_callback(self._ended)
        scheduler.count_large(1)
        scheduler.add(self, Weight.HEAVY)

    def serve(self, slice_end_s: float) -> Weight | None:
        """Handle further entries."""
        weight = self._serve(slice_end_s)
        if weight is None and self._awaited is None:
            self._scheduler.count_large(-1)
        return weight

    def _serve(self, slice_end_s: float) -> Weight | None:
        clock = self._scheduler.clock
        if self.future.done() and not self.is_kept:
            self._slices.close()
            return None
        try:
            awaited = next(self._slices)
            while awaited is None and clock() < slice_end_s:
                awaited = next(self._slices)
        except StopIteration as stop:
            self._finish(stop.value)
            return None
        except Exception as error:  # noqa: BLE001  the dispatcher answers with it, as with that of a plain handler
            if not self.future.done():
                self.future.set_exception(error)
            return None
        if awaited is None:
            return Weight.HEAVY
        self._awaited = awaited
        awaited.add_done_callback(self._go_on)
        return None

    def _go_on(self, _: asyncio.Future[Any]) -> None:
        self._awaited = None
        self._scheduler.add(self, Weight.HEAVY)

    def _ended(self, _: asyncio.Future[Any]) -> None:
        """Also when it is cancelled: the client is gone."""
        if self._awaited is not None and not self.is_kept:
            self._awaited.cancel()

    def _finish(self, response: Any) -> None:
        if self.future.done():
            return
        if isinstance(response, asyncio.Future):
            response.add_done_callback(self._copy)
        else:
            self.future.set_result(response)

    def _copy(self, source: asyncio.Future[Any]) -> None:
        if self.future.done():
            return
        if source.cancelled():
            self.future.cancel()
        elif (error := source.exception()) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(source.result())


def discard(scheduler: Scheduler, objects: list[Any]) -> None:
    """Free messages with many entries in slices, as far as nobody else refers to them.

    Args:
        scheduler: Grants the slices.
        objects: Empty afterwards. The caller drops its own references.
    """
    scheduler.add(_Discarded(scheduler, objects), Weight.HEAVY)


class _Discarded:
    """Objects that are freed in slices; see ``Served``."""

    __slots__ = ("_discard", "_scheduler")

    def __init__(self, scheduler: Scheduler, objects: list[Any]) -> None:
        self._scheduler = scheduler
        self._discard = Discard(objects)
        scheduler.count_large(1)

    def serve(self, slice_end_s: float) -> Weight | None:
        """Free further objects."""
        while not self._discard.step(_OBJECTS_PER_STEP):
            if self._scheduler.clock() >= slice_end_s:
                return Weight.HEAVY
        self._scheduler.count_large(-1)
        return None
