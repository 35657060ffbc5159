"""SASL on one connection as a state machine: frames in, steps out, no I/O and no clock.

Source: KIP-43 and KIP-152 (handshake, tokens in requests), KIP-368 (sessions that end), and Kafka's
``SaslServerAuthenticator`` and ``KafkaChannel``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from kraftlog.errors import ErrorCode, ProtocolError
from kraftlog.security.sasl import SaslError, SaslServer
from kraftlog.wire.frame import decode_small_request, encode_response
from kraftlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftlog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kraftlog.wire.registry import API_BY_KEY
from kraftlog.wire.struct import Message

if TYPE_CHECKING:
    from kraftlog.transport.frame_reader import Frame
    from kraftlog.transport.socket import Output

__all__ = ["SASL_HANDSHAKE_KEY", "Authenticated", "Failed", "Passed", "Replied", "SaslSession", "Step"]

API_VERSIONS_KEY: Final = 18
SASL_HANDSHAKE_KEY: Final = 17
SASL_AUTHENTICATE_KEY: Final = 36
_BEFORE_TOKENS: Final = frozenset({API_VERSIONS_KEY, SASL_HANDSHAKE_KEY})
_HEADER_BYTES_MIN: Final = 8
# Neither request has arrays.
_ELEMENTS_MAX: Final = 16
_BETWEEN_REAUTHENTICATIONS_S: Final = 1.0
# Of what a peer sent, in a line of the log.
_SHOWN_CHARACTERS_MAX: Final = 100


class _State(Enum):
    FIRST = auto()
    """Nothing came, or ApiVersions that was refused."""
    VERSIONS_KNOWN = auto()
    """ApiVersions was answered; SaslHandshake has to follow."""
    TOKENS = auto()
    """A mechanism is chosen."""
    WRONG_MECHANISM = auto()
    """Re-authentication with another mechanism was begun; the next frame ends it."""
    AUTHENTICATED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Passed:
    """The dispatcher answers this frame; before authentication it is ApiVersions."""


@dataclass(frozen=True, slots=True)
class Replied:
    """These outputs answer the frame."""

    outputs: list[Output]


@dataclass(frozen=True, slots=True)
class Authenticated:
    """These outputs answer the frame, and the peer is that user from now on."""

    outputs: list[Output]
    user: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The connection ends.

    Attributes:
        reason: For the log.
        outputs: Are sent before; may be empty.
        is_delayed: Both happen after ``connection.failed.authentication.delay.ms``, to slow down who guesses.
    """

    reason: str
    outputs: Sequence[Output] = ()
    is_delayed: bool = False


Step = Passed | Replied | Authenticated | Failed
_PASSED: Final = Passed()


