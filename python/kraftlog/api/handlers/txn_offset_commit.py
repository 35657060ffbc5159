"""TxnOffsetCommit, API key 28, versions 0-5 (KIP-98).

2   leader epochs (KIP-320)
3   member id and generation, which are checked (KIP-447)
4   TRANSACTION_ABORTABLE may be answered (KIP-890)
5   the group coordinator adds its partition to the transaction (KIP-890)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.partitioner import coordinator_partition
from kraftlog.runtime.coordinator.transaction_verifier import ProducerTransaction, Verifying
from kraftlog.types import TopicPartition
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, GroupService, TaskService, VerifierService
    from kraftlog.api.settings import ApiSettings

__all__ = ["handle"]

LOADING_VERSION = 2
ABORTABLE_VERSION = 4
ADDING_VERSION = 5

_Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_Key = tuple[str, int]


def handle(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    *,
    cluster: ClusterService,
    groups: GroupService,
    verifier: VerifierService,
    settings: ApiSettings,
    tasks: TaskService,
) -> TxnOffsetCommitResponse | asyncio.Future[TxnOffsetCommitResponse]:
    """Store offsets of a group that take effect if the transaction is committed."""
    errors: dict[_Key, int] = {}
    kept = [topic for found in request.topics if (topic := _existing(cluster, found, errors)).partitions]
    if not kept:
        return _response(request, lambda key: errors[key])
    if not request.group_id:
        return _response(request, lambda key: errors.get(key, int(ErrorCode.INVALID_GROUP_ID)))
    return tasks.spawn(_commit(context, request, replace(request, topics=kept), errors, groups, verifier, settings))


async def _commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    kept: TxnOffsetCommitRequest,
    errors: dict[_Key, int],
    groups: GroupService,
    verifier: VerifierService,
    settings: ApiSettings,
) -> TxnOffsetCommitResponse:
    version = context.api_version

    def failed(code: int) -> TxnOffsetCommitResponse:
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_VERSION:
            code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return _response(request, lambda key: errors.get(key, code))

    try:
        runner = groups.runner(request.group_id)
        async with verifier.turn(request.producer_id):
            # Not before it is verified: a marker may end the transaction while the coordinator is asked.
            guard = runner.partition.log.begin_verification(
                request.producer_id,
                epoch=request.producer_epoch,
                sequence=-1,
                supports_epoch_bump=version >= ADDING_VERSION,
                now_ms=0,
            )
            is_needed = version >= ADDING_VERSION or settings.transaction_partition_verification_enable
            if guard is not None and is_needed:
                code = await _verify(request, version, groups, verifier)
                if code:
                    return failed(code)
            answer: TxnOffsetCommitResponse = await runner.ask(
                lambda shard, future, now_ms: shard.commit_transactional_offsets(future, kept, now_ms)
            )
    except KafkaError as error:
        return failed(error.code)
    codes = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }
    return _response(request, lambda key: errors[key] if key in errors else codes[key])


async def _verify(
    request: TxnOffsetCommitRequest, version: int, groups: GroupService, verifier: VerifierService
) -> int:
    index = coordinator_partition(request.group_id, groups.partition_count())
    partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, index)
    producer = ProducerTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    if version >= ADDING_VERSION:
        verifying = Verifying.ADD
    else:
        verifying = Verifying.ABORTABLE if version >= ABORTABLE_VERSION else Verifying.OLD
    code = (await verifier.verify(producer, [partition], verifying))[partition]
    # The client retries the first; the second would send it in search of another group coordinator.
    return int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if code == ErrorCode.NETWORK_EXCEPTION else code


def _existing(cluster: ClusterService, topic: _Topic, errors: dict[_Key, int]) -> _Topic:
    """The topic with those of its partitions that exist."""
    image = cluster.image.topics.by_name(topic.name)
    kept = []
    for partition in topic.partitions:
        if image is None or partition.partition_index not in image.partitions:
            errors[topic.name, partition.partition_index] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            kept.append(partition)
    return replace(topic, partitions=kept)


def _response(request: TxnOffsetCommitRequest, code_of: Callable[[_Key], int]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=code_of((topic.name, partition.partition_index)),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
