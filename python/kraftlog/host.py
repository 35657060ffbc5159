"""What a shell takes from the machine it runs on: clocks, chance, threads, listening sockets.

The functions of this module ask the host of the running event loop. An ordinary loop runs on the process itself; a loop
of a simulation brings a host of its own, with virtual time and the simulated network, so that whole nodes run
unchanged on either. Outside a loop the process is asked, but on the threads of ``joined_executor``, whose host is their
starter's.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from asyncio import AbstractEventLoop, _get_running_loop
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias

from kraftlog._kraftlog import FlushPool

__all__ = [
    "Host",
    "ProcessHost",
    "Step",
    "Worker",
    "WorkerThread",
    "clock_of",
    "executor",
    "flush_pool",
    "joined_executor",
    "listen",
    "monotonic_ns",
    "monotonic_s",
    "random_bits",
    "threads_at_most",
    "wall_ms",
    "worker",
]


Step: TypeAlias = Callable[[], float | None]
"""Works for a while; returns the seconds until it is called again, or None to end."""


class Worker(Protocol):
    """Repeats a step, on a thread or as events of a simulation."""

    @property
    def is_alive(self) -> bool:
        """Whether the step is called again."""
        ...

    def wake(self) -> None:
        """End the present pause; during a step, leave out the next one."""
        ...

    def join(self) -> None:
        """Wait until the step has asked for the end, or has raised."""
        ...


class Host(Protocol):
    """A machine, real or simulated."""

    def monotonic_ns(self) -> int:
        """A clock that never goes back, also while a callback runs."""
        ...

    def monotonic_s(self) -> float:
        """The same clock in seconds."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def random_bits(self, count: int) -> int:
        """A number below ``2**count``."""
        ...

    def listen(self, host: str, port: int, *, backlog: int, receive_buffer_bytes: int) -> Any:
        """A non-blocking listening socket; port 0 takes a free one.

        Args:
            host: An address.
            port: Of TCP.
            backlog: Connections that may wait to be accepted.
            receive_buffer_bytes: Of each connection; 0 or less leaves it to the system.

        Raises:
            OSError: The address cannot be bound.
        """
        ...

    def executor(self, name: str, max_workers: int) -> Executor:
        """Threads for blocking work, which are begun when needed."""
        ...

    def flush_pool(self, name: str) -> FlushPool:
        """Threads that fsync the logs of one data directory."""
        ...

    def threads_at_most(self, count: int) -> int:
        """How many threads a call that starts and joins its own may have."""
        ...

    def worker(self, name: str, step: Step) -> Worker:
        """A thread that repeats a step."""
        ...


class WorkerThread:
    """A ``Worker`` on a daemon thread, which begins at once.

    Args:
        name: Of the thread.
        step: What it does. An exception ends the thread and is reported by ``threading.excepthook``.
    """

    def __init__(self, name: str, step: Step) -> None:
        self._step = step
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """As ``Worker.wake``."""
        self._wake.set()

    def join(self) -> None:
        """As ``Worker.join``."""
        self._thread.join()

    def _run(self) -> None:
        while True:
            # Before the step: what happens during it may be what the next one has to see.
            self._wake.clear()
            pause_s = self._step()
            if pause_s is None:
                return
            self._wake.wait(pause_s)


class ProcessHost:
    """The process and its operating system."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    monotonic_s = staticmethod(time.monotonic)
    random_bits = staticmethod(secrets.randbits)

    @staticmethod
    def wall_ms() -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def listen(host: str, port: int, *, backlog: int, receive_buffer_bytes: int) -> socket.socket:
        """A socket of the kernel."""
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if receive_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            sock.bind((host, port))
            sock.listen(backlog)
        except OSError:
            sock.close()
            raise
        return sock

    @staticmethod
    def executor(name: str, max_workers: int) -> Executor:
        """Threads called ``name`` for debuggers."""
        return ThreadPoolExecutor(max_workers=max_workers, thread_name_prefix=name)

    @staticmethod
    def flush_pool(name: str) -> FlushPool:
        """Threads called ``name`` for debuggers."""
        return FlushPool(name)

    @staticmethod
    def threads_at_most(count: int) -> int:
        """As many as asked for."""
        return count

    @staticmethod
    def worker(name: str, step: Step) -> WorkerThread:
        """A daemon thread of that name."""
        return WorkerThread(name, step)


_PROCESS = ProcessHost()
# Threads that were started by code with another host, and which that code waits for.
_THREAD = threading.local()


def _host() -> Host:
    loop = _get_running_loop()
    if loop is None:
        return getattr(_THREAD, "host", _PROCESS)
    return getattr(loop, "host", _PROCESS)


def _adopt(host: Host) -> None:
    _THREAD.host = host


def monotonic_ns() -> int:
    """A clock that never goes back, nanoseconds; also while a callback runs, unlike the time of some loops."""
    loop = _get_running_loop()  # ``_host`` written out: what is measured asks for the time more often than for all else
    return getattr(_THREAD if loop is None else loop, "host", _PROCESS).monotonic_ns()


def monotonic_s() -> float:
    """The same clock in seconds."""
    loop = _get_running_loop()
    return getattr(_THREAD if loop is None else loop, "host", _PROCESS).monotonic_s()


def wall_ms() -> int:
    """Wall clock, milliseconds since 1970."""
    return _host().wall_ms()


def wall_clock() -> Callable[[], int]:
    """``wall_ms`` for what belongs to the host of this code; it does not look for the host each time."""
    return _host().wall_ms


def clock_of(loop: AbstractEventLoop) -> Callable[[], float]:
    """``monotonic_s`` for the callbacks of one loop; it does not look for their host each time."""
    found: Host = getattr(loop, "host", _PROCESS)
    return found.monotonic_s


def random_bits(count: int) -> int:
    """An unpredictable number below ``2**count``."""
    return _host().random_bits(count)


def listen(host: str, port: int, *, backlog: int, receive_buffer_bytes: int) -> Any:
    """As ``Host.listen``."""
    return _host().listen(host, port, backlog=backlog, receive_buffer_bytes=receive_buffer_bytes)


def executor(name: str, max_workers: int = 1) -> Executor:
    """As ``Host.executor``."""
    return _host().executor(name, max_workers)


def joined_executor(name: str, max_workers: int) -> Executor:
    """Threads that a function starts and shuts down before it returns; they have the host of the caller.

    Args:
        name: For debuggers.
        max_workers: At most; a simulation has one.
    """
    host = _host()
    return ThreadPoolExecutor(
        max_workers=host.threads_at_most(max_workers), thread_name_prefix=name, initializer=_adopt, initargs=(host,)
    )


def flush_pool(name: str) -> FlushPool:
    """As ``Host.flush_pool``."""
    return _host().flush_pool(name)


def threads_at_most(count: int) -> int:
    """As ``Host.threads_at_most``."""
    return _host().threads_at_most(count)


def worker(name: str, step: Step) -> Worker:
    """As ``Host.worker``."""
    return _host().worker(name, step)
