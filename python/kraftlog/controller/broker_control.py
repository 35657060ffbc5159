"""Brokers: registration, heartbeats, fencing, and the leaders that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from kraftlog.controller.broker_sessions import BrokerSessions
from kraftlog.controller.cluster_image import BrokerImage
from kraftlog.controller.config_control import ConfigControl
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.partition_change import PartitionChange
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.topic_image import PartitionImage, TopicImage
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import METADATA_VERSION
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from kraftlog.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from kraftlog.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from kraftlog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

__all__ = ["BrokerControl"]

T = TypeVar("T")

_NOBODY: Final = -1
_RESERVED_DIRECTORY_IDS: Final = 100


class BrokerControl:
    """The broker operations; they read the image and answer with records."""

    def __init__(self, image: MetadataImage, configs: ConfigControl, cluster_id: str, sessions: BrokerSessions) -> None:
        self._image = image
        self._configs = configs
        self._cluster_id = cluster_id
        self._sessions = sessions

    # Registration

    def register_broker(
        self, request: BrokerRegistrationRequest, *, next_offset: int, now_ms: int, takes_over: bool = False
    ) -> ControllerResult[BrokerRegistrationResponse]:
        """Register a broker, fenced; its epoch is the offset of the first record written.

        Args:
            request: Who it is and what it offers.
            next_offset: Offset the first record of the result will get.
            now_ms: Monotonic clock; the session of the broker begins.
            takes_over: The caller knows that an earlier incarnation of this id is dead (it holds the lock on its
                log directory): that one is fenced at once instead of refusing until its session ends.

        Raises:
            KafkaError: INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION, DUPLICATE_BROKER_REGISTRATION,
                UNSUPPORTED_VERSION.
        """
        self._check_cluster(request)
        broker_id = request.broker_id
        records: list[VersionedRecord] = []
        before = self._image.cluster.brokers.get(broker_id)
        if before is not None and before.incarnation_id != request.incarnation_id:
            if not takes_over and self._sessions.is_valid(broker_id, before.epoch, now_ms):
                raise KafkaError(
                    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                    "Another broker is registered with that broker id. If the broker was recently restarted this"
                    " should self-resolve once the heartbeat manager expires the broker's session.",
                )
            if not before.fenced:
                records += self._fence(before)
        self._check_registration(request)
        if before is not None and before.incarnation_id == request.incarnation_id:
            broker_epoch = before.epoch
        else:
            broker_epoch = next_offset
        if before is not None and request.previous_broker_epoch != before.epoch and self._configs.is_elr_enabled:
            records = self._unclean_shutdown(before, already=records)
        version = self._image.metadata_version
        record_version = version.register_broker_record_version
        record = RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=broker_epoch,
            end_points=_end_points(RegisterBrokerRecord.BrokerEndpoint, request),
            features=_features(RegisterBrokerRecord.BrokerFeature, request),
            rack=request.rack,
            fenced=True,
            log_dirs=tuple(request.log_dirs) if version.is_directory_assignment_supported else (),
        )
        records.append((record, record_version))
        self._sessions.touch(broker_id, broker_epoch, now_ms)
        return ControllerResult(BrokerRegistrationResponse(broker_epoch=broker_epoch), records, is_atomic=False)

    def _check_cluster(self, request: BrokerRegistrationRequest) -> None:
        if request.cluster_id != self._cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}",
            )

    def _check_registration(self, request: BrokerRegistrationRequest) -> None:
        if self._image.metadata_version.is_directory_assignment_supported:
            self._check_log_dirs(request)
        ranges = {
            feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in request.features
        }
        if METADATA_VERSION not in ranges:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'")
        for name, level in self._image.features.items():
            low, high = ranges.get(name, (0, 0))
            if not low <= level <= high:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Unable to register because the broker does not support finalized version {level} of {name}."
                    f" The broker wants a version between {low} and {high}, inclusive.",
                )

    def _check_log_dirs(self, request: BrokerRegistrationRequest) -> None:
        log_dirs = list(request.log_dirs)
        if not log_dirs:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
        if any(int.from_bytes(directory, "big") < _RESERVED_DIRECTORY_IDS for directory in log_dirs):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
        if len(set(log_dirs)) != len(log_dirs):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
        for broker in self._image.cluster.brokers.values():
            shared = set(broker.log_dirs) & set(log_dirs)
            if broker.broker_id != request.broker_id and shared:
                raise KafkaError(
                    ErrorCode.INVALID_REGISTRATION,
                    f"Broker {broker.broker_id} is already registered with directory {min(shared)}",
                )

    def unregister_broker(self, request: UnregisterBrokerRequest) -> ControllerResult[UnregisterBrokerResponse]:
        """Forget a broker.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED.
        """
        broker = self._image.cluster.brokers.get(request.broker_id)
        if broker is None:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
            )
        self._sessions.forget(broker.broker_id)
        records = self._without_broker(broker.broker_id)
        records.append((UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch), 0))
        return ControllerResult(UnregisterBrokerResponse(error_message=None), records, is_atomic=False)

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> ControllerResult[ControllerRegistrationResponse]:
        """Register a controller (KIP-919); nothing is written where metadata.version does not know them."""
        if not self._image.metadata_version.is_controller_registration_supported:
            return ControllerResult(ControllerRegistrationResponse(error_message=None))
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=request.zk_migration_ready,
            end_points=_end_points(RegisterControllerRecord.ControllerEndpoint, request),
            features=_features(RegisterControllerRecord.ControllerFeature, request),
        )
        return ControllerResult(ControllerRegistrationResponse(error_message=None), [(record, 0)])

    # Heartbeats

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int
    ) -> ControllerResult[BrokerHeartbeatResponse]:
        """Fence, unfence or shut down as the broker wishes and its state allows; its session goes on.

        Raises:
            KafkaError: STALE_BROKER_EPOCH; not registered, or with another epoch.
        """
        broker = self._image.cluster.brokers.get(request.broker_id)
        if broker is None:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {request.broker_epoch}, but broker {request.broker_id} is not registered.",
            )
        if broker.epoch != request.broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {request.broker_epoch}, but got broker epoch {broker.epoch}",
            )
        self._sessions.touch(broker.broker_id, broker.epoch, now_ms)
        is_caught_up = request.current_metadata_offset >= broker.epoch
        records: list[VersionedRecord] = []
        fenced, shut_down = broker.fenced, False
        if request.want_shut_down:
            if broker.fenced:
                shut_down = True
            elif self._leads_anything(broker.broker_id) and not broker.in_controlled_shutdown:
                records = self._begin_controlled_shutdown(broker)
            else:
                records, fenced, shut_down = self._fence(broker), True, True
        elif request.want_fence:
            if not broker.fenced:
                records, fenced = self._fence(broker), True
        elif broker.fenced and is_caught_up:
            records, fenced = self._unfence(broker), False
        if shut_down:
            self._sessions.forget(broker.broker_id)
        records += self._cordoned(broker, request)
        response = BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=fenced, should_shut_down=shut_down)
        # Each of the records stands for itself: a broker may have more partitions than one batch holds.
        return ControllerResult(response, records, is_atomic=False)

    def begin_sessions(self, now_ms: int) -> None:
        """A new controller gives every broker that is not fenced the time of a whole session."""
        for broker in self._image.cluster.brokers.values():
            if not broker.fenced:
                self._sessions.touch(broker.broker_id, broker.epoch, now_ms)

    def fence_silent_broker(self, now_ms: int) -> ControllerResult[int | None]:
        """Fence the broker whose session ended first; the response is its id, None where nobody had to be fenced."""
        expired = self._sessions.take_expired(now_ms)
        broker = None if expired is None else self._image.cluster.brokers.get(expired[0])
        if expired is None or broker is None or broker.epoch != expired[1] or broker.fenced:
            return ControllerResult(None)
        return ControllerResult(broker.broker_id, self._fence(broker), is_atomic=False)

    def _cordoned(self, broker: BrokerImage, request: BrokerHeartbeatRequest) -> list[VersionedRecord]:
        wanted = request.cordoned_log_dirs
        if wanted is None or not self._image.metadata_version.is_cordoned_log_dirs_supported:
            return []
        if broker.cordoned_log_dirs == tuple(wanted):
            return []
        record = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=tuple(wanted)
        )
        return [(record, 3)]

    def _leads_anything(self, broker_id: int) -> bool:
        return any(
            partition.leader == broker_id for topic in self._image.topics for partition in topic.partitions.values()
        )

    # Consequences for partitions

    def _fence(self, broker: BrokerImage) -> list[VersionedRecord]:
        records = self._without_broker(broker.broker_id)
        records.append(
            (
                BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=1),
                0,
            )
        )
        return records

    def _unfence(self, broker: BrokerImage) -> list[VersionedRecord]:
        records: list[VersionedRecord] = [
            (
                BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=-1),
                0,
            )
        ]
        cluster = self._image.cluster
        records += self._change_partitions(
            lambda partition: not partition.has_leader,
            is_acceptable=lambda replica: replica == broker.broker_id or cluster.is_active(replica),
        )
        return records

    def _begin_controlled_shutdown(self, broker: BrokerImage) -> list[VersionedRecord]:
        record = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
        return [(record, 1), *self._without_broker(broker.broker_id)]

    def _without_broker(self, broker_id: int) -> list[VersionedRecord]:
        """Take a broker out of every in-sync set it is in."""
        cluster = self._image.cluster
        return self._change_partitions(
            lambda partition: broker_id in partition.isr,
            is_acceptable=lambda replica: replica != broker_id and cluster.is_active(replica),
            removed=broker_id,
        )

    def _unclean_shutdown(self, broker: BrokerImage, *, already: list[VersionedRecord]) -> list[VersionedRecord]:
        """The broker may have lost its last records: it is no eligible leader replica any more (KIP-966).

        ``already`` holds changes that are to be written before; they are taken into account.
        """
        image = self._image
        if already:
            image = image.copy()
            for record, _ in already:
                image.replay(record)
        configs = ConfigControl(image, self._configs.static_broker_configs)
        control = BrokerControl(image, configs, self._cluster_id, self._sessions)
        broker_id = broker.broker_id
        return already + control._change_partitions(
            lambda partition: broker_id in partition.elr or broker_id in partition.isr,
            is_acceptable=lambda replica: replica != broker_id and image.cluster.is_active(replica),
            removed=broker_id,
            unclean=frozenset({broker_id}),
        )

    def _change_partitions(
        self,
        concerns: Callable[[PartitionImage], bool],
        *,
        is_acceptable: Callable[[int], bool],
        removed: int = _NOBODY,
        unclean: frozenset[int] = frozenset(),
    ) -> list[VersionedRecord]:
        version = self._image.metadata_version
        record_version = version.partition_change_record_version
        is_elr_enabled = self._configs.is_elr_enabled
        records: list[VersionedRecord] = []
        for topic, partitions in self._concerned(concerns):
            min_isr = self._configs.min_isr(topic.name)
            is_unclean_allowed = self._configs.is_unclean_election_allowed(topic.name)
            for index, partition in partitions:
                record = PartitionChange(
                    topic_id=topic.topic_id,
                    index=index,
                    partition=partition,
                    is_acceptable_leader=is_acceptable,
                    metadata_version=version,
                    min_isr=min_isr,
                    is_elr_enabled=is_elr_enabled,
                    target_isr=tuple(replica for replica in partition.isr if replica != removed),
                    unclean_replicas=unclean,
                    is_unclean_election_allowed=is_unclean_allowed,
                ).build()
                if record is not None:
                    records.append((record, record_version))
        return records

    def _concerned(
        self, concerns: Callable[[PartitionImage], bool]
    ) -> Iterable[tuple[TopicImage, list[tuple[int, PartitionImage]]]]:
        for topic in self._image.topics:
            partitions = sorted(item for item in topic.partitions.items() if concerns(item[1]))
            if partitions:
                yield topic, partitions


def _end_points(
    kind: Callable[..., T], request: BrokerRegistrationRequest | ControllerRegistrationRequest
) -> tuple[T, ...]:
    """The listeners of a registration as the end points of its record."""
    return tuple(
        kind(
            name=listener.name,
            host=listener.host,
            port=listener.port,
            security_protocol=listener.security_protocol,
        )
        for listener in request.listeners
    )


def _features(
    kind: Callable[..., T], request: BrokerRegistrationRequest | ControllerRegistrationRequest
) -> tuple[T, ...]:
    """The features of a registration as those of its record."""
    return tuple(
        kind(
            name=feature.name,
            min_supported_version=feature.min_supported_version,
            max_supported_version=feature.max_supported_version,
        )
        for feature in request.features
    )
