"""The outcome of one request, for those that are too many for a future each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

__all__ = ["Reply", "TurnCalls"]


class TurnCalls:
    """Calls for the next turn of the loop, which share one callback of it.

    A loop keeps a handle and enters a context for each callback, which takes as long as most of these calls.
    """

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None]) -> None:
        """Call ``call`` in a later callback of the running loop, in the order of the calls of ``add``."""
        if not self._calls:
            asyncio.get_running_loop().call_soon(self._run)
        self._calls.append(call)

    def _run(self) -> None:
        calls, self._calls = self._calls, []
        position = 0
        try:
            for position, call in enumerate(calls, 1):  # noqa: B007  read in ``finally``
                call()
        finally:
            if position < len(calls):
                # One call failed, and the loop reports it: the others are not lost.
                if not self._calls:
                    asyncio.get_running_loop().call_soon(self._run)
                self._calls[:0] = calls[position:]


class Reply:
    """As much of a future as a connection needs: one listener, and nobody cancels it.

    Args:
        turn: Tells the listener, as the loop tells that of a future: never inside the call that ends the reply.
    """

    __slots__ = ("_error", "_is_done", "_listener", "_turn", "_value")

    def __init__(self, turn: TurnCalls) -> None:
        self._turn = turn
        self._is_done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._listener: Callable[[Any], None] | None = None

    def done(self) -> bool:
        """Whether it ended."""
        return self._is_done

    def cancelled(self) -> bool:
        """Never."""
        return False

    def cancel(self) -> bool:
        """Refuse: what a request changes is changed as a whole."""
        return False

    def result(self) -> Any:
        """The value; raises the error if there is one."""
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self) -> BaseException | None:
        """The error, if it ended with one."""
        return self._error

    def add_done_callback(self, listener: Callable[[Any], None]) -> None:
        """Call ``listener`` with this reply, in a turn after it ended; the only listener at a time."""
        self._listener = listener
        if self._is_done:
            self._turn.add(self._tell)

    def set_result(self, value: Any) -> None:
        """End with a value."""
        self._value = value
        self._is_done = True
        if self._listener is not None:
            self._turn.add(self._tell)

    def set_exception(self, error: BaseException) -> None:
        """End with an error."""
        self._error = error
        self.set_result(None)

    def _tell(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener(self)
