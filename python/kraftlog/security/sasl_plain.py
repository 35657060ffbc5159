"""PLAIN (RFC 4616): the user's name and password in one message.

Source: Kafka's ``PlainSaslServer`` and ``PlainServerCallbackHandler``, which compare the bytes of UTF-8 as they are.
"""

from __future__ import annotations

import hmac
from collections.abc import Generator, Mapping

from kraftlog.security.sasl import Credentials, SaslError

__all__ = ["PLAIN", "PlainServer", "plain_messages"]

PLAIN = "PLAIN"


def plain_messages(credentials: Credentials) -> Generator[bytes, bytes, None]:
    """The one message of a client."""
    yield b"\0" + credentials.username.encode() + b"\0" + credentials.password.encode()


class PlainServer:
    """The server's side; see ``SaslServer``.

    Args:
        passwords: By user name.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user = ""
        self.is_complete = False

    def evaluate(self, token: bytes) -> bytes:
        """Take ``[authzid] NUL authcid NUL passwd``; the answer is empty.

        Raises:
            SaslError: It is not such a message, or the password is wrong.
        """
        if self.is_complete:
            raise SaslError("a message after the only one of PLAIN")
        parts = token.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise SaslError.told(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise SaslError.told("Authentication failed: username not specified")
        if not password:
            raise SaslError.told("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        self.user = user
        # Compared with itself, an unknown user takes as long as a known one.
        is_equal = hmac.compare_digest((password if expected is None else expected).encode(), password.encode())
        if expected is None or not is_equal:
            raise SaslError.told("Authentication failed: Invalid username or password")
        if authorization_id not in {"", user}:
            raise SaslError.told(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.is_complete = True
        return b""
