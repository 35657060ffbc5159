"""A transactional id: who may use it, and the transaction it runs.

A :class:`Transaction` is a value. A change of state is a new value, which takes the place of the old one once its
record is committed; an append that fails leaves nothing to roll back.

Source: ``org.apache.kafka.coordinator.transaction.TransactionMetadata`` and ``TransactionLog``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.types import TopicPartition
from kraftlog.vocabulary import TRANSACTION_STATES
from kraftlog.wire.messages.transaction_coordinator_records import TransactionLogKey, TransactionLogValue

__all__ = [
    "COMPLETE_STATES",
    "LAST_EPOCH",
    "MAX_EPOCH",
    "NO_EPOCH",
    "NO_PRODUCER_ID",
    "PREPARE_STATES",
    "UNLIMITED_TIMEOUT_MS",
    "IllegalTransitionError",
    "Transaction",
    "TransactionState",
]

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 32767
"""Fences a producer; no client ever gets it."""
LAST_EPOCH: Final = MAX_EPOCH - 1
"""The last epoch that a client gets before its producer id is replaced."""
UNLIMITED_TIMEOUT_MS: Final = 2**31 - 1
"""Of a transaction that takes part in a two-phase commit (KIP-939)."""


class IllegalTransitionError(Exception):
    """A change of state that the state machine does not have: a fault of the coordinator, never of a client."""


class TransactionState(IntEnum):
    """States by the number they have in a record; DEAD and PREPARE_EPOCH_FENCE are never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name that the protocol and Kafka's tools use."""
        return TRANSACTION_STATES[self]


_S = TransactionState
PREPARE_STATES: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
COMPLETE_STATES: Final = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
_IDLE: Final = COMPLETE_STATES | {_S.EMPTY}
_PREVIOUS: Final = {
    _S.EMPTY: _IDLE,
    _S.ONGOING: _IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: _IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: _IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What is known of a transactional id.

    Attributes:
        previous_producer_id: The producer id before the last change of state.
        next_producer_id: The producer id that the client got because its epochs ran out, until the markers are written.
        last_producer_epoch: The epoch before the last bump, -1 if unknown; in memory only.
        start_ms: When the first partition was added, -1 for no transaction.
        update_ms: When the state last changed, for expiration.
        client_version: transaction.version of the client's last requests: 0, or 2 with an epoch per transaction.
    """

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    timeout_ms: int
    state: TransactionState = _S.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the client may get no higher epoch of this producer id."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def supports_epoch_bump(self) -> bool:
        """Whether the epoch rises with every transaction (KIP-890 part 2)."""
        return self.client_version >= 2

    def _move(self, state: TransactionState, **changes: object) -> Transaction:
        if self.state not in _PREVIOUS[state]:
            raise IllegalTransitionError(f"{self.transactional_id}: {self.state.text} to {state.text}")
        # Every record names the producer id before it, changed or not: so does Kafka's.
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)  # type: ignore[arg-type]

    def to_empty(self, *, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer was initialized with this epoch."""
        return self._move(
            _S.EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
            update_ms=now_ms,
        )

    def with_new_producer_id(self, producer_id: int, *, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer was initialized whose epochs had run out."""
        changed = self.to_empty(epoch=0, last_epoch=last_epoch, timeout_ms=timeout_ms, now_ms=now_ms)
        return replace(changed, producer_id=producer_id)

    def to_ongoing(self, added: frozenset[TopicPartition], *, client_version: int, now_ms: int) -> Transaction:
        """Partitions were added; the first of them begin the transaction."""
        return self._move(
            _S.ONGOING,
            partitions=self.partitions | added,
            start_ms=self.start_ms if self.state is _S.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def to_prepared(
        self, state: TransactionState, *, client_version: int, next_producer_id: int, now_ms: int
    ) -> Transaction:
        """The outcome is decided. With ``client_version`` 2 the epoch rises, up to 32767."""
        bumps = client_version >= 2
        return self._move(
            state,
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH) if bumps else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if bumps else self.last_producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is _S.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def to_complete(self, *, now_ms: int) -> Transaction:
        """All markers are written. A producer id whose epochs ran out gives way to the next one."""
        state = _S.COMPLETE_COMMIT if self.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT
        changes: dict[str, object] = {}
        if self.supports_epoch_bump and self.next_producer_id != NO_PRODUCER_ID:
            changes = {"producer_id": self.next_producer_id, "producer_epoch": 0}
        return self._move(state, next_producer_id=NO_PRODUCER_ID, partitions=frozenset(), update_ms=now_ms, **changes)

    def fenced(self) -> Transaction:
        """The producer lost the id while its transaction is open: its epoch rises, up to 32767."""
        return replace(self, producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH), last_producer_epoch=NO_EPOCH)

    def to_record(self, transaction_version: int) -> CoordinatorRecord:
        """The record that keeps this value, as the finalized transaction.version wants it."""
        version = 0 if transaction_version == 0 else 1
        topics: dict[str, list[int]] = {}
        for partition in sorted(self.partitions, key=lambda found: (found.topic, found.partition)):
            topics.setdefault(partition.topic, []).append(partition.partition)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None
            if self.state is _S.EMPTY
            else [
                TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()
            ],
            transaction_last_update_timestamp_ms=self.update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            previous_producer_id=self.previous_producer_id if version else NO_PRODUCER_ID,
            next_producer_id=self.next_producer_id if version else NO_PRODUCER_ID,
            client_transaction_version=self.client_version if version else 0,
        )
        return CoordinatorRecord(TransactionLogKey(transactional_id=self.transactional_id), value, version)

    def tombstone(self) -> CoordinatorRecord:
        """The record that forgets the id."""
        return CoordinatorRecord(TransactionLogKey(transactional_id=self.transactional_id), None)

    @classmethod
    def from_value(cls, transactional_id: str, value: TransactionLogValue) -> Transaction:
        """What a replayed record says; the epoch before the last bump is not in it.

        Raises:
            ValueError: The status is none that is ever written.
        """
        state = TransactionState(value.transaction_status)
        return cls(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=state,
            partitions=frozenset(
                TopicPartition(topic.topic, index)
                for topic in value.transaction_partitions or ()
                for index in topic.partition_ids
            ),
            start_ms=value.transaction_start_timestamp_ms,
            update_ms=value.transaction_last_update_timestamp_ms,
            client_version=value.client_transaction_version,
        )
