"""The way to the share coordinator: one share partition per call, on this broker or another one.

Source: ``org.apache.kafka.server.share.persister.DefaultStatePersister`` and ``PersisterStateManager``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraftlog.coordinator.share.share_key import ShareKey
from kraftlog.coordinator.share.state_shard import ShareStateShard
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.partitioner import coordinator_partition
from kraftlog.runtime.coordinator.shard_registry import CommittedMetadata, ShardRegistry
from kraftlog.vocabulary import SHARE_GROUP_STATE_TOPIC
from kraftlog.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from kraftlog.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from kraftlog.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from kraftlog.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from kraftlog.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from kraftlog.wire.struct import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kraftlog.coordinator.share.share_partition import StateWrite

__all__ = ["BrokerRequests", "ShareStatePersister"]

# Longer than broker.session.timeout.ms (9 s), after which another broker leads the partitions of one that has died.
_ATTEMPTS: Final = 16
_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 1.0
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
_Ask = Callable[[ShareStateShard, "asyncio.Future[Any]", int], None]


class BrokerRequests(Protocol):
    """The way to other brokers."""

    def request(self, broker_id: int, message: Message) -> Coroutine[Any, Any, Any]:
        """Ask a broker; KafkaError if there is no answer."""
        ...


class ShareStatePersister:
    """Reads and writes the state of share partitions.

    Every method returns the ``PartitionResult`` of its API, with an error code if the coordinator could not be
    reached within some attempts.

    Args:
        node_id: Of this broker.
        coordinator: Shards of this broker.
        links: The way to the others.
        metadata: Says who coordinates a share partition.
    """

    def __init__(
        self,
        node_id: int,
        coordinator: ShardRegistry[ShareStateShard],
        links: BrokerRequests,
        metadata: CommittedMetadata,
    ) -> None:
        self._node_id = node_id
        self._coordinator = coordinator
        self._links = links
        self._metadata = metadata

    async def initialize(self, key: ShareKey, *, state_epoch: int, start_offset: int) -> Any:
        """Begin a new state."""
        request: Any = InitializeShareGroupStateRequest
        data = request.PartitionData(partition=key.partition, state_epoch=state_epoch, start_offset=start_offset)
        topic = request.InitializeStateData(topic_id=key.topic_id, partitions=[data])
        return await self._ask(
            key,
            lambda shard, future, now_ms: shard.initialize(future, key, data, now_ms),
            request(group_id=key.group_id, topics=[topic]),
        )

    async def read(self, key: ShareKey, *, leader_epoch: int) -> Any:
        """Read the state for the leader of the partition."""
        request: Any = ReadShareGroupStateRequest
        data = request.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = request.ReadStateData(topic_id=key.topic_id, partitions=[data])
        return await self._ask(
            key,
            lambda shard, future, now_ms: shard.read(future, key, leader_epoch, now_ms),
            request(group_id=key.group_id, topics=[topic]),
        )

    async def write(self, key: ShareKey, write: StateWrite, *, state_epoch: int, leader_epoch: int) -> Any:
        """Store changed states."""
        request: Any = WriteShareGroupStateRequest
        data = request.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.complete_count,
            state_batches=[
                request.StateBatch(
                    first_offset=batch.first,
                    last_offset=batch.last,
                    delivery_state=batch.state,
                    delivery_count=batch.delivery_count,
                )
                for batch in write.batches
            ],
        )
        topic = request.WriteStateData(topic_id=key.topic_id, partitions=[data])
        return await self._ask(
            key,
            lambda shard, future, now_ms: shard.write(future, key, data, now_ms),
            request(group_id=key.group_id, topics=[topic]),
        )

    async def delete(self, key: ShareKey) -> Any:
        """Forget a state."""
        request: Any = DeleteShareGroupStateRequest
        data = request.PartitionData(partition=key.partition)
        topic = request.DeleteStateData(topic_id=key.topic_id, partitions=[data])
        return await self._ask(
            key,
            lambda shard, future, now_ms: shard.delete(future, key, now_ms),
            request(group_id=key.group_id, topics=[topic]),
        )

    async def summarize(self, key: ShareKey) -> Any:
        """Read epochs and offsets."""
        request: Any = ReadShareGroupStateSummaryRequest
        data = request.PartitionData(partition=key.partition, leader_epoch=-1)
        topic = request.ReadStateSummaryData(topic_id=key.topic_id, partitions=[data])
        return await self._ask(
            key,
            lambda shard, future, _now_ms: shard.summarize(future, key),
            request(group_id=key.group_id, topics=[topic]),
        )

    async def _ask(self, key: ShareKey, ask: _Ask, request: Message) -> Any:
        error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for delay_s in _delays():
            try:
                result = await self._ask_once(key, ask, request)
            except KafkaError as failure:
                error = failure
            else:
                error = KafkaError(result.error_code)
                if error.code not in _RETRIABLE:
                    return result
            if error.code not in _RETRIABLE or delay_s is None:
                break
            await asyncio.sleep(delay_s)
        return _Failed(key.partition, error)

    async def _ask_once(self, key: ShareKey, ask: _Ask, request: Message) -> Any:
        await self._coordinator.ensure_topic([str(key)])
        leader_id = self._leader_of(key)
        if leader_id == self._node_id:
            return await self._coordinator.runner(str(key)).ask(ask)
        if leader_id < 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response = await self._links.request(leader_id, request)
        for topic in response.results:
            for result in topic.partitions:
                if (topic.topic_id, result.partition) == (key.topic_id, key.partition):
                    return result
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the share coordinator left the partition out of its answer")

    def _leader_of(self, key: ShareKey) -> int:
        topic = self._metadata.image.topics.by_name(SHARE_GROUP_STATE_TOPIC)
        if topic is None or not topic.partitions:
            return -1
        partition = topic.partitions.get(coordinator_partition(str(key), len(topic.partitions)))
        return -1 if partition is None else partition.leader


class _Failed:
    """What stands for a result when the coordinator could not be reached."""

    __slots__ = ("error_code", "error_message", "partition")

    def __init__(self, partition: int, error: KafkaError) -> None:
        self.partition = partition
        self.error_code = int(error.code)
        self.error_message = error.message


def _delays() -> Iterator[float | None]:
    delay_s = _RETRY_S
    for _ in range(_ATTEMPTS - 1):
        yield delay_s
        delay_s = min(2 * delay_s, _RETRY_MAX_S)
    yield None
