"""Something asynchronous with a beginning and an end, on a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  it registers its own end, see _stop_running
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from kraftlog.errors import NodeClosedError

__all__ = ["OwnThread"]

T = TypeVar("T")


# What is stopped when the interpreter exits: each has a thread that nobody stopped.
_running: set[OwnThread] = set()


def _stop_running() -> None:
    for thread in list(_running):
        # A child that was forked has the list, but not the threads.
        if thread.process_id == os.getpid():
            thread.stop()


# Before the executors of concurrent.futures end, which `end` may need: threading ends what was registered last first.
# Callbacks of atexit come after them.
getattr(threading, "_register_atexit", atexit.register)(_stop_running)


class OwnThread:
    """A thread whose event loop runs ``begin``, then what it is asked, then ``end``; from any thread.

    Args:
        name: Of the thread.
        begin: Awaited first; what it raises, ``start`` raises.
        end: Awaited last, after ``stop``, and if nobody calls that, when the interpreter exits.
    """

    def __init__(self, name: str, begin: Callable[[], Awaitable[object]], end: Callable[[], Awaitable[object]]) -> None:
        self._name = name
        self._begin = begin
        self._end = end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop_lock = threading.Lock()
        self.process_id = 0

    def start(self) -> None:
        """Return when ``begin`` is done; when it fails, the thread is gone before its error is raised.

        Raises:
            RuntimeError: It runs already.
        """
        if self._thread is not None:
            msg = f"{self._name} runs already"
            raise RuntimeError(msg)
        started = threading.Event()
        failure: list[BaseException] = []

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop_requested = asyncio.Event()
            try:
                await self._begin()
            except BaseException as error:  # noqa: BLE001  handed to the thread that waits
                failure.append(error)
                started.set()
                return
            started.set()
            await self._stop_requested.wait()
            await self._end()

        def run() -> None:
            try:
                asyncio.run(serve())
            finally:
                _running.discard(self)

        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()
        started.wait()
        if failure:
            self._thread.join()
            self._thread = None
            raise failure[0]
        self.process_id = os.getpid()
        _running.add(self)

    def stop(self) -> None:
        """Return when ``end`` is done and the thread gone; a second call does nothing.

        Raises:
            RuntimeError: Called on that thread, which would wait for itself.
        """
        self._check_thread()
        with self._stop_lock:
            thread, loop = self._thread, self._loop
            if thread is None or loop is None:
                return
            self._thread = None
            _running.discard(self)
            with suppress(RuntimeError):  # the loop is closed: request_stop came before
                loop.call_soon_threadsafe(self._stop_requested.set)
            thread.join()

    def request_stop(self) -> None:
        """Begin what ``stop`` does and return at once; may be called on any thread, also that one."""
        loop = self._loop
        if self._thread is not None and loop is not None and self.process_id == os.getpid():
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(self._stop_requested.set)

    def call(self, call: Callable[[], Coroutine[Any, Any, T]], *, what: str, timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop and return what it does.

        Raises:
            NodeClosedError: Nothing is running; ``what`` names it.
            RuntimeError: Called on that thread, as from within a callback: it would wait for itself for ever.
            TimeoutError: It took longer than ``timeout_s``.
            KeyboardInterrupt: The wait was interrupted; the coroutine is cancelled, as nobody would take its result.
        """
        if self._thread is None or self._loop is None:
            msg = f"the {what} is not running; inside `async with` use the object the block gives"
            raise NodeClosedError(msg)
        self._check_thread()
        future = asyncio.run_coroutine_threadsafe(call(), self._loop)
        try:
            return future.result(timeout_s)
        except Exception:
            raise
        except BaseException:
            future.cancel()
            raise

    def _check_thread(self) -> None:
        if self._thread is not None and threading.current_thread() is self._thread:
            msg = f"this waits for the thread {self._name}, which it was called on: use another thread"
            raise RuntimeError(msg)
