"""The metadata image: everything the records of ``__cluster_metadata`` add up to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraftlog.controller.cluster_image import ClusterImage
from kraftlog.controller.config_image import ConfigsImage
from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.image_changes import ImageChange
from kraftlog.controller.partition_values import PartitionValues
from kraftlog.controller.security_image import SecurityImage
from kraftlog.controller.topics_image import TopicsImage
from kraftlog.errors import CorruptRecordError
from kraftlog.features import KRAFT_VERSION, METADATA_VERSION, MINIMUM_VERSION, MetadataVersion, metadata_version
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from kraftlog.wire.struct import Message

__all__ = ["MetadataImage", "ProducerIdsImage", "VersionedRecord"]

VersionedRecord = tuple[Message, int]
"""A metadata record and the version it is written in."""


@dataclass(slots=True)
class ProducerIdsImage:
    """The first producer id that no broker has been given."""

    next_id: int = 0


class MetadataImage:
    """The state after some offset of the metadata log.

    Records between BeginTransaction and EndTransaction take effect together at the end, or, after
    AbortTransaction, not at all.

    Args (attributes):
        topics, cluster, configs, security, producer_ids: the sub-images.
        features: finalized levels by feature name, zero levels left out; kraft.version is the raft layer's affair.
        offset: of the last record applied or held back in a transaction (inclusive), -1 at first.
        epoch: of that record's batch.
        timestamp_ms: append time of that record's batch.
    """

    __slots__ = (
        "_transaction",
        "cluster",
        "configs",
        "epoch",
        "features",
        "offset",
        "producer_ids",
        "security",
        "timestamp_ms",
        "topics",
    )

    def __init__(self) -> None:
        self.topics = TopicsImage()
        self.cluster = ClusterImage()
        self.configs = ConfigsImage()
        self.security = SecurityImage()
        self.producer_ids = ProducerIdsImage()
        self.features: dict[str, int] = {}
        self.offset = -1
        self.epoch = 0
        self.timestamp_ms = 0
        self._transaction: list[ImageChange] | None = None

    @property
    def metadata_version(self) -> MetadataVersion:
        """The finalized metadata.version; the lowest one before any is known."""
        level = self.features.get(METADATA_VERSION)
        return MINIMUM_VERSION if level is None else metadata_version(level)

    @property
    def is_empty(self) -> bool:
        """Whether no record but NoOps has ever been applied."""
        return not self.features and not self.topics and not self.cluster.brokers

    @property
    def is_in_transaction(self) -> bool:
        """Whether records are held back."""
        return self._transaction is not None

    def copy(self) -> MetadataImage:
        """An equal image that changes on its own."""
        result = MetadataImage()
        result.topics = self.topics.copy()
        result.cluster = self.cluster.copy()
        result.configs = self.configs.copy()
        result.security = self.security.copy()
        result.producer_ids = ProducerIdsImage(self.producer_ids.next_id)
        result.features = dict(self.features)
        result.offset, result.epoch, result.timestamp_ms = self.offset, self.epoch, self.timestamp_ms
        result._transaction = None if self._transaction is None else list(self._transaction)
        return result

    def replay(self, record: ImageChange, delta: MetadataDelta | None = None, *, offset: int | None = None) -> None:
        """Apply one record or prepared change, or hold it back while a transaction is open.

        Args:
            record: The next one of the log.
            delta: Told what changed.
            offset: Of the record, or one behind it in the same batch; a broker that has applied it knows the record.

        Raises:
            CorruptRecordError: The record cannot follow what came before it.
        """
        delta = MetadataDelta() if delta is None else delta
        match record:
            case BeginTransactionRecord():
                if self._transaction is not None:
                    raise CorruptRecordError("a metadata transaction begins inside another")
                self._transaction = []
            case EndTransactionRecord():
                records = self._take_transaction("ends")
                for held in records:
                    self._apply(held, delta)
            case AbortTransactionRecord():
                self._take_transaction("is aborted")
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(record, delta)
                if offset is not None and isinstance(record, RegisterBrokerRecord):
                    self.cluster.registration_offsets[record.broker_id] = offset

    def _take_transaction(self, what: str) -> list[ImageChange]:
        if self._transaction is None:
            raise CorruptRecordError(f"a metadata transaction {what} that never began")
        records, self._transaction = self._transaction, None
        return records

    def _apply(self, record: ImageChange, delta: MetadataDelta) -> None:
        match record:
            case PartitionValues():
                self.topics.replay_partition_values(record, delta)
            case NoOpRecord() | ZkMigrationStateRecord():
                pass
            case TopicRecord():
                self.topics.replay_topic(record, delta)
            case PartitionRecord():
                self.topics.replay_partition(record, delta)
            case PartitionChangeRecord():
                self.topics.replay_partition_change(record, delta)
            case RemoveTopicRecord():
                topic = self.topics.replay_remove_topic(record, delta)
                self.configs.remove(ConfigResourceType.TOPIC, topic.name)
            case ClearElrRecord():
                self.topics.replay_clear_elr(record, delta)
            case ConfigRecord():
                self.configs.replay(record, delta)
            case FeatureLevelRecord():
                self._apply_feature_level(record, delta)
            case RegisterBrokerRecord():
                self.cluster.replay_register_broker(record, delta)
            case UnregisterBrokerRecord():
                self.cluster.replay_unregister_broker(record, delta)
            case BrokerRegistrationChangeRecord():
                self.cluster.replay_broker_change(record, delta)
            case FenceBrokerRecord() | UnfenceBrokerRecord():
                self.cluster.replay_fence(record, delta)
            case RegisterControllerRecord():
                self.cluster.replay_register_controller(record)
            case ProducerIdsRecord():
                self.producer_ids.next_id = record.next_producer_id
                delta.producer_ids_changed = True
            case _:
                if not self.security.replay(record):
                    raise CorruptRecordError(f"{type(record).__name__} is not a record of the metadata log")
                delta.security_changed = True
                delta.quotas_changed |= isinstance(record, ClientQuotaRecord)

    def _apply_feature_level(self, record: FeatureLevelRecord, delta: MetadataDelta) -> None:
        if record.name == KRAFT_VERSION:
            return
        if record.feature_level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level
        delta.features_changed = True

    def to_records(self) -> Iterator[VersionedRecord]:
        """Records that build this image from nothing, in the order Kafka's snapshots have them."""
        version = self.metadata_version
        if METADATA_VERSION in self.features:
            yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=version.feature_level), 0
        for name, level in self.features.items():
            if name != METADATA_VERSION:
                yield FeatureLevelRecord(name=name, feature_level=level), 0
        for broker in self.cluster.brokers.values():
            broker_version = version.register_broker_record_version
            yield broker.to_record(broker_version), broker_version
        if version.is_controller_registration_supported:
            for controller in self.cluster.controllers.values():
                yield controller.to_record(), 0
        partition_version = version.partition_record_version
        for topic in self.topics:
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id), 0
            for index, partition in sorted(topic.partitions.items()):
                yield partition.to_record(topic.topic_id, index, partition_version), partition_version
        for config in self.configs.records():
            yield config, 0
        for quota in self.security.quota_records():
            yield quota, 0
        if self.producer_ids.next_id > 0:
            yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.producer_ids.next_id), 0
        for acl in self.security.acls.values():
            yield acl, 0
        for credential in self.security.scram.values():
            yield credential, 0
        for token in self.security.delegation_tokens.values():
            yield token, 0
