"""DescribeTransactions, API key 65, version 0 (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.api.slices import Slices, in_slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import TransactionService

__all__ = ["handle"]

_State = DescribeTransactionsResponse.TransactionState
_Topic = DescribeTransactionsResponse.TopicData


@sliced
def handle(
    context: RequestContext, request: DescribeTransactionsRequest, *, transactions: TransactionService
) -> Slices[DescribeTransactionsResponse]:
    """Describe each id as far as this node coordinates it."""
    states = yield from in_slices(
        _describe(transactions, transactional_id) for transactional_id in request.transactional_ids
    )
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(transactions: TransactionService, transactional_id: str) -> _State:
    if not transactional_id:
        return _State(transactional_id=transactional_id, error_code=ErrorCode.INVALID_REQUEST)
    try:
        transaction = transactions.runner(transactional_id).shard.get(transactional_id)
    except KafkaError as error:
        return _State(transactional_id=transactional_id, error_code=error.code)
    if transaction is None:
        return _State(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for partition in transaction.partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return _State(
        transactional_id=transactional_id,
        transaction_state=transaction.state.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[_Topic(topic=name, partitions=sorted(indexes)) for name, indexes in sorted(topics.items())],
    )
