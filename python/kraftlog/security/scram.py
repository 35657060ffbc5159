"""SCRAM credentials and their keys (RFC 5802, RFC 7677): what servers keep instead of a password.

As in Kafka's ``ScramFormatter``, passwords are the bytes of UTF-8 without SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "ITERATIONS_MAX",
    "ITERATIONS_MIN",
    "MECHANISM_BY_CODE",
    "MECHANISM_BY_NAME",
    "ScramCredential",
    "ScramMechanism",
]

# Bounds of stored credentials: those of Kafka's ScramMechanism and ScramControlManager.
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password; only the number of iterations shows in a text."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """One of the two mechanisms.

    Attributes:
        name: As in SaslHandshake and in settings.
        code: As in records and in AlterUserScramCredentials.
        hash_name: As ``hashlib`` has it.
    """

    name: str
    code: int
    hash_name: str

    def hash(self, data: bytes) -> bytes:
        """H of RFC 5802."""
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """HMAC of RFC 5802."""
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Hi(password, salt, iterations): takes a millisecond per thousand iterations or so."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def client_key(self, salted_password: bytes) -> bytes:
        """What a client proves to know."""
        return self.hmac(salted_password, b"Client Key")

    def server_key(self, salted_password: bytes) -> bytes:
        """What a server proves to know."""
        return self.hmac(salted_password, b"Server Key")

    def credential(self, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """What a server keeps of a salted password."""
        stored_key = self.hash(self.client_key(salted_password))
        return ScramCredential(salt, stored_key, self.server_key(salted_password), iterations)


_MECHANISMS: Final = (ScramMechanism("SCRAM-SHA-256", 1, "sha256"), ScramMechanism("SCRAM-SHA-512", 2, "sha512"))
MECHANISM_BY_NAME: Final = {mechanism.name: mechanism for mechanism in _MECHANISMS}
MECHANISM_BY_CODE: Final = {mechanism.code: mechanism for mechanism in _MECHANISMS}
