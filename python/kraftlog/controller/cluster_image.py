"""Brokers and controllers as the metadata log has them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.directory import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, is_directory_online
from kraftlog.errors import CorruptRecordError
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

__all__ = ["BrokerImage", "ClusterImage", "ControllerImage", "ListenerEndpoint"]


@dataclass(frozen=True, slots=True)
class ListenerEndpoint:
    """One advertised listener; security protocols: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """One registered broker; a change makes a new value."""

    broker_id: int
    epoch: int
    incarnation_id: Uuid
    end_points: tuple[ListenerEndpoint, ...]
    features: dict[str, tuple[int, int]]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    is_migrating_zk_broker: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None

    @property
    def default_directory(self) -> Uuid:
        """Directory of a new replica: the only one, MIGRATING if none is known, UNASSIGNED if the broker chooses."""
        if not self.log_dirs:
            return DIRECTORY_MIGRATING
        return self.log_dirs[0] if len(self.log_dirs) == 1 else DIRECTORY_UNASSIGNED

    @property
    def has_uncordoned_directory(self) -> bool:
        """Whether new replicas may be placed in one of its directories; true if no directory is known."""
        return not self.log_dirs or not set(self.log_dirs) <= set(self.cordoned_log_dirs or ())

    def has_online_directory(self, directory_id: Uuid) -> bool:
        """Whether a replica in this directory can be read."""
        return is_directory_online(directory_id, self.log_dirs)

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerImage:
        """The broker a RegisterBrokerRecord registers."""
        return cls(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            end_points=tuple(
                ListenerEndpoint(point.name, point.host, point.port, point.security_protocol)
                for point in record.end_points
            ),
            features={
                feature.name: (feature.min_supported_version, feature.max_supported_version)
                for feature in record.features
            },
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )

    def to_record(self, version: int) -> RegisterBrokerRecord:
        """The record that registers this broker as it is now, as a snapshot holds it."""
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=tuple(
                RegisterBrokerRecord.BrokerEndpoint(
                    name=point.name, host=point.host, port=point.port, security_protocol=point.security_protocol
                )
                for point in self.end_points
            ),
            features=tuple(
                RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in self.features.items()
            ),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown if version >= 1 else False,
            log_dirs=self.log_dirs if version >= 3 else (),
            cordoned_log_dirs=self.cordoned_log_dirs if version >= 4 else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    """One registered controller (KIP-919)."""

    controller_id: int
    incarnation_id: Uuid
    end_points: tuple[ListenerEndpoint, ...]
    features: dict[str, tuple[int, int]]
    zk_migration_ready: bool = False

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerImage:
        """The controller a RegisterControllerRecord registers."""
        return cls(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            end_points=tuple(
                ListenerEndpoint(point.name, point.host, point.port, point.security_protocol)
                for point in record.end_points
            ),
            features={
                feature.name: (feature.min_supported_version, feature.max_supported_version)
                for feature in record.features
            },
            zk_migration_ready=record.zk_migration_ready,
        )

    def to_record(self) -> RegisterControllerRecord:
        """The record that registers this controller."""
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=tuple(
                RegisterControllerRecord.ControllerEndpoint(
                    name=point.name, host=point.host, port=point.port, security_protocol=point.security_protocol
                )
                for point in self.end_points
            ),
            features=tuple(
                RegisterControllerRecord.ControllerFeature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in self.features.items()
            ),
        )


@dataclass(slots=True)
class ClusterImage:
    """All brokers and controllers, by id.

    Args:
        brokers: Registered brokers.
        controllers: Registered controllers.
        registration_offsets: Offset of each broker's registration record, by broker id. A snapshot does not hold
            them: after it was loaded they are its last offset.
    """

    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    controllers: dict[int, ControllerImage] = field(default_factory=dict)
    registration_offsets: dict[int, int] = field(default_factory=dict, compare=False)

    def copy(self) -> ClusterImage:
        """The same nodes with maps of their own."""
        return ClusterImage(dict(self.brokers), dict(self.controllers), dict(self.registration_offsets))

    def registration_offset(self, broker_id: int) -> int:
        """Offset of the record that registered a broker, which has to be registered."""
        return self.registration_offsets.get(broker_id, self.brokers[broker_id].epoch)

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def replay_register_broker(self, record: RegisterBrokerRecord, delta: MetadataDelta) -> None:
        """A broker registers, perhaps again."""
        self.brokers[record.broker_id] = BrokerImage.from_record(record)
        delta.changed_brokers.add(record.broker_id)

    def replay_unregister_broker(self, record: UnregisterBrokerRecord, delta: MetadataDelta) -> None:
        """A broker is forgotten."""
        self._existing(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]
        self.registration_offsets.pop(record.broker_id, None)
        delta.changed_brokers.add(record.broker_id)

    def replay_fence(self, record: FenceBrokerRecord | UnfenceBrokerRecord, delta: MetadataDelta) -> None:
        """A broker is fenced or unfenced, in the records' form before 3.3."""
        broker = self._existing(record.id, record.epoch)
        self.brokers[record.id] = replace(broker, fenced=isinstance(record, FenceBrokerRecord))
        delta.changed_brokers.add(record.id)

    def replay_broker_change(self, record: BrokerRegistrationChangeRecord, delta: MetadataDelta) -> None:
        """A broker is fenced (1) or unfenced (-1), shuts down, or has other log directories."""
        broker = self._existing(record.broker_id, record.broker_epoch)
        self.brokers[record.broker_id] = replace(
            broker,
            fenced=broker.fenced if record.fenced == 0 else record.fenced == 1,
            in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown == 1,
            log_dirs=tuple(record.log_dirs) or broker.log_dirs,
            cordoned_log_dirs=(
                broker.cordoned_log_dirs if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs)
            ),
        )
        delta.changed_brokers.add(record.broker_id)

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        """A controller registers."""
        self.controllers[record.controller_id] = ControllerImage.from_record(record)

    def _existing(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise CorruptRecordError(f"a record changes broker {broker_id}, which is not registered")
        if broker.epoch != epoch:
            raise CorruptRecordError(f"a record changes broker {broker_id} epoch {epoch}, registered is {broker.epoch}")
        return broker
