"""The markers that end a transaction on its partitions."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.types import TopicPartition

__all__ = ["MarkersDue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersDue:
    """A transaction is decided: its markers are to be written on every partition, however long that takes.

    Attributes:
        transactional_id, producer_id, producer_epoch: Arguments of the later ``on_markers_written``.
        transaction_version: 2 if the epoch is above that of the transaction's records, else 0.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int
