"""What a producer asks about topics: how many partitions there are, and who leads them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from kraftlog.client.config import ClientConfig, topic_options
from kraftlog.client.connections import Connections
from kraftlog.client.state.cluster_metadata import ClusterMetadata
from kraftlog.client.state.producer_topics import ProducerTopics
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, NodeClosedError
from kraftlog.wire.messages.metadata import MetadataRequest

__all__ = ["ProducerMetadata"]

_logger = logging.getLogger("kraftlog.client")

# A broker that was just told to add a partition may be asked before it has heard of it.
_ASKED_FOR_PARTITION = 2


class ProducerMetadata:
    """See the module.

    Args:
        config: Settings.
        connections: To the cluster.
        cluster: What is known, which this updates.
    """

    def __init__(self, config: ClientConfig, connections: Connections, cluster: ClusterMetadata) -> None:
        self._connections = connections
        self._cluster = cluster
        self._block_s: float = config["max.block.ms"] / 1000
        self._backoff_s: float = config["retry.backoff.ms"] / 1000
        self._topics = ProducerTopics(topic_options(config))
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._is_refreshing = False
        self._asking: asyncio.Task[None] | None = None  # for records whose topic is not known

    @property
    def due_s(self) -> float | None:
        """When to ask for metadata by the loop's clock; None if nothing needs it, and while it is asked for."""
        due_ms = self._topics.due_ms
        return None if due_ms is None or self._is_refreshing else due_ms / 1000

    def begin_refresh(self) -> bool:
        """Whether it is time to ask; ``refresh_in_background`` has to follow then."""
        due_s = self.due_s
        if due_s is None or due_s > self._loop.time():
            return False
        self._is_refreshing = True
        return True

    def want(self, topic: str) -> None:
        """A batch of this topic waits for newer metadata."""
        self.use(topic)
        self._topics.want()

    def use(self, topic: str) -> None:
        """Something is sent to this topic, which is asked about until nothing was for ``metadata.max.idle.ms``."""
        self._topics.use(topic, self._now_ms())

    def _now_ms(self) -> float:
        return self._loop.time() * 1000

    def known_count(self, topic: str) -> int:
        """How many partitions a topic has by the newest metadata; 0 while that is not known."""
        found = self._cluster.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    async def partition_count(self, topic: str, timeout_s: float | None = None) -> int:
        """How many partitions a topic has, asked again after errors that may pass.

        Args:
            topic: Name.
            timeout_s: Seconds; ``max.block.ms`` when None.

        Raises:
            KafkaError: The last error; names the topic.
        """
        deadline_s = self._loop.time() + (self._block_s if timeout_s is None else timeout_s)
        self.use(topic)
        while not (count := self.known_count(topic)):
            await self._refreshed(deadline_s)
            found = self._cluster.topics.get(topic)
            code = found.error_code if found else ErrorCode.BROKER_NOT_AVAILABLE
            if found is not None and code and not ErrorCode.is_retriable(code):
                self._topics.discard(topic)
                raise KafkaError(code, f"topic {topic}")
            if self.known_count(topic):
                continue
            wait_s = deadline_s - self._loop.time()
            if wait_s <= 0:
                raise KafkaError(code, self._connections.described(f"metadata of {topic}"))
            await asyncio.sleep(min(self._backoff_s, wait_s))
        return count

    async def _refreshed(self, deadline_s: float) -> None:
        """Return when metadata was asked for once more, or when it is too late for the caller.

        All who wait share a request. It goes on when they do not: the next record may need what it brings.

        Raises:
            KafkaError: As ``refresh``.
            NodeClosedError: The producer was closed.
        """
        if self._asking is None:
            self._asking = self._loop.create_task(self.refresh())
            self._asking.add_done_callback(self._asked)
        asking = self._asking
        await asyncio.wait({asking}, timeout=max(0.0, deadline_s - self._loop.time()))
        if asking.cancelled():
            raise NodeClosedError("the producer was closed before metadata came")
        if asking.done():
            asking.result()

    def _asked(self, asking: asyncio.Task[None]) -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # those who wait raise it, if there are any

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    async def has_partition(self, topic: str, partition: int) -> bool:
        """Whether a topic has a partition beyond those that were known, by newer metadata.

        Raises:
            KafkaError: As ``refresh``.
        """
        for attempt in range(_ASKED_FOR_PARTITION):
            if attempt:
                await asyncio.sleep(self._backoff_s)
            self.use(topic)
            await self.refresh()
            if partition < self.known_count(topic):
                return True
        return False

    async def refresh_in_background(self) -> None:
        """Ask once. If nothing waits for the answer, an error is only warned of.

        Raises:
            KraftlogError: As ``refresh``, or the answer does not decode.
        """
        is_needed = self._topics.is_wanted
        try:
            await self.refresh()
        except KraftlogError as error:
            self._topics.failed(self._now_ms())
            if is_needed:
                raise
            _logger.warning("metadata of the producer's topics is old, and no newer one comes: %s", error)
        finally:
            self._is_refreshing = False

    async def refresh(self) -> None:
        """Ask any node once; after an error that may pass, nothing has changed but that the back-off is over.

        Raises:
            KafkaError: The client cannot authenticate, or TLS fails.
        """
        async with self._lock:
            topics = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in self._topics.ask(self._now_ms())]
            try:
                node = await self._connections.any_node(self._cluster.nodes)
                answer, version = await self._connections.ask(node, MetadataRequest(topics=topics))
            except KafkaError as error:
                if error.code in {ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.NETWORK_EXCEPTION}:
                    raise
                self._failed(is_none_reachable=error.code == ErrorCode.BROKER_NOT_AVAILABLE)
                await asyncio.sleep(self._backoff_s)
                return
            await self._take(answer, version)

    async def _take(self, answer: Any, version: int) -> None:
        may_start_again = self._topics.options.rebootstrap_after_ms is not None
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and may_start_again:
            self._start_again()
        elif answer.error_code or not answer.brokers:
            self._failed(is_none_reachable=False)
        else:
            self._topics.answered(self._now_ms())
            self._cluster.update(answer, version)
            return
        await asyncio.sleep(self._backoff_s)

    def _failed(self, *, is_none_reachable: bool) -> None:
        if self._topics.failed(self._now_ms()):
            self._start_again()
        elif is_none_reachable and self._topics.options.rebootstrap_after_ms is not None:
            self._cluster.nodes.clear()  # the bootstrap servers next

    def _start_again(self) -> None:
        _logger.warning("the known brokers cannot be reached: starting again from bootstrap.servers")
        self._cluster.forget()
