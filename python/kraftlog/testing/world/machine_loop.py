"""The event loop of one simulated machine: asyncio over the world's clock."""

from __future__ import annotations

import asyncio
import contextvars
import io
import logging
import select
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol

from kraftlog.testing.world.network import FIRST_DESCRIPTOR, Network, SimulatedSocket, SocketOwner
from kraftlog.testing.world.stepped_executor import SteppedExecutor
from kraftlog.testing.world.stream import Stream

__all__ = ["MachineLoop"]

logger = logging.getLogger(__name__)

_copy_context = contextvars.copy_context

# A callback, its arguments, and the context in which it was added.
_ReaderCallback = tuple[Callable[..., object], tuple[Any, ...], contextvars.Context]


class Processor(SocketOwner, Protocol):
    """A machine, as its loop knows it."""

    name: str

    @property
    def default_executor(self) -> Executor:
        """Where blocking work without an executor of its own goes."""
        ...

    network: Network

    def monotonic_s(self) -> float:
        """Its clock."""
        ...

    def wake_up(self) -> None:
        """The loop has something to run."""

    def at_monotonic_s(self, when_s: float, action: Callable[[], None]) -> Any:
        """Let something happen at a moment of its clock."""
        ...

    def run_timer(self, loop: MachineLoop, timer: Any) -> None:
        """The time of a timer of that loop has come."""
        ...

    def keep(self, task: asyncio.Task[Any]) -> None:
        """A task was made."""

    def address_of(self, name: str) -> str:
        """The address of a machine."""
        ...


class _Handle(list[Any]):
    """As asyncio's, less what is for debugging: context, callback and arguments.

    Some thousands are made for a second of virtual time: making a list calls no Python.
    """

    __slots__ = ()

    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]

    def cancel(self) -> None:
        """As asyncio's."""
        self[1], self[2] = None, ()

    def cancelled(self) -> bool:
        """As asyncio's."""
        return self[1] is None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'cancelled' if self[1] is None else self[1]}>"


class _Timer(_Handle):
    """Likewise, and behind these the time and the event of the world."""

    __slots__ = ()

    def when(self) -> float:
        """As asyncio's."""
        return self[3]  # type: ignore[no-any-return]

    def cancel(self) -> None:
        """As asyncio's."""
        self[1], self[2], event, self[4] = None, (), self[4], None
        if event is not None:
            event.cancel()


