"""SASL PLAIN and SCRAM as a client: each mechanism is a generator of messages (RFC 4616, RFC 5802)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Generator
from typing import Protocol

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftlog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kraftlog.wire.struct import Message

__all__ = ["Credentials", "authenticate", "credentials_from", "plain_messages", "scram_messages"]

# A server that asks for more would keep the processor busy; Kafka's own default is 4096.
ITERATIONS_MAX = 1_000_000
ITERATIONS_MIN = 4096


class Credentials:
    """A user name and a password; the password never shows in a text."""

    __slots__ = ("password", "username")

    def __init__(self, username: str, password: str) -> None:
        self.username = username
        self.password = password

    def __repr__(self) -> str:
        return f"Credentials({self.username!r}, ...)"


def credentials_from(username: str | None, password: str | None, jaas_config: str | None) -> Credentials | None:
    """The credentials of ``sasl.username`` and ``sasl.password``, or of ``sasl.jaas.config``."""
    if jaas_config is not None:
        options = dict(re.findall(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"', jaas_config))
        username, password = options.get("username", username), options.get("password", password)
    return None if username is None or password is None else Credentials(username, password)


def plain_messages(credentials: Credentials) -> Generator[bytes, bytes, None]:
    """The one message of PLAIN."""
    yield b"\0" + credentials.username.encode() + b"\0" + credentials.password.encode()


def scram_messages(credentials: Credentials, hash_name: str, nonce: str | None = None) -> Generator[bytes, bytes, None]:
    """The messages of SCRAM; gets each answer of the server.

    Raises:
        KafkaError: SASL_AUTHENTICATION_FAILED: the server's answers are not those of one that knows the password.
    """
    name = credentials.username.replace("=", "=3D").replace(",", "=2C")
    own = nonce or base64.b64encode(secrets.token_bytes(24)).decode().replace(",", "")
    first = f"n={name},r={own}"
    server_first = (yield b"n,," + first.encode()).decode("utf-8", "replace")
    fields = dict(part.split("=", 1) for part in server_first.split(",") if "=" in part)
    if "e" in fields or not {"r", "s", "i"} <= fields.keys():
        raise _refused(fields.get("e", "the server's first message is not one of SCRAM"))
    try:
        salt, iterations = base64.b64decode(fields["s"], validate=True), int(fields["i"])
    except ValueError as error:
        raise _refused("the server's salt or iteration count cannot be read") from error
    if not fields["r"].startswith(own) or len(fields["r"]) == len(own):
        raise _refused("the server's nonce does not begin with the client's")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise _refused(f"{iterations} iterations are not between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    salted = hashlib.pbkdf2_hmac(hash_name, credentials.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{first},{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    server_final = (yield f"{without_proof},p={proof}".encode()).decode("utf-8", "replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
    if not hmac.compare_digest(server_final.encode(), b"v=" + base64.b64encode(expected)):
        raise _refused("the server does not prove that it knows the password")


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason)


class _Asks(Protocol):
    async def request(self, message: Message) -> Message: ...


async def authenticate(connection: _Asks, mechanism: str, credentials: Credentials) -> None:
    """Authenticate a connection (KIP-152).

    Raises:
        KafkaError: The broker does not have the mechanism, or refuses the credentials.
    """
    handshake = await connection.request(SaslHandshakeRequest(mechanism=mechanism))
    if not isinstance(handshake, SaslHandshakeResponse) or handshake.error_code:
        mechanisms = ", ".join(getattr(handshake, "mechanisms", ()))
        raise KafkaError(
            getattr(handshake, "error_code", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            f"the broker does not offer {mechanism}; it offers {mechanisms or 'none'}",
        )
    messages = (
        plain_messages(credentials)
        if mechanism == "PLAIN"
        else scram_messages(credentials, "sha256" if mechanism == "SCRAM-SHA-256" else "sha512")
    )
    message = next(messages)
    while True:
        answer = await connection.request(SaslAuthenticateRequest(auth_bytes=message))
        if not isinstance(answer, SaslAuthenticateResponse) or answer.error_code:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, getattr(answer, "error_message", None))
        try:
            message = messages.send(answer.auth_bytes)
        except StopIteration:
            return
