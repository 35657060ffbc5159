"""StopReplica (key 5), versions 0-4: a controller of Kafka 3.x stops replicas of this broker.

v0: partitions one by one. v1: grouped by topic, broker epoch (KIP-380). v2: flexible. v3: leader epoch and deletion per
partition (KIP-570). v4: whether the controller is a KRaft one. Kafka 4.x removed the API. A listener that only brokers
and controllers use serves it, see ``docs/behaviours/differences.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kraftlog.partition.stop_replica import NO_EPOCH, ReplicaStop
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import StopService

__all__ = ["handle"]

PartitionError = StopReplicaResponse.StopReplicaPartitionError


def handle(
    context: RequestContext, request: StopReplicaRequest, *, stops: StopService
) -> StopReplicaResponse | asyncio.Future[StopReplicaResponse]:
    """Stop the replicas; the answer comes when their logs are closed, or renamed for deletion."""
    error_code = stops.admit(controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch)
    if error_code:
        return StopReplicaResponse(error_code=error_code)
    # As in Kafka the last entry of a partition counts.
    wanted = {stop.topic_partition: stop for stop in _stops(request, context.api_version)}
    return asyncio.ensure_future(_stop_all(stops, list(wanted.values())))


async def _stop_all(stops: StopService, wanted: list[ReplicaStop]) -> StopReplicaResponse:
    error_codes = await asyncio.gather(*map(stops.stop_replica, wanted))
    return StopReplicaResponse(
        partition_errors=[
            PartitionError(
                topic_name=stop.topic_partition.topic,
                partition_index=stop.topic_partition.partition,
                error_code=error_code,
            )
            for stop, error_code in zip(wanted, error_codes, strict=True)
        ]
    )


def _stops(request: StopReplicaRequest, version: int) -> Iterator[ReplicaStop]:
    if version >= 3:
        for state in request.topic_states:
            for partition in state.partition_states:
                name = TopicPartition(state.topic_name, partition.partition_index)
                yield ReplicaStop(name, partition.leader_epoch, partition.delete_partition)
        return
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield ReplicaStop(TopicPartition(topic.name, index), NO_EPOCH, request.delete_partitions)
    for ungrouped in request.ungrouped_partitions:
        name = TopicPartition(ungrouped.topic_name, ungrouped.partition_index)
        yield ReplicaStop(name, NO_EPOCH, request.delete_partitions)
