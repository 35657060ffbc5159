"""SCRAM (RFC 5802): the messages of both sides.

Source: RFC 5802 section 7, and Kafka's ``ScramSaslServer`` and ``ScramMessages`` where those are narrower: user names
are ASCII, there is no channel binding, extensions are ignored.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Callable, Generator
from typing import Final

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.sasl import Credentials, SaslError
from kraftlog.security.scram import ITERATIONS_MIN, ScramCredential, ScramMechanism

__all__ = ["ScramServer", "scram_messages"]

# A server that asks a client for more would keep the client's processor busy.
_CLIENT_ITERATIONS_MAX: Final = 1_000_000
_NONCE_BYTES: Final = 24

_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
# Each alternative of these begins with a character that no other one takes: matching takes linear time.
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))".encode()
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})".encode()
)


def _new_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def _unescaped(name: bytes) -> str:
    return name.decode("ascii").replace("=2C", ",").replace("=3D", "=")


class ScramServer:
    """The server's side; see ``SaslServer``.

    Args:
        mechanism: SHA-256 or SHA-512.
        find_credential: The credential of a user; None if there is none.
        nonce: The server's part of the nonce; random if absent.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find_credential: Callable[[str], ScramCredential | None],
        nonce: str | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._find_credential = find_credential
        self._own_nonce = nonce or _new_nonce()
        self._credential: ScramCredential | None = None
        self._header = b""
        self._nonce = b""
        self._signed_so_far = b""
        self.user = ""
        self.is_complete = False

    def evaluate(self, token: bytes) -> bytes:
        """Take client-first-message and return server-first-message, then the same with the final ones.

        Raises:
            SaslError: The user is unknown, the client does not prove to know the password, or breaks the protocol.
        """
        if self.is_complete:
            raise SaslError("a message after the last one of SCRAM")
        return self._first(token) if self._credential is None else self._final(token, self._credential)

    def _first(self, token: bytes) -> bytes:
        found = _CLIENT_FIRST.fullmatch(token)
        if found is None:
            raise SaslError("the first message of the client is not one of SCRAM")
        if re.search(rb",tokenauth=true(?:,|\Z)", found["extensions"], re.IGNORECASE):
            raise SaslError("delegation tokens are not supported")
        self.user = _unescaped(found["name"])
        credential = self._find_credential(self.user)
        if credential is None:
            raise SaslError(f"there is no {self._mechanism.name} credential of this user")
        # As Kafka, which compares what the client escaped with the plain name.
        if found["authzid"] is not None and found["authzid"].decode("ascii") != self.user:
            raise SaslError.told(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < ITERATIONS_MIN:
            raise SaslError(f"the credential has {credential.iterations} iterations, less than {ITERATIONS_MIN}")
        self._header = found["header"]
        self._nonce = found["nonce"] + self._own_nonce.encode()
        answer = b"r=%b,s=%b,i=%d" % (self._nonce, base64.b64encode(credential.salt), credential.iterations)
        self._signed_so_far = b"%b,%b" % (found["bare"], answer)
        self._credential = credential
        return answer

    def _final(self, token: bytes, credential: ScramCredential) -> bytes:
        found = _CLIENT_FINAL.fullmatch(token)
        if found is None:
            raise SaslError("the final message of the client is not one of SCRAM")
        if found["nonce"] != self._nonce:
            raise SaslError("the final message of the client has another nonce")
        if base64.b64decode(found["channel"]) != self._header:
            raise SaslError("the final message of the client does not repeat the header of its first one")
        mechanism = self._mechanism
        signed = b"%b,%b" % (self._signed_so_far, found["unproved"])
        signature = mechanism.hmac(credential.stored_key, signed)
        proof = base64.b64decode(found["proof"])
        if len(proof) != len(signature):
            raise SaslError(f"a proof of {len(proof)} bytes")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(mechanism.hash(client_key), credential.stored_key):
            raise SaslError("the client does not prove that it knows the password")
        self.is_complete = True
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, signed))


def scram_messages(
    credentials: Credentials, mechanism: ScramMechanism, nonce: str | None = None
) -> Generator[bytes, bytes, None]:
    """The messages of a client; gets each answer of the server.

    Raises:
        KafkaError: SASL_AUTHENTICATION_FAILED: the server's answers are not those of one that knows the password.
    """
    name = credentials.username.replace("=", "=3D").replace(",", "=2C")
    own = nonce or _new_nonce()
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
    if not ITERATIONS_MIN <= iterations <= _CLIENT_ITERATIONS_MAX:
        raise _refused(f"{iterations} iterations are not between {ITERATIONS_MIN} and {_CLIENT_ITERATIONS_MAX}")
    salted = mechanism.salted_password(credentials.password, salt, iterations)
    client_key = mechanism.client_key(salted)
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{first},{server_first},{without_proof}".encode()
    signature = mechanism.hmac(mechanism.hash(client_key), signed)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    server_final = yield f"{without_proof},p={proof}".encode()
    expected = b"v=" + base64.b64encode(mechanism.hmac(mechanism.server_key(salted), signed))
    if not hmac.compare_digest(server_final, expected):
        raise _refused("the server does not prove that it knows the password")


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason)
