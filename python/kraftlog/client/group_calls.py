"""The calls of a consumer that are about its group: commits, committed offsets, and its membership."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

from kraftlog.client.group_subscription import GroupSubscription
from kraftlog.client.state.handed_rows import HandedRows
from kraftlog.client.state.position import OffsetAndMetadata, PartitionInput, partition_of
from kraftlog.client.transactions import GroupMetadata
from kraftlog.metrics.consumer import ConsumerMetrics
from kraftlog.types import TopicPartition

__all__ = ["GroupCalls"]


class GroupCalls(ABC):
    """Base of :class:`AsyncConsumer`."""

    _handed: HandedRows
    _metrics: ConsumerMetrics

    @abstractmethod
    def _require_group(self) -> GroupSubscription:
        """The group; raises where the consumer is not running or has none."""

    async def commit(
        self,
        offsets: Mapping[PartitionInput, OffsetAndMetadata | int] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets of the group.

        Args:
            offsets: What to commit; None for the positions, with the leader epochs of the last records read.
            timeout_s: Seconds; ``request.timeout.ms`` when None.

        Raises:
            CommitFailedError: The group no longer has this member, or it lost partitions since the last poll, so that
                another member may read again what this one read; nothing is committed.
            KafkaError: There is no ``group.id``, or the coordinator refuses.
        """
        commits = self._require_group().commits
        if offsets is None:
            self._handed.check_not_lost()
            with self._metrics.timed("commit-sync"):
                await commits.commit_positions(timeout_s, with_handed=True)
            self._handed.take_back()
            return
        wanted = {
            partition_of(name): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for name, offset in offsets.items()
        }
        self._handed.check_not_lost(wanted)
        with self._metrics.timed("commit-sync"):
            await commits.commit(wanted, timeout_s)
        self._handed.note_commit(wanted)

    async def committed(
        self, partitions: Collection[PartitionInput], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed; partitions without an offset are left out.

        Raises:
            KafkaError: There is no ``group.id``, or the coordinator refuses.
        """
        names = [partition_of(partition) for partition in partitions]
        with self._metrics.timed("committed"):
            return await self._require_group().commits.committed(names, timeout_s)

    @property
    def group_metadata(self) -> GroupMetadata:
        """The membership, for :meth:`AsyncProducer.send_offsets_to_transaction`.

        Raises:
            CommitFailedError: The member lost partitions since the last poll: a transaction must not commit their
                offsets in the name of the member that it has become since.
            KafkaError: There is no ``group.id``.
        """
        found = self._require_group()
        self._handed.check_not_lost()
        group_id, member = found.group.group_id, found.member
        if member is None or not member.has_joined:
            return GroupMetadata(group_id)
        return GroupMetadata(group_id, member.generation, member.member_id, found.instance_id)
