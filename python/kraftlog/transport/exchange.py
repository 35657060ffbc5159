"""The seam between a connection and the dispatcher that answers its frames.

A connection hands each frame to its ``Exchange`` together with the ``PeerContext`` that says who sent it, and gets
buffers and file slices, a response that is still to come, or the reason to close. Neither side knows the other's class:
the dispatcher serves sockets, TLS and a simulated network alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kraftlog.security.principal import Principal

if TYPE_CHECKING:
    from kraftlog.reply import Reply
    from kraftlog.transport.frame_reader import Frame
    from kraftlog.transport.socket import Output

__all__ = ["CloseConnection", "Exchange", "PeerContext", "PeerLoss", "PeerThrottle", "PendingResponse", "Undecoded"]


class PeerLoss:
    """The end of a connection, as something to wait for."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def add(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once, on the loop, when the connection has ended."""
        self._listeners.append(listener)

    def tell(self) -> None:
        """The connection has ended."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()


class PeerThrottle:
    """Lets a connection take no request for a time (KIP-219).

    Attributes:
        mute: Called with milliseconds from now; the connection puts its own method here. Answers still go out.
    """

    __slots__ = ("mute",)

    def __init__(self) -> None:
        self.mute: Callable[[int], None] = _ignore


def _ignore(_duration_ms: int) -> None:
    """No connection is there to be muted."""


@dataclass(frozen=True, slots=True)
class PeerContext:
    """Who is at the other end, and on which listener.

    Attributes:
        principal: The authenticated identity; ANONYMOUS on a listener without authentication.
        client_host: The peer's address without its port.
        peer: For log lines: host and port.
        loss: The end of the connection.
        throttle: Mutes the connection; None where nobody has to wait, such as a broker that forwards requests.
        is_forwarded: The request came in an Envelope of a broker, which has checked it.
        is_on_data_path: An I/O thread owns the socket and answers the plain requests; here come the others.
    """

    listener_name: str
    is_controller_listener: bool
    principal: Principal
    client_host: str
    peer: str
    is_forwarded: bool = False
    is_on_data_path: bool = False
    loss: PeerLoss | None = None
    throttle: PeerThrottle | None = None


class Undecoded(Protocol):
    """A large request while its frame is being decoded."""

    on_decoded: Callable[[], None] | None
    """Called once the frame is not needed any more, unless the request ends before."""


class CloseConnection:
    """The answer to a frame that the protocol has no answer for, or none that leaves the connection open.

    Attributes:
        reason: For the log.
        outputs: Are sent before.
    """

    __slots__ = ("outputs", "reason")

    def __init__(self, reason: str, outputs: Sequence[Output] = ()) -> None:
        self.reason = reason
        self.outputs = outputs


class PendingResponse:
    """A request whose response is still to come, in the connection's order of responses.

    Attributes:
        future: Ends with the response, or fails with what the request ended with.
        finish: Turns the finished future into buffers, into the reason to close, or, if the response is large, into
            another pending response whose future ends with the buffers.
        is_long_poll: Nobody but this connection waits for it, which owes the peer nothing meanwhile.
        ends_with_peer: It is cancelled when the connection is lost.
        is_exclusive: The request is handled in slices: no later one of its connection is handled before its response
            is known.
        undecoded: The frame is decoded later than now; None if it was.
        frame_bytes: Size of the request's frame, which it keeps in memory.
        outputs: The encoded response once it is known; an empty list when the protocol wants none.
    """

    __slots__ = (
        "ends_with_peer",
        "finish",
        "frame_bytes",
        "future",
        "is_exclusive",
        "is_long_poll",
        "outputs",
        "undecoded",
    )

    def __init__(
        self,
        future: asyncio.Future[Any] | Reply,
        finish: Callable[[Any], list[Output] | CloseConnection | PendingResponse],
        *,
        is_long_poll: bool = False,
        ends_with_peer: bool = False,
        is_exclusive: bool = False,
        undecoded: Undecoded | None = None,
    ) -> None:
        self.future = future
        self.finish = finish
        self.is_long_poll = is_long_poll
        self.ends_with_peer = is_long_poll or ends_with_peer
        self.is_exclusive = is_exclusive
        self.undecoded = undecoded
        self.frame_bytes = 0
        self.outputs: list[Output] | None = None

    def go_on(self, further: PendingResponse) -> None:
        """The response is known, and is being encoded by ``further``."""
        self.future, self.finish = further.future, further.finish
        self.ends_with_peer = True

    @classmethod
    def ready(cls, outputs: list[Output]) -> PendingResponse:
        """A response that is known but has to wait for its turn."""
        pending = cls.__new__(cls)
        pending.is_long_poll = pending.ends_with_peer = pending.is_exclusive = False
        pending.undecoded = None
        pending.frame_bytes = 0
        pending.outputs = outputs
        return pending


class Exchange(Protocol):
    """Answers frames."""

    def handle(self, peer: PeerContext, frame: Frame) -> list[Output] | PendingResponse | CloseConnection | None:
        """Handle one frame, which starts behind its length prefix.

        Returns:
            The response's buffers and file slices, a pending response, None when the protocol wants no response, or
            the reason to close the connection.
        """
        ...
