"""AddPartitionsToTxn, API key 24, versions 0-5 (KIP-98).

2   PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
4   sent by brokers only: several transactions, and partitions may be verified instead of added (KIP-890)
5   TRANSACTION_ABORTABLE may be answered
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kraftlog.api.combined_answer import gather, transform
from kraftlog.api.slices import LARGE_ENTRIES, Pauses, Slices, at_once, sliced
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

_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


class _Outcome(NamedTuple):
    """The error codes of a transaction's partitions: of those in ``codes``, and of all others."""

    codes: Mapping[tuple[str, int], int]
    other: int


@sliced
def handle(
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    *,
    cluster: ClusterService,
    transactions: TransactionService,
) -> Slices[AddPartitionsToTxnResponse | asyncio.Future[AddPartitionsToTxnResponse]]:
    """Make partitions part of transactions, or verify that they are."""
    asked = _transactions(context, request)
    outcomes: list[_Outcome | asyncio.Future[_Outcome]] = []
    pauses = Pauses()
    for transaction in asked:
        if pauses.is_due():
            yield None
        partitions, codes = yield from _resolve(context, cluster, transaction, pauses)
        outcomes.append(_begin(context, transaction, partitions, codes, transactions))
    if pauses.total <= LARGE_ENTRIES:
        return gather(
            outcomes,
            lambda error, _index: _Outcome({}, error.code),
            lambda results: at_once(_response(context, asked, results)),
        )
    results: list[_Outcome] = []
    for outcome in outcomes:
        if pauses.is_due():
            yield None
        if isinstance(outcome, asyncio.Future):
            if not outcome.done():
                yield outcome
            results.append(outcome.result())
        else:
            results.append(outcome)
    return (yield from _response(context, asked, results))


def _transactions(context: RequestContext, request: AddPartitionsToTxnRequest) -> Sequence[_Transaction]:
    if context.api_version >= BATCHED_VERSION:
        return request.transactions
    return [
        _Transaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _resolve(
    context: RequestContext, cluster: ClusterService, transaction: _Transaction, pauses: Pauses
) -> Slices[tuple[dict[TopicPartition, None], dict[tuple[str, int], int]]]:
    """The partitions that can be added, once each, and the error codes of those that cannot."""
    topics = cluster.image.topics
    partitions: dict[TopicPartition, None] = {}
    codes: dict[tuple[str, int], int] = {}
    for topic in transaction.topics:
        if pauses.is_due():
            yield None
        image = topics.by_name(topic.name)
        is_refused = context.api_version < BATCHED_VERSION and is_internal_topic(topic.name)
        for index in topic.partitions:
            if pauses.is_due():
                yield None
            if is_refused:
                codes[topic.name, index] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif image is None or index not in image.partitions:
                codes[topic.name, index] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                partitions[TopicPartition(topic.name, index)] = None
    return partitions, codes


def _begin(
    context: RequestContext,
    transaction: _Transaction,
    partitions: Mapping[TopicPartition, None],
    codes: Mapping[tuple[str, int], int],
    transactions: TransactionService,
) -> _Outcome | asyncio.Future[_Outcome]:
    """Ask the coordinator; one partition that cannot be added refuses all of them."""
    transactional_id = transaction.transactional_id
    if not transactional_id:
        return _Outcome({}, int(ErrorCode.INVALID_REQUEST))
    if codes:
        return _Outcome(codes, int(ErrorCode.OPERATION_NOT_ATTEMPTED))
    producer = transaction.producer_id, transaction.producer_epoch

    def outcome(code: int) -> _Outcome:
        if code == ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_VERSION:
            code = int(ErrorCode.INVALID_PRODUCER_EPOCH)
        return _Outcome({}, code)

    try:
        runner = transactions.runner(transactional_id)
    except KafkaError as error:
        return outcome(error.code)
    if transaction.verify_only:
        verified = runner.call(lambda shard, _now: shard.verify_partitions(transactional_id, producer, partitions))
        return _Outcome({(found.topic, found.partition): code for found, code in verified.items()}, 0)
    client_version = 2 if context.api_version >= BATCHED_VERSION else 0
    added = runner.ask(
        lambda shard, future, now_ms: shard.add_partitions(
            future, transactional_id, producer, frozenset(partitions), now_ms, client_version=client_version
        )
    )
    return transform(added, outcome, lambda error: outcome(error.code))


def _response(
    context: RequestContext, asked: Sequence[_Transaction], outcomes: Sequence[_Outcome]
) -> Slices[AddPartitionsToTxnResponse]:
    pauses = Pauses()
    results = []
    for transaction, outcome in zip(asked, outcomes, strict=True):
        if pauses.is_due():
            yield None
        topics = yield from _topic_results(transaction, outcome, pauses)
        if context.api_version < BATCHED_VERSION:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
        results.append(_TransactionResult(transactional_id=transaction.transactional_id, topic_results=topics))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _topic_results(transaction: _Transaction, outcome: _Outcome, pauses: Pauses) -> Slices[list[_TopicResult]]:
    topics = []
    for topic in transaction.topics:
        if pauses.is_due():
            yield None
        partitions = []
        for index in topic.partitions:
            if pauses.is_due():
                yield None
            code = outcome.codes.get((topic.name, index), outcome.other)
            partitions.append(_PartitionResult(partition_index=index, partition_error_code=code))
        topics.append(_TopicResult(name=topic.name, results_by_partition=partitions))
    return topics
