"""What EndTxn does in each state: one table for transactions of version 1, one for those of version 2 (KIP-890).

Source: ``kafka.coordinator.transaction.TransactionCoordinator.endTransaction``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.coordinator.transaction.transaction import (
    COMPLETE_STATES,
    LAST_EPOCH,
    PREPARE_STATES,
    Transaction,
    TransactionState,
)
from kraftlog.errors import ErrorCode

__all__ = ["EndRequest", "end_error"]

_S = TransactionState


@dataclass(frozen=True, slots=True)
class EndRequest:
    """EndTxn of a client."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int

    @property
    def prepared_state(self) -> TransactionState:
        """The state that it leads to first."""
        return _S.PREPARE_COMMIT if self.is_commit else _S.PREPARE_ABORT

    @property
    def complete_state(self) -> TransactionState:
        """The state that it leads to in the end."""
        return _S.COMPLETE_COMMIT if self.is_commit else _S.COMPLETE_ABORT


def end_error(current: Transaction, request: EndRequest, *, is_pending: bool) -> int | None:
    """Whether ``request`` ends the transaction.

    Returns:
        None if the outcome is to be written; NONE if that has happened already; else the error.
    """
    if request.client_version >= 2:
        return _end_error_v2(current, request, is_pending=is_pending)
    if current.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state is _S.ONGOING:
        return None
    if current.state is request.complete_state:
        return ErrorCode.NONE
    if current.state is request.prepared_state:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def _end_error_v2(current: Transaction, request: EndRequest, *, is_pending: bool) -> int | None:
    # In Kafka, too, every prepared transaction is on its way to the next state: first of all the client has to wait.
    if is_pending or current.state in PREPARE_STATES:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_complete = current.state in COMPLETE_STATES
    is_retry_after_rotation = (
        is_complete
        and current.previous_producer_id == request.producer_id
        and request.producer_epoch == LAST_EPOCH
        and current.producer_epoch == 0
    )
    if current.producer_id != request.producer_id and not is_retry_after_rotation:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_retry = is_retry_after_rotation or (is_complete and current.producer_epoch == request.producer_epoch + 1)
    if not is_retry and current.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if is_retry:
        return ErrorCode.NONE if current.state is request.complete_state else ErrorCode.INVALID_TXN_STATE
    if current.state is _S.ONGOING or not request.is_commit:
        return None
    return ErrorCode.INVALID_TXN_STATE
