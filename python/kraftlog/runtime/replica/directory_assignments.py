"""In which data directory each replica lies, on its way to the controller: AssignReplicasToDirs (KIP-858)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraftlog.errors import ErrorCode, KraftlogError
from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kraftlog.controller import MetadataImage
    from kraftlog.runtime.replica.registry import PartitionKey
    from kraftlog.types import Uuid
    from kraftlog.wire.struct import Message

__all__ = ["DirectoryAssignments", "retry_delay_s"]

logger = logging.getLogger(__name__)

REPLICAS_MAX: Final = 2250
"""Replicas in one request, as in Kafka."""
_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 10.0


class Controllers(Protocol):
    """The way to the active controller."""

    async def request(self, message: Message) -> Any:
        """Ask until an active controller answers."""
        ...


def retry_delay_s(failures: int) -> float:
    """The pause after so many failures in a row, at least one."""
    return min(_RETRY_S * (1 << min(failures - 1, 16)), _RETRY_MAX_S)


class DirectoryAssignments:
    """Tells the controller about replicas that lie elsewhere than the metadata says, one request at a time (RFET-87).

    All methods are called on the loop.

    Args:
        broker_id: This broker.
        broker_epoch: Gives the epoch of its registration.
        image: The committed metadata.
        controllers: The way to the active controller.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        image: Callable[[], MetadataImage],
        controllers: Controllers,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._controllers = controllers
        self._queue: dict[PartitionKey, Uuid] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._failures = 0

    def assign(self, key: PartitionKey, directory_id: Uuid) -> None:
        """Report soon that a replica lies in this directory; the last report of a replica counts."""
        self._queue[key] = directory_id
        if self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Report nothing more."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while sent := self._next():
                try:
                    response = await self._controllers.request(self._request(sent))
                    reason = ErrorCode.name_of(response.error_code) if response.error_code else ""
                except KraftlogError as error:
                    response, reason = AssignReplicasToDirsResponse(), str(error)
                refused = sent.keys() if reason else self._answered(sent, response)
                if not refused:
                    self._failures = 0
                    continue
                if not self._failures:
                    what = reason or f"{len(refused)} replicas were refused"
                    logger.warning("the directories of replicas are reported again: %s", what)
                self._failures += 1
                await asyncio.sleep(retry_delay_s(self._failures))
        finally:
            self._task = None

    def _next(self) -> dict[PartitionKey, Uuid]:
        """What the next request has; what the metadata has settled, or does not place here any more, is dropped."""
        image = self._image()
        sent: dict[PartitionKey, Uuid] = {}
        for key, directory_id in list(self._queue.items()):
            topic = image.topics.by_id(key[0])
            partition = None if topic is None else topic.partitions.get(key[1])
            is_here = partition is not None and self._broker_id in partition.replicas
            if partition is None or not is_here or partition.directory(self._broker_id) == directory_id:
                del self._queue[key]
            elif len(sent) < REPLICAS_MAX:
                sent[key] = directory_id
        return sent

    def _request(self, sent: Mapping[PartitionKey, Uuid]) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, list[AssignReplicasToDirsRequest.PartitionData]]] = {}
        for (topic_id, index), directory_id in sent.items():
            partitions = directories.setdefault(directory_id, {}).setdefault(topic_id, [])
            partitions.append(AssignReplicasToDirsRequest.PartitionData(partition_index=index))
        return AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                AssignReplicasToDirsRequest.DirectoryData(
                    id=directory_id,
                    topics=[
                        AssignReplicasToDirsRequest.TopicData(topic_id=topic_id, partitions=partitions)
                        for topic_id, partitions in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )

    def _answered(self, sent: Mapping[PartitionKey, Uuid], response: AssignReplicasToDirsResponse) -> set[PartitionKey]:
        """Forget what the controller has recorded; the replicas that it refused or left out."""
        refused = set(sent)
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = (topic.topic_id, partition.partition_index)
                    if sent.get(key) == directory.id and not partition.error_code:
                        refused.discard(key)
        for key, directory_id in sent.items():
            if key not in refused and self._queue.get(key) == directory_id:
                del self._queue[key]
        return refused
