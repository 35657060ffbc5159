"""A socket with TLS: the same seam as the plain transport, record bytes are copied instead of sent by the kernel.

OpenSSL works on memory only, between two buffers; sockets and their readiness stay with ``Transport``. At most one
piece of output is encrypted ahead of what the kernel takes, so a slow client holds no more memory than without TLS.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from typing import TYPE_CHECKING, Any, Protocol

from kraftlog.errors import RemoteProtocolError
from kraftlog.transport.socket import FrameReceiver, Transport, as_file_piece, is_file

if TYPE_CHECKING:
    import asyncio
    import socket

    from kraftlog.transport.frame_reader import FrameReader
    from kraftlog.transport.handshake_reader import HandshakeReader

__all__ = ["TlsReceiver", "TlsTransport"]

_RECEIVE_BYTES = 64 * 1024
_PIECE_BYTES = 64 * 1024


class TlsReceiver(FrameReceiver, Protocol):
    """A connection that wants to know its peer."""

    def handshake_done(self, subject: Any) -> None:
        """The peer's certificate was checked; ``subject`` is None when it has none."""


class TlsTransport(Transport):
    """As ``Transport``, with TLS on the server's side.

    Args:
        context: Key, certificates, and whom to trust.
    """

    __slots__ = ("_cipher", "_handshaken", "_incoming", "_outgoing", "_tls", "_tls_receiver", "_wants_bytes")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        reader: FrameReader | HandshakeReader,
        receiver: TlsReceiver,
        context: ssl.SSLContext,
    ) -> None:
        super().__init__(loop, sock, reader, receiver)
        self._tls_receiver = receiver
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshaken = False
        self._wants_bytes = True
        self._cipher = memoryview(b"")

    def resume_reading(self) -> None:
        """Deliver frames; what was received before the pause comes first."""
        was_reading = self._reading
        super().resume_reading()
        if self._reading and not was_reading and not self._wants_bytes:
            self._loop.call_soon(self._on_readable)

    def recv_into(self, buffer: memoryview) -> int:
        """What the frame reader calls for a socket's own; 0 at the end of the stream."""
        try:
            return self._tls.read(len(buffer), buffer)  # type: ignore[return-value]
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLZeroReturnError:
            return 0

    def receive(self, at_most_bytes: int) -> bool:
        """Decrypt what is left of the last time, or else receive; then as ``Transport.receive``."""
        if not self._reading:
            return False
        if self._wants_bytes:
            try:
                received = self._sock.recv(_RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                self.close(f"receive failed: {error.strerror}" if self._reader.has_partial_frame else None)
                return False
            if received:
                self._incoming.write(received)
            else:
                self._incoming.write_eof()
        self._decrypt(at_most_bytes)
        return self._fd >= 0

    def _decrypt(self, at_most_bytes: int) -> None:
        """Deliver the frames of what was received, until the receiver has enough for now."""
        if not self._handshaken and not self._shake_hands():
            return
        self._wants_bytes = False
        while self._reading and self._fd >= 0 and not self._receiver.is_behind:
            try:
                frames = self._reader.read(self, at_most_bytes)
            except BlockingIOError:
                self._wants_bytes = True
                break
            except ssl.SSLEOFError:
                frames = None
            except ssl.SSLError as error:
                self.close(f"TLS failed: {error.reason or error}")
                return
            except RemoteProtocolError as error:
                self.close(str(error))
                return
            if frames is None:
                self.close("peer closed the connection inside a frame" if self._reader.has_partial_frame else None)
            elif frames:
                self._receiver.frames_received(frames)
        if self._fd >= 0 and self._outgoing.pending:
            self._flush()  # an answer of TLS itself, such as to a change of keys

    def _shake_hands(self) -> bool:
        reason: str | None = None
        try:
            self._tls.do_handshake()
            self._handshaken = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLEOFError:
            self.close(None)
            return False
        except ssl.SSLError as error:
            reason = f"TLS handshake failed: {error.reason or error}"
        self._flush()
        if reason is not None:
            self.close(reason)
        if self._handshaken and self._fd >= 0:
            certificate = self._tls.getpeercert()
            self._tls_receiver.handshake_done(certificate.get("subject") if certificate else None)
        return self._handshaken and self._fd >= 0

    def close(self, reason: str | None) -> None:
        """Close now; the peer is told that nothing more comes, if its socket takes that."""
        if self._fd >= 0 and self._handshaken and not self._cipher:
            with contextlib.suppress(OSError):
                self._tls.unwrap()
            with contextlib.suppress(OSError):
                self._sock.send(self._outgoing.read())
        super().close(reason)

    def _has_unsent(self) -> bool:
        return bool(self._out or self._cipher or self._outgoing.pending)

    def _send_next(self) -> bool:
        return self._send_cipher() and self._encrypt_piece()

    def _send_cipher(self) -> bool:
        """Send what is encrypted; True when all of it went out."""
        if not self._cipher and self._outgoing.pending:
            self._cipher = memoryview(self._outgoing.read())
        while self._cipher:
            self._cipher = self._cipher[self._sock.send(self._cipher) :]
        return True

    def _encrypt_piece(self) -> bool:
        """Encrypt the next piece of output; False when there is none."""
        if not self._out or not self._handshaken:
            return False
        first = self._out[0]
        if is_file(first):
            piece = self._out[0] = as_file_piece(first)
            data: Any = os.pread(piece.fd, min(_PIECE_BYTES, piece.remaining_bytes), piece.position)
            if not data:
                msg = "the file ended before the slice did"
                raise OSError(0, msg)
            taken = self._tls.write(data)
            piece.position += taken
            piece.remaining_bytes -= taken
            self._file_bytes -= taken
            rest = piece.remaining_bytes
        else:
            taken = self._tls.write(memoryview(first)[:_PIECE_BYTES])
            rest = len(first) - taken
            if rest:
                self._out[0] = memoryview(first)[taken:]
        self._out_bytes -= taken
        if not rest:
            self._out.popleft()
        return True
