"""Requests of this broker to other brokers: one connection each, opened when there is something to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.transport.peer_security import SecurityOf
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.wire.struct import Message

if TYPE_CHECKING:
    from kraftlog.controller import MetadataImage

__all__ = ["BrokerLinks"]


class BrokerLinks:
    """The way to the other brokers.

    Args:
        node_id: Of this broker.
        listener_name: The listener that brokers use among each other.
        image: Gives the committed metadata, which has their addresses.
        timeout_s: How long a connection and an answer may take.
        security: What connections to a listener of that name need; gives None where it is PLAINTEXT.
    """

    def __init__(
        self,
        node_id: int,
        listener_name: str,
        image: Callable[[], MetadataImage],
        *,
        timeout_s: float,
        security: SecurityOf = lambda _: None,
    ) -> None:
        self._node_id = node_id
        self._listener_name = listener_name
        self._image = image
        self._timeout_s = timeout_s
        self._security = security
        self._connections: dict[tuple[str, int], RpcConnection] = {}
        self._opening: dict[tuple[str, int], asyncio.Task[RpcConnection]] = {}
        self._is_closed = False

    async def request(self, broker_id: int, message: Message) -> Any:
        """Ask a broker.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE, it is not alive or cannot be reached; NETWORK_EXCEPTION, it did not
                answer; UNSUPPORTED_VERSION, it does not serve the request.
        """
        broker = self._image().cluster.brokers.get(broker_id)
        end_points = () if broker is None or broker.fenced else broker.end_points
        found = [(end.host, end.port) for end in end_points if end.name == self._listener_name]
        if not found or self._is_closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not available")
        connection = await self._connect(found[0])
        try:
            return await connection.request(message, timeout_s=self._timeout_s)
        except TimeoutError:
            connection.close()
            text = f"broker {broker_id} did not answer within {self._timeout_s:g} s"
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, text) from None

    async def _connect(self, address: tuple[str, int]) -> RpcConnection:
        connection = self._connections.get(address)
        if connection is not None and not connection.is_closed:
            return connection
        opening = self._opening.get(address)
        if opening is None:
            loop = asyncio.get_running_loop()
            opening = loop.create_task(self._open(loop, address))
            self._opening[address] = opening
            opening.add_done_callback(lambda _: self._opening.pop(address, None))
        return await asyncio.shield(opening)

    async def _open(self, loop: asyncio.AbstractEventLoop, address: tuple[str, int]) -> RpcConnection:
        connection = await RpcConnection.open(
            loop,
            *address,
            client_id=f"broker-{self._node_id}",
            timeout_s=self._timeout_s,
            security=self._security(self._listener_name),
        )
        if self._is_closed:
            connection.close()
        self._connections[address] = connection
        return connection

    def close(self) -> None:
        """Close every connection; what waits for an answer is told."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
