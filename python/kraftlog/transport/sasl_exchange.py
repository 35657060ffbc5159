"""SASL between a connection and the dispatcher: requests pass once the peer is authenticated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlog.security.principal import USER_TYPE, Principal
from kraftlog.transport.exchange import CloseConnection, Exchange, PeerContext, PendingResponse
from kraftlog.transport.sasl_session import SASL_HANDSHAKE_KEY, Authenticated, Failed, Passed, Replied, SaslSession

if TYPE_CHECKING:
    import asyncio

    from kraftlog.security.sasl import SaslServer
    from kraftlog.transport.frame_reader import Frame
    from kraftlog.transport.socket import Output

__all__ = ["SaslExchange", "SaslListener"]

# Behind the size and the correlation id: ApiVersions has the same first header in every version.
_VERSIONS_ERROR = slice(8, 10)
_HANDSHAKE_KEY = SASL_HANDSHAKE_KEY.to_bytes(2, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslListener:
    """SASL of one listener.

    Attributes:
        servers: Makes the server's side of each enabled mechanism.
        max_reauth_ms: Of the mechanisms whose sessions end (connections.max.reauth.ms).
        max_receive_bytes: Largest frame before authentication (sasl.server.max.receive.size).
        failure_delay_ms: connection.failed.authentication.delay.ms.
    """

    servers: Mapping[str, Callable[[], SaslServer]]
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int
    failure_delay_ms: int


class SaslExchange:
    """The ``Exchange`` of one connection.

    Args:
        loop: Delays the end of a connection that failed to authenticate.
        exchange: Answers the requests of peers that are authenticated.
        listener: Settings.
        clock: Seconds.

    Attributes:
        exchange: As given.
        on_authenticated: Called with the peer's identity, each time it has authenticated.
        on_session: Called with the milliseconds that are left of a session, when a frame that might have ended it did
            not: the peer has authenticated again, or may not do so yet.
    """

    __slots__ = ("_clock", "_delay_s", "_loop", "_session", "exchange", "on_authenticated", "on_session")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exchange: Exchange,
        listener: SaslListener,
        clock: Callable[[], float],
    ) -> None:
        self._loop = loop
        self.exchange = exchange
        self._session = SaslSession(listener.servers, listener.max_reauth_ms)
        self._delay_s = listener.failure_delay_ms / 1000
        self._clock = clock
        self.on_authenticated: Callable[[Principal], None] = lambda _: None
        self.on_session: Callable[[int | None], None] = lambda _: None

    @property
    def session_left_ms(self) -> int | None:
        """Milliseconds until the session ends, rounded down; None if it does not end."""
        left_s = self._session.left_s(self._clock())
        return None if left_s is None else int(left_s * 1000)

    def handle(self, peer: PeerContext, frame: Frame) -> list[Output] | PendingResponse | CloseConnection | None:
        """Handle one frame, as ``Exchange.handle`` says."""
        step = self._session.receive(frame, self._clock())
        match step:
            case Passed():
                if frame[:2] == _HANDSHAKE_KEY:
                    self.on_session(self.session_left_ms)
                answer = self.exchange.handle(peer, frame)
                return answer if self._session.is_authenticated else self._with_versions(answer)
            case Replied():
                return step.outputs
            case Authenticated():
                self.on_authenticated(Principal(USER_TYPE, step.user))
                self.on_session(self.session_left_ms)
                return step.outputs
            case Failed():
                close = CloseConnection(step.reason, step.outputs)
                return self._delayed(close) if step.is_delayed and self._delay_s > 0 else close

    def _with_versions(
        self, answer: list[Output] | PendingResponse | CloseConnection | None
    ) -> list[Output] | CloseConnection:
        """Note how ApiVersions was answered; the answer of a small request is known at once."""
        if isinstance(answer, CloseConnection):
            return answer
        if not isinstance(answer, list):
            if isinstance(answer, PendingResponse):
                answer.future.cancel()
            return CloseConnection("ApiVersions before authentication is too large")
        data = b"".join(bytes(output) for output in answer)
        self._session.versions_answered(int.from_bytes(data[_VERSIONS_ERROR], "big", signed=True))
        return answer

    def _delayed(self, close: CloseConnection) -> PendingResponse:
        """The same later; no request of the connection is handled meanwhile."""
        future: asyncio.Future[CloseConnection] = self._loop.create_future()
        timer = self._loop.call_later(self._delay_s, future.set_result, close)
        future.add_done_callback(lambda _: timer.cancel())
        return PendingResponse(future, lambda ended: ended.result(), ends_with_peer=True, is_exclusive=True)
