"""Where replicas of quorums listen: one alone, or many behind one address."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from kraftlog.node.settings import connection_limits
from kraftlog.transport.acceptor import Acceptor, Connections
from kraftlog.transport.exchange import CloseConnection

if TYPE_CHECKING:
    from kraftlog.node.config import NodeConfig
    from kraftlog.transport.exchange import Exchange, PeerContext, PendingResponse
    from kraftlog.transport.frame_reader import Frame
    from kraftlog.transport.listener import EndPoint
    from kraftlog.transport.sasl_exchange import SaslListener
    from kraftlog.transport.socket import Output

__all__ = ["Listener", "OwnListener", "SharedListener", "client_id_of"]

# Of a request's header: API key, version and correlation id, then the length of the client's id (int16).
_CLIENT_ID_AT: Final = 10
_SEPARATOR: Final = "@"
_NAME_SHOWN: Final = 249  # no name is longer, but a client id may be


def client_id_of(replica: str, quorum: str | None) -> str:
    """The client id of a replica's requests, which tells a shared listener the quorum that they are about."""
    return replica if quorum is None else f"{replica}{_SEPARATOR}{quorum}"


class Listener(Protocol):
    """What a replica listens by."""

    @property
    def end_point(self) -> EndPoint:
        """What is bound."""

    def start(self, exchange: Exchange) -> None:
        """Take requests, which ``exchange`` answers."""

    def close(self) -> None:
        """Take none any more."""


class OwnListener:
    """A bound address and its connections.

    Args:
        config: Has the address as its first listener, and what TLS and SASL need.
        loop: The running loop.

    Raises:
        ConfigError: The address cannot be bound.
    """

    def __init__(self, config: NodeConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._connections = Connections(loop, connection_limits(config))
        try:
            self._acceptor = Acceptor(
                loop,
                config.listeners[0],
                self._connections,
                is_controller_listener=True,
                tls=config.server_tls(config.listeners[0].listener_name),
                sasl=_sasl(config),
            )
        except BaseException:
            self._connections.close_all()
            raise

    @property
    def end_point(self) -> EndPoint:
        """What is bound."""
        return self._acceptor.end_point

    def start(self, exchange: Exchange) -> None:
        """Take connections, whose requests ``exchange`` answers."""
        self._acceptor.start(exchange)

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._acceptor.close()
        self._connections.close_all()


class SharedListener:
    """One address for many quorums: the end of a request's client id, behind ``@``, names its quorum.

    Args:
        listener: The address.
    """

    def __init__(self, listener: OwnListener) -> None:
        self._listener = listener
        self._exchanges: dict[str, Exchange] = {}
        listener.start(self)

    @property
    def end_point(self) -> EndPoint:
        """What is bound."""
        return self._listener.end_point

    def part_of(self, quorum: str) -> Listener:
        """What one quorum listens by."""
        return _Part(self, quorum)

    def open(self, quorum: str, exchange: Exchange) -> None:
        """Take requests of a quorum from now on."""
        self._exchanges[quorum] = exchange

    def close_part(self, quorum: str) -> None:
        """Take no requests of a quorum any more."""
        self._exchanges.pop(quorum, None)

    def close(self) -> None:
        """Stop listening and close all connections."""
        self._listener.close()

    def handle(self, peer: PeerContext, frame: Frame) -> list[Output] | PendingResponse | CloseConnection | None:
        """Answer a request as its quorum does; the connection of one that is not open here is closed."""
        size = int.from_bytes(frame[_CLIENT_ID_AT - 2 : _CLIENT_ID_AT], "big", signed=True)
        client_id = bytes(frame[_CLIENT_ID_AT : _CLIENT_ID_AT + max(0, size)]).decode(errors="replace")
        quorum = client_id.rpartition(_SEPARATOR)[2]
        exchange = self._exchanges.get(quorum)
        if exchange is None:
            return CloseConnection(f"no quorum {quorum[:_NAME_SHOWN]!r} is open here")
        return exchange.handle(peer, frame)


class _Part:
    """A quorum's share of a listener."""

    def __init__(self, listener: SharedListener, quorum: str) -> None:
        self._listener = listener
        self._quorum = quorum

    @property
    def end_point(self) -> EndPoint:
        return self._listener.end_point

    def start(self, exchange: Exchange) -> None:
        self._listener.open(self._quorum, exchange)

    def close(self) -> None:
        self._listener.close_part(self._quorum)


def _sasl(config: NodeConfig) -> SaslListener | None:
    settings = config.sasl(config.listeners[0].listener_name)
    if settings is None:
        return None
    from kraftlog.node.sasl_settings import sasl_listener

    return sasl_listener(settings, lambda _mechanism, _user: None)
