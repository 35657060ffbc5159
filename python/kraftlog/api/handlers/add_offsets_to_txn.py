"""AddOffsetsToTxn, API key 25, versions 0-4 (KIP-98).

    2   PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
    4   TRANSACTION_ABORTABLE may be answered (KIP-890)

Producers of transaction.version 2 do not send this: TxnOffsetCommit adds the group's partition.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.partitioner import coordinator_partition
from kraftlog.types import TopicPartition
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC
from kraftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import GroupService, TaskService, TransactionService

__all__ = ["handle"]

FENCED_VERSION = 2


def handle(
    context: RequestContext,
    request: AddOffsetsToTxnRequest,
    *,
    groups: GroupService,
    transactions: TransactionService,
    tasks: TaskService,
) -> AddOffsetsToTxnResponse | asyncio.Future[AddOffsetsToTxnResponse]:
    """Make the partition that keeps a group's offsets part of a transaction."""
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if groups.partition_count():
        return _add(context, request, groups, transactions)
    return tasks.spawn(_create_and_add(context, request, groups, transactions))


async def _create_and_add(
    context: RequestContext, request: AddOffsetsToTxnRequest, groups: GroupService, transactions: TransactionService
) -> AddOffsetsToTxnResponse:
    try:
        await groups.ensure_topic([request.group_id])
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    answer = _add(context, request, groups, transactions)
    return await answer if isinstance(answer, asyncio.Future) else answer


def _add(
    context: RequestContext, request: AddOffsetsToTxnRequest, groups: GroupService, transactions: TransactionService
) -> AddOffsetsToTxnResponse | asyncio.Future[AddOffsetsToTxnResponse]:
    index = coordinator_partition(request.group_id, groups.partition_count())
    partitions = frozenset({TopicPartition(CONSUMER_OFFSETS_TOPIC, index)})
    producer = request.producer_id, request.producer_epoch

    def response(code: int) -> AddOffsetsToTxnResponse:
        if code == ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_VERSION:
            code = int(ErrorCode.INVALID_PRODUCER_EPOCH)
        return AddOffsetsToTxnResponse(error_code=code)

    try:
        runner = transactions.runner(request.transactional_id)
    except KafkaError as error:
        return response(error.code)
    added = runner.ask(
        lambda shard, future, now_ms: shard.add_partitions(
            future, request.transactional_id, producer, partitions, now_ms, client_version=0
        )
    )
    return transform(added, response, lambda error: response(error.code))
