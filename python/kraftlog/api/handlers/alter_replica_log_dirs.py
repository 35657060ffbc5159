"""AlterReplicaLogDirs (key 34), versions 1-2: move replicas between the data directories of this broker (KIP-113).

v1: throttling before the response. v2: flexible.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kraftlog.api.slices import Pauses, Slices, sliced
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import DirectoryMoveService, TaskService

__all__ = ["handle"]

TopicResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
PartitionResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


@sliced
def handle(
    context: RequestContext,
    request: AlterReplicaLogDirsRequest,
    *,
    directory_moves: DirectoryMoveService,
    tasks: TaskService,
) -> Slices[asyncio.Future[AlterReplicaLogDirsResponse]]:
    """Begin the moves; the answer does not wait for their end. As in Kafka the last directory of a partition counts."""
    pauses = Pauses()
    wanted: dict[TopicPartition, str] = {}
    for entry in request.dirs:
        for topic in entry.topics:
            if pauses.is_due():
                yield None
            for index in topic.partitions:
                if pauses.is_due():
                    yield None
                wanted[TopicPartition(topic.name, index)] = entry.path
    return tasks.spawn(_alter_all(directory_moves, wanted))


async def _alter_all(moves: DirectoryMoveService, wanted: dict[TopicPartition, str]) -> AlterReplicaLogDirsResponse:
    pauses = Pauses()
    results: dict[str, list[PartitionResult]] = {}
    for name, path in wanted.items():
        if pauses.is_due():
            await asyncio.sleep(0)
        error_code = await moves.alter(name, path)
        partitions = results.setdefault(name.topic, [])
        partitions.append(PartitionResult(partition_index=name.partition, error_code=error_code))
    return AlterReplicaLogDirsResponse(
        results=[TopicResult(topic_name=name, partitions=partitions) for name, partitions in results.items()]
    )
