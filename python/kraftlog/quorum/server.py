"""What a replica of a ``Quorum`` serves: the other replicas, and users of a replica that does not lead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraftlog import host
from kraftlog._kraftlog import read_batches
from kraftlog.api.dispatcher import Dispatcher
from kraftlog.api.handler_table import Handler
from kraftlog.errors import (
    DeadlineError,
    ErrorCode,
    KafkaError,
    KraftlogError,
    LogError,
    NodeClosedError,
    NotLeaderError,
)
from kraftlog.features import KRAFT_VERSION, supported_ranges
from kraftlog.ordered_set import OrderedSet
from kraftlog.quorum.listeners import Listener, OwnListener
from kraftlog.quorum.proposals import Applied, commands_of
from kraftlog.runtime.metadata.quorum_info import QuorumInfo, describe
from kraftlog.types import METADATA_LOG, Uuid
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftlog.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import RaftService
    from kraftlog.node.config import NodeConfig
    from kraftlog.quorum.replica import QuorumReplica
    from kraftlog.transport.listener import EndPoint
    from kraftlog.wire.struct import Message

__all__ = ["QuorumServer"]

_PRODUCE, _LIST_OFFSETS, _API_VERSIONS, _DESCRIBE_CLUSTER = 0, 2, 18, 60
_RAFT_KEYS = (1, 52, 53, 54, 55, 59, 80, 81, 82)
_SASL_KEYS = (17, 36)
_LATEST_TIMESTAMP = -1
_ACKS = (1, -1)


@dataclass(frozen=True, slots=True)
class _Services:
    """What the handlers of the raft APIs name."""

    raft: RaftService


class QuorumServer:
    """The listener of one replica; its raft APIs are served by the handlers of a node.

    Args:
        config: Settings.
        loop: The running loop.
        cluster_id: Of the quorum.
        replica: What is served.
        listener: Where it is reached; bound here if None.

    Raises:
        ConfigError: The address cannot be bound.
    """

    def __init__(
        self,
        config: NodeConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        cluster_id: str,
        replica: QuorumReplica,
        listener: Listener | None = None,
    ) -> None:
        self.config = config
        self.cluster_id = cluster_id
        self.replica = replica
        self._loop = loop
        self._tasks: OrderedSet[asyncio.Task[Any]] = OrderedSet()
        self._read_offset: Callable[[], Awaitable[int]] | None = None
        handlers: dict[int, Handler] = {
            _PRODUCE: self._produce,
            _LIST_OFFSETS: self._list_offsets,
            _API_VERSIONS: self._api_versions,
            _DESCRIBE_CLUSTER: self._describe_cluster,
        }
        self._dispatcher = Dispatcher(_Services(self), "controller", keys=(*_RAFT_KEYS, *_SASL_KEYS), handlers=handlers)
        self._listener = OwnListener(config, loop) if listener is None else listener

    @property
    def end_point(self) -> EndPoint:
        """Where the others reach this replica."""
        return self.advertised_end_points()[0]

    def advertised_end_points(self) -> list[EndPoint]:
        """The one listener as the others are told; port 0 stands for the bound one."""
        told, bound = self.config.advertised_listeners[0], self._listener.end_point
        return [type(told)(told.listener_name, told.host or bound.host, told.port or bound.port)]

    @staticmethod
    def now_ms() -> int:
        """Wall clock, milliseconds since 1970."""
        return host.wall_ms()

    def start(self, read_offset: Callable[[], Awaitable[int]]) -> None:
        """Take connections.

        Args:
            read_offset: Gives the offset that has to be applied before a linearizable read.
        """
        self._read_offset = read_offset
        self._listener.start(self._dispatcher)

    def close(self) -> None:
        """Stop listening and close all connections."""
        for task in list(self._tasks):
            task.cancel()
        self._listener.close()

    # RaftService, for the handlers of the raft APIs

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        return self.replica.log.is_leader

    def describe_quorum(self) -> QuorumInfo:
        """The quorum as this replica sees it."""
        log = self.replica.log
        return describe(log.raft, now_ms=log.driver.now_ms(), wall_ms=self.now_ms())

    def handle_request(self, request: Message, *, version: int, listener_name: str) -> asyncio.Future[Message]:
        """Answer another replica, or a client that changes the voters.

        Raises:
            KafkaError: The request is not about the log, or the replica has stopped.
        """
        log = self.replica.log
        if not log.is_open or log.failure is not None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        return log.driver.handle_request(request, version=version, listener_name=listener_name)

    # Handlers of this server

    def _later(self, coroutine: Coroutine[Any, Any, Message]) -> asyncio.Task[Message]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _api_versions(self, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        del request
        low, high = supported_ranges()[KRAFT_VERSION]
        level = self.replica.log.raft.kraft_version
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=lowest, max_version=highest)
                for key, (lowest, highest) in self._dispatcher.advertised.items()
            ],
            supported_features=[
                ApiVersionsResponse.SupportedFeatureKey(name=KRAFT_VERSION, min_version=low, max_version=high)
            ]
            if context.api_version >= 4 or low > 0
            else [],
            finalized_features_epoch=0,
            finalized_features=[
                ApiVersionsResponse.FinalizedFeatureKey(
                    name=KRAFT_VERSION, min_version_level=level, max_version_level=level
                )
            ]
            if level
            else [],
        )

    def _describe_cluster(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        """The voters, as Kafka's tools ask before they describe or change them."""
        del request
        quorum = self.describe_quorum()
        return DescribeClusterResponse(
            endpoint_type=2,
            cluster_id=self.cluster_id,
            controller_id=quorum.leader_id,
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=voter.replica_id, host=listener.host, port=listener.port
                )
                for voter in quorum.voters
                for listener in voter.listeners
                if listener.name == context.listener_name
            ],
        )

    def _produce(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | asyncio.Task[Message]:
        """Proposals of users of another replica."""
        del context
        found = [(topic, partition) for topic in request.topic_data for partition in topic.partition_data]
        is_ours = (
            len(found) == 1
            and found[0][0].topic_id == Uuid.METADATA_TOPIC_ID
            and found[0][1].index == 0
            and request.acks in _ACKS
        )
        if not is_ours:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        try:
            commands = [
                command
                for batch in read_batches(found[0][1].records or b"")
                if not batch.is_control
                for command in commands_of(batch)
            ]
        except LogError as error:
            return self._produced(None, ErrorCode.CORRUPT_MESSAGE, str(error))
        if not commands:
            return self._produced(None, ErrorCode.INVALID_RECORD, "no records")
        return self._later(self._propose(commands, request))

    async def _propose(self, commands: list[bytes], request: ProduceRequest) -> ProduceResponse:
        deadline_s = self._loop.time() + max(1, request.timeout_ms) / 1000
        try:
            proposal = self.replica.submit(commands, deadline_s, is_forwarded=request.acks == 1)
            applied = await proposal.future
        except (NotLeaderError, NodeClosedError) as error:
            return self._produced(None, ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
        except DeadlineError as error:
            return self._produced(None, ErrorCode.REQUEST_TIMED_OUT, str(error))
        except KafkaError as error:
            return self._produced(None, error.code, error.message)
        except KraftlogError as error:
            return self._produced(None, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        return self._produced(applied, 0, None)

    def _produced(self, applied: Applied | None, error_code: int, message: str | None) -> ProduceResponse:
        raft = self.replica.log.raft
        leader_id = -1 if raft.leader_id is None else raft.leader_id
        epoch = raft.epoch if applied is None else applied.epoch
        endpoints = () if applied is not None or leader_id < 0 else raft.leader_endpoints[:1]
        partition = ProduceResponse.PartitionProduceResponse(
            index=0,
            error_code=error_code,
            base_offset=-1 if applied is None else applied.base_offset,
            error_message=message,
            current_leader=ProduceResponse.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        )
        topic = ProduceResponse.TopicProduceResponse(topic_id=Uuid.METADATA_TOPIC_ID, partition_responses=(partition,))
        return ProduceResponse(
            responses=(topic,),
            node_endpoints=tuple(
                ProduceResponse.NodeEndpoint(node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=None)
                for endpoint in endpoints
            ),
        )

    def _list_offsets(self, context: RequestContext, request: ListOffsetsRequest) -> asyncio.Task[Message]:
        """The offset that users of another replica have to wait for before they read."""
        del context
        asked = [
            (topic.name, partition.partition_index, partition.timestamp)
            for topic in request.topics
            for partition in topic.partitions
        ]
        if asked != [(METADATA_LOG.name, 0, _LATEST_TIMESTAMP)]:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return self._later(self._latest_offset())

    async def _latest_offset(self) -> ListOffsetsResponse:
        raft = self.replica.log.raft
        error_code, offset, read_offset = 0, -1, self._read_offset
        try:
            offset = -1 if read_offset is None else await read_offset()
        except KafkaError as error:
            error_code = error.code
        partition = ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=0, error_code=error_code, offset=offset, leader_epoch=raft.epoch
        )
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(name=METADATA_LOG.name, partitions=(partition,))
        return ListOffsetsResponse(topics=(topic,))
