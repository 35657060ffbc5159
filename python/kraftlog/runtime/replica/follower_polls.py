"""Fetches of followers that wait here, and followers that have more to fetch than the fetch that waits names.

A fetch names the partitions that its follower knew of when it was sent, and may wait for replica.fetch.wait.max.ms.
When this broker begins to lead a partition, each follower's next fetch has to come soon: until then the partition
acknowledges nothing with acks=all. So the fetches that wait are answered at once, and those that still do not name the
partition, as their follower has not heard of the new leader yet, wait for some milliseconds only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraftlog import host
from kraftlog.ordered_set import OrderedSet

if TYPE_CHECKING:
    from kraftlog.types import Uuid

__all__ = ["FollowerPolls", "WaitingFetch"]

# A follower that fetches nothing of a partition for longer is dead, or throttled.
_AWAITED_FOR_S: Final = 2.0
_FIRST_WAIT_MS: Final = 5


class WaitingFetch(Hashable, Protocol):
    """A fetch that waits; ``future`` ends with its answer."""

    future: asyncio.Future[Any]

    def end(self) -> None:
        """Answer it now."""


@dataclass(slots=True)
class _Awaited:
    """What one follower has to fetch.

    Attributes:
        until_s: When nothing is awaited any more.
        wait_ms: How long its next fetch may wait; twice as long each time, as a fetch of many partitions has its price.
        partitions: Topic id and index.
    """

    until_s: float
    wait_ms: int = _FIRST_WAIT_MS
    partitions: set[tuple[Uuid, int]] = field(default_factory=set)


class FollowerPolls:
    """The fetches of followers that wait on this broker's event loop. All methods are called there.

    Args:
        now_s: Monotonic clock.
    """

    def __init__(self, now_s: Callable[[], float] = host.monotonic_s) -> None:
        self._now_s = now_s
        self._awaited: dict[int, _Awaited] = {}
        self._waiting: dict[int, OrderedSet[WaitingFetch]] = {}

    def leads(self, topic_id: Uuid, index: int, follower_ids: Iterable[int]) -> None:
        """This broker begins to lead a partition that these brokers follow."""
        until_s = self._now_s() + _AWAITED_FOR_S
        for broker_id in follower_ids:
            awaited = self._awaited.get(broker_id)
            if awaited is None or awaited.until_s < self._now_s():
                awaited = self._awaited[broker_id] = _Awaited(until_s)
            awaited.until_s = until_s
            awaited.partitions.add((topic_id, index))
            for wait in self._waiting.pop(broker_id, OrderedSet()):
                wait.end()

    def arrived(self, broker_id: int, keys: Iterable[tuple[Uuid, int]]) -> None:
        """A fetch of a follower names these partitions anew."""
        awaited = self._awaited.get(broker_id)
        if awaited is not None:
            awaited.partitions.difference_update(keys)
            if not awaited.partitions:
                del self._awaited[broker_id]

    def wait_ms(self, broker_id: int, max_wait_ms: int) -> int:
        """How long the next fetch of a follower may wait."""
        awaited = self._awaited.get(broker_id)
        if awaited is None:
            return max_wait_ms
        if awaited.until_s < self._now_s():
            del self._awaited[broker_id]
            return max_wait_ms
        wait_ms = min(awaited.wait_ms, max_wait_ms)
        awaited.wait_ms *= 2
        return wait_ms

    def hold(self, broker_id: int, wait: WaitingFetch) -> None:
        """A fetch of a follower waits now."""
        waiting = self._waiting.setdefault(broker_id, OrderedSet())
        waiting.add(wait)

        def forget(_: object) -> None:
            waiting.discard(wait)
            if not waiting and self._waiting.get(broker_id) is waiting:
                del self._waiting[broker_id]

        wait.future.add_done_callback(forget)
