"""The way to the active controller, in this process or another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.voter_set import Endpoint, find_endpoint
from kraftlog.runtime.metadata.settings import ChannelSettings
from kraftlog.transport.peer_security import SecurityOf
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.wire.messages.envelope import EnvelopeRequest
from kraftlog.wire.struct import Message

__all__ = ["ControllerChannel", "LeaderInfo", "LocalController"]

InVersion = Callable[[int], Message]
_RETRY_S = 0.1
_NOT_NOW = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION})


class LocalController(Protocol):
    """The controller in this process."""

    def submit_request(self, request: Message, *, timeout_s: float | None = None) -> asyncio.Future[Any]:
        """Run what ``request`` asks for."""
        ...


class LeaderInfo(Protocol):
    """What this node knows of the leader."""

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""
        ...

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the active controller listens, as far as known."""
        ...


class ControllerChannel:
    """Asks the active controller, in this process or another one.

    Args:
        settings: Timeouts, and the listener to use.
        replica: Knows the leader.
        controller: Runs a request while this node leads.
        security: What connections to a listener of that name need; gives None where it is PLAINTEXT.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        replica: LeaderInfo,
        controller: LocalController,
        *,
        security: SecurityOf = lambda _: None,
    ) -> None:
        self._settings = settings
        self._replica = replica
        self._controller = controller
        self._security = security
        self._connection: RpcConnection | None = None
        self._address: tuple[str, int] | None = None
        self._lock = asyncio.Lock()
        self._is_stopped = False

    async def request(
        self, message: Message, *, timeout_s: float | None = None, in_version: InVersion | None = None
    ) -> Any:
        """Ask until an active controller answers.

        Args:
            message: A request that ``controller.operations`` has, or an Envelope.
            timeout_s: Give up after so long; never when absent.
            in_version: Gives ``message`` as the version of the connection has it; only where versions exclude each
                other's fields.

        Raises:
            TimeoutError: There was no active controller for so long.
            KafkaError: The controller refuses with an error that the answer has no place for; or BROKER_NOT_AVAILABLE
                or another reason why it was not asked, once the channel is stopped.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    response: Any = await self._request_once(message, in_version)
                except KafkaError as error:
                    if error.code not in _NOT_NOW or self._is_stopped:
                        raise
                else:
                    if getattr(response, "error_code", 0) not in _NOT_NOW:
                        return response
                await asyncio.sleep(_RETRY_S)

    async def _request_once(self, message: Message, in_version: InVersion | None) -> Message:
        # An envelope holds a client's frame, which a listener of the controller reads. If this node was elected after
        # the frame was put into it, that is this node's own listener.
        if self._replica.is_leader and not isinstance(message, EnvelopeRequest):
            answer: Message = await self._controller.submit_request(message)
            return answer
        connection = await self._connect()
        timeout_s = self._settings.socket_timeout_ms / 1000
        try:
            version = None if in_version is None else connection.common_version(message.API_KEY)
            return await connection.request(
                message if in_version is None or version is None else in_version(version), timeout_s=timeout_s
            )
        except TimeoutError:
            # A controller that stopped without closing its sockets: ask the present leader, on a new connection.
            connection.close()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no answer within {timeout_s:g} s") from None

    async def _connect(self) -> RpcConnection:
        leader = find_endpoint(self._replica.leader_endpoints, self._settings.listener_name)
        if leader is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the active controller is unknown")
        async with self._lock:
            connection = self._connection
            if connection is None or connection.is_closed or self._address != (leader.host, leader.port):
                self.close()
                self._check_running()
                connection = await RpcConnection.open(
                    asyncio.get_running_loop(),
                    leader.host,
                    leader.port,
                    client_id=f"node-{self._settings.node_id}",
                    timeout_s=self._settings.connect_timeout_ms / 1000,
                    security=self._security(leader.name),
                )
                self._connection, self._address = connection, (leader.host, leader.port)
                if self._is_stopped:
                    self.close()
                self._check_running()
            return connection

    def _check_running(self) -> None:
        if self._is_stopped:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node is being stopped")

    def leader_changed(self) -> None:
        """Wait no longer for a controller that is not the active one any more: what it was asked is asked again."""
        leader = find_endpoint(self._replica.leader_endpoints, self._settings.listener_name)
        if leader is None or self._address != (leader.host, leader.port):
            self.close()

    def stop(self) -> None:
        """Close the connection for good: what waits for an answer fails, and so does what is asked later."""
        self._is_stopped = True
        self.close()

    def close(self) -> None:
        """Close the connection; what waits for an answer is asked again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
