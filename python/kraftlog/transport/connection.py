"""One client connection: frames to requests, responses back in the order of the requests."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kraftlog.errors import RemoteProtocolError
from kraftlog.security.principal import USER_TYPE, Principal
from kraftlog.transport.exchange import CloseConnection, Exchange, PeerContext, PendingResponse
from kraftlog.transport.mute import Mute
from kraftlog.transport.scheduler import SLICE_S, Weight
from kraftlog.transport.socket import Transport, is_file
from kraftlog.transport.tls_settings import distinguished_name
from kraftlog.transport.tls_socket import TlsTransport

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from socket import socket
    from ssl import SSLContext

    from kraftlog.transport.frame_reader import Frame, FrameReader
    from kraftlog.transport.handshake_reader import HandshakeReader
    from kraftlog.transport.peer_log import PeerLog
    from kraftlog.transport.peer_watch import PeerWatch
    from kraftlog.transport.request_room import RequestRoom
    from kraftlog.transport.scheduler import Scheduler
    from kraftlog.transport.socket import Output

__all__ = ["Connection"]

# Requests of one connection that may wait for their answer at once (Kafka's own broker takes one at a time).
MAX_IN_FLIGHT = 64
# And the bytes of their frames, which a batch that waits to be appended holds.
MAX_IN_FLIGHT_BYTES = 32 * 1024 * 1024
# And the bytes of their answers that are known but wait for an earlier one.
MAX_HELD_BYTES = 1024 * 1024
# Requests that are handled in one slice, whatever the clock says.
MAX_FRAMES_PER_SLICE = 128
# A connection with more requests at once than this goes behind the others that wait.
FEW_FRAMES = 16
# A connection that had to queue receives less at once: 32 KiB may have thousands of requests.
_SLICE_RECEIVE_BYTES = 32 * 1024
# Answers are gathered into one write, up to this many buffers or to the first one of this size.
_BUFFERS_PER_WRITE = 64
_LARGE_BUFFER_BYTES = 16 * 1024


class Connection:
    """The protocol half of a connection; the socket half is ``transport``.

    Requests are handled in the order they arrive. One that has to wait (a long poll, an acknowledgement) does not
    hold back the handling of those behind it, but their responses queue up behind its own.

    All work is done in slices that the scheduler grants. While frames wait, no more are received; while the peer does
    not take its responses, or is muted by a quota, no frame is handled.

    Attributes:
        context: Who the peer is; replaced by a new one when TLS or SASL has authenticated it.
        last_active: Clock of the scheduler at the last frame or response; drives connections.max.idle.ms.
    """

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_done",
        "_exclusive",
        "_held_bytes",
        "_is_queued",
        "_is_stopping",
        "_mute",
        "_on_lost",
        "_peer_log",
        "_peer_watch",
        "_pending",
        "_pending_bytes",
        "_room",
        "_room_bytes",
        "_scheduler",
        "_slice_end_s",
        "_successor",
        "_undecoded",
        "_waits_for_room",
        "_watched_fd",
        "_weight",
        "_writing_paused",
        "context",
        "exchange",
        "last_active",
        "transport",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket,
        reader: FrameReader | HandshakeReader,
        exchange: Exchange,
        context: PeerContext,
        *,
        on_lost: Callable[[Connection], None],
        peer_log: PeerLog,
        scheduler: Scheduler,
        peer_watch: PeerWatch | None = None,
        room: RequestRoom | None = None,
        tls: SSLContext | None = None,
    ) -> None:
        self.exchange = exchange
        self.context = context
        self.last_active = scheduler.clock()
        self._scheduler = scheduler
        self._on_lost = on_lost
        self._peer_log = peer_log
        self._peer_watch = peer_watch
        self._watched_fd = -1
        self._pending: deque[PendingResponse] = deque()
        self._pending_bytes = 0
        self._held_bytes = 0
        self._exclusive: PendingResponse | None = None
        self._done: deque[PendingResponse] = deque()
        self._backlog: deque[Frame] = deque()
        self._backlog_bytes = 0
        self._undecoded: PendingResponse | None = None
        self._room = room
        self._room_bytes = 0
        self._waits_for_room = False
        self._is_queued = False
        self._slice_end_s = 0.0
        self._weight = Weight.UNKNOWN
        self._writing_paused = False
        self._is_stopping = False
        self._successor: Callable[[socket, bytes, bytes], None] | None = None
        self._mute = Mute(loop, self._mute_ended)
        if context.throttle is not None:
            context.throttle.mute = self.mute
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
        return (
            len(self._pending) >= MAX_IN_FLIGHT
            or self._pending_bytes >= MAX_IN_FLIGHT_BYTES
            or self._held_bytes >= MAX_HELD_BYTES
            or self._exclusive is not None
            or self._mute.is_on
        )

    @property
    def is_behind(self) -> bool:
        """Whether received frames wait to be handled."""
        return bool(self._backlog)

    def stop_reading(self) -> None:
        """Take no more requests; what is pending is still answered."""
        self._is_stopping = True
        self._writing_paused = True
        self.transport.pause_reading()

    def mute(self, duration_ms: int) -> None:
        """Handle and receive no request for that time; what is pending is still answered."""
        if not self.transport.is_closed:
            self._mute.extend(duration_ms)
            if self._mute.is_on:
                self.transport.pause_reading()

    def _mute_ended(self) -> None:
        if self._writing_paused or self.transport.is_closed:
            return
        if not self._backlog:
            self.transport.resume_reading()
        elif self._has_work():
            self._queue()

    def handshake_done(self, subject: Any) -> None:
        """TLS knows the peer, or ``subject`` is None where it showed no certificate."""
        if subject:
            self.context = replace(self.context, principal=Principal(USER_TYPE, distinguished_name(subject)))

    def authenticated(self, principal: Principal, make_reader: Callable[[], FrameReader]) -> None:
        """SASL knows the peer; if that is the first time, its frames are read with a new reader from now on."""
        self.context = replace(self.context, principal=principal)
        if not self.transport.is_before_authentication:
            return
        try:
            frames = self.transport.replace_reader(make_reader())
        except RemoteProtocolError as error:
            self.close(str(error))
            return
        if frames:
            self._backlog.extend(frames)
            self._backlog_bytes += sum(map(len, frames))
            self._queue()

    def leave(self, successor: Callable[[socket, bytes, bytes], None]) -> None:
        """Give the socket away behind the answer to the frame that is being handled; this connection is over then.

        Args:
            successor: Called with the socket, with the bytes that were received behind that frame, and with those that
                the kernel has not taken. Not called if the peer is found gone before.
        """
        self._successor = successor

    def _give_away(self, successor: Callable[[socket, bytes, bytes], None], outputs: list[Output]) -> None:
        self.transport.write(outputs)
        if self.transport.is_closed:
            return
        sock, rest, unsent = self.transport.detach()
        received = b"".join(part for frame in self._backlog for part in (len(frame).to_bytes(4, "big"), frame))
        self._backlog.clear()
        self._backlog_bytes = 0
        self._mute.close()
        if self._room is not None:
            self._room.leave(self)
            self._count_waiting()
        successor(sock, received + rest, unsent)

    def may_receive(self) -> bool:
        """Whether the transport receives now; if not, this connection's next slice receives."""
        return not self._is_queued and self._has_room() and self._may_work()

    def _has_room(self) -> bool:
        """Whether further requests may wait to be handled; if not, reading goes on once they may."""
        if self._room is None or (self._room.is_free and not self._waits_for_room):
            return True
        self.transport.pause_reading()
        if not self._waits_for_room:
            self._waits_for_room = True
            self._room.wait(self)
        return False

    def room_freed(self) -> None:
        """Requests may wait again."""
        self._waits_for_room = False
        if not self._backlog and not self._writing_paused and not self._mute.is_on:
            self.transport.resume_reading()

    def _count_waiting(self) -> None:
        """Count the frames that wait for the loop, and not for this connection."""
        if self._room is None:
            return
        undecoded = self._undecoded
        is_behind_itself = self._writing_paused or self.is_full or self.transport.is_closed
        now_bytes = (0 if is_behind_itself else self._backlog_bytes) + (undecoded.frame_bytes if undecoded else 0)
        if now_bytes != self._room_bytes:
            self._room.change(self._room_bytes, now_bytes)
            self._room_bytes = now_bytes

    def _may_work(self) -> bool:
        """Begin a slice at once if the scheduler grants one; else queue."""
        scheduler = self._scheduler
        now_s = scheduler.clock()
        if scheduler.admits(now_s):
            self._slice_end_s = now_s + SLICE_S
            return True
        self._queue()
        return False

    def _queue(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._scheduler.add(self, self._weight)

    def serve(self, slice_end_s: float) -> Weight | None:
        """Encode responses that became known, handle received frames, or else receive; see ``Served``."""
        self._slice_end_s = slice_end_s
        # This connection counts as queued meanwhile, so that nothing below adds it a second time.
        if self._done:
            self._finish_done()
        received = True
        if self._backlog:
            self._handle_backlog()
        else:
            received = self._has_room() and self.transport.receive(_SLICE_RECEIVE_BYTES)
        self._is_queued = self._has_work() or (received and not self._backlog and self.transport.is_reading)
        return self._weight if self._is_queued else None

    def _has_work(self) -> bool:
        """Whether there is something to do before the peer sends or takes anything."""
        return bool(self._done) or (bool(self._backlog) and not self._writing_paused and not self.is_full)

    def frames_received(self, frames: list[Frame]) -> None:
        """Handle frames until the slice ends; the others wait for the next one."""
        self.last_active = self._slice_end_s
        if len(frames) == 1 and not self._backlog and not self._writing_paused and not self.is_full:
            outputs: list[Output] = []
            if self._handle(frames[0], outputs) and outputs:
                self.transport.write(outputs)
            self._weight = Weight.LIGHT
        else:
            self._backlog.extend(frames)
            self._backlog_bytes += sum(map(len, frames))
            if len(frames) > FEW_FRAMES and self._weight is not Weight.HEAVY and self._scheduler:
                # The others that wait are served before the first of so many requests.
                self._weight = Weight.HEAVY
                self._queue()
                self._count_waiting()
            else:
                self._handle_backlog()
        self._scheduler.ended(self._scheduler.clock())

    def _handle_backlog(self) -> None:
        """Handle frames until the slice ends or the connection is full, and arrange for the rest."""
        clock, backlog = self._scheduler.clock, self._backlog
        outputs: list[Output] = []
        handled = 0
        while backlog and not self._writing_paused and not self.is_full:
            if handled and (handled >= MAX_FRAMES_PER_SLICE or clock() >= self._slice_end_s):
                break
            handled += 1
            frame = backlog.popleft()
            self._backlog_bytes -= len(frame)
            if not self._handle(frame, outputs):
                return
            if outputs and (len(outputs) >= _BUFFERS_PER_WRITE or _is_large(outputs[-1])):
                self.transport.write(outputs)
                outputs = []
        if outputs:
            self.transport.write(outputs)
        if not backlog:
            self._weight = Weight.LIGHT
            if not self._writing_paused and not self._mute.is_on:
                self.transport.resume_reading()
        elif self._writing_paused or self.is_full:
            self.transport.pause_reading()
            self._watch_peer()
        else:
            # One slice too many may be chance: the loop's thread had to wait for a processor.
            self._weight = Weight.UNKNOWN if self._weight is Weight.LIGHT else Weight.HEAVY
            self._queue()
        self._count_waiting()

    def _watch_peer(self) -> None:
        """Notice the end of a peer that nothing more is received from; a long poll might last for weeks."""
        watch = self._peer_watch
        if watch is not None and self._watched_fd < 0 and self._pending and self._pending[0].ends_with_peer:
            self._watched_fd = self.transport.fd
            watch.add(self._watched_fd, self._peer_left)

    def _unwatch_peer(self) -> None:
        if self._peer_watch is not None and self._watched_fd >= 0:
            self._peer_watch.remove(self._watched_fd)
            self._watched_fd = -1

    def _peer_left(self) -> None:
        """What a peer sent before it left is handled, unless it waits for what only the peer would read."""
        self._unwatch_peer()
        if self._pending and self._pending[0].ends_with_peer and self.is_full:
            self.close(None)

    def _handle(self, frame: Frame, outputs: list[Output]) -> bool:
        """Handle one frame; False when the connection was closed or given away, and later frames must not count."""
        answer = self.exchange.handle(self.context, frame)
        if isinstance(answer, list):
            if self._pending:
                self._held_bytes += _memory_bytes(answer)
                self._pending.append(PendingResponse.ready(answer))
            else:
                outputs.extend(answer)
                if self._successor is not None:
                    self._give_away(self._successor, outputs)
                    return False
            return True
        if answer is None:
            return True
        if isinstance(answer, PendingResponse):
            answer.frame_bytes = len(frame)
            self._pending_bytes += answer.frame_bytes
            self._pending.append(answer)
            if answer.is_exclusive:
                self._exclusive = answer
                if answer.undecoded is not None:
                    self._undecoded = answer
                    answer.undecoded.on_decoded = lambda: self._decoded(answer)
                    self._count_waiting()
            answer.future.add_done_callback(lambda _: self._completed(answer))
            return True
        if outputs:
            self.transport.write(outputs)
        self._end(answer)
        return False

    def _decoded(self, pending: PendingResponse) -> None:
        """The frame of a large request is decoded."""
        if pending is self._undecoded:
            self._undecoded = None
            self._count_waiting()

    def _completed(self, pending: PendingResponse) -> None:
        """A response became known; runs from the loop, never inside a handler."""
        if self.transport.is_closed:
            _discard(pending)
        elif self._is_queued or not self._may_work():
            self._done.append(pending)
        else:
            self._finish(pending)
            if self._backlog:
                self._handle_backlog()
            self._scheduler.ended(self._scheduler.clock())

    def _finish_done(self) -> None:
        while self._done:
            self._finish(self._done.popleft())
            if self._scheduler.clock() >= self._slice_end_s:
                return

    def _finish(self, pending: PendingResponse) -> None:
        """Encode a response, and send it with those behind it that are known, if it is the first."""
        self._unwatch_peer()
        if pending is self._exclusive:
            self._exclusive = None
            if pending is self._undecoded:
                self._undecoded = None
                self._count_waiting()
        outputs = pending.finish(pending.future)
        if isinstance(outputs, CloseConnection):
            self._end(outputs, pending)
            return
        if isinstance(outputs, PendingResponse):
            pending.go_on(outputs)
            pending.future.add_done_callback(lambda _: self._completed(pending))
            return
        pending.outputs = outputs
        if self._pending[0] is not pending:
            self._held_bytes += _memory_bytes(outputs)
            return
        self._pending.popleft()
        self._pending_bytes -= pending.frame_bytes
        ready = outputs
        while self._pending and (known := self._pending[0].outputs) is not None:
            ready.extend(known)
            self._held_bytes -= _memory_bytes(known)
            self._pending_bytes -= self._pending.popleft().frame_bytes
        self.last_active = self._slice_end_s
        self.transport.write(ready)

    def writing_paused(self) -> None:
        """The peer does not take its responses: handle nothing more for it."""
        self._writing_paused = True
        self.transport.pause_reading()
        self._count_waiting()

    def writing_resumed(self) -> None:
        """The peer takes its responses again."""
        if self._is_stopping:
            return
        self._writing_paused = False
        if self._has_work():
            self._queue()
        elif not self._backlog and not self._mute.is_on:
            self.transport.resume_reading()

    def _end(self, answer: CloseConnection, pending: PendingResponse | None = None) -> None:
        """Close once what the peer is told has gone out, unless earlier responses would have to come before that."""
        is_first = not self._pending or self._pending[0] is pending
        if not answer.outputs or not is_first:
            self.close(answer.reason)
            return
        self.stop_reading()
        self._backlog.clear()
        self._backlog_bytes = 0
        self._log_end(answer.reason)
        self.transport.write(answer.outputs)
        self.transport.close_when_sent()

    def _log_end(self, reason: str) -> None:
        context = self.context
        text = "closing connection from %s on listener %s: %s"
        self._peer_log.warning(context.client_host, text, context.peer, context.listener_name, reason)

    def close(self, reason: str | None) -> None:
        """Close at once; a reason other than None is logged in one line."""
        self.transport.close(reason)

    def connection_lost(self, reason: str | None) -> None:
        """The socket is gone: nothing of this connection may hold memory or be waited for."""
        if reason is not None:
            self._log_end(reason)
        self._unwatch_peer()
        self._mute.close()
        for pending in self._done:
            _discard(pending)
        self._done.clear()
        for pending in self._pending:
            if pending.ends_with_peer:
                pending.future.cancel()
        self._pending.clear()
        self._backlog.clear()
        self._backlog_bytes = 0
        self._undecoded = None
        if self._room is not None:
            self._room.leave(self)
            self._count_waiting()
        self._on_lost(self)
        if self.context.loss is not None:
            self.context.loss.tell()


def _discard(pending: PendingResponse) -> None:
    """Take note of an error that has nobody left to be sent to; a response is not even encoded."""
    if not pending.future.cancelled() and pending.future.exception() is not None:
        pending.finish(pending.future)


def _is_large(output: Output) -> bool:
    return type(output) is bytes and len(output) >= _LARGE_BUFFER_BYTES


def _memory_bytes(outputs: list[Output]) -> int:
    """Bytes that outputs keep in memory; a slice of a file keeps none."""
    return sum(len(output) for output in outputs if not is_file(output))
