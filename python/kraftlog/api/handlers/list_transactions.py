"""ListTransactions, API key 66, versions 0-2 (KIP-664).

1   filter by duration (KIP-994)
2   filter by a regular expression of the id (KIP-1152)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog._kraftlog import TopicPattern
from kraftlog.coordinator.transaction.transaction_filters import list_transactions
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ReplicaService, TransactionService

__all__ = ["handle"]


def handle(
    context: RequestContext,
    request: ListTransactionsRequest,
    *,
    transactions: TransactionService,
    replicas: ReplicaService,
) -> ListTransactionsResponse:
    """List the transactions that this node coordinates."""
    runners = transactions.runners()
    if not all(runner.is_loaded for runner in runners):
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    found = (transaction for runner in runners for transaction in runner.shard)
    try:
        return list_transactions(found, request, replicas.now_ms(), compile_pattern=TopicPattern)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
