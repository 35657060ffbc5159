"""One client connection whose socket an I/O thread owns: frames it does not serve come here, answers go back."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraftlog.transport.exchange import CloseConnection, Exchange, PeerContext, PendingResponse
from kraftlog.transport.socket import WRITE_HIGH_WATER_BYTES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kraftlog._kraftlog import DataSocket
    from kraftlog.transport.peer_log import PeerLog

__all__ = ["NativeConnection"]


class NativeConnection:
    """The Python half of a connection of the data path; has the face that ``Connections`` knows.

    The I/O thread bounds what it hands over, keeps the order of the answers and closes idle connections. This half
    handles the frames in slices that its owner grants.

    Attributes:
        context: Who the peer is.
        last_active: Always in the future: the I/O thread closes idle connections.
    """

    __slots__ = (
        "_backlog",
        "_exchange",
        "_exclusive",
        "_flush_soon",
        "_is_closed",
        "_is_stopping",
        "_on_lost",
        "_peer_log",
        "_pending",
        "_serve_soon",
        "context",
        "is_queued",
        "socket",
    )

    last_active: Final = float("inf")
    is_idle: Final = False
    is_stuck: Final = False
    has_partial_frame: Final = False

    def __init__(
        self,
        socket: DataSocket,
        exchange: Exchange,
        context: PeerContext,
        *,
        on_lost: Callable[[NativeConnection], None],
        peer_log: PeerLog,
        flush_soon: Callable[[], None],
        serve_soon: Callable[[NativeConnection], None],
    ) -> None:
        self.socket = socket
        self.context = context
        self.is_queued = False
        self._exchange = exchange
        self._on_lost = on_lost
        self._peer_log = peer_log
        self._flush_soon = flush_soon
        self._serve_soon = serve_soon
        self._exclusive: PendingResponse | None = None
        self._backlog: deque[tuple[int, bytes]] = deque()
        self._pending: dict[int, PendingResponse] = {}
        self._is_closed = False
        self._is_stopping = False

    @property
    def is_owed(self) -> bool:
        """Whether a response is being made or sent that is not a long poll."""
        socket = self.socket
        return (
            socket.unsent_bytes > 0
            or socket.owed > 0
            or any(not pending.is_long_poll for pending in self._pending.values())
        )

    @property
    def has_work(self) -> bool:
        """Whether a frame could be handled."""
        return bool(self._backlog)

    def stop_reading(self) -> None:
        """Take no more requests; what is pending is still answered."""
        self._is_stopping = True
        self._backlog.clear()
        self.socket.stop_reading()
        self._flush_soon()

    def frame_received(self, number: int, frame: bytes) -> None:
        """Keep a frame until ``serve``."""
        if not self._is_stopping:
            self._backlog.append((number, frame))

    def serve(self, slice_end_s: float, clock: Callable[[], float]) -> bool:
        """Handle frames until the clock says ``slice_end_s``, at least one.

        Returns:
            Whether there is more to do at once.
        """
        backlog = self._backlog
        while backlog:
            if self._exclusive is not None or self._must_wait():
                return False
            number, frame = backlog.popleft()
            self._handle(number, frame)
            if clock() >= slice_end_s:
                break
        return bool(backlog)

    def _must_wait(self) -> bool:
        """Whether the peer does not take its responses; its owner then hears when it does."""
        socket = self.socket
        if socket.unsent_bytes <= WRITE_HIGH_WATER_BYTES:
            return False
        socket.ask_for_drained()
        return socket.unsent_bytes > WRITE_HIGH_WATER_BYTES

    def _handle(self, number: int, frame: bytes) -> None:
        answer = self._exchange.handle(self.context, frame)
        if answer is None or isinstance(answer, list):
            self.socket.answer(number, answer)
        elif isinstance(answer, PendingResponse):
            self.socket.begun(number)
            self._pending[number] = answer
            if answer.is_exclusive:
                self._exclusive = answer
            answer.future.add_done_callback(partial(self._completed, number))
        else:
            self.close(answer.reason)

    def _completed(self, number: int, future: asyncio.Future[Any]) -> None:
        """A response became known; runs from the loop, never inside a handler."""
        pending = self._pending.pop(number, None)
        if pending is None:  # the connection is gone; an error still has to be noted
            if not future.cancelled():
                future.exception()
            return
        if pending is self._exclusive:
            self._exclusive = None
            if self._backlog:
                self._serve_soon(self)
        outputs = pending.finish(future)
        if isinstance(outputs, CloseConnection):
            self.close(outputs.reason)
            return
        self.socket.answer(number, outputs)
        self._flush_soon()

    def close(self, reason: str | None) -> None:
        """Close soon; a reason other than None is logged in one line. Nothing more is handled."""
        if not self._is_closed:
            self._is_closed = True
            self._is_stopping = True
            self._backlog.clear()
            self.socket.close(reason)
            self._flush_soon()

    def connection_lost(self, reason: str | None) -> None:
        """The socket is gone: nothing of this connection may hold memory or be waited for."""
        if reason is not None:
            text = "closing connection from %s on listener %s: %s"
            context = self.context
            self._peer_log.warning(context.client_host, text, context.peer, context.listener_name, reason)
        self._is_closed = True
        self._is_stopping = True
        self._backlog.clear()
        pending = list(self._pending.values())
        self._pending.clear()
        for response in pending:
            if response.is_long_poll or response.is_exclusive:
                response.future.cancel()
        self._on_lost(self)
