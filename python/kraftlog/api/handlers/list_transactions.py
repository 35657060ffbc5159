"""ListTransactions, API key 66, versions 0-2 (KIP-664).

1   filter by duration (KIP-994)
2   filter by a regular expression of the id (KIP-1152)
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kraftlog._kraftlog import TopicPattern
from kraftlog.api.slices import (
    ENTRIES_PER_SLICE,
    LOOKUPS_PER_SLICE,
    Pauses,
    Slices,
    in_slices,
    sliced,
    unique_in_slices,
)
from kraftlog.coordinator.transaction.transaction_filters import TransactionFilter, listed
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.vocabulary import TRANSACTION_STATES
from kraftlog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ReplicaService, TransactionService

__all__ = ["handle"]


@sliced
def handle(
    context: RequestContext,
    request: ListTransactionsRequest,
    *,
    transactions: TransactionService,
    replicas: ReplicaService,
) -> Slices[ListTransactionsResponse]:
    """List the transactions that this node coordinates."""
    runners = transactions.runners()
    if not all(runner.is_loaded for runner in runners):
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    found = (transaction for runner in runners for transaction in runner.shard)
    asked = yield from unique_in_slices(request.state_filters)
    unknown = yield from in_slices((name for name in asked if name not in TRANSACTION_STATES), LOOKUPS_PER_SLICE)
    # One unknown state is enough to list nothing for it.
    names = [*(name for name in TRANSACTION_STATES if name in asked), *unknown[:1]]
    try:
        chosen = TransactionFilter(
            replace(request, state_filters=names),
            replicas.now_ms(),
            compile_pattern=partial(TopicPattern, is_text=True),
        )
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    states: list[ListTransactionsResponse.TransactionState] = []
    pauses = Pauses(max(1, ENTRIES_PER_SLICE // chosen.cost))
    for transaction in list(found):
        if pauses.is_due():
            yield None
        if chosen.passes(transaction):
            states.append(listed(transaction))
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states)
