"""The coordinator of a group or of a transactional id: found, asked, and found again after it has moved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kraftlog.client.connections import Connections
from kraftlog.client.state.cluster_metadata import Node
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.struct import Message

__all__ = ["GROUP", "TRANSACTION", "Coordinator"]

# Kinds of keys that a coordinator is looked up by (FindCoordinatorRequest).
GROUP = 0
TRANSACTION = 1
FIRST_VERSION_WITH_KEYS = 4
FIND_COORDINATOR_KEY = 10

_MOVED = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))
T = TypeVar("T")


class Coordinator:
    """Finds the coordinator of a key and asks it.

    Args:
        key: The group or the transactional id.
        kind: GROUP or TRANSACTION.
        connections: To the cluster.
        any_node: Gives a node to ask for the coordinator.
        retry_backoff_s: Seconds between attempts.
    """

    def __init__(
        self,
        key: str,
        kind: int,
        connections: Connections,
        any_node: Callable[[], Awaitable[Node]],
        *,
        retry_backoff_s: float,
    ) -> None:
        self._key = key
        self._kind = kind
        self._connections = connections
        self._any_node = any_node
        self._retry_backoff_s = retry_backoff_s
        self._coordinator: Node | None = None

    async def coordinator(self) -> Node:
        """The coordinator's node, looked up when it is not known.

        Raises:
            KafkaError: It cannot be found now.
        """
        if self._coordinator is None:
            with self._named():
                self._coordinator = await self._found()
        return self._coordinator

    async def _found(self) -> Node:
        node = await self._any_node()
        connection = await self._connections.connect(node)
        version = connection.common_version(FIND_COORDINATOR_KEY) or 0
        request = (
            FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[self._key])
            if version >= FIRST_VERSION_WITH_KEYS
            else FindCoordinatorRequest(key_type=self._kind, key=self._key)
        )
        answer: Any = (await self._connections.ask(node, request))[0]
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            raise KafkaError(found.error_code, found.error_message or ErrorCode.name_of(found.error_code))
        # A connection of its own: an answer that is waited for must not delay heartbeats (as in Kafka's client).
        return Node(2**31 - 1 - found.node_id, found.host, found.port)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Say whose coordinator an error is about."""
        try:
            yield
        except KafkaError as error:
            kind = "transactional id" if self._kind == TRANSACTION else "group"
            raise KafkaError(error.code, f"coordinator of {kind} {self._key}: {error.message}") from error

    async def version(self, api_key: int) -> int | None:
        """The highest common version of an API with the coordinator's node.

        Raises:
            KafkaError: It cannot be found or reached now.
        """
        connection = await self._connections.connect(await self.coordinator())
        return connection.common_version(api_key)

    def forget_coordinator(self) -> None:
        """Look the coordinator up again before the next request."""
        self._coordinator = None

    async def ask(self, message: Message, version_max: int | None = None, timeout_s: float | None = None) -> Any:
        """Ask the coordinator once.

        Raises:
            KafkaError: It cannot be reached; it is looked up again next time.
        """
        node = await self.coordinator()
        try:
            with self._named():
                answer: Any = (await self._connections.ask(node, message, version_max, timeout_s))[0]
        except KafkaError:
            self.forget_coordinator()
            raise
        if getattr(answer, "error_code", 0) in _MOVED:
            self.forget_coordinator()
        return answer

    async def retried(
        self,
        work: Callable[[], Awaitable[T]],
        timeout_s: float,
        final: Collection[int] = (),
        passing: Collection[int] = (),
    ) -> T:
        """What ``work`` gives, tried again after errors that may pass until the time is over.

        Args:
            work: Asks the coordinator once.
            timeout_s: Seconds.
            final: Codes of errors that do not pass for this work, though they do for others.
            passing: Codes of errors that do pass for this work, though they do not for others.

        Raises:
            KafkaError: The last error.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                return await work()
            except KafkaError as error:
                may_pass = error.retriable or error.code == ErrorCode.BROKER_NOT_AVAILABLE or error.code in passing
                if error.code in _MOVED:
                    self.forget_coordinator()
                if not may_pass or error.code in final or loop.time() + self._retry_backoff_s > deadline:
                    raise
            await asyncio.sleep(self._retry_backoff_s)
