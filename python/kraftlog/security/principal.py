"""The identity of a client: Kafka's ``KafkaPrincipal``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ANONYMOUS", "USER_TYPE", "Principal"]

USER_TYPE: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """A type, almost always ``User``, and a name.

    Source: ``org.apache.kafka.common.security.auth.KafkaPrincipal``.
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER_TYPE, "ANONYMOUS")
