"""Brokers: registration, heartbeats, fencing, controlled shutdown, and the leaders that follow from them (KIP-631)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Final

from kraftlog.controller.broker_progress import BrokerProgress
from kraftlog.controller.broker_registration import (
    check_registration,
    check_size,
    registered_end_points,
    registered_features,
    registration_record,
)
from kraftlog.controller.broker_sessions import BrokerSessions
from kraftlog.controller.cluster_image import BrokerImage
from kraftlog.controller.config_control import ConfigControl
from kraftlog.controller.directory_control import DirectoryControl
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.partition_changes import SCANNED_PER_STEP, PartitionChanges, check_record_count
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.steps import Steps
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from kraftlog.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from kraftlog.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from kraftlog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

__all__ = ["BrokerControl"]

_FENCING_VERSION: Final = 0
_SHUTDOWN_VERSION: Final = 1


class _State(Enum):
    """What a broker is to the controller."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUT_DOWN = "fenced, and free to stop"


class BrokerControl:
    """The broker operations; they read the image and answer with records.

    Args:
        image: The controller's image.
        configs: Settings of topics.
        cluster_id: Brokers of another cluster are refused.
        sessions: Which brokers have been heard of lately.
        kraft_version: Gives the finalized level of kraft.version.
    """

    def __init__(
        self,
        image: MetadataImage,
        configs: ConfigControl,
        cluster_id: str,
        sessions: BrokerSessions,
        *,
        kraft_version: Callable[[], int],
    ) -> None:
        self._image = image
        self._configs = configs
        self._cluster_id = cluster_id
        self._sessions = sessions
        self._kraft_version = kraft_version
        self._progress = BrokerProgress()
        self._directories = DirectoryControl(image, configs)

    # Registration

    def register_broker(
        self, request: BrokerRegistrationRequest, *, next_offset: int, now_ms: int, takes_over: bool = False
    ) -> Steps[ControllerResult[BrokerRegistrationResponse]]:
        """Register a broker; a new incarnation is fenced, and has left every in-sync set before it is registered.

        Args:
            request: Who it is and what it offers.
            next_offset: Offset that the next record gets; the epoch of a new incarnation.
            now_ms: Monotonic clock.
            takes_over: The caller knows that an earlier incarnation of this id is dead (it holds the lock on its
                log directory): the new one need not wait until the session of that one ends.

        Raises:
            KafkaError: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED,
                INVALID_REGISTRATION, UNSUPPORTED_VERSION.
        """
        if request.cluster_id != self._cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}",
            )
        broker_id = request.broker_id
        before = self._image.cluster.brokers.get(broker_id)
        amended = before if before is not None and before.incarnation_id == request.incarnation_id else None
        is_alive = before is not None and self._sessions.is_valid(broker_id, before.epoch, now_ms)
        if is_alive and amended is None and not takes_over:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                "Another broker is registered with that broker id. If the broker was recently restarted this"
                " should self-resolve once the heartbeat manager expires the broker's session.",
            )
        check_registration(request, self._image, self._kraft_version())
        version = self._image.metadata_version
        records: list[VersionedRecord] = []
        if amended is None:
            # An epoch of -1, also where the version of the request has no field for it, matches no registration.
            is_clean = before is not None and request.previous_broker_epoch == before.epoch
            records = yield from self._leave_partitions(broker_id, is_clean=is_clean)
            self._sessions.forget(broker_id)
            self._progress.forget(broker_id)
        broker_epoch = next_offset if amended is None else amended.epoch
        record = registration_record(request, version, epoch=broker_epoch, amended=amended)
        # It comes last: a broker whose registration was cut off registers again.
        records.append((record, version.register_broker_record_version))
        return ControllerResult(BrokerRegistrationResponse(broker_epoch=broker_epoch), records, is_atomic=False)

    def _leave_partitions(self, broker_id: int, *, is_clean: bool) -> Steps[list[VersionedRecord]]:
        """An earlier incarnation has ended; after an unclean end it may have lost committed records (KIP-966)."""
        if is_clean or not self._configs.is_elr_enabled:
            changes = PartitionChanges(self._image, self._configs, removed=broker_id)
            return (yield from changes.where(lambda partition: broker_id in partition.isr))
        changes = PartitionChanges(self._image, self._configs, unclean=broker_id)
        records = yield from changes.where(lambda partition: broker_id in partition.isr)
        return records + (yield from changes.where(lambda partition: broker_id in partition.elr))

    def unregister_broker(self, request: UnregisterBrokerRequest) -> Steps[ControllerResult[UnregisterBrokerResponse]]:
        """Forget a broker; it stays in the replica lists of its partitions.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED; POLICY_VIOLATION, it is in too many in-sync sets.
        """
        broker = self._image.cluster.brokers.get(request.broker_id)
        if broker is None:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
            )
        broker_id = broker.broker_id
        changes = PartitionChanges(self._image, self._configs, removed=broker_id)
        records = yield from changes.where(lambda partition: broker_id in partition.isr)
        records += yield from changes.where(lambda partition: broker_id in partition.elr)
        records.append((UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch), 0))
        check_record_count(len(records))
        self._sessions.forget(broker_id)
        self._progress.forget(broker_id)
        return ControllerResult(UnregisterBrokerResponse(), records, is_atomic=False)

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> ControllerResult[ControllerRegistrationResponse]:
        """Register a controller (KIP-919); nothing is written where metadata.version does not know them."""
        if not self._image.metadata_version.is_controller_registration_supported:
            return ControllerResult(ControllerRegistrationResponse(error_message=None))
        check_size(request)
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=request.zk_migration_ready,
            end_points=registered_end_points(RegisterControllerRecord.ControllerEndpoint, request),
            features=registered_features(RegisterControllerRecord.ControllerFeature, request),
        )
        return ControllerResult(ControllerRegistrationResponse(error_message=None), [(record, 0)])

    def check_epoch(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        """The broker, if this is its epoch.

        Raises:
            KafkaError: STALE_BROKER_EPOCH; not registered, or with another epoch.
        """
        broker = self._image.cluster.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
            )
        return broker

    def assign_replicas(
        self, request: AssignReplicasToDirsRequest
    ) -> Steps[ControllerResult[AssignReplicasToDirsResponse]]:
        """Record in which log directories a broker has its replicas; each partition gets its own result.

        Raises:
            KafkaError: UNSUPPORTED_VERSION, metadata.version is too low; STALE_BROKER_EPOCH.
        """
        if not self._image.metadata_version.is_directory_assignment_supported:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
        broker = self.check_epoch(request.broker_id, request.broker_epoch)
        return (yield from self._directories.assign_replicas(broker, request))

    # Heartbeats

    def note_contact(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A heartbeat arrived: the session goes on, however long the heartbeat waits until it is handled."""
        broker = self._image.cluster.brokers.get(broker_id)
        if broker is not None and broker.epoch == broker_epoch:
            self._sessions.touch(broker_id, broker_epoch, now_ms)

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int
    ) -> Steps[ControllerResult[BrokerHeartbeatResponse]]:
        """Fence, unfence or shut down as the broker wishes and its state allows; its session goes on.

        Raises:
            KafkaError: STALE_BROKER_EPOCH; not registered, or with another epoch.
        """
        broker = self.check_epoch(request.broker_id, request.broker_epoch)
        broker_id = broker.broker_id
        self._sessions.touch(broker_id, broker.epoch, now_ms)
        is_caught_up = request.current_metadata_offset >= self._image.cluster.registration_offset(broker_id)
        before = self._state(broker)
        after = yield from self._next_state(broker, before, request, is_caught_up=is_caught_up)
        failing = self._directories.failing(broker, request.offline_log_dirs)
        records: list[VersionedRecord] = []
        if after is not before:
            records = yield from self._enter(broker, after, failing)
        self._progress.report(broker_id, request.current_metadata_offset)
        is_fenced = after in {_State.FENCED, _State.SHUT_DOWN}
        if is_fenced:
            self._progress.end_shutdown(broker_id)
        if after is _State.SHUT_DOWN:
            # It leaves and says so: unlike with Kafka's controller the next process with its id need not wait.
            self._sessions.forget(broker_id)
        records += yield from self._directories.go_offline(broker, failing)
        records += self._directories.cordon(broker, request.cordoned_log_dirs)
        response = BrokerHeartbeatResponse(
            is_caught_up=is_caught_up, is_fenced=is_fenced, should_shut_down=after is _State.SHUT_DOWN
        )
        begins = after is _State.CONTROLLED_SHUTDOWN
        # Each of the records stands for itself: a broker may have more partitions than one batch holds.
        return ControllerResult(
            response,
            records,
            is_atomic=False,
            on_appended=(lambda offset: self._progress.begin_shutdown(broker_id, offset)) if begins else None,
        )

    def _state(self, broker: BrokerImage) -> _State:
        if self._progress.is_shutting_down(broker.broker_id):
            return _State.CONTROLLED_SHUTDOWN
        return _State.FENCED if broker.fenced else _State.UNFENCED

    def _next_state(
        self, broker: BrokerImage, state: _State, request: BrokerHeartbeatRequest, *, is_caught_up: bool
    ) -> Steps[_State]:
        if state is _State.CONTROLLED_SHUTDOWN:
            if (yield from self._leads_anything(broker.broker_id)):
                return state
            return _State.SHUT_DOWN if self._progress.can_shut_down(broker.broker_id, self._image.cluster) else state
        if request.want_shut_down:
            is_busy = state is _State.UNFENCED and not request.want_fence
            if is_busy and (yield from self._leads_anything(broker.broker_id)):
                return _State.CONTROLLED_SHUTDOWN
            return _State.SHUT_DOWN
        if request.want_fence:
            return _State.FENCED
        return _State.UNFENCED if is_caught_up else state

    def _enter(self, broker: BrokerImage, state: _State, failing: Collection[Uuid]) -> Steps[list[VersionedRecord]]:
        match state:
            case _State.UNFENCED:
                return (yield from self._unfence(broker, failing))
            case _State.CONTROLLED_SHUTDOWN:
                return (yield from self._begin_controlled_shutdown(broker))
            case _:
                return (yield from self._fence(broker))

    def _leads_anything(self, broker_id: int) -> Steps[bool]:
        scanned = 0
        for topic in self._image.topics.all():
            scanned += len(topic.partitions)
            if scanned >= SCANNED_PER_STEP:
                scanned = 0
                yield
            if any(partition.leader == broker_id for partition in topic.partitions.values()):
                return True
        return False

    def begin_sessions(self, now_ms: int) -> None:
        """A new controller gives every broker that is not fenced the time of a whole session."""
        for broker in self._image.cluster.brokers.values():
            if not broker.fenced:
                self._sessions.touch(broker.broker_id, broker.epoch, now_ms)

    def fence_silent_broker(self, now_ms: int) -> Steps[ControllerResult[int | None]]:
        """Fence the broker whose session ended first; the response is its id, None where nobody had to be fenced."""
        expired = self._sessions.take_expired(now_ms)
        broker = None if expired is None else self._image.cluster.brokers.get(expired[0])
        if expired is None or broker is None or broker.epoch != expired[1] or broker.fenced:
            return ControllerResult(None)
        records = yield from self._fence(broker)
        self._progress.end_shutdown(broker.broker_id)
        return ControllerResult(broker.broker_id, records, is_atomic=False)

    def fence_dead_broker(self, broker_id: int, broker_epoch: int) -> Steps[ControllerResult[bool]]:
        """Fence a broker whose process has ended; the next one with its id need not wait for the session."""
        broker = self._image.cluster.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch or broker.fenced:
            return ControllerResult(response=False)
        records = yield from self._fence(broker)
        self._sessions.forget(broker_id)
        self._progress.end_shutdown(broker_id)
        return ControllerResult(response=True, records=records, is_atomic=False)

    # Consequences for partitions

    def _fence(self, broker: BrokerImage) -> Steps[list[VersionedRecord]]:
        """Fence a broker; one that is fenced already gets the record again, as from Kafka's controller."""
        broker_id = broker.broker_id
        changes = PartitionChanges(self._image, self._configs, removed=broker_id)
        records = yield from changes.where(lambda partition: broker_id in partition.isr)
        record = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, fenced=1)
        records.append((record, _FENCING_VERSION))
        return records

    def _unfence(self, broker: BrokerImage, failing: Collection[Uuid]) -> Steps[list[VersionedRecord]]:
        """Unfence a broker, which then may lead where its directory is none that fails in the same moment."""
        record = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=-1)
        changes = PartitionChanges(self._image, self._configs, added=broker.broker_id, failing=failing)
        elections = yield from changes.where(lambda partition: not partition.has_leader)
        return [(record, _FENCING_VERSION), *elections]

    def _begin_controlled_shutdown(self, broker: BrokerImage) -> Steps[list[VersionedRecord]]:
        broker_id = broker.broker_id
        records: list[VersionedRecord] = []
        if not broker.in_controlled_shutdown:
            record = BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
            )
            records.append((record, _SHUTDOWN_VERSION))
        changes = PartitionChanges(self._image, self._configs, removed=broker_id)
        return records + (yield from changes.where(lambda partition: broker_id in partition.isr))
