"""Connections of a client to the nodes of a cluster: opened when wanted, authenticated, with back-off."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter

from kraftlog.client.config import ClientConfig, ClientConfigError
from kraftlog.client.state.cluster_metadata import Node
from kraftlog.errors import ErrorCode, KafkaError, LocalProtocolError, RemoteProtocolError
from kraftlog.metrics.client_requests import ClientRequests
from kraftlog.security.jaas import JaasError
from kraftlog.security.sasl import Credentials
from kraftlog.transport.peer_security import PeerSecurity
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.transport.sasl_login import SaslLogin, jaas_credentials
from kraftlog.transport.tls_settings import TlsSettings
from kraftlog.transport.traffic import Traffic
from kraftlog.wire.registry import API_BY_KEY
from kraftlog.wire.struct import Message

__all__ = ["Connections", "bootstrap_nodes"]

_logger = logging.getLogger("kraftlog.client")

# Frames larger than this are refused; answers may exceed fetch.max.bytes by one batch.
FRAME_BYTES_MIN = 100 * 1024 * 1024
# Coordinators have ids that count down from the largest (see Coordinator).
COORDINATOR_IDS_START = 1 << 30
# With the longest default back-off, one in half a minute.
FAILURES_PER_WARNING = 30
# Bytes of requests without an answer that may wait for the socket.
UNSENT_BYTES_MAX = 1 << 20


def bootstrap_nodes(servers: tuple[str, ...]) -> list[Node]:
    """The addresses of ``bootstrap.servers``, host:port, as nodes with negative ids."""
    nodes = []
    for index, address in enumerate(servers):
        host, _, port = address.rpartition(":")
        nodes.append(Node(-1 - index, host.strip("[]"), int(port)))
    return nodes


def sasl_login(config: ClientConfig) -> SaslLogin:
    """The user of ``sasl.jaas.config``, or of ``sasl.username`` and ``sasl.password``.

    Raises:
        ClientConfigError: There is none, or the text of ``sasl.jaas.config`` cannot be read.
    """
    mechanism: str = config["sasl.mechanism"]
    jaas, username, password = config["sasl.jaas.config"], config["sasl.username"], config["sasl.password"]
    if jaas is not None:
        try:
            return SaslLogin(mechanism, jaas_credentials(jaas, mechanism))
        except JaasError as error:
            message = f"sasl.jaas.config: {error}"
            raise ClientConfigError(message) from error
    if username is None or password is None:
        protocol = config["security.protocol"]
        message = f"security.protocol={protocol} needs sasl.username and sasl.password, or sasl.jaas.config"
        raise ClientConfigError(message)
    return SaslLogin(mechanism, Credentials(username, password))


@dataclass(slots=True)
class _Link:
    node: Node
    connection: RpcConnection | None = None
    opening: asyncio.Task[RpcConnection] | None = None
    failures: int = 0
    closed_until_s: float = 0.0
    muted_until_s: float = 0.0


class Connections:
    """One connection per node id.

    Args:
        config: Settings.
        loop: Where it runs.
        traffic: What the connections count.
        requests: Measures the requests.

    Attributes:
        last_failure: Why the last attempt to connect failed; None once one has succeeded.
    """

    def __init__(
        self, config: ClientConfig, loop: asyncio.AbstractEventLoop, traffic: Traffic, requests: ClientRequests
    ) -> None:
        self._loop = loop
        self._traffic = traffic
        self._requests = requests
        self._client_id: str = config["client.id"] or "kraftlog"
        self._timeout_s = config["request.timeout.ms"] / 1000
        self._connect_timeout_s = config["socket.connection.setup.timeout.ms"] / 1000
        self._backoff_s = config["reconnect.backoff.ms"] / 1000
        self._backoff_max_s = config["reconnect.backoff.max.ms"] / 1000
        self._frame_bytes_max = max(FRAME_BYTES_MIN, 2 * (config["fetch.max.bytes"] or 0))
        self.bootstrap = bootstrap_nodes(config["bootstrap.servers"])
        self.last_failure: Exception | None = None
        self._links: dict[int, _Link] = {}
        self._versions: dict[int, RpcConnection] = {}
        protocol: str = config["security.protocol"]
        self._security = PeerSecurity(
            TlsSettings(config.tls_properties).client_context() if protocol.endswith("SSL") else None,
            sasl_login(config) if protocol.startswith("SASL") else None,
        )

    def version(self, node_id: int, api_key: int) -> int | None:
        """The highest common version with a node; None while it is not known, -1 when the node lacks the API."""
        found = self._versions.get(node_id)
        if found is None:
            return None
        version = found.common_version(api_key)
        return -1 if version is None else version

    async def any_node(self, nodes: Mapping[int, Node]) -> Node:
        """A node to ask for metadata: a connected one, else a random one that is not in back-off.

        Of those that are connected it is the one that has kept a request waiting for the shortest time: one that hangs
        would keep this one waiting, too.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE: all are in back-off.
        """
        candidates = list(nodes.values()) or list(self.bootstrap)
        now = self._loop.time()
        connected = []
        for node in candidates:
            link = self._links.get(node.node_id)
            if link is not None and link.connection is not None and not link.connection.is_closed:
                asked_s = link.connection.oldest_s
                connected.append((0.0 if asked_s is None else now - asked_s, node))
        if connected:
            return min(connected, key=itemgetter(0))[1]
        ready = [
            node
            for node in candidates
            if node.node_id not in self._links or self._links[node.node_id].closed_until_s <= now
        ]
        if not ready:
            text = self.described("no known broker can be reached")
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
        return random.choice(ready)

    async def connect(self, node: Node) -> RpcConnection:
        """An open, authenticated connection to a node.

        Raises:
            KafkaError: It cannot be reached, or refuses the credentials.
            RemoteProtocolError: What it sends is not Kafka's protocol.
        """
        link = self._links.get(node.node_id)
        if link is None or (link.node.host, link.node.port) != (node.host, node.port):
            if link is not None:
                self._drop(link)
            link = self._links[node.node_id] = self._adopted(node) or _Link(node)
        if link.connection is not None and not link.connection.is_closed:
            return link.connection
        if link.opening is None:
            if link.closed_until_s > self._loop.time():
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{node}: waiting before the next attempt")
            link.opening = self._loop.create_task(self._open(link))
            # The caller that waits may have been cancelled: the task's failure is nobody's then.
            link.opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(link.opening)

    def _adopted(self, node: Node) -> _Link | None:
        """The connection to the bootstrap server that a broker has turned out to be; None where there is none.

        It saves a connection and a round trip before the first fetch. Coordinators have connections of their own.
        """
        if not 0 <= node.node_id < COORDINATOR_IDS_START:
            return None
        for node_id, link in self._links.items():
            is_open = link.connection is not None and not link.connection.is_closed
            if node_id < 0 and is_open and (link.node.host, link.node.port) == (node.host, node.port):
                del self._links[node_id]
                self._versions[node.node_id] = self._versions.pop(node_id)
                return _Link(node, link.connection)
        return None

    async def _open(self, link: _Link) -> RpcConnection:
        node = link.node
        try:
            connection = await RpcConnection.open(
                self._loop,
                node.host,
                node.port,
                client_id=self._client_id,
                timeout_s=self._connect_timeout_s,
                security=self._security,
                max_frame_bytes=self._frame_bytes_max,
                traffic=self._traffic,
            )
        except BaseException as error:
            link.failures += 1
            if isinstance(error, Exception):
                self.last_failure = error
                if link.failures % FAILURES_PER_WARNING == 1:
                    _logger.warning(
                        "no connection to %s:%d, attempt %d: %s", node.host, node.port, link.failures, error
                    )
            wait_s = min(self._backoff_s * 2.0 ** min(link.failures - 1, 16), self._backoff_max_s)
            link.closed_until_s = self._loop.time() + wait_s * random.uniform(0.8, 1.2)
            raise
        finally:
            link.opening = None
        link.failures = 0
        self.last_failure = None
        link.connection = connection
        self._versions[node.node_id] = connection
        return connection

    async def ask(
        self, node: Node, message: Message, version_max: int | None = None, timeout_s: float | None = None
    ) -> tuple[Message, int]:
        """Send a request and return its answer, with the version that both are in.

        Raises:
            KafkaError: The node cannot be reached, does not have the API or a field that is set, did not answer in
                time, or throttles this client for longer than that.
            RemoteProtocolError: The answer does not decode; names the node.
        """
        connection = await self.connect(node)
        link = self._links.get(node.node_id)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        muted_s = 0.0 if link is None else link.muted_until_s - self._loop.time()
        if muted_s > 0:
            await asyncio.sleep(min(muted_s, limit_s))
            if muted_s > limit_s:
                text = f"{node} throttles this client for another {muted_s - limit_s:.1f} s"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
        version = connection.common_version(message.API_KEY)
        if version is None:
            name = API_BY_KEY[message.API_KEY].name
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{node} has no version of {name}")
        if version_max is not None:
            version = min(version, version_max)
        begun_ns = self._requests.begin()
        try:
            answer = await connection.ask(message, version, timeout_s=limit_s)
        except TimeoutError as error:
            connection.close()
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{node} did not answer in time") from error
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{node}: {error}") from error
        except LocalProtocolError as error:
            # The highest version that an older broker has lacks a field, as group.instance.id before Kafka 2.3.
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{node} is too old: {error}") from error
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        self._requests.on_answer(message.API_KEY, node.node_id, begun_ns, throttle_ms)
        if throttle_ms > 0 and link is not None:
            link.muted_until_s = self._loop.time() + throttle_ms / 1000
        return answer, version

    async def tell(self, node: Node, message: Message, version_max: int | None = None) -> None:
        """Send a request that has no answer; returns when the socket has taken most of it.

        Raises:
            KafkaError: The node cannot be reached, does not have the API, or takes no bytes.
        """
        connection = await self.connect(node)
        version = connection.common_version(message.API_KEY)
        if version is None:
            name = API_BY_KEY[message.API_KEY].name
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{node} has no version of {name}")
        connection.tell(message, version if version_max is None else min(version, version_max))
        deadline = self._loop.time() + self._timeout_s
        while connection.unsent_bytes > UNSENT_BYTES_MAX and not connection.is_closed:
            if self._loop.time() > deadline:
                connection.close()
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{node} took no bytes in time")
            await asyncio.sleep(0.001)

    def described(self, text: str) -> str:
        """A text about something that did not happen in time, with the reason why nothing can be reached, if so."""
        return text if self.last_failure is None else f"{text}; the last connection failed with {self.last_failure}"

    def _drop(self, link: _Link) -> None:
        if link.opening is not None:
            link.opening.cancel()
        if link.connection is not None:
            link.connection.close()

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            self._drop(link)
        self._links.clear()
