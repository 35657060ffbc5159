"""The calls of a consumer that ask brokers about offsets and topics, beside what it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

from kraftlog.client.offset_questions import OffsetQuestions
from kraftlog.client.state.offset_lookup import EARLIEST, LATEST
from kraftlog.client.state.position import OffsetAndTime, PartitionInput, partition_of
from kraftlog.types import TopicPartition

__all__ = ["OffsetCalls"]


class OffsetCalls(ABC):
    """Base of :class:`AsyncConsumer`."""

    @abstractmethod
    def _questions_now(self) -> OffsetQuestions:
        """What asks; raises where the consumer is not running."""

    async def offsets_for_times(
        self, timestamps: Mapping[PartitionInput, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        """The first offset whose record has a timestamp (milliseconds) or a later one; None where there is none."""
        return await self._questions_now().offsets(
            {partition_of(name): time for name, time in timestamps.items()}, timeout_s
        )

    async def beginning_offsets(
        self, partitions: Collection[PartitionInput], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        found = await self._questions_now().offsets(dict.fromkeys(map(partition_of, partitions), EARLIEST), timeout_s)
        return {name: answer.offset for name, answer in found.items() if answer is not None}

    async def end_offsets(
        self, partitions: Collection[PartitionInput], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The exclusive end of each partition: its high watermark, with read_committed its last stable offset."""
        found = await self._questions_now().offsets(dict.fromkeys(map(partition_of, partitions), LATEST), timeout_s)
        return {name: answer.offset for name, answer in found.items() if answer is not None}

    async def partitions_for(self, topic: str, *, timeout_s: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic.

        Raises:
            KafkaError: There is no such topic.
        """
        return await self._questions_now().partitions_for(topic, timeout_s)

    async def list_topics(self, *, timeout_s: float | None = None) -> dict[str, tuple[int, ...]]:
        """The partition numbers of each topic of the cluster, internal topics too.

        Raises:
            TimeoutError: No broker answered.
        """
        return await self._questions_now().list_topics(timeout_s)
