"""``kraftlog.Broker``: a whole node inside your own process, synchronous or on your own event loop."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kraftlog.config_input import ConfigInput, config_properties, config_property
from kraftlog.errors import KafkaError, NodeClosedError
from kraftlog.own_thread import OwnThread

if TYPE_CHECKING:
    from kraftlog.metrics import MetricsSnapshot
    from kraftlog.node.node import Node

__all__ = ["AsyncBroker", "Broker"]

T = TypeVar("T")

CLOSE_TIMEOUT_S = 30.0


class Broker:
    """A single Kafka-compatible node that lives as long as a ``with`` block.

    Used with ``with`` it runs on a thread and an event loop of its own, and its methods may be called from any
    thread. Used with ``async with`` it runs on the caller's loop, and the block gets an :class:`AsyncBroker`. No
    signal handlers are installed.

    Args:
        data_dir: The log directory, formatted when it is new. Without one the node uses a temporary directory, which
            ``close`` removes, and acknowledgements do not wait for the disk (``log.flush.on.ack=false``).
        config: Kafka's dotted keys and their values, over the defaults of a single node.
        port: Port of the listener on 127.0.0.1; 0 takes a free one.
        **settings: Kafka's keys with underscores for dots, such as ``auto_create_topics_enable=False``.

    Raises:
        TypeError: A keyword is no such key; the text names the nearest.

    Example:
        >>> import kraftlog
        >>> with kraftlog.Broker() as broker:
        ...     broker.create_topic("orders", partitions=3)
        ...     host, port = broker.bootstrap_servers.split(":")
        >>> host
        '127.0.0.1'
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        config: Mapping[str, ConfigInput] | None = None,
        port: int = 0,
        **settings: ConfigInput,
    ) -> None:
        if settings:
            from kraftlog.node.keyword_settings import check_keywords

            check_keywords("Broker", ("data_dir", "config", "port"), settings)
        changes = config_properties(config, settings)
        self._embedded = _EmbeddedNode(data_dir, changes, port)
        self._thread = OwnThread("kraftlog-broker", self._embedded.start, self._embedded.stop)
        self._async: AsyncBroker | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients."""
        return self._embedded.running.bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """The log directory."""
        return self._embedded.data_dir

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus scrapes; None unless ``kraftlog.metrics.listener`` is set."""
        return self._embedded.metrics_url

    def metrics(self) -> MetricsSnapshot:
        """All metrics now, by name, such as ``raft-metrics.current-leader``; may be called on any thread.

        Raises:
            NodeClosedError: The broker is not running.
        """
        return self._embedded.running.metrics.snapshot()

    def start(self) -> Self:
        """Start on a thread of its own and wait until clients can connect.

        Without a ``with`` block the node runs until ``close``, until nothing refers to this object, or until the
        interpreter exits.

        Raises:
            KraftlogError: The node cannot start; nothing is left behind.
        """
        self._thread.start()
        weakref.finalize(self, self._thread.request_stop).atexit = False
        return self

    def close(self) -> None:
        """Stop gracefully and remove a temporary directory; a second call does nothing."""
        self._thread.stop()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, ConfigInput] | None = None,
        *,
        timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        """Create a topic; return when clients can use it.

        Args:
            name: Name of the topic.
            partitions: Number of partitions, at least 1.
            config: Kafka's topic keys, such as ``{"retention.ms": 3600000}``.
            timeout_s: Seconds to wait.

        Raises:
            TypeError: ``name`` is not a string, or ``partitions`` not an integer.
            KafkaError: The error of CreateTopics, such as TOPIC_ALREADY_EXISTS or INVALID_CONFIG.
            NodeClosedError: The broker is not running.
            TimeoutError: The time is over; the topic may still come into being.
        """
        self._call(lambda: self._embedded.create_topic(name, partitions, config), timeout_s)

    def delete_topic(self, name: str, *, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Delete a topic.

        Raises:
            TypeError: ``name`` is not a string.
            KafkaError: The error of DeleteTopics, such as UNKNOWN_TOPIC_OR_PARTITION.
            NodeClosedError: The broker is not running.
        """
        self._call(lambda: self._embedded.delete_topic(name), timeout_s)

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.close()

    async def __aenter__(self) -> AsyncBroker:
        """Start on the running loop."""
        await self._embedded.start()
        self._async = AsyncBroker(self._embedded)
        return self._async

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self._embedded.stop()

    def _call(self, call: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T:
        return self._thread.call(call, what="broker", timeout_s=timeout_s)


class AsyncBroker:
    """A broker on the caller's event loop; made by ``async with kraftlog.Broker()``."""

    def __init__(self, embedded: _EmbeddedNode) -> None:
        self._embedded = embedded

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients."""
        return self._embedded.running.bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """The log directory."""
        return self._embedded.data_dir

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus scrapes; None unless ``kraftlog.metrics.listener`` is set."""
        return self._embedded.metrics_url

    def metrics(self) -> MetricsSnapshot:
        """All metrics now, by name, such as ``raft-metrics.current-leader``; may be called on any thread.

        Raises:
            NodeClosedError: The broker is not running.
        """
        return self._embedded.running.metrics.snapshot()

    async def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, ConfigInput] | None = None
    ) -> None:
        """Create a topic; return when clients can use it.

        Args:
            name: Name of the topic.
            partitions: Number of partitions, at least 1.
            config: Kafka's topic keys, such as ``{"retention.ms": 3600000}``.

        Raises:
            TypeError: ``name`` is not a string, or ``partitions`` not an integer.
            KafkaError: The error of CreateTopics, such as TOPIC_ALREADY_EXISTS or INVALID_CONFIG.
            NodeClosedError: The broker is not running.
        """
        await self._embedded.create_topic(name, partitions, config)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            TypeError: ``name`` is not a string.
            KafkaError: The error of DeleteTopics, such as UNKNOWN_TOPIC_OR_PARTITION.
            NodeClosedError: The broker is not running.
        """
        await self._embedded.delete_topic(name)

    async def close(self) -> None:
        """Stop gracefully; a second call does nothing."""
        await self._embedded.stop()


class _EmbeddedNode:
    """What both faces share: the directory and the node."""

    def __init__(self, data_dir: str | Path | None, changes: Mapping[str, str], port: int) -> None:
        self._given_data_dir = Path(data_dir) if data_dir is not None else None
        self._data_dir = self._given_data_dir
        self._changes = changes
        self._port = port
        self._node: Node | None = None

    @property
    def data_dir(self) -> Path:
        if self._data_dir is None:
            msg = "the broker has no data directory before it starts"
            raise NodeClosedError(msg)
        return self._data_dir

    @property
    def running(self) -> Node:
        if self._node is None:
            msg = "the broker is not running"
            raise NodeClosedError(msg)
        return self._node

    @property
    def metrics_url(self) -> str | None:
        return self.running.metrics_listener.url

    async def start(self) -> None:
        from kraftlog.node.config import NodeConfig
        from kraftlog.node.node import Node
        from kraftlog.node.standalone import format_when_needed, standalone_properties

        if self._given_data_dir is None:
            self._data_dir = Path(tempfile.mkdtemp(prefix="kraftlog-"))
        try:
            config = NodeConfig(
                standalone_properties(
                    self.data_dir,
                    port=self._port,
                    is_durable=self._given_data_dir is not None,
                    changes=self._changes,
                )
            )
            format_when_needed(config)
            node = Node(config)
            await node.start()
        except BaseException:
            self._remove_temporary()
            raise
        self._node = node

    async def stop(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            await node.stop()
            self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._given_data_dir is None and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, ConfigInput] | None) -> None:
        from kraftlog.wire.messages.create_topics import CreateTopicsRequest

        _check_type("name", name, str)
        _check_type("partitions", partitions, int)
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=-1,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key, value=config_property(value))
                        for key, value in (config or {}).items()
                    ],
                )
            ]
        )
        response = await self.running.metadata.submit_request(request)
        for topic in response.topics:
            if topic.error_code:
                raise KafkaError(topic.error_code, topic.error_message)
        await self.running.replicas.wait_until_open([name])

    async def delete_topic(self, name: str) -> None:
        from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest

        _check_type("name", name, str)
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)])
        response = await self.running.metadata.submit_request(request)
        for topic in response.responses:
            if topic.error_code:
                raise KafkaError(topic.error_code, topic.error_message)


def _check_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        msg = f"{name} must be of type {kind.__name__}, not {type(value).__name__}: {value!r}"
        raise TypeError(msg)
