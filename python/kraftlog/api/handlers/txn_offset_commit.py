"""TxnOffsetCommit, API key 28, versions 0-5 (KIP-98).

2   leader epochs (KIP-320)
3   member id and generation, which are checked (KIP-447)
4   TRANSACTION_ABORTABLE may be answered (KIP-890)
5   the group coordinator adds its partition to the transaction (KIP-890)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kraftlog.api.combined_answer import transform
from kraftlog.api.slices import LARGE_ENTRIES, PARTITIONS_PER_APPEND, Pauses, Slices, at_once, in_slices, sliced
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
    from kraftlog.coordinator.group.group_shard import GroupShard
    from kraftlog.runtime.coordinator.shard_runner import ShardRunner

__all__ = ["handle"]

LOADING_VERSION = 2
ABORTABLE_VERSION = 4
ADDING_VERSION = 5

_Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_Partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
_Key = tuple[str, int]


@sliced
def handle(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    *,
    cluster: ClusterService,
    groups: GroupService,
    verifier: VerifierService,
    settings: ApiSettings,
    tasks: TaskService,
) -> Slices[TxnOffsetCommitResponse | asyncio.Future[TxnOffsetCommitResponse]]:
    """Store offsets of a group that take effect if the transaction is committed."""
    codes: dict[_Key, int] = {}
    pauses = Pauses()
    kept = yield from _existing(cluster, request, codes, pauses)
    if not kept:
        return (yield from _response(request, codes, ErrorCode.NONE))
    if not request.group_id:
        return (yield from _response(request, codes, ErrorCode.INVALID_GROUP_ID))
    committed = tasks.spawn(_commit(context, request, kept, codes, groups, verifier, settings))
    if pauses.total > LARGE_ENTRIES:
        yield committed
        return (yield from _response(request, codes, committed.result()))
    return transform(committed, lambda code: at_once(_response(request, codes, code)))


async def _commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    kept: dict[_Key, _Partition],
    codes: dict[_Key, int],
    groups: GroupService,
    verifier: VerifierService,
    settings: ApiSettings,
) -> int:
    """Commit what exists and note the code of each partition; returns the code of those that have none."""
    version = context.api_version
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
                    raise KafkaError(code)
            await _append(runner, request, kept, codes)
    except KafkaError as error:
        if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_VERSION:
            return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return error.code
    return int(ErrorCode.NONE)


async def _append(
    runner: ShardRunner[GroupShard],
    request: TxnOffsetCommitRequest,
    kept: dict[_Key, _Partition],
    codes: dict[_Key, int],
) -> None:
    rest = iter(kept.items())
    while some := list(islice(rest, PARTITIONS_PER_APPEND)):
        by_topic: dict[str, list[_Partition]] = {}
        for (name, _), partition in some:
            by_topic.setdefault(name, []).append(partition)
        part = replace(request, topics=[_Topic(name=name, partitions=found) for name, found in by_topic.items()])
        answer = await runner.ask(_committer(part))
        for topic in answer.topics:
            for answered in topic.partitions:
                codes[topic.name, answered.partition_index] = answered.error_code


def _committer(part: TxnOffsetCommitRequest) -> Callable[[GroupShard, asyncio.Future[Any], int], None]:
    return lambda shard, future, now_ms: shard.commit_transactional_offsets(future, part, now_ms)


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


def _existing(
    cluster: ClusterService, request: TxnOffsetCommitRequest, codes: dict[_Key, int], pauses: Pauses
) -> Slices[dict[_Key, _Partition]]:
    """The partitions that exist, once each, with what was said of it last; the others get their code."""
    kept: dict[_Key, _Partition] = {}
    for topic in request.topics:
        image = cluster.image.topics.by_name(topic.name)
        if pauses.is_due():
            yield None
        for partition in topic.partitions:
            if pauses.is_due():
                yield None
            key = (topic.name, partition.partition_index)
            if image is None or partition.partition_index not in image.partitions:
                codes[key] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                kept[key] = partition
    return kept


def _response(request: TxnOffsetCommitRequest, codes: Mapping[_Key, int], code: int) -> Slices[TxnOffsetCommitResponse]:
    """The code of each partition; ``code`` for those that have none."""
    topics = []
    pauses = Pauses()
    for topic in request.topics:
        if pauses.is_due():
            yield None
        partitions = yield from in_slices(
            TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index,
                error_code=codes.get((topic.name, partition.partition_index), int(code)),
            )
            for partition in topic.partitions
        )
        topics.append(TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return TxnOffsetCommitResponse(topics=topics)
