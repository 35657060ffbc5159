"""The transaction coordinator of a node: transaction shards over ``__transaction_state``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kraftlog.coordinator.transaction.config import TransactionConfig
from kraftlog.coordinator.transaction.markers import MarkersDue
from kraftlog.coordinator.transaction.transaction_shard import TransactionShard
from kraftlog.runtime.coordinator.record_codec import TRANSACTION_RECORDS
from kraftlog.runtime.coordinator.shard_registry import (
    CommittedMetadata,
    PartitionLookup,
    ShardRegistry,
    TaskGroup,
    TopicCreator,
)
from kraftlog.runtime.coordinator.shard_runner import ShardRunner, ShardShell, Unmeasured
from kraftlog.vocabulary import TRANSACTION_STATE_TOPIC

__all__ = ["TransactionCoordinatorSettings", "transaction_coordinator"]

_FEATURE = "transaction.version"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCoordinatorSettings:
    """Settings of the transaction coordinator, and of leaders that ask it.

    Attributes:
        transactions: Limits and times of transactions.
        retry_ms: add.partitions.to.txn.retry.backoff.ms.
        retry_max_ms: add.partitions.to.txn.retry.backoff.max.ms.
        request_timeout_ms: request.timeout.ms.
    """

    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    retry_ms: int = 20
    retry_max_ms: int = 100
    request_timeout_ms: int = 30_000


class _LoadMeter(Unmeasured):
    """Measures loads alone: Kafka's transaction coordinator has no other times of its runtime."""

    def __init__(self, on_loaded: Callable[[float], None]) -> None:
        self._on_loaded = on_loaded

    def on_loaded(self, duration_ms: float) -> None:
        """A shard was loaded."""
        self._on_loaded(duration_ms)


def transaction_coordinator(
    settings: TransactionCoordinatorSettings,
    *,
    now_ms: Callable[[], int],
    metadata: CommittedMetadata,
    partitions: PartitionLookup,
    topics: TopicCreator,
    tasks: TaskGroup,
    take_producer_id: Callable[[], int | None],
    send_markers: Callable[[ShardRunner[TransactionShard], MarkersDue], None],
    on_loaded: Callable[[float], None],
) -> ShardRegistry[TransactionShard]:
    """Make the transaction coordinator; ``start`` begins its work."""

    def on_event(runner: ShardRunner[Any], event: object) -> None:
        if isinstance(event, MarkersDue):
            send_markers(runner, event)

    def make_shard() -> TransactionShard:
        return TransactionShard(
            settings.transactions,
            take_producer_id=take_producer_id,
            transaction_version=lambda: metadata.image.features.get(_FEATURE, 0),
        )

    shell = ShardShell(
        codec=TRANSACTION_RECORDS,
        compression="none",
        now_ms=now_ms,
        is_batched=False,
        on_event=on_event,
        meter=_LoadMeter(on_loaded),
    )
    return ShardRegistry(
        TRANSACTION_STATE_TOPIC,
        make_shard,
        shell,
        metadata=metadata,
        partitions=partitions,
        topics=topics,
        tasks=tasks,
        has_fixed_count=True,
    )
