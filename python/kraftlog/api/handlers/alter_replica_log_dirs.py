"""AlterReplicaLogDirs (key 34), versions 1-2: move replicas between the data directories of this broker (KIP-113).

v1: throttling before the response. v2: flexible.
"""

from __future__ import annotations

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
) -> Slices[AlterReplicaLogDirsResponse]:
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
    results: dict[str, list[PartitionResult]] = {}
    for name, path in wanted.items():
        if pauses.is_due():
            yield None
        begun = tasks.spawn(directory_moves.alter(name, path))
        yield begun
        partitions = results.setdefault(name.topic, [])
        partitions.append(PartitionResult(partition_index=name.partition, error_code=begun.result()))
    return AlterReplicaLogDirsResponse(
        results=[TopicResult(topic_name=name, partitions=partitions) for name, partitions in results.items()]
    )
