"""AddPartitionsToTxn, API key 24, versions 0-5 (KIP-98).

2   PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
4   sent by brokers only: several transactions, and partitions may be verified instead of added (KIP-890)
5   TRANSACTION_ABORTABLE may be answered
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import gather, transform
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.replica.registry import is_internal_topic
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, TransactionService

__all__ = ["handle"]

BATCHED_VERSION = 4
FENCED_VERSION = 2

_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Codes = Mapping[TopicPartition, int]
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


def handle(
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    *,
    cluster: ClusterService,
    transactions: TransactionService,
) -> AddPartitionsToTxnResponse | asyncio.Future[AddPartitionsToTxnResponse]:
    """Make partitions part of transactions, or verify that they are."""
    if context.api_version < BATCHED_VERSION:
        transaction = _Transaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        found = _handle_one(context, transaction, cluster, transactions)
        if isinstance(found, asyncio.Future):
            return transform(found, lambda codes: _unbatched(transaction, codes))
        return _unbatched(transaction, found)
    asked = request.transactions
    return gather(
        [_handle_one(context, transaction, cluster, transactions) for transaction in asked],
        lambda error, index: dict.fromkeys(_partitions(asked[index].topics), error.code),
        lambda results: AddPartitionsToTxnResponse(
            results_by_transaction=[
                _TransactionResult(
                    transactional_id=transaction.transactional_id, topic_results=_topic_results(transaction, codes)
                )
                for transaction, codes in zip(asked, results, strict=True)
            ]
        ),
    )


def _handle_one(
    context: RequestContext, transaction: _Transaction, cluster: ClusterService, transactions: TransactionService
) -> _Codes | asyncio.Future[_Codes]:
    partitions = _partitions(transaction.topics)
    if not transaction.transactional_id:
        return dict.fromkeys(partitions, int(ErrorCode.INVALID_REQUEST))
    refused = _refused(context, cluster, partitions)
    if refused:
        return refused
    producer = transaction.producer_id, transaction.producer_epoch
    transactional_id = transaction.transactional_id

    def result(code: int) -> _Codes:
        if code == ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_VERSION:
            code = int(ErrorCode.INVALID_PRODUCER_EPOCH)
        return dict.fromkeys(partitions, code)

    try:
        runner = transactions.runner(transactional_id)
    except KafkaError as error:
        return result(error.code)
    if transaction.verify_only:
        return runner.call(lambda shard, _now: shard.verify_partitions(transactional_id, producer, partitions))
    client_version = 2 if context.api_version >= BATCHED_VERSION else 0
    added = runner.ask(
        lambda shard, future, now_ms: shard.add_partitions(
            future, transactional_id, producer, frozenset(partitions), now_ms, client_version=client_version
        )
    )
    return transform(added, result, lambda error: result(error.code))


def _partitions(topics: Sequence[_Topic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _refused(context: RequestContext, cluster: ClusterService, partitions: Sequence[TopicPartition]) -> _Codes:
    """One partition that cannot be added refuses all of them; empty if there is none."""
    topics = cluster.image.topics
    codes: dict[TopicPartition, int] = {}
    for partition in partitions:
        image = topics.by_name(partition.topic)
        if context.api_version < BATCHED_VERSION and is_internal_topic(partition.topic):
            codes[partition] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif image is None or partition.partition not in image.partitions:
            codes[partition] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not codes:
        return {}
    return {partition: codes.get(partition, int(ErrorCode.OPERATION_NOT_ATTEMPTED)) for partition in partitions}


def _unbatched(transaction: _Transaction, codes: _Codes) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(transaction, codes))


def _topic_results(transaction: _Transaction, codes: _Codes) -> list[_TopicResult]:
    return [
        _TopicResult(
            name=topic.name,
            results_by_partition=[
                _PartitionResult(partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)])
                for index in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]
