"""Operations that wait for the active controller, in the order in which they were submitted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kraftlog import host
from kraftlog.controller import ControllerCore, ControllerResult
from kraftlog.controller.steps import Steps
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError

__all__ = ["Operation", "OperationQueue", "SubmittedOperation"]

T = TypeVar("T")
Operation = Callable[[ControllerCore, int], ControllerResult[T] | Steps[ControllerResult[T]]]
Refuse = Callable[[KafkaError], object]


@dataclass(slots=True, eq=False)
class SubmittedOperation:
    """An operation that has not been begun.

    Args:
        run: Called with the core and the monotonic clock in milliseconds.
        future: Ends with the response or the error.
        submitted_ns: Monotonic time of its submission.
        refuse: Makes a response of an error; without it the future fails.
    """

    run: Operation[Any]
    future: asyncio.Future[Any]
    submitted_ns: int
    refuse: Refuse | None = None

    def fail(self, error: KraftlogError) -> None:
        """End with an error, or with the response that carries it.

        NOT_CONTROLLER always fails the future: a node that forwards requests then asks the next controller.
        """
        if self.future.done():
            return
        if self.refuse is not None and isinstance(error, KafkaError) and error.code != ErrorCode.NOT_CONTROLLER:
            self.future.set_result(self.refuse(error))
        else:
            self.future.set_exception(error)


class OperationQueue:
    """What was submitted, until a turn of the loop takes it.

    Args:
        loop: Where the futures end.
        turn: Called on the loop after something was submitted, once for all that was.
        on_timed_out: Called for each operation that waited too long to be begun.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, turn: Callable[[], None], on_timed_out: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._turn = turn
        self._on_timed_out = on_timed_out
        self._entries: deque[SubmittedOperation] = deque()
        self._is_turn_scheduled = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._entries)

    def submit(
        self, operation: Operation[T], *, timeout_s: float | None = None, refuse: Refuse | None = None
    ) -> asyncio.Future[T]:
        """Put an operation at the end.

        Args:
            operation: Run by a turn.
            timeout_s: The operation fails with REQUEST_TIMED_OUT if it is not begun for so long; None is no limit.
            refuse: As in ``SubmittedOperation``.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        entry = SubmittedOperation(operation, future, host.monotonic_ns(), refuse)
        self._entries.append(entry)
        if timeout_s is not None:
            timer = self._loop.call_later(timeout_s, self._time_out, entry)
            future.add_done_callback(lambda _: timer.cancel())
        self.schedule_turn()
        return future

    def schedule_turn(self) -> None:
        """Have the turn run once on the loop."""
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self._loop.call_soon(self._run_turn)

    def take(self) -> SubmittedOperation | None:
        """The first operation, no longer in the queue; None when the queue is empty."""
        return self._entries.popleft() if self._entries else None

    def take_all(self) -> list[SubmittedOperation]:
        """Everything that waits; the queue is empty afterwards."""
        taken = list(self._entries)
        self._entries.clear()
        return taken

    def _run_turn(self) -> None:
        self._is_turn_scheduled = False
        self._turn()

    def _time_out(self, entry: SubmittedOperation) -> None:
        if entry in self._entries:
            self._entries.remove(entry)
            self._on_timed_out()
            entry.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
