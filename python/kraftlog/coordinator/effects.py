"""What a shard of a coordinator asks its shell to do, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["AppendRecords", "CoordinatorRecord", "Effect", "Respond"]


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record of a coordinator's topic: coordinator-key and coordinator-value messages.

    ``value`` None is a tombstone; ``value_version`` has no meaning then.
    """

    key: Any
    value: Any | None
    value_version: int = 0


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request that came with ``token``."""

    token: object
    response: Any


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append to the shard's partition; report with ``on_appended`` once committed, or failed."""

    append_id: int
    records: tuple[CoordinatorRecord, ...]


Effect = Respond | AppendRecords
