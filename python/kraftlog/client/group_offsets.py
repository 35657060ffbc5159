"""Committed offsets of a group, kept by its coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kraftlog.client.connections import Connections
from kraftlog.client.coordinator import GROUP, Coordinator
from kraftlog.client.state.cluster_metadata import Node
from kraftlog.client.state.position import OffsetAndMetadata
from kraftlog.errors import KafkaError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest

__all__ = ["GroupOffsets"]

# From here on topics are named by id, which a broker before 2.8 does not have.
LAST_VERSION_WITH_NAMES = 9
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_STABLE = 7
OFFSET_FETCH_KEY = 9


class GroupOffsets(Coordinator):
    """Asks the coordinator of a group.

    Args:
        group_id: The group.
        connections: To the cluster.
        any_node: Gives a node to ask for the coordinator.
        retry_backoff_s: Seconds between attempts.
    """

    def __init__(
        self,
        group_id: str,
        connections: Connections,
        any_node: Callable[[], Awaitable[Node]],
        *,
        retry_backoff_s: float,
    ) -> None:
        super().__init__(group_id, GROUP, connections, any_node, retry_backoff_s=retry_backoff_s)
        self.group_id = group_id

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
                    where = f"{topic.name}-{partition.partition_index} in group {self.group_id}"
                    raise KafkaError(partition.error_code, f"commit of {where}")

    async def committed(
        self, partitions: Sequence[TopicPartition], *, member_id: str | None = None, member_epoch: int = -1
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is committed; partitions without an offset are left out.

        An open transaction that changes one of the offsets is an error, whatever the isolation level: a member that
        began at the earlier offset would process the same records as the transaction.

        Raises:
            KafkaError: The first error of the group or of a partition; UNSTABLE_OFFSET_COMMIT
                until such a transaction has ended.

        Source: ``CommitRequestManager.OffsetFetchRequestState`` of Kafka 4.3.1; KIP-447.
        """
        topics: dict[str, list[int]] = {}
        for name in partitions:
            topics.setdefault(name.topic, []).append(name.partition)
        connection = await self._connections.connect(await self.coordinator())
        version = min(connection.common_version(OFFSET_FETCH_KEY) or 0, LAST_VERSION_WITH_NAMES)
        is_stable = version >= FIRST_VERSION_WITH_STABLE
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
            raise KafkaError(group_answer.error_code, f"committed offsets of group {self.group_id}")
        found = {}
        for topic in group_answer.topics:
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code:
                    raise KafkaError(partition.error_code, f"committed offset of {name} in group {self.group_id}")
                if partition.committed_offset >= 0:
                    epoch = partition.committed_leader_epoch
                    found[name] = OffsetAndMetadata(
                        partition.committed_offset, epoch if epoch >= 0 else None, partition.metadata or ""
                    )
        return found
