"""What handlers may ask of the node, as small Protocols; a handler names the ones it needs as keyword arguments.

``handle(context, request, *, cluster, groups)`` gets the services ``cluster`` and ``groups``, found by name among the
fields of ``ControllerServices`` or ``BrokerServices``, depending on the listener. No handler sees the whole node, and
a test or another server, such as the one of ``kraftlog.Quorum``, gives a handler just what it names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kraftlog.controller import MetadataImage
from kraftlog.controller.topic_control import Charge
from kraftlog.runtime.metadata.quorum_info import QuorumInfo
from kraftlog.runtime.replica.fetch_reader import PartitionSource
from kraftlog.wire.struct import Message

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.settings import ApiSettings
    from kraftlog.api.topic_views import TopicViews
    from kraftlog.coordinator.group.group_shard import GroupShard
    from kraftlog.coordinator.transaction.transaction_shard import TransactionShard
    from kraftlog.partition.replication_quota import ReplicationQuota
    from kraftlog.partition.stop_replica import ReplicaStop
    from kraftlog.runtime.coordinator.shard_runner import ShardRunner
    from kraftlog.runtime.coordinator.transaction_verifier import ProducerTransaction, Verifying
    from kraftlog.runtime.replica.fetch_session import FetchSessionCache
    from kraftlog.runtime.replica.follower_polls import FollowerPolls
    from kraftlog.runtime.replica.isr_changes import Proposal
    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.share.share_admin import ShareAdmin
    from kraftlog.runtime.share.share_service import ShareService
    from kraftlog.security.authorizer import Authorizer
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.transport.exchange import PeerLoss
    from kraftlog.types import TopicPartition
    from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
    from kraftlog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

__all__ = [
    "BrokerServices",
    "ClusterService",
    "ControllerService",
    "ControllerServices",
    "DirectoryMoveService",
    "DynamicSettingsService",
    "ForwardingService",
    "GroupService",
    "IsrChangeService",
    "MarkerService",
    "ProducerIdService",
    "RaftService",
    "ReplicaService",
    "StopService",
    "TaskService",
    "TopicCreationService",
    "TransactionService",
    "VerifierService",
]

T = TypeVar("T")


class ClusterService(Protocol):
    """The cluster as this node knows it: what is committed, and who this node is."""

    @property
    def node_id(self) -> int:
        """This node."""
        ...

    @property
    def cluster_id(self) -> str:
        """As in meta.properties."""
        ...

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        ...

    @property
    def kraft_version(self) -> int:
        """The finalized level of kraft.version."""
        ...


class RaftService(Protocol):
    """This node's replica of a replicated log."""

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        ...

    def handle_request(self, request: Message, *, version: int, listener_name: str) -> asyncio.Future[Message]:
        """Answer another replica, or a client that changes the voters.

        Raises:
            KafkaError: The request is not about this log, or the replica has stopped.
        """
        ...

    def describe_quorum(self) -> QuorumInfo:
        """The quorum as this replica sees it."""
        ...


class ControllerService(Protocol):
    """The controller in this process; its operations fail with NOT_CONTROLLER unless it is the active one."""

    def submit_request(
        self, request: Message, *, timeout_s: float | None = None, charge: Charge | None = None
    ) -> asyncio.Future[Any]:
        """Run the operation that ``request`` asks for; the future ends with the response once that is committed.

        Args:
            request: One that ``kraftlog.controller.operations`` has.
            timeout_s: How long the operation may wait before it begins; None as long as it takes.
            charge: Counts the partitions that the request creates or deletes; None if nobody does.

        Raises:
            TypeError: The controller does not serve such requests.
        """
        ...

    def note_connection(self, request: BrokerHeartbeatRequest, loss: PeerLoss) -> None:
        """A heartbeat came over the connection whose end ``loss`` is."""
        ...


class ReplicaService(PartitionSource, Protocol):
    """The replicas of topic partitions on this node."""

    leader_quota: ReplicationQuota
    follower_polls: FollowerPolls

    def replicated_out(self, partition: Partition, broker_id: int, size_bytes: int) -> None:
        """A follower was answered with so many bytes."""
        ...

    def __iter__(self) -> Iterator[Partition]: ...

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""
        ...


class IsrChangeService(Protocol):
    """Changes of in-sync sets on their way to the controller."""

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Send a proposal soon."""
        ...


class StopService(Protocol):
    """Stops replicas of this broker, as a controller of Kafka 3.x asks."""

    def admit(self, *, controller_epoch: int, broker_epoch: int) -> int:
        """0, or why a request is refused as a whole: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
        ...

    def stop_replica(self, stop: ReplicaStop) -> asyncio.Future[int]:
        """Stop one; the future gives 0 or an error code once its log is closed, or renamed for deletion."""
        ...


class DirectoryMoveService(Protocol):
    """Moves replicas between the data directories of this broker."""

    def alter(self, name: TopicPartition, path: str) -> Coroutine[Any, Any, int]:
        """Move a replica to the data directory ``path``; 0 once that has begun, else the error code."""
        ...