class SaslSession:
    """What a connection has authenticated as, and what may come next.

    Args:
        servers: Makes the server's side of each enabled mechanism; the order is that in which clients are told.
        max_reauth_ms: Milliseconds until a session of the mechanism ends; a mechanism without sessions that end is
            absent.
    """

    __slots__ = (
        "_expires_at_s",
        "_has_requests",
        "_max_reauth_ms",
        "_mechanism",
        "_previous",
        "_reauthenticated_at_s",
        "_server",
        "_servers",
        "_state",
    )

    def __init__(self, servers: Mapping[str, Callable[[], SaslServer]], max_reauth_ms: Mapping[str, int]) -> None:
        self._servers = servers
        self._max_reauth_ms = max_reauth_ms
        self._state = _State.FIRST
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._has_requests = False
        self._expires_at_s: float | None = None
        self._reauthenticated_at_s: float | None = None
        self._previous: tuple[str, str] | None = None

    @property
    def is_authenticated(self) -> bool:
        """Whether requests are served; not while the peer authenticates again."""
        return self._state is _State.AUTHENTICATED

    def left_s(self, now_s: float) -> float | None:
        """Seconds until the session ends, at least 0; None if it does not end, or has not begun."""
        return None if self._expires_at_s is None else max(self._expires_at_s - now_s, 0.0)

    def receive(self, frame: Frame, now_s: float) -> Step:
        """Take the next frame of the peer, which starts behind its length prefix.

        Args:
            frame: A request, or after SaslHandshake version 0 a bare token.
            now_s: Seconds of a clock that does not go back.
        """
        if self._state is _State.AUTHENTICATED:
            step = self._receive_authenticated(frame, now_s)
        elif self._state is _State.TOKENS:
            step = self._receive_token(frame, now_s)
        elif self._state is _State.WRONG_MECHANISM:
            step = Failed(
                f"re-authentication of a session of {self._mechanism} with another mechanism", is_delayed=True
            )
        elif self._state is _State.FAILED:
            step = Failed("a request after authentication had failed")
        else:
            step = self._receive_handshake(frame)
        if isinstance(step, Failed):
            self._state = _State.FAILED
        return step

    def versions_answered(self, error_code: int) -> None:
        """The dispatcher has answered the ApiVersions that ``receive`` let pass."""
        if self._state is _State.FIRST and not error_code:
            self._state = _State.VERSIONS_KNOWN

    def _receive_authenticated(self, frame: Frame, now_s: float) -> Step:
        expires_at_s = self._expires_at_s
        if expires_at_s is None:
            return _PASSED
        if frame[:2] == SASL_HANDSHAKE_KEY.to_bytes(2, "big") and self._may_reauthenticate(now_s):
            self._reauthenticated_at_s = now_s
            if self._server is not None:
                self._previous = (self._mechanism, self._server.user)
            return self._receive_handshake(frame)
        if now_s > expires_at_s:
            return Failed("the session of the client has ended, and it did not authenticate again")
        return _PASSED

    def _may_reauthenticate(self, now_s: float) -> bool:
        last_s = self._reauthenticated_at_s
        return last_s is None or now_s - last_s >= _BETWEEN_REAUTHENTICATIONS_S

    def _receive_handshake(self, frame: Frame) -> Step:
        api_key = int.from_bytes(frame[:2], "big", signed=True)
        if len(frame) < _HEADER_BYTES_MIN or api_key not in _BEFORE_TOKENS:
            known = API_BY_KEY.get(api_key) if len(frame) >= _HEADER_BYTES_MIN else None
            what = "bytes that are no request" if known is None else f"a {known.name} request"
            return Failed(f"{what} before authentication; is the client's security.protocol one with SASL?")
        if api_key == API_VERSIONS_KEY:
            return Failed("ApiVersions for a second time") if self._state is _State.VERSIONS_KNOWN else _PASSED
        decoded = _decoded(frame)
        if isinstance(decoded, Failed):
            return decoded
        version, correlation_id, request = decoded
        mechanism = request.mechanism if isinstance(request, SaslHandshakeRequest) else ""
        new_server = self._servers.get(mechanism)
        response = SaslHandshakeResponse(
            error_code=ErrorCode.NONE if new_server is not None else ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            mechanisms=tuple(self._servers),
        )
        outputs = encode_response(SASL_HANDSHAKE_KEY, version, correlation_id, response)
        if new_server is None:
            if self._previous is not None:
                outputs = []  # as Kafka, which closes
            return Failed(
                f"SASL mechanism {mechanism[:_SHOWN_CHARACTERS_MAX]!r} is not enabled", outputs, is_delayed=True
            )
        self._has_requests = self._has_requests or version >= 1
        if self._previous is not None and mechanism != self._previous[0]:
            self._state = _State.WRONG_MECHANISM
            return Replied(outputs)
        self._mechanism = mechanism
        self._server = new_server()
        self._state = _State.TOKENS
        return Replied(outputs)

    def _receive_token(self, frame: Frame, now_s: float) -> Step:
        if not self._has_requests:
            return self._evaluate_bare(bytes(frame), now_s)
        api_key = int.from_bytes(frame[:2], "big", signed=True)
        if len(frame) < _HEADER_BYTES_MIN or api_key not in API_BY_KEY:
            return Failed("bytes that are no request, where SaslAuthenticate was expected")
        if api_key != SASL_AUTHENTICATE_KEY:
            return _illegal_state(api_key, frame)
        decoded = _decoded(frame)
        if isinstance(decoded, Failed):
            return decoded
        version, correlation_id, request = decoded
        token = bytes(request.auth_bytes) if isinstance(request, SaslAuthenticateRequest) else b""
        try:
            answer, lifetime_ms = self._evaluate(token, now_s)
        except SaslError as failure:
            during = "authentication" if self._previous is None else "re-authentication"
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=failure.client_message
                or f"Authentication failed during {during} due to invalid credentials with SASL mechanism"
                f" {self._mechanism}",
            )
            outputs = encode_response(api_key, version, correlation_id, response)
            return Failed(self._described(failure), outputs, is_delayed=True)
        response = SaslAuthenticateResponse(
            auth_bytes=answer, session_lifetime_ms=0 if lifetime_ms is None else lifetime_ms
        )
        return self._step(encode_response(api_key, version, correlation_id, response))

    def _evaluate_bare(self, token: bytes, now_s: float) -> Step:
        """Without requests around tokens there is no way to report an error but the end of the connection."""
        try:
            answer, _ = self._evaluate(token, now_s)
        except SaslError as failure:
            return Failed(self._described(failure), is_delayed=True)
        return self._step([len(answer).to_bytes(4, "big") + answer])

    def _step(self, outputs: list[Output]) -> Step:
        if self._state is _State.AUTHENTICATED and self._server is not None:
            return Authenticated(outputs, self._server.user)
        return Replied(outputs)

    def _evaluate(self, token: bytes, now_s: float) -> tuple[bytes, int | None]:
        """The answer to a token and the length of the session, if it has begun and ends.

        Raises:
            SaslError: The client is not authenticated.
        """
        server = self._server
        if server is None:
            raise SaslError("no mechanism was chosen")
        answer = server.evaluate(token)
        if not server.is_complete:
            return answer, None
        if self._previous is not None and self._previous[1] != server.user:
            raise SaslError.told(
                f"Cannot change principals during re-authentication from User.{self._previous[1]}: User.{server.user}"
            )
        lifetime_ms = self._max_reauth_ms.get(self._mechanism)
        self._expires_at_s = None if lifetime_ms is None else now_s + lifetime_ms / 1000
        self._previous = None
        self._state = _State.AUTHENTICATED
        return answer, lifetime_ms

    def _described(self, failure: SaslError) -> str:
        user = self._server.user[:_SHOWN_CHARACTERS_MAX] if self._server is not None else ""
        return f"authentication with {self._mechanism} failed{f' for user {user!r}' if user else ''}: {failure}"


def _decoded(frame: Frame) -> tuple[int, int, Message] | Failed:
    """Version, correlation id and body of a SaslHandshake or SaslAuthenticate."""
    api_key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big", signed=True)
    try:
        decoded = decode_small_request(frame, _ELEMENTS_MAX)
    except ProtocolError as error:
        return Failed(f"{API_BY_KEY[api_key].name} version {version}: {error}")
    if decoded is None:
        return Failed(f"{API_BY_KEY[api_key].name} version {version} is too large")
    header, request = decoded
    return version, header.correlation_id, request


def _illegal_state(api_key: int, frame: Frame) -> Failed:
    """ILLEGAL_SASL_STATE to requests that belong before authentication; to others, nothing."""
    api = API_BY_KEY[api_key]
    reason = f"a {api.name} request instead of SaslAuthenticate"
    version = int.from_bytes(frame[2:4], "big", signed=True)
    if api_key not in _BEFORE_TOKENS or not api.min_version <= version <= api.max_version:
        return Failed(reason, is_delayed=True)
    values: dict[str, Any] = {"error_code": ErrorCode.ILLEGAL_SASL_STATE}
    response = api.response(**values)
    correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
    return Failed(reason, encode_response(api_key, version, correlation_id, response), is_delayed=True)
