"""What other threads tell an event loop: one native mailbox, drained once per wake-up."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from kraftlog._kraftlog import Inbox as NativeInbox

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

__all__ = ["Inbox", "PartitionOwner"]

logger = logging.getLogger(__name__)

# Key of the connection, number of the request or kind of the event, and what belongs to it.
SocketEvent = tuple[int, int, Any]


class PartitionOwner(Protocol):
    """Receives the events of one partition."""

    def moved(self) -> None:
        """The high watermark, the leadership or the log start moved, once or more often."""

    def unflushed(self) -> None:
        """The first record behind a flush was appended, and the topic has ``flush.ms``."""

    def log_failed(self, reason: str) -> None:
        """A write or an fsync of the log failed."""

    def flush_delayed(self, reason: str) -> None:
        """A flush could not open a file and is tried again."""


class Inbox:
    """The mailbox of one event loop. All methods are called on that loop.

    Args:
        loop: Where callbacks run.

    Attributes:
        native: What is given to the classes of ``_kraftlog``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = NativeInbox()
        self._loop = loop
        self._next_number = 0
        self._acks: dict[int, Callable[[int], None]] = {}
        self._flushes: dict[int, Callable[[int, BaseException | None], None]] = {}
        self._partitions: dict[int, PartitionOwner] = {}
        self._acknowledged: deque[tuple[int, int]] = deque()
        self._moved: deque[int] = deque()
        self._others: deque[tuple[Any, ...]] = deque()
        self._of_sockets: list[SocketEvent] = []
        self._sockets_handler: Callable[[Sequence[SocketEvent]], None] | None = None
        self._handlers: dict[str, Callable[..., None]] = {
            "unflushed": self._unflushed,
            "storage_failed": self._storage_failed,
            "flush_delayed": self._flush_delayed,
            "log_flushed": self._log_flushed,
        }
        loop.add_reader(self.native.fileno(), self.take)

    def close(self) -> None:
        """Deliver what waits, then listen no more."""
        self.take()
        self._loop.remove_reader(self.native.fileno())

    def next_number(self) -> int:
        """A number that no event has had yet."""
        self._next_number += 1
        return self._next_number

    def handle(self, name: str, handler: Callable[..., None]) -> None:
        """Call ``handler`` with the fields of each event called ``name``."""
        self._handlers[name] = handler

    def handle_sockets(self, handler: Callable[[Sequence[SocketEvent]], None]) -> None:
        """Call ``handler`` with the events of sockets, once for all of a wake-up and after all others."""
        self._sockets_handler = handler

    def add_partition(self, number: int, owner: PartitionOwner) -> None:
        """Tell ``owner`` of the events of a partition."""
        self._partitions[number] = owner

    def remove_partition(self, number: int) -> None:
        """Drop later events of a partition."""
        self._partitions.pop(number, None)

    def expect_ack(self, completed: Callable[[int], None]) -> int:
        """A token; ``completed(error_code)`` is called when it is acknowledged."""
        token = self.next_number()
        self._acks[token] = completed
        return token

    def forget_ack(self, token: int) -> None:
        """Nobody waits for this acknowledgement any more."""
        self._acks.pop(token, None)

    def expect_flush(self, completed: Callable[[int, BaseException | None], None]) -> int:
        """A token; ``completed(flushed_offset, error)`` is called when the flush it was given to is over."""
        token = self.next_number()
        self._flushes[token] = completed
        return token

    def take(self) -> None:
        """Deliver what waits."""
        acknowledged, moved, others, of_sockets = self.native.take()
        self._acknowledged += acknowledged
        self._moved += moved
        self._others += others
        self._of_sockets += of_sockets
        try:
            self._deliver()
        except BaseException:
            # One handler failed, and the loop reports it: the rest is not lost.
            self._loop.call_soon(self.take)
            raise

    def _deliver(self) -> None:
        acknowledged, moved, others = self._acknowledged, self._moved, self._others
        acks, partitions = self._acks, self._partitions
        while acknowledged:
            token, error_code = acknowledged.popleft()
            completed = acks.pop(token, None)
            if completed is not None:
                completed(error_code)
        while moved:
            owner = partitions.get(moved.popleft())
            if owner is not None:
                owner.moved()
        while others:
            name, *fields = others.popleft()
            self._handlers[name](*fields)
        if self._of_sockets and self._sockets_handler is not None:
            of_sockets, self._of_sockets = self._of_sockets, []
            self._sockets_handler(of_sockets)

    def _unflushed(self, number: int) -> None:
        if (owner := self._partitions.get(number)) is not None:
            owner.unflushed()

    def _storage_failed(self, number: int, reason: str) -> None:
        if (owner := self._partitions.get(number)) is not None:
            owner.log_failed(reason)

    def _flush_delayed(self, number: int, reason: str) -> None:
        if (owner := self._partitions.get(number)) is not None:
            owner.flush_delayed(reason)

    def _log_flushed(self, token: int, flushed_offset: int, error: BaseException | None) -> None:
        if (completed := self._flushes.pop(token, None)) is not None:
            completed(flushed_offset, error)
