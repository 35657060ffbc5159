"""One client connection: frames to requests, responses back in the order of the requests."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kraftlog.security.principal import USER_TYPE, Principal
from kraftlog.transport.exchange import CloseConnection, Exchange, PeerContext, PendingResponse
from kraftlog.transport.socket import Transport
from kraftlog.transport.tls_settings import distinguished_name
from kraftlog.transport.tls_socket import TlsTransport

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from socket import socket
    from ssl import SSLContext

    from kraftlog.transport.frame_reader import Frame, FrameReader
    from kraftlog.transport.peer_log import PeerLog
    from kraftlog.transport.socket import Output

__all__ = ["Connection"]

# Requests of one connection that may wait for their answer at once (Kafka's own broker takes one at a time).
MAX_IN_FLIGHT = 64
# And the bytes of their frames, which a batch that waits to be appended holds.
MAX_IN_FLIGHT_BYTES = 32 * 1024 * 1024


class Connection:
    """The protocol half of a connection; the socket half is ``transport``.

    Requests are handled in the order they arrive. One that has to wait (a long poll, an acknowledgement) does not
    hold back the handling of those behind it, but their responses queue up behind its own.

    Attributes:
        context: Who the peer is; replaced by a new one when TLS has authenticated it.
        last_active: Loop time of the last frame or response; drives connections.max.idle.ms.
    """

    __slots__ = (
        "_backlog",
        "_is_stopping",
        "_on_lost",
        "_peer_log",
        "_pending",
        "_pending_bytes",
        "_writing_paused",
        "context",
        "exchange",
        "last_active",
        "loop",
        "transport",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket,
        reader: FrameReader,
        exchange: Exchange,
        context: PeerContext,
        *,
        on_lost: Callable[[Connection], None],
        peer_log: PeerLog,
        tls: SSLContext | None = None,
    ) -> None:
        self.loop = loop
        self.exchange = exchange
        self.context = context
        self.last_active = loop.time()
        self._on_lost = on_lost
        self._peer_log = peer_log
        self._pending: deque[PendingResponse] = deque()
        self._pending_bytes = 0
        self._backlog: deque[Frame] = deque()
        self._writing_paused = False
        self._is_stopping = False
        self.transport = (
            Transport(loop, sock, reader, self) if tls is None else TlsTransport(loop, sock, reader, self, tls)
        )
        self.transport.resume_reading()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed to the peer."""
        return not self._pending and not self._backlog and not self.transport.unsent_bytes

    @property
    def is_stuck(self) -> bool:
        """Whether the peer takes none of its responses."""
        return self.transport.unsent_bytes > 0

    @property
    def has_partial_frame(self) -> bool:
        """Whether the peer stopped inside a frame."""
        return self.transport.has_partial_frame

    @property
    def is_owed(self) -> bool:
        """Whether a response is being made or sent that is not a long poll."""
        return self.transport.unsent_bytes > 0 or any(not pending.is_long_poll for pending in self._pending)

    @property
    def is_full(self) -> bool:
        """Whether no further request is handled before a response has become known."""
        return len(self._pending) >= MAX_IN_FLIGHT or self._pending_bytes >= MAX_IN_FLIGHT_BYTES

    def stop_reading(self) -> None:
        """Take no more requests; what is pending is still answered."""
        self._is_stopping = True
        self._writing_paused = True
        self.transport.pause_reading()

    def handshake_done(self, subject: Any) -> None:
        """TLS knows the peer, or ``subject`` is None where it showed no certificate."""
        if subject:
            self.context = replace(self.context, principal=Principal(USER_TYPE, distinguished_name(subject)))

    def frames_received(self, frames: list[Frame]) -> None:
        """Handle the frames of one wake-up and answer what can be answered with one write."""
        self.last_active = self.loop.time()
        if self._backlog or self._writing_paused:
            self._backlog.extend(frames)
            self.transport.pause_reading()
            return
        outputs: list[Output] = []
        for index, frame in enumerate(frames):
            if self.is_full:
                self._backlog.extend(frames[index:])
                self.transport.pause_reading()
                break
            if not self._handle(frame, outputs):
                break
        if outputs:
            self.transport.write(outputs)

    def _handle(self, frame: Frame, outputs: list[Output]) -> bool:
        """Handle one frame; False when the connection was closed and later frames must not count."""
        answer = self.exchange.handle(self.context, frame)
        if isinstance(answer, list):
            if self._pending:
                self._pending.append(PendingResponse.ready(answer))
            else:
                outputs.extend(answer)
            return True
        if answer is None:
            return True
        if isinstance(answer, PendingResponse):
            answer.frame_bytes = len(frame)
            self._pending_bytes += answer.frame_bytes
            self._pending.append(answer)
            answer.future.add_done_callback(lambda _: self._completed(answer))
            return True
        if outputs:
            self.transport.write(outputs)
        self.close(answer.reason)
        return False

    def _completed(self, pending: PendingResponse) -> None:
        """A response became known; runs from the loop, never inside a handler."""
        outputs = pending.finish(pending.future)
        if self.transport.is_closed:
            return
        if isinstance(outputs, CloseConnection):
            self.close(outputs.reason)
            return
        pending.outputs = outputs
        if self._pending[0] is pending:
            ready: list[Output] = []
            while self._pending and (known := self._pending[0].outputs) is not None:
                ready.extend(known)
                self._pending_bytes -= self._pending.popleft().frame_bytes
            self.last_active = self.loop.time()
            self.transport.write(ready)
            self._drain_backlog()

    def _drain_backlog(self) -> None:
        while self._backlog and not self._writing_paused and not self.is_full:
            outputs: list[Output] = []
            if not self._handle(self._backlog.popleft(), outputs):
                return
            if outputs:
                self.transport.write(outputs)
        if not self._backlog and not self._writing_paused:
            self.transport.resume_reading()

    def writing_paused(self) -> None:
        """The peer does not take its responses: handle nothing more for it."""
        self._writing_paused = True
        self.transport.pause_reading()

    def writing_resumed(self) -> None:
        """The peer takes its responses again."""
        if not self._is_stopping:
            self._writing_paused = False
            self._drain_backlog()

    def close(self, reason: str | None) -> None:
        """Close at once; a reason other than None is logged in one line."""
        self.transport.close(reason)

    def connection_lost(self, reason: str | None) -> None:
        """The socket is gone: nothing of this connection may hold memory or be waited for."""
        if reason is not None:
            text = "closing connection from %s on listener %s: %s"
            context = self.context
            self._peer_log.warning(context.client_host, text, context.peer, context.listener_name, reason)
        for pending in self._pending:
            if pending.is_long_poll:
                pending.future.cancel()
        self._pending.clear()
        self._backlog.clear()
        self._on_lost(self)
