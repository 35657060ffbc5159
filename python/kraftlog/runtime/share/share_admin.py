"""What the group coordinator has done at the share coordinator: states set up, altered, described and deleted.

Source: ``org.apache.kafka.coordinator.group.GroupCoordinatorService`` of Kafka 4.3.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kraftlog.coordinator.group.share_groups import ShareStatesDue
from kraftlog.coordinator.share.share_key import ShareKey
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.coordinator.shard_registry import CommittedMetadata, TaskGroup
from kraftlog.runtime.coordinator.shard_runner import ShardRunner
from kraftlog.types import Uuid
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest

if TYPE_CHECKING:
    from kraftlog.coordinator.group.group_shard import GroupShard
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.share.persister import BrokerRequests, ShareStatePersister

__all__ = ["OffsetsOfPartition", "ShareAdmin"]

_LATEST: Final = -1
_UNINITIALIZED: Final = -1
# Requests to the share coordinator that are under way at a time, for one request of a client.
_REQUESTS_AT_ONCE: Final = 32
_Topics = Mapping[Uuid, tuple[str, frozenset[int]]]
T = TypeVar("T")


async def _results(requests: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of requests, in their order; those of a group begin when the group before has ended."""
    results: list[T] = []
    rest = iter(requests)
    while some := list(islice(rest, _REQUESTS_AT_ONCE)):
        results += await asyncio.gather(*some)
    return results


class OffsetsOfPartition:
    """What DescribeShareGroupOffsets shows of one share partition; -1 for what is unknown."""

    __slots__ = ("error_code", "error_message", "lag", "leader_epoch", "start_offset")

    def __init__(self, *, start_offset: int = -1, leader_epoch: int = 0, lag: int = -1) -> None:
        self.start_offset = start_offset
        self.leader_epoch = leader_epoch
        self.lag = lag
        self.error_code = 0
        self.error_message: str | None = None


class ShareAdmin:
    """Share partitions of whole groups.

    Args:
        node_id: Of this broker.
        persister: The way to the share coordinator.
        links: The way to leaders of partitions.
        metadata: Says who leads.
        find_partition: Finds a partition of this node by topic id.
        tasks: Run what takes several requests.
    """

    def __init__(
        self,
        node_id: int,
        persister: ShareStatePersister,
        links: BrokerRequests,
        *,
        metadata: CommittedMetadata,
        find_partition: Callable[[Uuid, int], Partition | None],
        tasks: TaskGroup,
    ) -> None:
        self._node_id = node_id
        self._persister = persister
        self._links = links
        self._metadata = metadata
        self._find_partition = find_partition
        self._tasks = tasks

    # -- setting up ---------------------------------------------------------------------------------------------

    def on_event(self, runner: ShardRunner[GroupShard], event: object) -> None:
        """Carry out what a group shard asks for."""
        if isinstance(event, ShareStatesDue):
            self._tasks.spawn(self._set_up(runner, event))

    async def _set_up(self, runner: ShardRunner[GroupShard], due: ShareStatesDue) -> None:
        codes = await self.initialize(
            due.group_id,
            due.state_epoch,
            {(topic_id, index): _UNINITIALIZED for topic_id, (_, indexes) in due.topics.items() for index in indexes},
        )
        done, failed = split(due.topics, codes)
        if runner.is_loaded:
            runner.call(lambda shard, now_ms: shard.shares.on_states_initialized(due.group_id, done, failed, now_ms))

    async def initialize(
        self, group_id: str, state_epoch: int, offsets: Mapping[tuple[Uuid, int], int]
    ) -> dict[tuple[Uuid, int], Any]:
        """Begin new states with these start offsets; the ``PartitionResult`` of each share partition."""
        places = list(offsets)
        results = await _results(
            self._persister.initialize(ShareKey(group_id, *place), state_epoch=state_epoch, start_offset=offsets[place])
            for place in places
        )
        return dict(zip(places, results, strict=True))

    async def delete(self, group_id: str, topics: _Topics) -> dict[Uuid, int]:
        """Forget the states of topics; the first error code of each."""
        codes: dict[Uuid, int] = {}
        for topic_id, (_, indexes) in topics.items():
            results = await _results(
                self._persister.delete(ShareKey(group_id, topic_id, index)) for index in sorted(indexes)
            )
            # What was deleted with its topic needs no deletion.
            known = (result.error_code for result in results)
            codes[topic_id] = next((code for code in known if code and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0)
        return codes

    # -- offsets ------------------------------------------------------------------------------------------------

    async def describe(self, group_id: str, places: Iterable[tuple[Uuid, int]]) -> list[OffsetsOfPartition]:
        """Start offsets and lags of share partitions."""
        return await _results(self._describe(ShareKey(group_id, *place)) for place in places)

    async def _describe(self, key: ShareKey) -> OffsetsOfPartition:
        result = await self._persister.summarize(key)
        if result.error_code:
            failed = OffsetsOfPartition()
            failed.error_code, failed.error_message = result.error_code, result.error_message
            return failed
        if result.start_offset < 0:
            return OffsetsOfPartition()
        found = OffsetsOfPartition(start_offset=result.start_offset, leader_epoch=result.leader_epoch)
        if result.delivery_complete_count >= 0:
            try:
                end_offset = await self._end_offset(key)
            except KafkaError as error:
                found.error_code, found.error_message = error.code, error.message
            else:
                found.lag = max(0, end_offset - result.start_offset - result.delivery_complete_count)
        return found

    async def _end_offset(self, key: ShareKey) -> int:
        topic = self._metadata.image.topics.by_id(key.topic_id)
        known = None if topic is None else topic.partitions.get(key.partition)
        if topic is None or known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if known.leader == self._node_id:
            partition = self._find_partition(key.topic_id, key.partition)
            if partition is None or not partition.is_leader:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return partition.high_watermark
        request: Any = ListOffsetsRequest
        wanted = request.ListOffsetsPartition(
            partition_index=key.partition, current_leader_epoch=known.leader_epoch, timestamp=_LATEST
        )
        response = await self._links.request(
            known.leader, request(topics=[request.ListOffsetsTopic(name=topic.name, partitions=[wanted])])
        )
        (answered,) = response.topics[0].partitions
        if answered.error_code:
            raise KafkaError(answered.error_code)
        offset: int = answered.offset
        return offset


def split(topics: _Topics, results: Mapping[tuple[Uuid, int], Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Share partitions by outcome: (without error, with an error), as name and partitions by topic id."""
    done: dict[Uuid, tuple[str, frozenset[int]]] = {}
    failed: dict[Uuid, tuple[str, frozenset[int]]] = {}
    for topic_id, (name, indexes) in topics.items():
        fine = frozenset(index for index in indexes if not results[topic_id, index].error_code)
        if fine:
            done[topic_id] = (name, fine)
        if indexes - fine:
            failed[topic_id] = (name, indexes - fine)
    return done, failed
