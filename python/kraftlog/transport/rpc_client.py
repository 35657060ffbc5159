"""A connection to another node: requests out, answers back in any order, versions negotiated first."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, RemoteProtocolError
from kraftlog.transport.traffic import Traffic
from kraftlog.transport.vectored_writer import VectoredWriter
from kraftlog.version import VERSION
from kraftlog.wire.frame import FrameReader, decode_response, encode_request
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.wire.registry import API_BY_KEY
from kraftlog.wire.struct import Message

if TYPE_CHECKING:
    from kraftlog.transport.peer_security import PeerSecurity
    from kraftlog.transport.sasl_login import SaslLogin

__all__ = ["SOFTWARE_NAME", "PeerRefusedError", "RpcConnection"]

SOFTWARE_NAME = "kraftlog"
API_VERSIONS_KEY = 18
MAX_FRAME_BYTES = 100 * 1024 * 1024
# Inside a large frame the loop is woken when so many bytes wait in the socket, not for each segment of TCP.
LOW_WATER_BYTES = 512 * 1024
# Requests with a buffer of so many bytes, such as records, are sent without copying it.
SHARED_BYTES_MIN = 64 * 1024
_TCP_ESTABLISHED = 1
# SaslHandshake and SaslAuthenticate.
AUTHENTICATION_KEYS = frozenset({17, 36})
# The part of a session after which a client authenticates again; Kafka's takes 85 to 95 %.
REAUTHENTICATE_AFTER = 0.9
REAUTHENTICATION_TIMEOUT_S = 30.0

Callback = Callable[["Message | KafkaError"], None]


class PeerRefusedError(KafkaError):
    """No process listens at the address: it refuses connections, or a proxy ends them without an answer."""


class RpcConnection(asyncio.BufferedProtocol):
    """One open connection. It is of no use any more once it is closed, by either side.

    Attributes:
        is_closed: Whether nothing can be sent any more.
        finalized_features: Level of each feature of the cluster, as the peer knew it when the connection began.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client_id: str,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        traffic: Traffic | None = None,
    ) -> None:
        self._loop = loop
        self._traffic = traffic or Traffic()
        self._client_id = client_id
        self._reader = FrameReader(max_frame_bytes)
        self._transport: asyncio.WriteTransport | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._asked: dict[int, tuple[int, int, float, Callback]] = {}
        self._next_correlation_id = 0
        # What waits for an answer until some loop time. One timer serves all of them.
        self._limits: dict[asyncio.Future[Message], float] = {}
        self._limit_timer: asyncio.TimerHandle | None = None
        self._protocol_error: RemoteProtocolError | None = None
        self._is_heard = False
        self._is_ended_unheard = False
        self._socket: Any = None
        self._writer: VectoredWriter | None = None
        self._low_water_bytes = 1
        self._held: list[Any] | None = None
        self._reauthentication: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self.is_closed = False
        self.finalized_features: dict[str, int] = {}

    @classmethod
    async def open(
        cls,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float,
        security: PeerSecurity | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        traffic: Traffic | None = None,
    ) -> Self:
        """Connect, learn what the peer speaks, and authenticate; the name is resolved each time (CONN-17).

        Raises:
            RemoteProtocolError: What the peer sends does not decode.
            PeerRefusedError: BROKER_NOT_AVAILABLE: nobody listens there.
            KafkaError: BROKER_NOT_AVAILABLE: it cannot be reached, or does not answer; NETWORK_EXCEPTION: its
                certificate, or this node's, is not accepted (CONN-23); SASL_AUTHENTICATION_FAILED or
                UNSUPPORTED_SASL_MECHANISM: it refuses the login.
        """
        connection = cls(loop, client_id, max_frame_bytes, traffic)
        try:
            async with asyncio.timeout(timeout_s):
                tls = None if security is None else security.tls
                await loop.create_connection(lambda: connection, host, port, ssl=tls)
                await connection._negotiate()
                if security is not None and security.login is not None:
                    await connection._authenticate(security.login)
        except (OSError, TimeoutError, ValueError, OverflowError) as error:
            # Names and ports that cannot be: a peer may have named them.
            connection.close()
            kind = PeerRefusedError if isinstance(error, ConnectionRefusedError) else KafkaError
            raise kind(_code_of(error), f"{host}:{port}: {str(error) or 'no answer'}") from error
        except KafkaError as error:
            if connection._is_ended_unheard:
                raise PeerRefusedError(error.code, f"{host}:{port}: {error}") from error
            connection.close()
            raise
        except BaseException:
            connection.close()
            raise
        return connection

    async def _negotiate(self) -> None:
        api = API_BY_KEY[API_VERSIONS_KEY]
        asked = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
        self._versions = {API_VERSIONS_KEY: (0, api.max_version)}
        response: Any
        try:
            response = await self.ask(asked, api.max_version)
        except _VersionRefusedError:
            response = await self.ask(ApiVersionsRequest(), 0)
        if not isinstance(response, ApiVersionsResponse) or response.error_code:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the peer does not report its API versions")
        self._versions = {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in response.api_keys}
        self.finalized_features = {feature.name: feature.max_version_level for feature in response.finalized_features}

    async def _authenticate(self, login: SaslLogin) -> None:
        """Authenticate, and arrange to do so again before the session ends (KIP-368)."""
        from kraftlog.transport.sasl_login import authenticate

        lifetime_ms = await authenticate(self, login)
        if lifetime_ms > 0 and not self.is_closed:
            after_s = lifetime_ms / 1000 * REAUTHENTICATE_AFTER
            self._reauthentication = self._loop.call_later(after_s, self._begin_reauthentication, login)

    def _begin_reauthentication(self, login: SaslLogin) -> None:
        self._held = []
        self._reauthentication = self._loop.create_task(self._reauthenticate(login))

    async def _reauthenticate(self, login: SaslLogin) -> None:
        """Authenticate again; the server wants nothing else meanwhile, so that other requests are held back."""
        try:
            async with asyncio.timeout(REAUTHENTICATION_TIMEOUT_S):
                await self._authenticate(login)
        except (KraftlogError, TimeoutError) as error:
            self._end(f"authenticating again failed: {str(error) or 'no answer'}")
        held, self._held = self._held, None
        if not self.is_closed:
            for buffers in held or ():
                self._write(buffers)

    def common_version(self, api_key: int, *, lowest: int = 0) -> int | None:
        """The highest version both sides have, if it is at least ``lowest``."""
        found = self._versions.get(api_key)
        if found is None:
            return None
        low, high = found
        highest = min(high, API_BY_KEY[api_key].max_version)
        return highest if highest >= max(low, lowest) else None

    @property
    def is_ended(self) -> bool:
        """Whether the connection is closed, or the peer has ended it and the loop has not come to that yet.

        The second is seen only on Linux, and without TLS.
        """
        if self.is_closed or self._socket is None:
            return self.is_closed
        try:
            state = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:
            return True
        return int(state) != _TCP_ESTABLISHED

    @property
    def oldest_s(self) -> float | None:
        """Loop time when the oldest request without an answer was sent."""
        return next((sent_s for _, _, sent_s, _ in self._asked.values()), None)

    def send(self, message: Message, version_: int, callback: Callback) -> None:
        """Send; ``callback`` gets the answer, or BROKER_NOT_AVAILABLE when the connection ends before, once.

        Raises:
            LocalProtocolError: The version cannot hold the message.
        """
        if self.is_closed or self._transport is None:
            self._loop.call_soon(callback, KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the connection is closed"))
            return
        api_key: int = message.API_KEY
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        # Encoded first: a message that the version cannot hold raises, and no answer is waited for.
        buffers: Any = encode_request(api_key, version_, correlation_id, self._client_id, message)
        self._asked[correlation_id] = (api_key, version_, self._loop.time(), callback)
        if self._held is None or api_key in AUTHENTICATION_KEYS:
            self._write(buffers)
        else:
            self._held.append(buffers)

    async def request(self, message: Message, *, timeout_s: float | None = None) -> Message:
        """Ask in the highest common version; errors as ``ask``, and UNSUPPORTED_VERSION."""
        api_key: int = message.API_KEY
        found = self.common_version(api_key)
        if found is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the peer has no version of {API_BY_KEY[api_key].name}")
        return await self.ask(message, found, timeout_s=timeout_s)

    def tell(self, message: Message, version_: int) -> None:
        """Send what is not answered, such as a produce with acks=0.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE: the connection is closed.
        """
        if self.is_closed or self._transport is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the connection is closed")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        buffers: Any = encode_request(message.API_KEY, version_, correlation_id, self._client_id, message)
        if self._held is None:
            self._write(buffers)
        else:
            self._held.append(buffers)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the socket did not take yet."""
        held = sum(memoryview(buffer).nbytes for buffers in self._held or () for buffer in buffers)
        in_writer = 0 if self._writer is None else self._writer.unsent_bytes
        return held + in_writer + (0 if self._transport is None else self._transport.get_write_buffer_size())

    def _write(self, buffers: Any) -> None:
        """Send the buffers of a request: large ones are not copied, and the order is that of the calls."""
        if self._transport is None:
            return
        self._traffic.requests += 1
        self._traffic.sent_bytes += sum(memoryview(buffer).nbytes for buffer in buffers)
        writer = self._writer
        if writer is None and len(buffers) > 1 and self._can_share(buffers):
            writer = self._writer = VectoredWriter(self._loop, self._socket)
        is_transport_empty = self._transport.get_write_buffer_size() == 0
        if writer is not None and (writer.unsent_bytes or (is_transport_empty and self._can_share(buffers))):
            writer.write(buffers)
        else:
            self._transport.writelines(buffers)

    def _can_share(self, buffers: Any) -> bool:
        is_large = any(memoryview(buffer).nbytes >= SHARED_BYTES_MIN for buffer in buffers)
        return is_large and VectoredWriter.serves(self._socket)

    async def ask(self, message: Message, version_: int, *, timeout_s: float | None = None) -> Message:
        """Ask in a version.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE when the connection ends before.
            RemoteProtocolError: The answer does not decode.
            TimeoutError: No answer came within ``timeout_s``; the connection is as it was.
        """
        future: asyncio.Future[Message] = self._loop.create_future()

        def answered(answer: Message | KafkaError) -> None:
            if future.done():
                return
            if self._protocol_error is not None:
                future.set_exception(self._protocol_error)
            elif isinstance(answer, KafkaError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.send(message, version_, answered)
        if timeout_s is not None:
            self._limit(future, self._loop.time() + timeout_s)
        try:
            return await future
        finally:
            self._limits.pop(future, None)

    def _limit(self, future: asyncio.Future[Message], until_s: float) -> None:
        self._limits[future] = until_s
        if (self._limit_timer is None or self._limit_timer.when() > until_s) and not self.is_closed:
            self._arm_limit(until_s)

    def _arm_limit(self, at_s: float) -> None:
        if self._limit_timer is not None:
            self._limit_timer.cancel()
        self._limit_timer = self._loop.call_at(at_s, self._look_at_limits, at_s)

    def _look_at_limits(self, at_s: float) -> None:
        """End the requests whose time is over; the timer is not moved when answers come, so that there may be none."""
        self._limit_timer = None
        for future, limit_s in self._limits.items():
            if limit_s <= at_s and not future.done():
                future.set_exception(TimeoutError())
        following_s = min((limit_s for limit_s in self._limits.values() if limit_s > at_s), default=None)
        if following_s is not None:
            self._arm_limit(following_s)

    def close(self) -> None:
        """Close; every request without an answer fails with BROKER_NOT_AVAILABLE."""
        self._end("the connection was closed")

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = transport  # type: ignore[assignment]
        self._traffic.opened += 1
        # Elsewhere the option is missing or does not count for readiness; with TLS, bytes may wait behind the socket.
        if sys.platform == "linux" and transport.get_extra_info("sslcontext") is None:
            self._socket = transport.get_extra_info("socket")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where bytes go."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        self._is_heard = True
        self._traffic.received_bytes += nbytes
        try:
            for frame in self._reader.buffer_updated(nbytes):
                self._received(frame)
            self._set_low_water(self._reader.missing_bytes)
        except KraftlogError as error:
            if isinstance(error, RemoteProtocolError):
                self._protocol_error = error
            self._end(str(error))

    def _set_low_water(self, missing_bytes: int) -> None:
        wanted = min(max(missing_bytes, 1), LOW_WATER_BYTES)
        if wanted != self._low_water_bytes and self._socket is not None and not self.is_closed:
            self._low_water_bytes = wanted
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        is_silent_end = isinstance(exc, ConnectionError | None) and not self._is_heard
        self._is_ended_unheard = is_silent_end and not self.is_closed
        self._end("the peer closed the connection" if exc is None else str(exc), _code_of(exc))

    def _received(self, frame: Any) -> None:
        if len(frame) < 4:
            raise RemoteProtocolError(f"a response of {len(frame)} bytes")
        self._traffic.answers += 1
        asked = self._asked.pop(int.from_bytes(frame[:4], "big", signed=True), None)
        if asked is None:
            return
        api_key, version_, _, callback = asked
        is_refused = int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
        if api_key == API_VERSIONS_KEY and version_ > 0 and is_refused:
            # A peer that does not know our version answers in version 0 (KIP-511).
            callback(_VersionRefusedError(ErrorCode.UNSUPPORTED_VERSION))
            return
        try:
            answer = decode_response(api_key, version_, frame)[1]
        except RemoteProtocolError as error:
            # The request is no longer among those that the end of the connection answers.
            self._protocol_error = error
            callback(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)))
            raise
        callback(answer)

    def _end(self, reason: str, error_code: int = ErrorCode.BROKER_NOT_AVAILABLE) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._limit_timer is not None:
            self._limit_timer.cancel()
            self._limit_timer = None
        if isinstance(self._reauthentication, asyncio.TimerHandle):
            self._reauthentication.cancel()
        if self._writer is not None:
            self._writer.close()
        if self._transport is not None:
            self._traffic.closed += 1
            self._transport.abort()
        asked, self._asked = self._asked, {}
        for _, _, _, callback in asked.values():
            callback(KafkaError(error_code, reason))


def _code_of(error: BaseException | None) -> int:
    """What a broken connection is for a caller that waits for an answer."""
    from ssl import SSLError

    return ErrorCode.NETWORK_EXCEPTION if isinstance(error, SSLError) else ErrorCode.BROKER_NOT_AVAILABLE


class _VersionRefusedError(KafkaError):
    """ApiVersions is to be asked in version 0."""
