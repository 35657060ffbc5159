"""The connection of a fetcher to the broker that it follows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraftlog.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftlog.transport.rpc_client import RpcConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraftlog.transport.peer_security import PeerSecurity
    from kraftlog.wire.struct import Message

__all__ = ["BrokerAddress", "LeaderLink"]


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker listens for the others."""

    broker_id: int
    host: str
    port: int


class LeaderLink:
    """One connection, opened when there is something to ask and again after it was lost.

    Args:
        address: The leader's.
        client_id: As requests have it.
        timeout_s: replica.socket.timeout.ms, for a connection and for each answer.
        security: Makes what the connection needs; gives None where it is PLAINTEXT.
    """

    def __init__(
        self, address: BrokerAddress, client_id: str, timeout_s: float, security: Callable[[], PeerSecurity | None]
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._security = security
        self._connection: RpcConnection | None = None

    async def request(self, message: Message, *, highest: int, lowest: int = 0, wait_s: float = 0.0) -> Any:
        """Ask in the highest version that both sides have, at most ``highest``.

        Args:
            message: The request.
            highest: The metadata version allows no higher one.
            lowest: No lower version says what is meant.
            wait_s: How long the leader may hold the answer back.

        Raises:
            KafkaError: The leader cannot be reached, does not answer, or has no such version.
        """
        connection = await self._connect()
        api_key: int = message.API_KEY
        common = connection.common_version(api_key, lowest=lowest)
        if common is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{self.address} has no version of API {api_key}")
        try:
            return await connection.ask(message, min(common, highest), timeout_s=self._timeout_s + wait_s)
        except RemoteProtocolError as error:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from error
        except TimeoutError:
            self.close()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no answer within {self._timeout_s:g} s") from None

    @property
    def is_ended(self) -> bool:
        """Whether the connection was open and is not any more, also if nobody has noticed yet."""
        return self._connection is not None and self._connection.is_ended

    async def _connect(self) -> RpcConnection:
        connection = self._connection
        if connection is None or connection.is_closed:
            connection = self._connection = await RpcConnection.open(
                asyncio.get_running_loop(),
                self.address.host,
                self.address.port,
                client_id=self._client_id,
                timeout_s=self._timeout_s,
                security=self._security(),
            )
        return connection

    def close(self) -> None:
        """Close; a request that waits fails."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
