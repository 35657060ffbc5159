"""One shard of the transaction coordinator: the ids whose records live in one ``__transaction_state`` partition.

A sans-IO state machine. A state is in force once its record is committed, as in Kafka; until then the id is busy and
clients hear CONCURRENT_TRANSACTIONS. Markers that are due are emitted to the shell, which reports when all are written.

Source: ``kafka.coordinator.transaction.TransactionCoordinator`` and ``TransactionStateManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from kraftlog.coordinator.effects import CoordinatorRecord, Effect, TransactionEnd
from kraftlog.coordinator.transaction.config import TransactionConfig
from kraftlog.coordinator.transaction.end_rules import EndRequest, end_error
from kraftlog.coordinator.transaction.markers import MarkersDue
from kraftlog.coordinator.transaction.transaction import (
    COMPLETE_STATES,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARE_STATES,
    UNLIMITED_TIMEOUT_MS,
    Transaction,
    TransactionState,
)
from kraftlog.coordinator.write_log import WriteLog
from kraftlog.errors import ErrorCode, RemoteProtocolError
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.end_txn import EndTxnResponse
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kraftlog.wire.messages.transaction_coordinator_records import TransactionLogKey, TransactionLogValue

__all__ = ["TransactionShard"]

_S = TransactionState
_RETRY_MS = 100
_TOMBSTONES_PER_BATCH = 1_000


class _Entry:
    """A transactional id, and whether a change of it is being written."""

    __slots__ = ("current", "is_pending")

    def __init__(self, current: Transaction) -> None:
        self.current = current
        self.is_pending = False


class TransactionShard:
    """Transactional ids of one partition.

    Args:
        config: Limits and times.
        take_producer_id: Gives a producer id that nobody else has; None while a new block is requested.
        transaction_version: Gives the finalized level of the feature of that name.
    """

    def __init__(
        self,
        config: TransactionConfig,
        *,
        take_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
    ) -> None:
        self._config = config
        self._take_producer_id = take_producer_id
        self._version = transaction_version
        self._writes = WriteLog()
        self._entries: dict[str, _Entry] = {}
        self._next_abort_check_ms: int | None = None
        self._next_expiration_check_ms: int | None = None
        self._unfinished: dict[str, int] = {}
        self._now_ms = 0

    def __iter__(self) -> Iterator[Transaction]:
        return (entry.current for entry in self._entries.values())

    # -- loading ------------------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord | TransactionEnd, *, now_ms: int) -> None:
        """Take in one record of the partition, in offset order; other kinds of key are passed over.

        Raises:
            RemoteProtocolError: A state that is never written.
        """
        self._now_ms = now_ms
        if isinstance(record, TransactionEnd) or not isinstance(record.key, TransactionLogKey):
            return
        transactional_id = record.key.transactional_id
        if not isinstance(record.value, TransactionLogValue):
            self._entries.pop(transactional_id, None)
            return
        if record.value.transaction_status not in range(_S.DEAD):
            text = f"transaction {transactional_id!r} has status {record.value.transaction_status}"
            raise RemoteProtocolError(text)
        self._entries[transactional_id] = _Entry(Transaction.from_value(transactional_id, record.value))

    def finish_loading(self, now_ms: int) -> None:
        """Start the clocks and go on with transactions whose outcome is decided."""
        self._now_ms = now_ms
        self._next_abort_check_ms = now_ms + self._config.abort_check_interval_ms
        self._next_expiration_check_ms = now_ms + self._config.expiration_check_interval_ms
        for entry in self._entries.values():
            if entry.current.state in PREPARE_STATES:
                self._emit_markers(entry.current)

    @property
    def unfinished_count(self) -> int:
        """Transactions whose markers are written, but not the record of that; any thread may read it."""
        return len(self._unfinished)

    # -- effects and time ---------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Drain answers, appends and markers, in order."""
        return self._writes.take_effects()

    def on_appended(self, append_id: int, error_code: int, _last_offset: int = -1) -> None:
        """Take the outcome of an ``AppendRecords``: 0 once committed, else the error for the client."""
        self._writes.on_appended(append_id, error_code)

    def next_timeout_ms(self) -> int | None:
        """When ``handle_timeout`` is wanted; may change after every call but pure reads."""
        candidates = (self._next_abort_check_ms, self._next_expiration_check_ms, *self._unfinished.values())
        return min((candidate for candidate in candidates if candidate is not None), default=None)

    def handle_timeout(self, now_ms: int) -> None:
        """End what is overdue; harmless when called early or twice."""
        self._now_ms = now_ms
        for transactional_id in [key for key, at_ms in self._unfinished.items() if at_ms <= now_ms]:
            del self._unfinished[transactional_id]
            entry = self._entries.get(transactional_id)
            if entry is not None and not entry.is_pending and entry.current.state in PREPARE_STATES:
                self._complete(entry)
        if self._next_abort_check_ms is not None and self._next_abort_check_ms <= now_ms:
            self._next_abort_check_ms = now_ms + self._config.abort_check_interval_ms
            for entry in list(self._entries.values()):
                if self._is_timed_out(entry):
                    self._fence(entry, lambda _error_code: None)
        if self._next_expiration_check_ms is not None and self._next_expiration_check_ms <= now_ms:
            self._next_expiration_check_ms = now_ms + self._config.expiration_check_interval_ms
            self._expire()

    def forget_topics(self, topics: Mapping[str, Uuid]) -> None:
        """Nothing here belongs to a topic: partitions of deleted topics drop out when markers are due."""

    # -- InitProducerId -----------------------------------------------------------------------------------------

    def init_producer_id(self, token: object, request: InitProducerIdRequest, now_ms: int) -> None:
        """Make the caller the one producer of its id; answered by an effect with an ``InitProducerIdResponse``."""
        self._now_ms = now_ms
        refusal = self._init_refusal(request)
        if refusal:
            return self._refuse_init(token, refusal)
        # With two-phase commit the client's timeout has no meaning (KIP-939).
        timeout_ms = UNLIMITED_TIMEOUT_MS if request.enable_2pc else request.transaction_timeout_ms
        transactional_id = request.transactional_id or ""
        entry = self._entries.get(transactional_id)
        if entry is None:
            producer_id = self._take_producer_id()
            if producer_id is None:
                return self._refuse_init(token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            created = Transaction(
                transactional_id=transactional_id, producer_id=producer_id, timeout_ms=timeout_ms, update_ms=now_ms
            )
            entry = self._entries[transactional_id] = _Entry(created)
        expected = None if request.producer_id == NO_PRODUCER_ID else (request.producer_id, request.producer_epoch)
        changed = self._initialized(entry, expected, timeout_ms)
        if isinstance(changed, int):
            return self._refuse_init(token, changed)
        if changed is None:
            # The open transaction is aborted first; the client asks again and gets an epoch after that of the abort.
            return self._fence(entry, lambda code: self._refuse_init(token, code or ErrorCode.CONCURRENT_TRANSACTIONS))

        def then(error_code: int) -> None:
            if error_code:
                self._refuse_init(token, error_code)
            else:
                response = InitProducerIdResponse(
                    producer_id=changed.producer_id, producer_epoch=changed.producer_epoch
                )
                self._writes.respond(token, response)

        return self._change(entry, changed, then)

    def _init_refusal(self, request: InitProducerIdRequest) -> int:
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if request.enable_2pc and not self._config.two_phase_commit_enable:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.keep_prepared_txn:
            return ErrorCode.UNSUPPORTED_VERSION
        if not request.enable_2pc and not 0 < request.transaction_timeout_ms <= self._config.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    def _initialized(
        self, entry: _Entry, expected: tuple[int, int] | None, timeout_ms: int
    ) -> Transaction | int | None:
        """The id for its next producer; an error code; or None if a transaction has to be aborted first."""
        current, now_ms = entry.current, self._now_ms
        if entry.is_pending:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if expected is not None and not _is_valid_producer(current, expected):
            return ErrorCode.PRODUCER_FENCED
        if current.state in PREPARE_STATES:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if current.state is _S.ONGOING:
            return None
        if current.is_epoch_exhausted and (expected is None or expected[1] == current.producer_epoch):
            producer_id = self._take_producer_id()
            if producer_id is None:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            last_epoch = NO_EPOCH if expected is None else current.producer_epoch
            return current.with_new_producer_id(
                producer_id, last_epoch=last_epoch, timeout_ms=timeout_ms, now_ms=now_ms
            )
        if expected is None:
            epoch, last_epoch = current.producer_epoch + 1, NO_EPOCH
        elif current.producer_epoch in (NO_EPOCH, expected[1]):
            epoch, last_epoch = current.producer_epoch + 1, current.producer_epoch
        elif expected[1] == current.last_producer_epoch:
            # A retry of a request that was answered: nobody else has initialized the id since.
            epoch, last_epoch = current.producer_epoch, current.last_producer_epoch
        else:
            return ErrorCode.PRODUCER_FENCED
        return current.to_empty(epoch=epoch, last_epoch=last_epoch, timeout_ms=timeout_ms, now_ms=now_ms)

    def _refuse_init(self, token: object, error_code: int) -> None:
        response = InitProducerIdResponse(error_code=error_code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
        self._writes.respond(token, response)

    # -- partitions ---------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        token: object,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: frozenset[TopicPartition],
        now_ms: int,
        *,
        client_version: int,
    ) -> None:
        """Make partitions part of the transaction, and begin one if need be; answered with an error code.

        Args:
            token: Comes back with the answer.
            transactional_id: Of the producer.
            producer: Its id and epoch.
            partitions: To be added.
            now_ms: Wall clock.
            client_version: 2 for requests of version 4 or later, else 0.
        """
        self._now_ms = now_ms
        code, entry = self._find(transactional_id, producer)
        if entry is None:
            return self._writes.respond(token, code)
        current = entry.current
        if client_version >= 2 and self._version() == 0:
            # Records of that level have no place for the client's version.
            return self._writes.respond(token, int(ErrorCode.UNSUPPORTED_VERSION))
        if entry.is_pending or current.state in PREPARE_STATES:
            return self._writes.respond(token, int(ErrorCode.CONCURRENT_TRANSACTIONS))
        if current.state is _S.ONGOING and partitions <= current.partitions:
            return self._writes.respond(token, int(ErrorCode.NONE))
        changed = current.to_ongoing(partitions, client_version=client_version, now_ms=now_ms)
        return self._change(entry, changed, lambda error_code: self._writes.respond(token, error_code))

    def verify_partitions(
        self, transactional_id: str, producer: tuple[int, int], partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Whether partitions are in the transaction, as far as it is written; the error code of each."""
        code, entry = self._find(transactional_id, producer)
        if entry is not None and entry.current.state in PREPARE_STATES:
            code = int(ErrorCode.CONCURRENT_TRANSACTIONS)
        if entry is None or code:
            return dict.fromkeys(partitions, code)
        known = entry.current.partitions
        missing = int(ErrorCode.TRANSACTION_ABORTABLE)
        return {partition: 0 if partition in known else missing for partition in partitions}

    def _find(self, transactional_id: str, producer: tuple[int, int]) -> tuple[int, _Entry | None]:
        if not transactional_id:
            return int(ErrorCode.INVALID_REQUEST), None
        entry = self._entries.get(transactional_id)
        if entry is None:
            return int(ErrorCode.INVALID_PRODUCER_ID_MAPPING), None
        current = entry.current
        if current.producer_id != producer[0]:
            if current.state in PREPARE_STATES and current.next_producer_id == producer[0]:
                # The client has its next producer id already, and the transaction before is not over.
                return int(ErrorCode.CONCURRENT_TRANSACTIONS), None
            return int(ErrorCode.INVALID_PRODUCER_ID_MAPPING), None
        if current.producer_epoch != producer[1]:
            return int(ErrorCode.PRODUCER_FENCED), None
        return int(ErrorCode.NONE), entry

    # -- EndTxn -------------------------------------------------------------------------------------------------

    def end_transaction(self, token: object, transactional_id: str, request: EndRequest, now_ms: int) -> None:
        """Decide the outcome; answered with an ``EndTxnResponse`` once it is written, before the markers are."""
        self._now_ms = now_ms
        if not transactional_id:
            return self._refuse_end(token, ErrorCode.INVALID_REQUEST)
        entry = self._entries.get(transactional_id)
        if entry is None:
            return self._refuse_end(token, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        bumps = request.client_version >= 2
        if bumps and self._version() == 0:
            # Kafka 4.3.1 leaves the id busy for ever here (TXNC-77).
            return self._refuse_end(token, ErrorCode.UNSUPPORTED_VERSION)
        code = end_error(entry.current, request, is_pending=entry.is_pending)
        if code == ErrorCode.NONE:
            return self._answer_end(token, entry.current, bumps=bumps)
        if code is not None:
            return self._refuse_end(token, code)
        prepared = self._prepared(entry.current, request.prepared_state, bumps=bumps)
        if isinstance(prepared, int):
            return self._refuse_end(token, prepared)

        def then(error_code: int) -> None:
            if error_code:
                self._refuse_end(token, error_code)
                return
            self._answer_end(token, prepared.to_complete(now_ms=now_ms), bumps=bumps)
            self._emit_markers(prepared)

        return self._change(entry, prepared, then)

    def _prepared(self, current: Transaction, state: TransactionState, *, bumps: bool) -> Transaction | int:
        is_rotated = bumps and current.is_epoch_exhausted
        next_producer_id = self._take_producer_id() if is_rotated else NO_PRODUCER_ID
        if next_producer_id is None:
            return int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return current.to_prepared(
            state, client_version=2 if bumps else 0, next_producer_id=next_producer_id, now_ms=self._now_ms
        )

    def _answer_end(self, token: object, transaction: Transaction, *, bumps: bool) -> None:
        producer_id, epoch = (transaction.producer_id, transaction.producer_epoch) if bumps else (-1, -1)
        self._writes.respond(token, EndTxnResponse(producer_id=producer_id, producer_epoch=epoch))

    def _refuse_end(self, token: object, error_code: int) -> None:
        response = EndTxnResponse(error_code=error_code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
        self._writes.respond(token, response)

    def _fence(self, entry: _Entry, then: Callable[[int], None]) -> None:
        """Abort an open transaction in the place of its producer, whose epoch is over with that."""
        bumps = self._version() >= 2
        current = entry.current if bumps else entry.current.fenced()
        prepared = self._prepared(current, _S.PREPARE_ABORT, bumps=bumps)
        if isinstance(prepared, int):
            return then(prepared)

        def written(error_code: int) -> None:
            if not error_code:
                self._emit_markers(prepared)
            then(error_code)

        return self._change(entry, prepared, written)

    # -- completion ---------------------------------------------------------------------------------------------

    def _emit_markers(self, prepared: Transaction) -> None:
        self._writes.emit(
            MarkersDue(
                transactional_id=prepared.transactional_id,
                producer_id=prepared.producer_id,
                producer_epoch=prepared.producer_epoch,
                is_commit=prepared.state is _S.PREPARE_COMMIT,
                partitions=prepared.partitions,
                transaction_version=2 if prepared.supports_epoch_bump else 0,
            )
        )

    def on_markers_written(self, markers: MarkersDue, now_ms: int) -> None:
        """Every partition has its marker: the transaction is complete once that is written."""
        self._now_ms = now_ms
        entry = self._entries.get(markers.transactional_id)
        if entry is None or entry.is_pending:
            return
        current = entry.current
        producer = current.producer_id, current.producer_epoch
        if current.state in PREPARE_STATES and producer == (markers.producer_id, markers.producer_epoch):
            self._complete(entry)

    def _complete(self, entry: _Entry) -> None:
        transactional_id = entry.current.transactional_id

        def then(error_code: int) -> None:
            if error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self._unfinished[transactional_id] = self._now_ms + _RETRY_MS

        self._change(entry, entry.current.to_complete(now_ms=self._now_ms), then)

    def _change(self, entry: _Entry, changed: Transaction, then: Callable[[int], None]) -> None:
        entry.is_pending = True

        def appended(error_code: int) -> None:
            entry.is_pending = False
            if not error_code:
                entry.current = changed
                # A second report of the markers may have completed it; the next transaction waits for its own.
                self._unfinished.pop(changed.transactional_id, None)
            then(error_code)

        self._writes.append((changed.to_record(self._version()),), appended)

    # -- time-outs ----------------------------------------------------------------------------------------------

    def _is_timed_out(self, entry: _Entry) -> bool:
        current = entry.current
        return (
            not entry.is_pending
            and current.state is _S.ONGOING
            and current.timeout_ms != UNLIMITED_TIMEOUT_MS
            and current.start_ms + current.timeout_ms < self._now_ms
        )

    def _is_expired(self, entry: _Entry) -> bool:
        current = entry.current
        is_idle = current.state is _S.EMPTY or current.state in COMPLETE_STATES
        age_ms = self._now_ms - current.update_ms
        return is_idle and not entry.is_pending and age_ms >= self._config.expiration_ms

    def _expire(self) -> None:
        expired = [entry for entry in self._entries.values() if self._is_expired(entry)]
        for start in range(0, len(expired), _TOMBSTONES_PER_BATCH):
            self._forget(expired[start : start + _TOMBSTONES_PER_BATCH])

    def _forget(self, entries: list[_Entry]) -> None:
        for entry in entries:
            entry.is_pending = True

        def then(error_code: int) -> None:
            for entry in entries:
                entry.is_pending = False
                if not error_code:
                    self._entries.pop(entry.current.transactional_id, None)

        self._writes.append(tuple(entry.current.tombstone() for entry in entries), then)

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> Transaction | None:
        """What is written of an id; None if it is unknown."""
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.current


def _is_valid_producer(current: Transaction, expected: tuple[int, int]) -> bool:
    producer_id, epoch = expected
    if current.producer_epoch == NO_EPOCH or producer_id == current.producer_id:
        return True
    # The producer id may have been replaced by a request whose answer was lost.
    return producer_id == current.previous_producer_id and epoch >= LAST_EPOCH
