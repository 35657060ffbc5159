"""The controller core: the newest image, written or still on its way, and the operations on it.

An operation reads the image and returns the records it wants; it changes nothing but the sessions of brokers, which no
record has. Operations that depend on time take the monotonic clock as ``now_ms``; ``operations`` has the table of those
that a request asks for. The caller proposes the records to raft and, once they have their offsets, calls ``apply``: the
next operation then sees them, before they are committed. Answers are held back until they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from kraftlog.controller.acl_control import AclControl
from kraftlog.controller.broker_control import BrokerControl
from kraftlog.controller.broker_sessions import BrokerSessions
from kraftlog.controller.config_control import ConfigControl
from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.election_control import ElectionControl
from kraftlog.controller.feature_control import FeatureControl
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.image_changes import ImageChange
from kraftlog.controller.isr_control import IsrControl
from kraftlog.controller.quota_control import QuotaControl
from kraftlog.controller.reassignment_control import ReassignmentControl
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.scram_control import ScramControl
from kraftlog.controller.steps import Steps
from kraftlog.controller.topic_control import Charge, TopicControl
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from kraftlog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kraftlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kraftlog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from kraftlog.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from kraftlog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kraftlog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kraftlog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftlog.wire.messages.metadata_records import NoOpRecord, ProducerIdsRecord
from kraftlog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kraftlog.wire.struct import Message

__all__ = ["PRODUCER_ID_BLOCK_SIZE", "ControllerConfig", "ControllerCore"]

PRODUCER_ID_BLOCK_SIZE: Final = 1000
_MAX_INT64: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """What a controller is told about its cluster.

    Args:
        cluster_id: Brokers of another one are refused.
        local_node_id: The node this controller runs in. It holds the lock on its log directories, so a registration
            with its id proves that the earlier incarnation is dead.
        static_broker_configs: What the node's own properties set explicitly, by broker key.
        broker_session_timeout_ms: A broker that is silent for so long is fenced.
        kraft_version: Asks the raft layer for its level.
        raise_kraft_version: Has the raft layer raise its level, or with True as second argument only check whether it
            would; raises KafkaError with the reason. None where the level is fixed.
    """

    cluster_id: str
    local_node_id: int = -1
    static_broker_configs: Mapping[str, str] = field(default_factory=dict)
    broker_session_timeout_ms: int = 9000
    kraft_version: Callable[[], int] = lambda: 1
    raise_kraft_version: Callable[[int, bool], object] | None = None


class ControllerCore:
    """The state machine of the metadata log on the leader.

    Args (attributes):
        image: Everything proposed so far.
        next_offset: Offset the next record will get.
        sessions: Which brokers have been heard of lately.
    """

    def __init__(self, config: ControllerConfig, image: MetadataImage, *, rng: Random) -> None:
        self.image = image
        self.next_offset = image.offset + 1
        self._local_node_id = config.local_node_id
        self.configs = ConfigControl(image, config.static_broker_configs, node_id=config.local_node_id)
        self._topics = TopicControl(image, self.configs, rng)
        self._acls = AclControl(image, rng)
        self._credentials = ScramControl(image)
        self._quotas = QuotaControl(image)
        self.sessions = BrokerSessions(config.broker_session_timeout_ms)
        self._brokers = BrokerControl(
            image, self.configs, config.cluster_id, self.sessions, kraft_version=config.kraft_version
        )
        self._isrs = IsrControl(image, self.configs)
        self._elections = ElectionControl(image, self.configs)
        self._reassignments = ReassignmentControl(image, self.configs)
        self._features = FeatureControl(
            image,
            self.configs,
            node_id=config.local_node_id,
            kraft_version=config.kraft_version,
            raise_kraft_version=config.raise_kraft_version,
        )

    def apply(self, records: Sequence[VersionedRecord], *, last_offset: int, epoch: int) -> None:
        """The records were proposed and end at ``last_offset`` (inclusive)."""
        self.apply_changes([record for record, _ in records], last_offset=last_offset, epoch=epoch)

    def apply_changes(self, changes: Sequence[ImageChange], *, last_offset: int, epoch: int) -> None:
        """As ``apply``, with records that are prepared already."""
        delta = MetadataDelta()
        for change in changes:
            self.image.replay(change, delta, offset=last_offset)
        self.image.offset = last_offset
        self.image.epoch = epoch
        self.next_offset = last_offset + 1

    def activate(self, bootstrap: Sequence[Message], now_ms: int) -> ControllerResult[None]:
        """What a new leader writes before anything else; the sessions of the brokers begin anew."""
        self._brokers.begin_sessions(now_ms)
        return ControllerResult(None, self._features.activation_records(bootstrap))

    def create_topics(self, request: CreateTopicsRequest) -> ControllerResult[CreateTopicsResponse]:
        """Create topics; each gets its own result."""
        return self._topics.create_topics(request)

    def create_topics_in_steps(
        self, request: CreateTopicsRequest, charge: Charge | None = None
    ) -> Steps[ControllerResult[CreateTopicsResponse]]:
        """As ``create_topics``; ``charge`` counts the partitions of each topic."""
        return self._topics.create_topics_in_steps(request, charge)

    def delete_topics(self, request: DeleteTopicsRequest) -> ControllerResult[DeleteTopicsResponse]:
        """Delete topics by name or id; each gets its own result."""
        return self._topics.delete_topics(request)

    def delete_topics_in_steps(
        self, request: DeleteTopicsRequest, charge: Charge | None = None
    ) -> Steps[ControllerResult[DeleteTopicsResponse]]:
        """As ``delete_topics``; ``charge`` counts the partitions of each topic."""
        return self._topics.delete_topics_in_steps(request, charge)

    def create_partitions(self, request: CreatePartitionsRequest) -> ControllerResult[CreatePartitionsResponse]:
        """Add partitions to topics; each topic gets its own result."""
        return self._topics.create_partitions(request)

    def create_partitions_in_steps(
        self, request: CreatePartitionsRequest, charge: Charge | None = None
    ) -> Steps[ControllerResult[CreatePartitionsResponse]]:
        """As ``create_partitions``; ``charge`` counts the partitions of each topic."""
        return self._topics.create_partitions_in_steps(request, charge)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> ControllerResult[IncrementalAlterConfigsResponse]:
        """Change settings one by one; each resource gets its own result."""
        return self.configs.incremental_alter_configs(request)

    def incremental_alter_configs_in_steps(
        self, request: IncrementalAlterConfigsRequest
    ) -> Steps[ControllerResult[IncrementalAlterConfigsResponse]]:
        """As ``incremental_alter_configs``."""
        return self.configs.incremental_alter_configs_in_steps(request)

    def alter_configs(self, request: AlterConfigsRequest) -> ControllerResult[AlterConfigsResponse]:
        """Replace the settings of resources; each gets its own result."""
        return self.configs.alter_configs(request)

    def alter_configs_in_steps(self, request: AlterConfigsRequest) -> Steps[ControllerResult[AlterConfigsResponse]]:
        """As ``alter_configs``."""
        return self.configs.alter_configs_in_steps(request)

    def create_acls(self, request: CreateAclsRequest) -> Steps[ControllerResult[CreateAclsResponse]]:
        """Create ACLs; each gets its own result.

        Raises:
            KafkaError: POLICY_VIOLATION.
        """
        return self._acls.create_acls(request)

    def delete_acls(self, request: DeleteAclsRequest) -> Steps[ControllerResult[DeleteAclsResponse]]:
        """Delete ACLs; each filter gets its own result.

        Raises:
            KafkaError: INVALID_REQUEST.
        """
        return self._acls.delete_acls(request)

    def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> Steps[ControllerResult[AlterUserScramCredentialsResponse]]:
        """Set and remove SCRAM credentials; each user gets a result.

        Raises:
            KafkaError: POLICY_VIOLATION.
        """
        return self._credentials.alter_credentials(request)

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest
    ) -> Steps[ControllerResult[AlterClientQuotasResponse]]:
        """Set and remove client quotas; each entity gets its own result.

        Raises:
            KafkaError: POLICY_VIOLATION.
        """
        return self._quotas.alter_client_quotas(request)

    def update_features(self, request: UpdateFeaturesRequest) -> ControllerResult[UpdateFeaturesResponse]:
        """Change finalized feature levels, all or none."""
        return self._features.update_features(request)

    def register_broker(
        self, request: BrokerRegistrationRequest, now_ms: int
    ) -> Steps[ControllerResult[BrokerRegistrationResponse]]:
        """Register a broker; see ``BrokerControl.register_broker``.

        Raises:
            KafkaError: The registration is refused.
        """
        takes_over = request.broker_id == self._local_node_id
        return self._brokers.register_broker(
            request, next_offset=self.next_offset, now_ms=now_ms, takes_over=takes_over
        )

    def unregister_broker(self, request: UnregisterBrokerRequest) -> Steps[ControllerResult[UnregisterBrokerResponse]]:
        """Forget a broker.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED.
        """
        return self._brokers.unregister_broker(request)

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> ControllerResult[ControllerRegistrationResponse]:
        """Register a controller."""
        return self._brokers.register_controller(request)

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int
    ) -> Steps[ControllerResult[BrokerHeartbeatResponse]]:
        """Fence, unfence or shut down a broker.

        Raises:
            KafkaError: STALE_BROKER_EPOCH.
        """
        return self._brokers.broker_heartbeat(request, now_ms)

    def note_contact(self, request: BrokerHeartbeatRequest, now_ms: int) -> None:
        """A heartbeat arrived and is about to wait until it is handled."""
        self._brokers.note_contact(request.broker_id, request.broker_epoch, now_ms)

    def fence_silent_broker(self, now_ms: int) -> Steps[ControllerResult[int | None]]:
        """Fence one broker whose session ended, the one that was silent longest; the response is its id."""
        return self._brokers.fence_silent_broker(now_ms)

    def fence_dead_broker(self, broker_id: int, broker_epoch: int) -> Steps[ControllerResult[bool]]:
        """Fence a broker whose process has ended; the response says whether it was registered so and not fenced."""
        return self._brokers.fence_dead_broker(broker_id, broker_epoch)

    def alter_partition(self, request: AlterPartitionRequest) -> Steps[ControllerResult[AlterPartitionResponse]]:
        """Change in-sync sets, as the leader of the partitions asks; each partition gets its own result.

        Raises:
            KafkaError: STALE_BROKER_EPOCH.
        """
        self._brokers.check_epoch(request.broker_id, request.broker_epoch)
        return (yield from self._isrs.alter_partition(request))

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> Steps[ControllerResult[AssignReplicasToDirsResponse]]:
        """Record in which log directories a broker has its replicas; each partition gets its own result.

        Raises:
            KafkaError: UNSUPPORTED_VERSION, STALE_BROKER_EPOCH.
        """
        return self._brokers.assign_replicas(request)

    def elect_leaders(self, request: ElectLeadersRequest) -> Steps[ControllerResult[ElectLeadersResponse]]:
        """Elect leaders as an operator asks; each partition gets its own result.

        Raises:
            KafkaError: INVALID_REQUEST, POLICY_VIOLATION.
        """
        return self._elections.elect_leaders(request)

    def balance_leaders(self) -> Steps[ControllerResult[bool]]:
        """Give partitions their preferred leaders back; the response says whether there may be more to do."""
        return self._elections.balance_leaders()

    def elect_unclean_leaders(self) -> Steps[ControllerResult[bool]]:
        """Elect leaders for partitions without one whose topics allow any; as ``balance_leaders``."""
        return self._elections.elect_unclean_leaders()

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Steps[ControllerResult[AlterPartitionReassignmentsResponse]]:
        """Begin, change or cancel reassignments; each partition gets its own result.

        Raises:
            KafkaError: POLICY_VIOLATION.
        """
        return self._reassignments.alter_partition_reassignments(request)

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> ControllerResult[AllocateProducerIdsResponse]:
        """Hand out a block of producer ids.

        Raises:
            KafkaError: STALE_BROKER_EPOCH, or UNKNOWN_SERVER_ERROR when there are no ids left.
        """
        broker = self.image.cluster.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            found = "is not registered" if broker is None else f"has epoch {broker.epoch}"
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {request.broker_epoch}, but broker {request.broker_id} {found}",
            )
        start = self.image.producer_ids.next_id
        if start > _MAX_INT64 - PRODUCER_ID_BLOCK_SIZE:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "Exhausted all producerIds as the next block's end producerId"
                f" has exceeded the int64 type limit: {start} + {PRODUCER_ID_BLOCK_SIZE}",
            )
        record = ProducerIdsRecord(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            next_producer_id=start + PRODUCER_ID_BLOCK_SIZE,
        )
        response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK_SIZE)
        return ControllerResult(response, [(record, 0)])

    def no_op(self) -> ControllerResult[None]:
        """A record that changes nothing, so that followers and tools see the log move."""
        return ControllerResult(None, [(NoOpRecord(), 0)])
