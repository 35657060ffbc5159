"""What a shard of a coordinator asks its shell to do, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AppendRecords", "CoordinatorRecord", "Effect", "Emit", "Respond", "TransactionEnd"]


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record of a coordinator's topic: coordinator-key and coordinator-value messages.

    ``value`` None is a tombstone; ``value_version`` has no meaning then. A record of a transaction has the producer's
    id, else -1: it takes effect with the :class:`TransactionEnd` that commits the transaction. A record that was read
    has its offset, if the coordinator's codec gives it; else -1.
    """

    key: Any
    value: Any | None
    value_version: int = 0
    producer_id: int = -1
    offset: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """A marker in the coordinator's topic: the records of this producer since its last marker take effect, or never."""

    producer_id: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request that came with ``token``."""

    token: object
    response: Any


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append to the shard's partition; report with ``on_appended`` once committed, or failed.

    ``producer`` is the id and epoch of the transaction that the records belong to, if any. ``encoded`` are key and
    value of each record, instead of ``records``, if they are known as bytes already.
    """

    append_id: int
    records: tuple[CoordinatorRecord, ...]
    producer: tuple[int, int] | None = None
    encoded: Sequence[tuple[bytes, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand ``event`` to the shell of the coordinator, such as markers that are due."""

    event: object


Effect = Respond | AppendRecords | Emit
