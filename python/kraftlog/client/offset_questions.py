"""Offsets by timestamp, first and last offsets, and partitions of topics, asked beside the reading."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kraftlog.client.config import ClientConfig
from kraftlog.client.driver import ConsumerDriver
from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.client.state.offset_lookup import list_offsets_request
from kraftlog.client.state.position import OffsetAndTime
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.metadata import MetadataRequest

__all__ = ["OffsetQuestions"]

# A topic that a question creates is unknown to the first answers.
UPDATES_BEFORE_ERROR = 10


class OffsetQuestions:
    """Asks leaders, again after errors that may pass."""

    def __init__(self, core: ConsumerCore, driver: ConsumerDriver, config: ClientConfig) -> None:
        self._core = core
        self._driver = driver
        self._timeout_s: float = config["request.timeout.ms"] / 1000
        self._retry_backoff_s: float = config["retry.backoff.ms"] / 1000

    async def partitions_for(self, topic: str, timeout_s: float | None) -> list[TopicPartition]:
        """The partitions of a topic.

        Raises:
            KafkaError: There is no such topic.
            TimeoutError: No metadata came.
        """
        core = self._core
        seen = core.metadata.update_count

        async def is_known() -> bool:
            self._check_topic(topic, seen)
            found = core.metadata.topics.get(topic)
            return found is not None and bool(found.partitions)

        with core.asking({topic}):
            limit_s = self._timeout_s if timeout_s is None else timeout_s
            await self._driver.ask_until(is_known, f"metadata of {topic}", limit_s)
        return [TopicPartition(topic, number) for number in sorted(core.metadata.topics[topic].partitions)]

    def _check_topic(self, topic: str, seen: int) -> None:
        """Raise what metadata says against a topic; an error that may pass, after more than a few updates.

        Args:
            topic: Name.
            seen: Updates of metadata before the question.

        Raises:
            KafkaError: Names the topic.
        """
        metadata = self._core.metadata
        found = metadata.topics.get(topic)
        if found is None or not found.error_code:
            return
        if not ErrorCode.is_retriable(found.error_code) or metadata.update_count > seen + UPDATES_BEFORE_ERROR:
            raise KafkaError(found.error_code, f"topic {topic}")
        metadata.is_update_wanted = True

    def _check_partition(self, name: TopicPartition, seen: int) -> None:
        metadata = self._core.metadata
        topic = metadata.topics.get(name.topic)
        if topic is None or not topic.partitions or name.partition in topic.partitions:
            return
        if metadata.update_count > seen + UPDATES_BEFORE_ERROR:
            text = f"{name.topic} has {len(topic.partitions)} partitions, no {name.partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    async def list_topics(self, timeout_s: float | None) -> dict[str, tuple[int, ...]]:
        """The partition numbers of each topic.

        Raises:
            TimeoutError: No broker answered.
        """
        found: dict[str, tuple[int, ...]] = {}

        async def ask() -> bool:
            try:
                node = await self._driver.any_node()
                answer: Any = (await self._driver.connections.ask(node, MetadataRequest(topics=None)))[0]
            except KafkaError as error:
                if error.code in {ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.NETWORK_EXCEPTION}:
                    raise
                await asyncio.sleep(self._retry_backoff_s)
                return False
            found.update(
                (topic.name, tuple(sorted(partition.partition_index for partition in topic.partitions)))
                for topic in answer.topics
                if not topic.error_code
            )
            return not answer.error_code

        await self._driver.ask_until(ask, "topics", self._timeout_s if timeout_s is None else timeout_s)
        return dict(sorted(found.items()))

    async def offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        """The answer for each partition; None where no record has the timestamp or a later one.

        Raises:
            KafkaError: A leader refuses, or there is no such topic or partition.
            TimeoutError: Not all leaders answered.
        """
        core = self._core
        seen = core.metadata.update_count
        found: dict[TopicPartition, OffsetAndTime | None] = {}

        async def ask() -> bool:
            by_leader: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
            for name, timestamp in timestamps.items():
                if name in found:
                    continue
                self._check_topic(name.topic, seen)
                leader = core.metadata.leader_of(name)
                if leader.leader_id is None:
                    self._check_partition(name, seen)
                    core.metadata.is_update_wanted = True
                else:
                    epoch = -1 if leader.epoch is None else leader.epoch
                    by_leader.setdefault(leader.leader_id, {})[name] = (timestamp, epoch)
            await asyncio.gather(*(self._ask_leader(node_id, asked, found) for node_id, asked in by_leader.items()))
            return len(found) == len(timestamps)

        limit_s = self._timeout_s if timeout_s is None else timeout_s
        with core.asking({name.topic for name in timestamps}):
            await self._driver.ask_until(ask, "offsets", limit_s)
        return found

    async def _ask_leader(
        self,
        node_id: int,
        asked: Mapping[TopicPartition, tuple[int, int]],
        found: dict[TopicPartition, OffsetAndTime | None],
    ) -> None:
        core = self._core
        request = list_offsets_request(
            asked, is_read_committed=core.options.is_read_committed, timeout_ms=core.options.request_timeout_ms
        )
        try:
            response: Any = await self._driver.ask(node_id, request)
        except KafkaError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                raise
            core.context.want_metadata(self._driver.now_ms())
            await asyncio.sleep(self._retry_backoff_s)
            return
        for topic in response.topics:
            for answer in topic.partitions:
                name = TopicPartition(topic.name, answer.partition_index)
                if name not in asked:
                    continue
                if answer.error_code:
                    if not ErrorCode.is_retriable(answer.error_code):
                        raise KafkaError(answer.error_code, f"offsets of {name}")
                    core.context.want_metadata(self._driver.now_ms())
                    continue
                epoch = answer.leader_epoch if answer.leader_epoch >= 0 else None
                if epoch is not None:
                    core.metadata.note_epoch(name, epoch)
                found[name] = None if answer.offset < 0 else OffsetAndTime(answer.offset, answer.timestamp, epoch)