class MachineLoop(asyncio.AbstractEventLoop):
    """Runs callbacks when the world says so; ``host`` is what ``kraftlog.host`` finds.

    Args:
        machine: It belongs to.

    Attributes:
        ready: What the next turn runs.
        polled: How many descriptors ``poll`` looks at.
        has_ended: Whether the machine stopped.
    """

    def __init__(self, machine: Processor) -> None:
        self.host: Any = machine
        self._machine = machine
        self.ready: deque[_Handle] = deque()
        # Without a call of Python in between.
        self.time = machine.monotonic_s  # type: ignore[method-assign]
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self._readers: dict[int, _ReaderCallback] = {}
        self._writers: dict[int, _ReaderCallback] = {}
        # Descriptors of the process: mailboxes that native code writes to.
        self._poll = select.poll()
        self.polled = 0
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._task_factory: Any = None
        self.has_ended = False
        self.failures: list[dict[str, Any]] = []

    # What the machine drives

    def turn(self) -> int:
        """Run what is ready now, as one iteration of a loop does; returns the number of callbacks."""
        ready = self.ready
        count = len(ready)
        for _ in range(count):
            handle = ready.popleft()
            callback = handle[1]
            if callback is None:
                continue
            try:
                handle[0].run(callback, *handle[2])
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001  as asyncio's
                context = {"message": "Exception in a callback", "exception": error, "handle": handle}
                self.call_exception_handler(context)
        return count

    def poll(self) -> None:
        """Make the readers of mailboxes ready that have something."""
        for descriptor, _ in self._poll.poll(0):
            callback, arguments, context = self._readers[descriptor]
            self.call_soon(callback, *arguments, context=context)

    def socket_changed(self, sock: Any) -> None:
        """Make the reader and the writer of a simulated socket ready, if there is something for them."""
        descriptor = sock.fileno()
        if descriptor in self._readers and sock.is_readable:
            self.call_soon(self._read_if_readable, sock)
        if self._writers and descriptor in self._writers and sock.is_writable:
            self.call_soon(self._write_if_writable, sock)

    def _read_if_readable(self, sock: Any) -> None:
        found = self._readers.get(sock.fileno())
        if found is not None and sock.is_readable:
            callback, arguments, context = found
            context.run(callback, *arguments)
            if sock.is_readable:
                self.socket_changed(sock)

    def _write_if_writable(self, sock: Any) -> None:
        found = self._writers.get(sock.fileno())
        if found is not None and sock.is_writable:
            callback, arguments, context = found
            context.run(callback, *arguments)

    def read(self, sock: Any) -> int:
        """Run the reader of a socket that has something, as a turn without anything else; returns how many it ran."""
        found = self._readers.get(sock.fileno())
        if found is None:
            return 0
        callback, arguments, context = found
        try:
            context.run(callback, *arguments)
            if sock.is_readable:
                self.socket_changed(sock)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  as asyncio's
            self.call_exception_handler({"message": "Exception in a callback", "exception": error})
        return 1

    # asyncio

    # Never; asked for each future, and called without a frame of Python.
    get_debug = bool

    def set_debug(self, enabled: bool) -> None:
        """Nothing."""

    def is_running(self) -> bool:
        """Until it is closed."""
        return not self.has_ended

    def is_closed(self) -> bool:
        """Whether the machine stopped."""
        return self.has_ended

    def close(self) -> None:
        """Run nothing any more."""
        self.has_ended = True
        self.ready.clear()
        self._readers.clear()
        self._writers.clear()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        """As asyncio's."""
        handle = _Handle((_copy_context() if context is None else context, callback, args))
        if not self.has_ended:
            ready = self.ready
            if not ready:
                self._machine.wake_up()
            ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Timer:
        """As asyncio's."""
        return self._call_at(self.time() + delay, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Timer:
        """As asyncio's."""
        return self._call_at(when, callback, args, context)

    def _call_at(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> _Timer:
        handle = _Timer((_copy_context() if context is None else context, callback, args, when, None))
        if not self.has_ended:
            machine = self._machine
            handle[4] = machine.at_monotonic_s(when, partial(machine.run_timer, self, handle))
        return handle

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """As asyncio's."""
        if self._task_factory is not None:
            return self._task_factory(self, coro, **options)  # type: ignore[no-any-return]
        task = asyncio.Task(coro, loop=self, **options)
        self._machine.keep(task)
        return task

    def set_task_factory(self, factory: Any) -> None:
        """As asyncio's."""
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        """As asyncio's."""
        return self._task_factory

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run blocking work as one event, a while later."""
        chosen = self._machine.default_executor if executor is None else executor
        if not isinstance(chosen, SteppedExecutor):
            return asyncio.wrap_future(chosen.submit(func, *args), loop=self)
        future: asyncio.Future[Any] = self.create_future()
        chosen.run(future, func, args)
        return future

    def set_default_executor(self, executor: Any) -> None:
        """Nothing: the machine has its own."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Nothing."""

    async def shutdown_asyncgens(self) -> None:
        """Nothing."""

    # Sockets

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., object], *args: Any
    ) -> None:
        """As asyncio's, for simulated sockets and for mailboxes of native code."""
        self._readers[fd] = (callback, args, _copy_context())
        if fd < FIRST_DESCRIPTOR:
            self._poll.register(fd, select.POLLIN)
            self.polled += 1
        else:
            self.socket_changed(self._machine.network.sockets[fd])

    def remove_reader(self, fd: Any) -> bool:
        """As asyncio's."""
        if self._readers.pop(fd, None) is None:
            return False
        if fd < FIRST_DESCRIPTOR:
            self._poll.unregister(fd)
            self.polled -= 1
        return True

    def add_writer(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., object], *args: Any
    ) -> None:
        """As asyncio's, for simulated sockets."""
        self._writers[fd] = (callback, args, _copy_context())
        self.socket_changed(self._machine.network.sockets[fd])

    def remove_writer(self, fd: Any) -> bool:
        """As asyncio's."""
        return self._writers.pop(fd, None) is not None

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: int | None = None, **options: Any
    ) -> tuple[Stream, Any]:
        """Connect over the simulated network; names of machines are their addresses."""
        if options.get("ssl") is not None:
            raise io.UnsupportedOperation("the simulated network has no TLS")
        address = self._machine.address_of(str(host))
        future: asyncio.Future[SimulatedSocket] = self.create_future()

        def connected(result: SimulatedSocket | OSError) -> None:
            if future.done() or self.has_ended:
                if isinstance(result, SimulatedSocket):
                    result.close()
            elif isinstance(result, OSError):
                future.set_exception(result)
            else:
                future.set_result(result)

        self._machine.network.connect(self._machine, (address, int(port or 0)), connected)
        try:
            sock = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().close()
            raise
        protocol = protocol_factory()
        return Stream(self, sock, protocol), protocol

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        """Addresses of machines."""
        address = self._machine.address_of(str(host))
        return [(2, 1, 6, "", (address, int(port)))]

    # Failures

    def set_exception_handler(self, handler: Any) -> None:
        """As asyncio's."""
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        """As asyncio's."""
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what went wrong, for the checkers, and log it."""
        self.failures.append(context)
        error = context.get("exception")
        logger.error("%s: %s", self._machine.name, context.get("message"), exc_info=error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """As asyncio's."""
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)
