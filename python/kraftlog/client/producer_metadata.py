"""What a producer asks about topics: how many partitions there are, and who leads them."""

from __future__ import annotations

import asyncio

from kraftlog.client.config import ClientConfig
from kraftlog.client.connections import Connections
from kraftlog.client.state.cluster_metadata import ClusterMetadata
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.metadata import MetadataRequest

__all__ = ["ProducerMetadata"]


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
        self._timeout_s: float = config["request.timeout.ms"] / 1000
        self._backoff_s: float = config["retry.backoff.ms"] / 1000
        self._topics: set[str] = set()
        self._lock = asyncio.Lock()

    def known_count(self, topic: str) -> int:
        """How many partitions a topic has by the newest metadata; 0 while that is not known."""
        found = self._cluster.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    async def partition_count(self, topic: str, timeout_s: float | None = None) -> int:
        """How many partitions a topic has, asked again after errors that may pass.

        Args:
            topic: Name.
            timeout_s: Seconds; ``request.timeout.ms`` when None.

        Raises:
            KafkaError: The last error; names the topic.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        self._topics.add(topic)
        while True:
            found = self._cluster.topics.get(topic)
            if found is not None and found.partitions:
                return len(found.partitions)
            if found is not None and found.error_code and not ErrorCode.is_retriable(found.error_code):
                self._topics.discard(topic)
                del self._cluster.topics[topic]  # the next record for it asks again
                raise KafkaError(found.error_code, f"topic {topic}")
            if loop.time() > deadline_s:
                self._topics.discard(topic)
                code = found.error_code if found else ErrorCode.BROKER_NOT_AVAILABLE
                raise KafkaError(code, self._connections.described(f"metadata of {topic}"))
            await self.refresh()
            if topic not in self._cluster.topics or not self._cluster.topics[topic].partitions:
                await asyncio.sleep(self._backoff_s)

    async def refresh(self) -> None:
        """Ask any node once; after an error that may pass, nothing has changed but that the back-off is over.

        Raises:
            KafkaError: The client cannot authenticate, or TLS fails.
        """
        async with self._lock:
            request = MetadataRequest(
                topics=[MetadataRequest.MetadataRequestTopic(name=topic) for topic in sorted(self._topics)]
            )
            try:
                node = await self._connections.any_node(self._cluster.nodes)
                answer, version = await self._connections.ask(node, request)
            except KafkaError as error:
                if error.code in {ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.NETWORK_EXCEPTION}:
                    raise
                if not any(self._cluster.nodes) or error.code == ErrorCode.BROKER_NOT_AVAILABLE:
                    self._cluster.nodes.clear()  # the bootstrap servers next
                await asyncio.sleep(self._backoff_s)
                return
            self._cluster.update(answer, version)  # type: ignore[arg-type]
