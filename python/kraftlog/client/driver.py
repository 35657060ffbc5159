"""Runs a consumer's core on an event loop: sends its requests, hands it the answers, wakes who waits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from kraftlog.client.connections import Connections
from kraftlog.client.state.cluster_metadata import Node
from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.client.state.fetch_answer import record_bytes
from kraftlog.client.state.request import ConsumerRequest, RequestKind
from kraftlog.errors import ErrorCode, KafkaError, ProtocolError
from kraftlog.metrics.consumer import ConsumerMetrics
from kraftlog.ordered_set import OrderedSet
from kraftlog.transport.timed_event import TimedEvent
from kraftlog.wire.struct import Message

__all__ = ["ConsumerDriver"]

_logger = logging.getLogger("kraftlog.client")

# Errors of a connection that another attempt does not mend.
_FATAL = frozenset(
    (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.NETWORK_EXCEPTION,  # TLS
    )
)


class ConsumerDriver:
    """See the module.

    Args:
        core: What decides.
        connections: What sends.
        metrics: Measures what is fetched.

    Attributes:
        is_ready: Set when there may be records or an error for the application.
        before_turn: Called before each turn; gives the milliseconds until it wants the next one, None for any.
    """

    def __init__(self, core: ConsumerCore, connections: Connections, metrics: ConsumerMetrics) -> None:
        self._core = core
        self._metrics = metrics
        self.connections = connections
        self.is_ready = asyncio.Event()
        self.before_turn: Callable[[int], int | None] | None = None
        self._wake = TimedEvent()
        self._tasks: OrderedSet[asyncio.Task[Any]] = OrderedSet()
        self._main: asyncio.Task[None] | None = None
        # Wall time that never goes back.
        self._offset_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        """Milliseconds since 1970 by a clock that does not jump."""
        return time.monotonic_ns() // 1_000_000 + self._offset_ms

    def start(self) -> None:
        """Begin; the loop has to run."""
        self._main = self.spawn(self._run())

    def wake(self) -> None:
        """Something changed: look for requests to send."""
        self._wake.set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a task that ends with the driver; its failure is raised to the application."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._core.context.raise_later(error)
            self.is_ready.set()

    async def close(self) -> None:
        """End all tasks and connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._log_warnings()
        self.connections.close()

    def _log_warnings(self) -> None:
        while self._core.warnings:
            _logger.warning(self._core.warnings.popleft())

    async def any_node(self) -> Node:
        """A node that can be asked for metadata."""
        return await self.connections.any_node(self._core.metadata.nodes)

    async def _run(self) -> None:
        core, loop = self._core, asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now_ms = self.now_ms()
            wanted_ms = None if self.before_turn is None else self.before_turn(now_ms)
            for request in core.next_requests(now_ms):
                self.spawn(self._send(request))
            self._log_warnings()
            if core.errors:
                self.is_ready.set()
            timeout_ms = core.next_timeout_ms(now_ms)
            if wanted_ms is not None:
                timeout_ms = min(timeout_ms, max(wanted_ms, 1))
            await self._wake.wait_until(loop.time() + timeout_ms / 1000)

    async def _send(self, request: ConsumerRequest) -> None:
        core = self._core
        try:
            answer, version = await self._answer(request)
        except (KafkaError, ProtocolError) as error:
            if isinstance(error, ProtocolError) or error.code in _FATAL:
                core.context.raise_later(error)
            core.handle_failure(request, error, self.now_ms())
        else:
            if request.kind is RequestKind.FETCH:
                self._metrics.on_fetched(record_bytes(answer))
            core.handle_answer(request, answer, version, self.now_ms())
        self.is_ready.set()
        self._wake.set()

    async def _answer(self, request: ConsumerRequest) -> tuple[Any, int]:
        if request.node_id is None:
            node = await self.any_node()
        else:
            found = self._core.metadata.nodes.get(request.node_id)
            if found is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {request.node_id} is not known")
            node = found
        if request.message is None:
            await self.connections.connect(node)
            return None, 0
        return await self.connections.ask(node, request.message, request.version_max)

    async def ask_until(self, work: Callable[[], Awaitable[bool]], what: str, timeout_s: float) -> None:
        """Repeat ``work`` until it is true.

        Raises:
            TimeoutError: It was not within the time; names ``what``.
            Exception: What waits to be raised.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not await work():
                    if self._core.errors:
                        raise self._core.errors.popleft()
                    self.is_ready.clear()
                    self.wake()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await self.is_ready.wait()
        except TimeoutError:
            raise TimeoutError(self.connections.described(f"{what}: not within {timeout_s} s")) from None

    async def ask(self, node_id: int, message: Message) -> Any:
        """One request to a known node, beside those of the core.

        Raises:
            KafkaError: The node is not known or cannot be reached.
        """
        node = self._core.metadata.nodes.get(node_id)
        if node is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is not known")
        return (await self.connections.ask(node, message))[0]
