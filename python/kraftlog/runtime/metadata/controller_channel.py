"""The way to the active controller, in this process or another one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kraftlog.controller import ControllerCore, ControllerResult
from kraftlog.controller.operations import operation_of
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.voter_set import find_endpoint
from kraftlog.runtime.metadata.quorum_config import controller_listener
from kraftlog.transport.rpc_client import RpcConnection

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.wire.struct import Message

__all__ = ["ControllerChannel", "operate"]

_RETRY_S = 0.1
_NOT_NOW = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION})


def operate(core: ControllerCore, request: Message, now_ms: int) -> ControllerResult[Any]:
    """Run what ``request`` asks for; handlers use ``MetadataQuorum.submit_request`` instead."""
    return operation_of(request).run(core, request, now_ms)


class ControllerChannel:
    """Asks the active controller, whoever it is by now.

    Args:
        node: Whose metadata quorum knows the leader.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._connection: RpcConnection | None = None
        self._address: tuple[str, int] | None = None
        self._lock = asyncio.Lock()

    async def request(self, message: Message, *, timeout_s: float | None = None) -> Any:
        """Ask until an active controller answers.

        Args:
            message: A request that ``controller.operations`` has, or an Envelope.
            timeout_s: Give up after so long; never when absent.

        Raises:
            TimeoutError: There was no active controller for so long.
            KafkaError: The controller refuses with an error that the answer has no place for.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    response: Any = await self._request_once(message)
                except KafkaError as error:
                    if error.code not in _NOT_NOW:
                        raise
                else:
                    if getattr(response, "error_code", 0) not in _NOT_NOW:
                        return response
                await asyncio.sleep(_RETRY_S)

    async def _request_once(self, message: Message) -> Message:
        metadata = self._node.metadata
        if metadata.is_leader:
            answer: Message = await metadata.submit_request(message)
            return answer
        connection = await self._connect()
        timeout_s = self._node.config.get_int("controller.socket.timeout.ms") / 1000
        try:
            async with asyncio.timeout(timeout_s):
                return await connection.request(message)
        except TimeoutError:
            # A controller that stopped without closing its sockets: ask whoever leads by now, on a new connection.
            connection.close()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no answer within {timeout_s:g} s") from None

    async def _connect(self) -> RpcConnection:
        node = self._node
        leader = find_endpoint(node.metadata.leader_endpoints, controller_listener(node.config))
        if leader is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the active controller is not known")
        async with self._lock:
            connection = self._connection
            if connection is None or connection.is_closed or self._address != (leader.host, leader.port):
                self.close()
                timeout_s = node.config.get_int("controller.quorum.request.timeout.ms") / 1000
                connection = await RpcConnection.open(
                    node.loop,
                    leader.host,
                    leader.port,
                    client_id=f"node-{node.config.node_id}",
                    timeout_s=timeout_s,
                    tls=node.config.client_tls(leader.name),
                )
                self._connection, self._address = connection, (leader.host, leader.port)
            return connection

    def leader_changed(self) -> None:
        """Wait no longer for a controller that is not the active one any more: what it was asked is asked again."""
        leader = find_endpoint(self._node.metadata.leader_endpoints, controller_listener(self._node.config))
        if leader is None or self._address != (leader.host, leader.port):
            self.close()

    def close(self) -> None:
        """Close the connection; what waits for an answer is told."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
