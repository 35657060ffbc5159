"""Connections to the other replicas: one each, opened when there is something to ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.raft import messages as raft
from kraftlog.raft.connections import Destination
from kraftlog.runtime.raft.codec.table import api_key_of, lowest_version, to_core_response, to_wire_request
from kraftlog.transport.rpc_client import PeerRefusedError, RpcConnection

if TYPE_CHECKING:
    from kraftlog.transport.peer_security import SecurityOf
    from kraftlog.types import LogTopic, NodeId
    from kraftlog.wire.struct import Message

__all__ = ["Peers"]

logger = logging.getLogger(__name__)

OnResponse = Callable[["NodeId", int, raft.Response], None]
OnFailure = Callable[["NodeId", int, int], None]
OnRefused = Callable[["NodeId"], None]


class Peers:
    """Sends the core's requests and gives it the answers; all on one loop.

    Args:
        loop: The loop.
        listener_name: Whose addresses answers have.
        client_id: As requests have it.
        request_timeout_s: A connection whose oldest answer takes longer is closed when it is used again.
        topic: Of the log.
        on_response: Called with node id, correlation id and answer.
        on_failure: Called with node id, correlation id and error code when no answer will come.
        security: What connections to a listener of that name need; gives None where it is PLAINTEXT.
        on_refused: Called with the node id if its address refused a connection, before the failures of its requests.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        listener_name: str,
        client_id: str,
        request_timeout_s: float,
        topic: LogTopic,
        on_response: OnResponse,
        on_failure: OnFailure,
        security: SecurityOf,
        on_refused: OnRefused = lambda _: None,
    ) -> None:
        self.loop = loop
        self.listener_name = listener_name
        self.client_id = client_id
        self.request_timeout_s = request_timeout_s
        self.topic = topic
        self.on_response = on_response
        self.on_failure = on_failure
        self.on_refused = on_refused
        self.security = security
        self._peers: dict[NodeId, _Peer] = {}

    def send(self, destination: Destination, correlation_id: int, request: raft.Request) -> None:
        """Ask; never raises and never calls back before it returns."""
        peer = self._peers.get(destination.node_id)
        if peer is not None and not peer.is_fit_for(destination):
            peer.close()
            peer = None
        if peer is None:
            peer = self._peers[destination.node_id] = _Peer(self, destination)
        peer.send(correlation_id, request)

    def is_gone(self, node_id: NodeId) -> bool:
        """Whether the last that was heard of it is that its connection ended, or could not be opened."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.is_gone

    def close(self) -> None:
        """Close all connections; nothing is called back any more."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()


class _Peer:
    """The way to one destination, until its connection ends."""

    def __init__(self, peers: Peers, destination: Destination) -> None:
        self._peers = peers
        self._destination = destination
        self._connection: RpcConnection | None = None
        self._waiting: list[tuple[int, raft.Request]] = []
        self._is_closed = False
        self._task = peers.loop.create_task(self._connect())

    def is_fit_for(self, destination: Destination) -> bool:
        """Whether a request may go this way: the address is right, and the peer is not deaf."""
        connection = self._connection
        if self._is_closed or destination.endpoint != self._destination.endpoint:
            return False
        if connection is None:
            return True
        oldest_s = connection.oldest_s
        is_deaf = oldest_s is not None and self._peers.loop.time() - oldest_s >= self._peers.request_timeout_s
        return not connection.is_closed and not is_deaf

    @property
    def is_gone(self) -> bool:
        """Whether the connection ended, or could not be opened."""
        return self._is_closed or (self._connection is not None and self._connection.is_closed)

    async def _connect(self) -> None:
        """Open the connection; whatever waits is sent then."""
        endpoint = self._destination.endpoint
        try:
            self._connection = await RpcConnection.open(
                self._peers.loop,
                endpoint.host,
                endpoint.port,
                client_id=self._peers.client_id,
                timeout_s=self._peers.request_timeout_s,
                security=self._peers.security(endpoint.name),
            )
        except KafkaError as error:
            is_refused = error.code == ErrorCode.NETWORK_EXCEPTION
            # Waiting does not mend a certificate, unlike a peer that is not there (CONN-23).
            level = logging.ERROR if is_refused else logging.DEBUG
            logger.log(level, "no connection to %s:%d: %s", endpoint.host, endpoint.port, error)
            code = ErrorCode.NETWORK_EXCEPTION if is_refused else ErrorCode.BROKER_NOT_AVAILABLE
            self._is_closed = True
            if isinstance(error, PeerRefusedError):
                self._peers.on_refused(self._destination.node_id)
            waiting, self._waiting = self._waiting, []
            for correlation_id, _ in waiting:
                self._peers.on_failure(self._destination.node_id, correlation_id, code)
            return
        waiting, self._waiting = self._waiting, []
        for correlation_id, request in waiting:
            self.send(correlation_id, request)

    def send(self, correlation_id: int, request: raft.Request) -> None:
        """Send now, or as soon as the connection is open."""
        connection = self._connection
        if connection is None:
            self._waiting.append((correlation_id, request))
            return
        version = connection.common_version(api_key_of(request), lowest=lowest_version(request))
        if version is None:
            self._peers.loop.call_soon(self._fail, correlation_id, ErrorCode.UNSUPPORTED_VERSION)
            return
        connection.send(
            to_wire_request(request, version, self._peers.topic),
            version,
            lambda answer: self._answered(correlation_id, answer),
        )

    def _answered(self, correlation_id: int, answer: Message | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            self._fail(correlation_id, answer.code)
            return
        if self._is_closed:
            return
        try:
            response = to_core_response(answer, listener_name=self._peers.listener_name, topic=self._peers.topic)
        except KraftlogError as error:
            endpoint = self._destination.endpoint
            logger.warning("an answer of %s:%d makes no sense: %s", endpoint.host, endpoint.port, error)
            self._fail(correlation_id, ErrorCode.BROKER_NOT_AVAILABLE)
            return
        self._peers.on_response(self._destination.node_id, correlation_id, response)

    def _fail(self, correlation_id: int, error_code: int) -> None:
        if not self._is_closed:
            self._peers.on_failure(self._destination.node_id, correlation_id, error_code)

    def close(self) -> None:
        """Close without telling anybody."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()
        elif not self._task.done():
            self._task.cancel()
