"""SASL as a client of another node: user, mechanism, and the exchange on a connection (KIP-43, KIP-152)."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.jaas import PLAIN_MODULE, SCRAM_MODULE, JaasError, parse_jaas
from kraftlog.security.sasl import Credentials
from kraftlog.security.sasl_plain import PLAIN, plain_messages
from kraftlog.security.sasl_scram import scram_messages
from kraftlog.security.scram import MECHANISM_BY_NAME
from kraftlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftlog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from kraftlog.wire.struct import Message

__all__ = ["MECHANISMS", "SaslLogin", "authenticate", "jaas_credentials", "module_of"]

MECHANISMS = (PLAIN, *MECHANISM_BY_NAME)


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """As whom to authenticate, and how.

    Attributes:
        mechanism: One of ``MECHANISMS``.
    """

    mechanism: str
    credentials: Credentials

    def messages(self) -> Generator[bytes, bytes, None]:
        """The tokens of one authentication; gets each answer of the server."""
        if self.mechanism == PLAIN:
            return plain_messages(self.credentials)
        return scram_messages(self.credentials, MECHANISM_BY_NAME[self.mechanism])


def module_of(mechanism: str) -> str:
    """The login module of a mechanism."""
    return PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE


def jaas_credentials(text: str, mechanism: str) -> Credentials:
    """The user of a client's ``sasl.jaas.config``.

    Raises:
        JaasError: It cannot be read, is for another mechanism, or has no username and password.
    """
    entry = parse_jaas(text)
    if entry.module != module_of(mechanism):
        raise JaasError(f"{entry.module} is not the login module of {mechanism}, which is {module_of(mechanism)}")
    if entry.options.get("tokenauth", "false").lower() != "false":
        raise JaasError("tokenauth: delegation tokens are not supported")
    username, password = entry.options.get("username"), entry.options.get("password")
    if username is None or password is None:
        raise JaasError("username and password must be set")
    return Credentials(username, password)


class _Asks(Protocol):
    async def request(self, message: Message) -> Message: ...


async def authenticate(connection: _Asks, login: SaslLogin) -> int:
    """Authenticate a connection.

    Returns:
        Milliseconds until the session ends (KIP-368); 0 if it does not.

    Raises:
        KafkaError: The server does not have the mechanism, refuses the credentials, or does not know them itself.
    """
    handshake = await connection.request(SaslHandshakeRequest(mechanism=login.mechanism))
    if not isinstance(handshake, SaslHandshakeResponse) or handshake.error_code:
        mechanisms = ", ".join(getattr(handshake, "mechanisms", ()))
        raise KafkaError(
            getattr(handshake, "error_code", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            f"the broker does not offer {login.mechanism}; it offers {mechanisms or 'none'}",
        )
    messages = login.messages()
    message: bytes | None = next(messages)
    lifetime_ms = 0
    while message is not None:
        answer = await connection.request(SaslAuthenticateRequest(auth_bytes=message))
        if not isinstance(answer, SaslAuthenticateResponse) or answer.error_code:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, getattr(answer, "error_message", None))
        lifetime_ms = answer.session_lifetime_ms
        # The iterations of SCRAM take milliseconds, with as many of them as the server likes.
        message = await asyncio.to_thread(_next_message, messages, bytes(answer.auth_bytes))
    return lifetime_ms


def _next_message(messages: Generator[bytes, bytes, None], answer: bytes) -> bytes | None:
    try:
        return messages.send(answer)
    except StopIteration:
        return None
