"""Random ids for topics and ACLs."""

from __future__ import annotations

from random import Random
from typing import Final

from kraftlog.types import Uuid

__all__ = ["new_uuid"]

_RESERVED_UUIDS: Final = 100


def new_uuid(rng: Random) -> Uuid:
    """A UUID of version 4 that is not reserved and does not begin with a dash, as Kafka's ``Uuid.randomUuid``."""
    while True:
        bits = rng.getrandbits(128)
        bits = bits & ~(0xF << 76) | 4 << 76
        bits = bits & ~(0x3 << 62) | 2 << 62
        uuid = Uuid(bits.to_bytes(16, "big"))
        if bits >= _RESERVED_UUIDS and not str(uuid).startswith("-"):
            return uuid
