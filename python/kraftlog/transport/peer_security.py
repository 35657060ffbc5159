"""What a connection to another node needs besides its address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext

    from kraftlog.transport.sasl_login import SaslLogin

__all__ = ["PeerSecurity", "SecurityOf"]


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """TLS and SASL as a client.

    Attributes:
        tls: None without TLS.
        login: None without SASL.
    """

    tls: SSLContext | None = None
    login: SaslLogin | None = None


SecurityOf = Callable[[str], PeerSecurity | None]
"""What connections to a listener of that name need; None if it is PLAINTEXT."""