class GroupService(Protocol):
    """The group coordinator."""

    def runner(self, key: str) -> ShardRunner[GroupShard]:
        """The loaded shard that coordinates a group.

        Raises:
            KafkaError: The coordinator is elsewhere, still loads, or does not exist yet.
        """
        ...

    def runners(self) -> Sequence[ShardRunner[GroupShard]]:
        """Every shard of this node, loaded or not."""
        ...

    def partition_count(self) -> int:
        """Partitions of ``__consumer_offsets``; 0 while it does not exist."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether ``__consumer_offsets`` exists, and this node is not just creating it."""
        ...

    async def ensure_topic(self, keys: Sequence[str] = ()) -> None:
        """Create ``__consumer_offsets`` unless it exists; shards of these keys that are here are loaded then.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE; it cannot be created.
        """
        ...


class TransactionService(Protocol):
    """The transaction coordinator."""

    def runner(self, key: str) -> ShardRunner[TransactionShard]:
        """The loaded shard that coordinates a transactional id.

        Raises:
            KafkaError: The coordinator is elsewhere, still loads, or does not exist yet.
        """
        ...

    def runners(self) -> Sequence[ShardRunner[TransactionShard]]:
        """Every shard of this node, loaded or not."""
        ...

    def partition_count(self) -> int:
        """Partitions of ``__transaction_state``; 0 while it does not exist."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether ``__transaction_state`` exists, and this node is not just creating it."""
        ...

    async def ensure_topic(self, keys: Sequence[str] = ()) -> None:
        """Create ``__transaction_state`` unless it exists; shards of these keys that are here are loaded then.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE; it cannot be created.
        """
        ...


class VerifierService(Protocol):
    """The way to transaction coordinators, for the leader of a partition (KIP-890)."""

    def turn(self, producer_id: int) -> asyncio.Lock:
        """One request of a producer is verified at a time."""
        ...

    def is_in_turn(self, producer_id: int) -> bool:
        """Whether a request of this producer is being verified."""
        ...

    async def verify(
        self, producer: ProducerTransaction, partitions: Iterable[TopicPartition], verifying: Verifying
    ) -> Mapping[TopicPartition, int]:
        """The error code of each partition."""
        ...


class MarkerService(Protocol):
    """Writes the markers of transactions on partitions of this node."""

    async def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Write every marker of a request; the answer comes once each is committed or refused."""
        ...


class ProducerIdService(Protocol):
    """Producer ids that nobody else has."""

    @property
    def is_empty(self) -> bool:
        """Whether the next id has to wait for a block."""
        ...

    async def wait_until_some(self) -> None:
        """Wait until there is an id.

        Raises:
            KafkaError: The controller refuses a block.
        """
        ...

    def take_or_request(self) -> int | None:
        """An id, or None when ``take_soon`` has to be awaited; the next block is requested ahead."""
        ...

    async def take_soon(self) -> int:
        """An id, from a new block if need be.

        Raises:
            KafkaError: The controller refuses a block.
        """
        ...


class TopicCreationService(Protocol):
    """Creation of topics that a client uses without having created them."""

    async def create(self, names: Sequence[str]) -> Mapping[str, int]:
        """Create topics with the broker's defaults.

        Returns:
            The error code of each topic that could not be created.
        """
        ...


class TaskService(Protocol):
    """Tasks that end with the node at the latest."""

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``coroutine`` on the node's loop."""
        ...


class ForwardingService(Protocol):
    """The way to the active controller for a client's request that this broker has checked."""

    def send(self, context: RequestContext, request: Message) -> asyncio.Future[Any] | None:
        """Ask for the response to ``request``, of the API and version in ``context``.

        Returns:
            A future of the response; None when this node is the active controller.
        """
        ...


class DynamicSettingsService(Protocol):
    """Settings of this broker that change while it runs."""

    def check(self, changes: Mapping[str, str | None], *, per_broker: bool) -> None:
        """Check changes that are about to be asked of the controller.

        Args:
            changes: The new text of each changed key; None deletes it.
            per_broker: Whether they are for this broker (else the cluster-wide default).

        Raises:
            KafkaError: INVALID_REQUEST; a key that cannot change at run time, or a value out of bounds.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerServices:
    """Services behind a controller listener."""

    cluster: ClusterService
    raft: RaftService
    controller: ControllerService
    settings: ApiSettings
    tasks: TaskService
    authorizer: Authorizer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices(ControllerServices):
    """Services behind a broker listener."""

    replicas: ReplicaService
    stops: StopService
    directory_moves: DirectoryMoveService
    log_dirs: Iterable[LogDir]
    sessions: FetchSessionCache
    isr_changes: IsrChangeService
    groups: GroupService
    transactions: TransactionService
    verifier: VerifierService
    markers: MarkerService
    producer_ids: ProducerIdService
    topic_creation: TopicCreationService
    topic_views: TopicViews
    dynamic_settings: DynamicSettingsService
    shares: ShareService
    share_admin: ShareAdmin
    forwarding: ForwardingService
