"""Committed offsets of a group, kept by its coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from kraftlog.client.connections import Connections
from kraftlog.client.state.cluster_metadata import Node
from kraftlog.client.state.position import OffsetAndMetadata
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest
from kraftlog.wire.struct import Message

__all__ = ["GroupOffsets"]

# From here on topics are named by id, which a broker before 2.8 does not have.
LAST_VERSION_WITH_NAMES = 9
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_STABLE = 7
FIRST_VERSION_WITH_KEYS = 4
OFFSET_FETCH_KEY = 9
FIND_COORDINATOR_KEY = 10

_MOVED = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))
T = TypeVar("T")


class GroupOffsets:
    """Finds the coordinator of a group and asks it.

    Args:
        group_id: The group.
        connections: To the cluster.
        any_node: Gives a node to ask for the coordinator.
        retry_backoff_s: Seconds between attempts.
        is_read_committed: Whether offsets of open transactions are waited for.
    """

    def __init__(
        self,
        group_id: str,
        connections: Connections,
        any_node: Callable[[], Awaitable[Node]],
        *,
        retry_backoff_s: float,
        is_read_committed: bool,
    ) -> None:
        self.group_id = group_id
        self._connections = connections
        self._any_node = any_node
        self._retry_backoff_s = retry_backoff_s
        self._is_read_committed = is_read_committed
        self._coordinator: Node | None = None

    async def coordinator(self) -> Node:
        """The coordinator's node, looked up when it is not known.

        Raises:
            KafkaError: It cannot be found now.
        """
        if self._coordinator is None:
            node = await self._any_node()
            connection = await self._connections.connect(node)
            version = connection.common_version(FIND_COORDINATOR_KEY) or 0
            request = (
                FindCoordinatorRequest(coordinator_keys=[self.group_id])
                if version >= FIRST_VERSION_WITH_KEYS
                else FindCoordinatorRequest(key=self.group_id)
            )
            answer: Any = (await self._connections.ask(node, request))[0]
            found = answer.coordinators[0] if answer.coordinators else answer
            if found.error_code:
                raise KafkaError(found.error_code, found.error_message or f"coordinator of {self.group_id}")
            # A connection of its own: an answer that is waited for must not delay heartbeats (as in Kafka's client).
            self._coordinator = Node(2**31 - 1 - found.node_id, found.host, found.port)
        return self._coordinator

    def forget_coordinator(self) -> None:
        """Look the coordinator up again before the next request."""
        self._coordinator = None

    async def ask(self, message: Message, version_max: int | None = None, timeout_s: float | None = None) -> Any:
        """Ask the coordinator once.

        Raises:
            KafkaError: It cannot be reached; it is looked up again next time.
        """
        node = await self.coordinator()
        try:
            answer: Any = (await self._connections.ask(node, message, version_max, timeout_s))[0]
        except KafkaError:
            self.forget_coordinator()
            raise
        if getattr(answer, "error_code", 0) in _MOVED:
            self.forget_coordinator()
        return answer

    async def retried(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """What ``work`` gives, tried again after errors that may pass until the time is over.

        Raises:
            KafkaError: The last error.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                return await work()
            except KafkaError as error:
                may_pass = error.retriable or error.code == ErrorCode.BROKER_NOT_AVAILABLE
                if error.code in _MOVED:
                    self.forget_coordinator()
                if not may_pass or loop.time() + self._retry_backoff_s > deadline:
                    raise
            await asyncio.sleep(self._retry_backoff_s)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> None:
        """Commit once.

        Raises:
            KafkaError: The first error of a partition.
        """
        topics: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
        for name, offset in offsets.items():
            topics.setdefault(name.topic, []).append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=name.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )
        answer = await self.ask(request, LAST_VERSION_WITH_NAMES)
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise KafkaError(partition.error_code, f"commit of {topic.name}-{partition.partition_index}")

    async def committed(
        self, partitions: Sequence[TopicPartition], *, member_id: str | None = None, member_epoch: int = -1
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is committed; partitions without an offset are left out.

        Raises:
            KafkaError: The first error of the group or of a partition.
        """
        topics: dict[str, list[int]] = {}
        for name in partitions:
            topics.setdefault(name.topic, []).append(name.partition)
        connection = await self._connections.connect(await self.coordinator())
        version = min(connection.common_version(OFFSET_FETCH_KEY) or 0, LAST_VERSION_WITH_NAMES)
        is_stable = self._is_read_committed and version >= FIRST_VERSION_WITH_STABLE
        if version >= FIRST_VERSION_WITH_GROUPS:
            group = OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id=self.group_id,
                member_id=member_id if version >= LAST_VERSION_WITH_NAMES else None,
                member_epoch=member_epoch if version >= LAST_VERSION_WITH_NAMES else -1,
                topics=[
                    OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                    for topic, indexes in topics.items()
                ],
            )
            request = OffsetFetchRequest(groups=[group], require_stable=is_stable)
        else:
            request = OffsetFetchRequest(
                group_id=self.group_id,
                topics=[
                    OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in topics.items()
                ],
                require_stable=is_stable,
            )
        answer = await self.ask(request, LAST_VERSION_WITH_NAMES)
        group_answer: Any = answer.groups[0] if answer.groups else answer
        if group_answer.error_code:
            raise KafkaError(group_answer.error_code, f"committed offsets of {self.group_id}")
        found = {}
        for topic in group_answer.topics:
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code:
                    raise KafkaError(partition.error_code, f"committed offset of {name}")
                if partition.committed_offset >= 0:
                    epoch = partition.committed_leader_epoch
                    found[name] = OffsetAndMetadata(
                        partition.committed_offset, epoch if epoch >= 0 else None, partition.metadata or ""
                    )
        return found
