"""What a transactional producer may do next, and what an error leaves of its transaction: plain values, no I/O.

    READY -- begin --> OPEN -- commit, abort --> ENDING -- ended --> READY
                        |                           |
                        +-- failed --> ABORTABLE -- abort --> ENDING
    any state -- an error that fences the producer --> FATAL

Source: ``TransactionManager`` of Kafka's producer; epochs that rise with each transaction: KIP-890.
"""

from __future__ import annotations

from enum import Enum

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition

__all__ = ["TransactionState", "TransactionTracker"]

# After these no transaction of this producer can go on; a new producer may take the transactional id over.
_FATAL = frozenset(
    (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )
)
# From this level of the feature on, each transaction has an epoch of its own and a produce adds its partitions.
TRANSACTION_VERSION_2 = 2


class TransactionState(Enum):
    """See the picture at the top of the module."""

    UNINITIALIZED = "before init_transactions"
    READY = "between transactions"
    OPEN = "in a transaction"
    ENDING = "while a transaction ends"
    ABORTABLE = "in a transaction that has failed and has to be aborted"
    FATAL = "after an error that ended the producer"


class TransactionTracker:
    """The state of one transactional producer.

    Args:
        transactional_id: Named in errors.

    Attributes:
        state: What may be done.
        partitions: Of the open transaction.
        has_offsets: Whether offsets of a group are part of it.
        is_version_2: Whether the cluster has ``transaction.version`` 2 or higher.
        needs_new_epoch: Whether a lost batch left a gap in the sequences, so that the next transaction begins with
            InitProducerId. Only below version 2, where ending a transaction raises no epoch.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.partitions: set[TopicPartition] = set()
        self.has_offsets = False
        self.is_version_2 = False
        self.needs_new_epoch = False
        self._error: KafkaError | None = None

    @property
    def has_content(self) -> bool:
        """Whether the coordinator may know of the transaction."""
        return bool(self.partitions) or self.has_offsets

    def initialized(self, *, is_version_2: bool) -> None:
        """InitProducerId was answered."""
        self.is_version_2 = is_version_2
        self._reset()

    def check_can_initialize(self) -> None:
        """Raise unless nothing was initialized yet.

        Raises:
            KafkaError: INVALID_TXN_STATE, or the fatal error.
        """
        self._require(TransactionState.UNINITIALIZED)

    def begin(self) -> None:
        """Open a transaction.

        Raises:
            KafkaError: INVALID_TXN_STATE: one is open, or nothing was initialized; or the fatal error.
        """
        self._require(TransactionState.READY)
        self.state = TransactionState.OPEN

    def check_can_send(self) -> None:
        """Raise unless records and offsets may be added.

        Raises:
            KafkaError: INVALID_TXN_STATE, or the error that the transaction failed with.
        """
        self._require(TransactionState.OPEN)

    def end(self, *, is_commit: bool) -> None:
        """Begin to commit or to abort.

        Raises:
            KafkaError: There is no transaction, or it failed and cannot be committed.
        """
        if is_commit or self.state is not TransactionState.ABORTABLE:
            self._require(TransactionState.OPEN)
        self.state = TransactionState.ENDING

    def ended(self) -> None:
        """The coordinator confirmed the end."""
        if self.state is TransactionState.ENDING:
            self._reset()

    def not_ended(self, *, is_commit: bool) -> None:
        """The coordinator gave no answer in time: the same call may be made again."""
        if self.state is TransactionState.ENDING:
            self.state = TransactionState.OPEN if is_commit else TransactionState.ABORTABLE

    def failed(self, error: KafkaError) -> KafkaError:
        """Note an error, and return it as the application gets it.

        An older producer hears of the newer one as INVALID_PRODUCER_EPOCH from coordinators: for the application both
        codes mean PRODUCER_FENCED.
        """
        if self.state is TransactionState.FATAL:
            return self._error or error
        if error.code in _FATAL:
            self.state = TransactionState.FATAL
            self._error = error
        elif self.state in {TransactionState.OPEN, TransactionState.ABORTABLE}:
            self.state = TransactionState.ABORTABLE
            self._error = self._error or error
        return error

    def fenced(self, error: KafkaError) -> KafkaError:
        """An answer of a coordinator: INVALID_PRODUCER_EPOCH as PRODUCER_FENCED."""
        if error.code not in {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}:
            return error
        text = f"another producer took over transactional.id {self.transactional_id}, or the transaction timed out"
        return KafkaError(ErrorCode.PRODUCER_FENCED, text)

    def _reset(self) -> None:
        self.state = TransactionState.READY
        self.partitions = set()
        self.has_offsets = False
        self._error = None

    def _require(self, state: TransactionState) -> None:
        if self.state is state:
            return
        if self._error is not None:
            raise self._error
        message = f"transactional.id {self.transactional_id}: this is not possible {self.state.value}"
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, message)
