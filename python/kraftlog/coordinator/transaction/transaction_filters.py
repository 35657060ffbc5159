"""Which transactions a list shows (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kraftlog.coordinator.transaction.transaction import Transaction, TransactionState
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

__all__ = ["TransactionFilter", "listed"]

_NO_DURATION: Final = -1


class Matcher(Protocol):
    """A compiled regular expression; RE2 and its kin match in time linear in the text, whatever the expression."""

    @property
    def cost(self) -> int:
        """How long a match may take; 1 for a common expression."""
        ...

    def matches(self, text: str, /) -> bool:
        """Whether the whole of ``text`` matches."""
        ...


class TransactionFilter:
    """Every filter of a request for a list.

    Args:
        request: The filters.
        now_ms: For the durations.
        compile_pattern: Compiles the pattern of ids; raises ValueError if it is none.

    Attributes:
        cost: How long it may take to look at one transaction, in units of ``Matcher.cost``.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """

    def __init__(
        self, request: ListTransactionsRequest, now_ms: int, *, compile_pattern: Callable[[str], Matcher]
    ) -> None:
        self._now_ms = now_ms
        self._names = frozenset(request.state_filters)
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        self._pattern = _compile(request.transactional_id_pattern, compile_pattern)
        self.cost = 1 if self._pattern is None else self._pattern.cost

    def passes(self, transaction: Transaction) -> bool:
        """Whether a list has this transaction."""
        if transaction.state is TransactionState.DEAD:
            return False
        if self._names and transaction.state.text not in self._names:
            return False
        if self._producer_ids and transaction.producer_id not in self._producer_ids:
            return False
        if self._duration_ms > _NO_DURATION and self._now_ms - transaction.start_ms <= self._duration_ms:
            return False
        return self._pattern is None or self._pattern.matches(transaction.transactional_id)


def listed(transaction: Transaction) -> ListTransactionsResponse.TransactionState:
    """A transaction as a list shows it."""
    return ListTransactionsResponse.TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.text,
    )


def _compile(text: str | None, compile_pattern: Callable[[str], Matcher]) -> Matcher | None:
    if not text:
        return None
    try:
        return compile_pattern(text)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"transactional id pattern {text!r}: {error}") from error
