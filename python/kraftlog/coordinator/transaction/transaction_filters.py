"""Which transactions a list shows (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from kraftlog.coordinator.transaction.transaction import Transaction, TransactionState
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.vocabulary import TRANSACTION_STATES
from kraftlog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

__all__ = ["list_transactions"]

_NO_DURATION: Final = -1


class Matcher(Protocol):
    """A compiled regular expression; RE2 and its kin match in time linear in the text, whatever the expression."""

    def matches(self, text: str, /) -> bool:
        """Whether the whole of ``text`` matches."""
        ...


def list_transactions(
    transactions: Iterable[Transaction],
    request: ListTransactionsRequest,
    now_ms: int,
    *,
    compile_pattern: Callable[[str], Matcher],
) -> ListTransactionsResponse:
    """The transactions that pass every filter of ``request``.

    Args:
        transactions: All that are known.
        request: The filters.
        now_ms: For the durations.
        compile_pattern: Compiles the pattern of ids; raises ValueError if it is none.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    names = frozenset(request.state_filters)
    producer_ids = frozenset(request.producer_id_filters)
    pattern = _compile(request.transactional_id_pattern, compile_pattern)

    def passes(transaction: Transaction) -> bool:
        if transaction.state is TransactionState.DEAD:
            return False
        if names and transaction.state.text not in names:
            return False
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        duration_ms = request.duration_filter
        if duration_ms > _NO_DURATION and now_ms - transaction.start_ms <= duration_ms:
            return False
        return pattern is None or pattern.matches(transaction.transactional_id)

    return ListTransactionsResponse(
        unknown_state_filters=[name for name in dict.fromkeys(request.state_filters) if name not in TRANSACTION_STATES],
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.text,
            )
            for transaction in transactions
            if passes(transaction)
        ],
    )


def _compile(text: str | None, compile_pattern: Callable[[str], Matcher]) -> Matcher | None:
    if not text:
        return None
    try:
        return compile_pattern(text)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"transactional id pattern {text!r}: {error}") from error
