"""What the commands about groups and transactions need of a cluster: brokers, coordinators, leaders of partitions."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from kraftlog.cli.admin_client import CONNECT_TIMEOUT_S, parse_servers, security_of
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.transport.listener import EndPoint
from kraftlog.transport.peer_security import PeerSecurity
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.struct import Message

__all__ = [
    "EARLIEST",
    "GROUP",
    "LATEST",
    "TRANSACTION",
    "BrokerClient",
    "Topic",
    "add_broker_arguments",
    "check",
    "client_from",
]

GROUP, TRANSACTION = 0, 1
LATEST, EARLIEST = -1, -2
_RETRY_PAUSE_S = 0.1
_MOVED = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    )
)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and the leader of each of its partitions, -1 for none."""

    topic_id: Uuid
    leaders: Mapping[int, int]


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise KafkaError unless ``code`` is 0."""
    if code:
        raise KafkaError(code, f"{what}: {message or ErrorCode.name_of(code)}")


class BrokerClient:
    """Asks brokers of a cluster: the first that answers, all, the coordinator of a key, or leaders.

    Args:
        servers: Brokers; the first that answers names the others.
        security: For servers whose listeners have SSL or SASL.
        timeout_s: For each request, and for finding a coordinator that is moving.
    """

    def __init__(
        self, servers: Sequence[EndPoint], *, security: PeerSecurity | None = None, timeout_s: float = 30.0
    ) -> None:
        self._servers = servers
        self._security = security
        self._timeout_s = timeout_s
        self._connections: dict[tuple[str, int], RpcConnection] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self.brokers: dict[int, tuple[str, int]] = {}

    async def __aenter__(self) -> Self:
        failure: KraftlogError = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no server is named")
        for server in self._servers:
            try:
                connection = await self._open(server.host, server.port)
                found: Any = await self._timed(connection.request(MetadataRequest(topics=[])))
            except (KraftlogError, TimeoutError) as error:
                failure = error if isinstance(error, KraftlogError) else KafkaError(ErrorCode.REQUEST_TIMED_OUT)
                continue
            self.brokers = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
            return self
        raise failure

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    async def _open(self, host: str, port: int) -> RpcConnection:
        self._connections[host, port] = await RpcConnection.open(
            asyncio.get_running_loop(),
            host,
            port,
            client_id="kraftlog-admin",
            timeout_s=CONNECT_TIMEOUT_S,
            security=self._security,
        )
        return self._connections[host, port]

    async def _timed(self, answer: Any) -> Any:
        async with asyncio.timeout(self._timeout_s):
            return await answer

    # -- asking -------------------------------------------------------------------------------------------------

    async def ask(self, node_id: int | None, message: Message, *, max_version: int | None = None) -> Any:
        """Ask a broker, or any when ``node_id`` is None, in the highest common version up to ``max_version``.

        Raises:
            KafkaError: The broker is unknown, cannot be reached, or has no such version.
            TimeoutError: No answer came in time.
        """
        where = next(iter(self.brokers.values()), None) if node_id is None else self.brokers.get(node_id)
        if where is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no broker {node_id}")
        connection = self._connections.get(where) or await self._open(*where)
        try:
            if max_version is None:
                return await self._timed(connection.request(message))
            version = connection.common_version(message.API_KEY)
            if version is None:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"broker {where[0]}:{where[1]} has no such request")
            return await self._timed(connection.ask(message, min(version, max_version)))
        except KafkaError as error:
            if error.code in {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION}:
                self._connections.pop(where, None)
            raise

    async def ask_all(self, message: Message) -> dict[int, Any]:
        """The answers of all brokers, by their ids."""
        return {node_id: await self.ask(node_id, message) for node_id in sorted(self.brokers)}

    async def ask_coordinator(
        self,
        key: str,
        message: Message,
        code_of: Callable[[Any], int],
        *,
        kind: int = GROUP,
        max_version: int | None = None,
    ) -> Any:
        """Ask the coordinator of a key, and find it again while it moves or loads.

        Args:
            key: A group id or transactional id.
            message: What to ask.
            code_of: The error code of the answer.
            kind: GROUP or TRANSACTION.
            max_version: Of the request.

        Raises:
            KafkaError: The coordinator cannot be found.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s
        while True:
            try:
                answer = await self.ask(await self.coordinator(key, kind), message, max_version=max_version)
                code = code_of(answer)
            except KafkaError as error:
                answer, code = None, error.code
                if code not in _MOVED or loop.time() > deadline_s:
                    raise
            if code not in _MOVED or (answer is not None and loop.time() > deadline_s):
                return answer
            self._coordinators.pop((kind, key), None)
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def coordinator(self, key: str, kind: int = GROUP) -> int:
        """The id of the broker that coordinates a key.

        Raises:
            KafkaError: There is none now, or the key is refused.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        answer = await self.ask(None, FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
        if not answer.coordinators:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the brokers are older than Kafka 2.7")
        found = answer.coordinators[0]
        check(found.error_code, f"coordinator of {key}", found.error_message)
        self.brokers.setdefault(found.node_id, (found.host, found.port))
        self._coordinators[kind, key] = int(found.node_id)
        return int(found.node_id)

    # -- topics and offsets -------------------------------------------------------------------------------------

    async def topics(self, names: Iterable[str] | None) -> dict[str, Topic]:
        """Topics that exist, by name; all of them for None."""
        wanted = None
        if names is not None:
            wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(set(names))]
            if not wanted:
                return {}
        answer = await self.ask(None, MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        return {
            topic.name: Topic(
                topic.topic_id, {partition.partition_index: partition.leader_id for partition in topic.partitions}
            )
            for topic in answer.topics
            if not topic.error_code
        }

    async def offsets(
        self, topics: Mapping[str, Topic], partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """The offset for a timestamp (ms since 1970), LATEST or EARLIEST of each partition that its leader tells."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for wanted_partition in partitions:
            name, index = wanted_partition.topic, wanted_partition.partition
            leader = topics[name].leaders.get(index, -1) if name in topics else -1
            if leader >= 0:
                by_leader.setdefault(leader, {}).setdefault(name, []).append(index)
        found: dict[TopicPartition, int] = {}
        for leader, wanted in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsRequest.ListOffsetsTopic(
                        name=name,
                        partitions=[
                            ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                            for index in sorted(set(indexes))
                        ],
                    )
                    for name, indexes in wanted.items()
                ],
            )
            answer = await self.ask(leader, request)
            for topic in answer.topics:
                for partition in topic.partitions:
                    if not partition.error_code:
                        found[TopicPartition(topic.name, partition.partition_index)] = partition.offset
        return found


def add_broker_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the cluster is."""
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT,...", required=True, help="brokers of the cluster")
    parser.add_argument("--command-config", metavar="FILE", help="settings of the connection, such as ssl.truststore.*")
    parser.add_argument(
        "--timeout", type=int, default=30_000, metavar="MS", help="longest wait for an answer; 30000 when absent"
    )


def client_from(args: argparse.Namespace) -> BrokerClient:
    """The client that those arguments ask for.

    Raises:
        KraftlogError: An address, or the file with the settings, cannot be read.
    """
    try:
        servers = parse_servers(args.bootstrap_server)
    except ValueError as error:
        raise KraftlogError(str(error)) from error
    return BrokerClient(servers, security=security_of(args.command_config), timeout_s=args.timeout / 1000)
