"""What the SASL mechanisms have in common: users and passwords, a server's side, and how authentication fails."""

from __future__ import annotations

from typing import Protocol

from kraftlog.errors import KraftlogError

__all__ = ["Credentials", "SaslError", "SaslServer"]


class Credentials:
    """A user name and a password; the password never shows in a text."""

    __slots__ = ("password", "username")

    def __init__(self, username: str, password: str) -> None:
        self.username = username
        self.password = password

    def __repr__(self) -> str:
        return f"Credentials({self.username!r}, ...)"


class SaslError(KraftlogError):
    """The peer is not authenticated.

    Attributes:
        client_message: What the client may be told; None if only that its credentials are invalid, because more would
            help somebody who guesses. Kafka's SaslAuthenticationException has such a text, SaslException has none.
    """

    def __init__(self, reason: str, client_message: str | None = None) -> None:
        super().__init__(reason)
        self.client_message = client_message

    @classmethod
    def told(cls, message: str) -> SaslError:
        """A failure whose reason the client is told."""
        return cls(message, message)


class SaslServer(Protocol):
    """The server's side of one authentication: tokens in, tokens out, no I/O."""

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated; no further token is expected."""
        ...

    @property
    def user(self) -> str:
        """The name of the user: before the exchange is complete, the one that the client claims to be."""
        ...

    def evaluate(self, token: bytes) -> bytes:
        """Take the client's next token and return the answer, which may be empty.

        Raises:
            SaslError: The client is not authenticated, and no further token can change that.
        """
        ...
