"""One client connection whose socket an I/O thread owns: frames it does not serve come here, answers go back."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraftlog.transport.exchange import CloseConnection, Exchange, PeerContext, PendingResponse
from kraftlog.transport.mute import Mute
from kraftlog.transport.scheduler import SLICE_S, Weight
from kraftlog.transport.socket import WRITE_HIGH_WATER_BYTES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kraftlog._kraftlog import DataSocket
    from kraftlog.reply import Reply
    from kraftlog.transport.peer_log import PeerLog
    from kraftlog.transport.scheduler import Scheduler
    from kraftlog.transport.socket import Output

__all__ = ["NativeConnection"]

# Buffers of an answer that are copied in one step. The encoder makes them 64 KiB: half a megabyte takes 0.4 ms.
_COPIES_AT_ONCE: Final = 8


class NativeConnection:
    """The Python half of a connection of the data path; has the face that ``Connections`` knows.

    The I/O thread bounds what it hands over, keeps the order of the answers and closes idle connections. This half
    does its work in slices that the scheduler grants, and handles no frame while the peer takes no responses.

    Args:
        loop: The node's loop.
        socket: The half of the I/O thread.
        exchange: Answers frames.
        context: Who the peer is.
        on_lost: Called once the connection is closed.
        peer_log: Has the reasons of closed connections.
        scheduler: Shares the loop among the connections.
        flush_soon: Tells the I/O thread what was asked of sockets, once for all that the loop does in this turn.

    Attributes:
        context: Who the peer is.
        last_active: Always in the future: the I/O thread closes idle connections.
    """

    __slots__ = (
        "_backlog",
        "_copying",
        "_done",
        "_exchange",
        "_exclusive",
        "_flush_soon",
        "_is_closed",
        "_is_queued",
        "_is_stopping",
        "_mute",
        "_on_lost",
        "_peer_log",
        "_pending",
        "_scheduler",
        "_undecoded",
        "_weight",
        "context",
        "socket",
    )

    last_active: Final = float("inf")
    is_idle: Final = False
    is_stuck: Final = False
    has_partial_frame: Final = False

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: DataSocket,
        exchange: Exchange,
        context: PeerContext,
        *,
        on_lost: Callable[[NativeConnection], None],
        peer_log: PeerLog,
        scheduler: Scheduler,
        flush_soon: Callable[[], None],
    ) -> None:
        self.socket = socket
        self.context = context
        self._exchange = exchange
        self._on_lost = on_lost
        self._peer_log = peer_log
        self._scheduler = scheduler
        self._flush_soon = flush_soon
        self._backlog: deque[tuple[int, bytes | memoryview]] = deque()
        self._pending: dict[int, PendingResponse] = {}
        self._exclusive: PendingResponse | None = None
        self._undecoded: PendingResponse | None = None
        self._done: deque[int] = deque()
        self._copying: tuple[int, deque[Output]] | None = None  # the rest of a large answer, and its request
        self._weight = Weight.UNKNOWN
        self._is_queued = False
        self._is_closed = False
        self._is_stopping = False
        self._mute = Mute(loop, self._mute_ended)
        if context.throttle is not None:
            context.throttle.mute = self.mute

    @property
    def is_owed(self) -> bool:
        """Whether a response is being made or sent that is not a long poll."""
        socket = self.socket
        return (
            socket.unsent_bytes > 0
            or socket.owed > 0
            or self._copying is not None
            or any(not pending.is_long_poll for pending in self._pending.values())
        )

    def stop_reading(self) -> None:
        """Take no more requests; what is pending is still answered."""
        self._is_stopping = True
        self._backlog.clear()
        self.socket.stop_reading()
        self._flush_soon()

    def mute(self, duration_ms: int) -> None:
        """Handle no request for that time, and let the I/O thread receive none; what is pending is still answered."""
        if not self._is_closed:
            was_on = self._mute.is_on
            self._mute.extend(duration_ms)
            if self._mute.is_on and not was_on:
                self.socket.mute(True)
                self._flush_soon()

    def _mute_ended(self) -> None:
        if not self._is_closed:
            self.socket.mute(False)
            self.work()
            self._flush_soon()

    def frame_received(self, number: int, frame: bytes | memoryview) -> None:
        """Keep a frame until ``work``, which has to follow."""
        if not self._is_stopping:
            self._backlog.append((number, frame))

    def work(self) -> None:
        """Use a slice at once if the scheduler grants one; else queue. The caller flushes."""
        if self._is_queued:
            return
        now_s = self._scheduler.clock()
        if not self._scheduler.admits(now_s):
            self._queue(self._weight)
            return
        weight = self._use(now_s + SLICE_S)
        if weight is not None:
            self._queue(weight)
        self._scheduler.ended(self._scheduler.clock())

    def _queue(self, weight: Weight) -> None:
        self._is_queued = True
        self._scheduler.add(self, weight)

    def serve(self, slice_end_s: float) -> Weight | None:
        """Encode responses that became known and handle frames; see ``Served``."""
        weight = self._use(slice_end_s)
        self._is_queued = weight is not None
        # Once for all that the queue serves in this turn: to wake a thread takes as long as a small request.
        self._flush_soon()
        return weight

    def _use(self, slice_end_s: float) -> Weight | None:
        """Work until the slice ends, at least one step; the weight of what is left, or None if nothing can be done."""
        clock, done, backlog = self._scheduler.clock, self._done, self._backlog
        while self._copying or done or (backlog and self._exclusive is None and not self._must_wait()):
            if self._copying:
                self._copy(*self._copying)
            elif done:
                self._finish(done.popleft())
            else:
                self._handle(*backlog.popleft())
            if clock() >= slice_end_s and (self._copying or done or backlog):
                # One slice too many may be chance: the loop's thread had to wait for a processor.
                self._weight = Weight.UNKNOWN if self._weight is Weight.LIGHT else Weight.HEAVY
                return self._weight
        if not backlog:
            self._weight = Weight.LIGHT
        else:
            self._release_room()
        return None

    def _release_room(self) -> None:
        """What waits for its own connection must not hold up the requests of others; see ``RequestRoom``."""
        if self._undecoded is None and self._backlog:
            self.socket.taken(self._backlog[-1][0])

    def _must_wait(self) -> bool:
        """Whether the peer is muted or does not take its responses; ``work`` is called again when that ends."""
        if self._mute.is_on:
            return True
        socket = self.socket
        if socket.unsent_bytes <= WRITE_HIGH_WATER_BYTES:
            return False
        socket.ask_for_drained()
        return socket.unsent_bytes > WRITE_HIGH_WATER_BYTES

    def _handle(self, number: int, frame: bytes | memoryview) -> None:
        answer = self._exchange.handle(self.context, frame)
        if answer is None or isinstance(answer, list):
            self._answer(number, answer)
        elif isinstance(answer, PendingResponse):
            self._pending[number] = answer
            if answer.is_exclusive:
                self._exclusive = answer
                if answer.undecoded is None:
                    self.socket.taken(number)
                else:
                    self._undecoded = answer
                    answer.undecoded.on_decoded = partial(self._decoded, answer, number)
            else:
                self.socket.begun(number)
            answer.future.add_done_callback(partial(self._completed, number))
        else:
            self._end(number, answer)

    def _decoded(self, pending: PendingResponse, number: int) -> None:
        """The frame of a large request is decoded."""
        if pending is self._undecoded and not self._is_closed:
            self._undecoded = None
            self.socket.taken(number)
            self._release_room()
            self._flush_soon()

    def _completed(self, number: int, future: asyncio.Future[Any] | Reply) -> None:
        """A response became known; runs from the loop, never inside a handler."""
        if number in self._pending:
            self._done.append(number)
            self.work()
            self._flush_soon()
        elif not future.cancelled():
            future.exception()  # nobody is left to be told

    def _finish(self, number: int) -> None:
        pending = self._pending.pop(number)
        if pending is self._exclusive:
            self._exclusive = self._undecoded = None
        outputs = pending.finish(pending.future)
        if isinstance(outputs, CloseConnection):
            self._end(number, outputs)
        elif isinstance(outputs, PendingResponse):
            pending.go_on(outputs)
            self._pending[number] = pending
            pending.future.add_done_callback(partial(self._completed, number))
        else:
            self._answer(number, outputs)

    def _answer(self, number: int, outputs: list[Output] | None) -> None:
        if outputs is None or len(outputs) <= _COPIES_AT_ONCE:
            self.socket.answer(number, outputs)
        else:
            self._copying = number, deque(outputs)

    def _copy(self, number: int, rest: deque[Output]) -> None:
        """Give the I/O thread a part of a large answer; what is copied is freed."""
        part = [rest.popleft() for _ in range(min(_COPIES_AT_ONCE, len(rest)))]
        if rest:
            self.socket.begin_answer(number, part)
        else:
            self._copying = None
            self.socket.answer(number, part)

    def _end(self, number: int, answer: CloseConnection) -> None:
        """Close after a last response, which is left out if earlier ones are still due."""
        if answer.outputs:
            self.socket.answer(number, answer.outputs)
        self.close(answer.reason)

    def set_session(self, left_ms: int | None) -> None:
        """The session of the peer lasts for so many milliseconds from now on; None if it does not end."""
        self.socket.set_session(left_ms)
        self._flush_soon()

    def close(self, reason: str | None) -> None:
        """Close soon; a reason other than None is logged in one line. Nothing more is handled."""
        if not self._is_closed:
            self._is_closed = True
            self._is_stopping = True
            self._backlog.clear()
            self._copying = None
            self.socket.close(reason)
            self._flush_soon()

    def connection_lost(self, reason: str | None) -> None:
        """The socket is gone: nothing of this connection may hold memory or be waited for."""
        if reason is not None:
            text = "closing connection from %s on listener %s: %s"
            context = self.context
            self._peer_log.warning(context.client_host, text, context.peer, context.listener_name, reason)
        if self.context.loss is not None:
            self.context.loss.tell()
        self._mute.close()
        self._is_closed = True
        self._is_stopping = True
        self._backlog.clear()
        self._copying = None
        self._done.clear()
        pending = list(self._pending.values())
        self._pending.clear()
        for response in pending:
            if response.ends_with_peer:
                response.future.cancel()
            elif response.future.done() and not response.future.cancelled():
                response.future.exception()  # nobody is left to be told
        self._on_lost(self)
