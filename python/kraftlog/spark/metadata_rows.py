"""Records of the metadata log as rows: what each changed, with the state after it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kraftlog.controller.cluster_image import BrokerImage, ControllerImage
from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.image import MetadataImage
from kraftlog.controller.topic_image import NO_LEADER, PartitionImage, TopicImage
from kraftlog.errors import CorruptRecordError, KraftlogError
from kraftlog.types import Uuid
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.json import message_to_json
from kraftlog.wire.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftlog.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from kraftlog.wire.records import decode_control_record, decode_metadata_record
from kraftlog.wire.struct import Message

__all__ = ["MetadataEntry", "MetadataHistory", "Row", "describe"]

Row: TypeAlias = dict[str, Any]
_Change: TypeAlias = tuple[str, Row]

_CONTROL_NAMES: dict[type[Message], str] = {
    LeaderChangeMessage: "LeaderChange",
    SnapshotHeaderRecord: "SnapshotHeader",
    SnapshotFooterRecord: "SnapshotFooter",
    KRaftVersionRecord: "KRaftVersion",
    VotersRecord: "KRaftVoters",
}
_SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class MetadataEntry:
    """A record of the log or of a snapshot.

    Args:
        offset: Of the record; in a snapshot the last offset that it stands for, -1 for that of a new cluster.
        epoch: Of the leader that wrote it; in a snapshot of that offset.
        timestamp_us: Microseconds; in a snapshot of the last record that it stands for.
        source: Where it is.
        file: The segment's directory, or the snapshot's file.
        is_control: A control record of the quorum.
        key: None but for control records.
        value: Its value.
    """

    offset: int
    epoch: int
    timestamp_us: int | None
    source: Literal["log", "snapshot"]
    file: str
    is_control: bool
    key: bytes | None
    value: bytes | None

    @property
    def place(self) -> Row:
        """The columns that every table has."""
        return {
            "offset": self.offset,
            "epoch": self.epoch,
            "timestamp": self.timestamp_us,
            "source": self.source,
            "file": self.file,
        }

    def __str__(self) -> str:
        return f"{self.file} offset {self.offset} ({self.source})"


@dataclass(slots=True)
class _Read:
    entry: MetadataEntry
    message: Message | None
    kind: str
    version: int | None


class MetadataHistory:
    """Replays records and says what each changed.

    Records of a metadata transaction take effect at its end, or, when it is aborted, not at all.

    Args:
        replays: Whether records are applied to an image, which all tables but ``records`` need.
        on_bad: Told of records that do not decode or cannot follow those before; None to raise.
    """

    def __init__(self, *, replays: bool, on_bad: Callable[[MetadataEntry, str], None] | None = None) -> None:
        self._replays = replays
        self._on_bad = on_bad
        self._image = MetadataImage()
        self._held: list[_Read] | None = None
        # Also of topics that are gone, so that what is said of them later has their name.
        self._names: dict[Uuid, str] = {}

    def restart(self) -> None:
        """Forgets the state: a snapshot follows."""
        self._image = MetadataImage()
        self._held = None

    def changes(self, entries: Iterable[MetadataEntry]) -> Iterator[_Change]:
        """For each record the tables that it is for, with a row each.

        Raises:
            CorruptRecordError: A record does not decode or cannot follow those before; names file and offset.
        """
        for entry in entries:
            try:
                read = _decode(entry)
                rows = [("records", self._record_row(read))]
                if self._replays:
                    rows += self._replay(read)
            except KraftlogError as error:
                if self._on_bad is None:
                    message = f"{entry}: {error}"
                    raise CorruptRecordError(message) from error
                self._on_bad(entry, str(error))
                continue
            yield from rows

    def _replay(self, read: _Read) -> list[_Change]:
        message = read.message
        if read.entry.is_control:
            return list(_quorum_changes(read))
        if isinstance(message, BeginTransactionRecord):
            if self._held is not None:
                raise CorruptRecordError("a metadata transaction begins inside another")
            self._held = []
            return []
        if isinstance(message, EndTransactionRecord | AbortTransactionRecord):
            held, self._held = self._held, None
            if held is None:
                raise CorruptRecordError("a metadata transaction ends that never began")
            if isinstance(message, AbortTransactionRecord):
                return []
            return [change for record in held for change in self._apply(record)]
        if self._held is not None:
            self._held.append(read)
            return []
        return self._apply(read)

    def _apply(self, read: _Read) -> list[_Change]:
        message = read.message
        if message is None:
            return []
        image, place = self._image, read.entry.place
        is_snapshot = read.entry.source == "snapshot"
        changes: list[_Change] = []
        if isinstance(message, RemoveTopicRecord):
            topic = image.topics.by_id(message.topic_id)
            if topic is not None:
                changes += _topic_removed(topic, image, place)
        gone = image.cluster.brokers.get(message.broker_id) if isinstance(message, UnregisterBrokerRecord) else None
        delta = MetadataDelta()
        image.replay(message, delta)
        match message:
            case TopicRecord():
                event = "present" if is_snapshot else "created"
                changes.append(("topics", {**place, "event": event, **_topic(message.name, message.topic_id)}))
            case ConfigRecord():
                event = "removed" if message.value is None else "present" if is_snapshot else "set"
                changes.append(
                    ("configs", {**place, "event": event, **_config(message.resource_type, message.resource_name)})
                )
                changes[-1][1].update({"name": message.name, "value": message.value})
            case FeatureLevelRecord():
                changes.append(("features", {**place, "name": message.name, "level": message.feature_level}))
            case RegisterControllerRecord():
                controller = image.cluster.controllers[message.controller_id]
                event = "present" if is_snapshot else "registered"
                changes.append(("brokers", {**place, "event": event, **_controller(controller)}))
            case _:
                pass
        for (topic_id, index), partition in delta.changed_partitions.items():
            event = "changed"
            if isinstance(message, PartitionRecord):
                event = "present" if is_snapshot else "created"
            name = self._names.get(topic_id)
            changes.append(("partitions", {**place, "event": event, **_partition(name, topic_id, index, partition)}))
        for broker_id in delta.changed_brokers:
            broker = image.cluster.brokers.get(broker_id, gone)
            if broker is not None:
                changes.append(("brokers", {**place, "event": _broker_event(message, is_snapshot), **_broker(broker)}))
        return changes

    def _record_row(self, read: _Read) -> Row:
        message: Any = read.message
        if isinstance(message, TopicRecord):
            self._names[message.topic_id] = message.name
        topic_id = getattr(message, "topic_id", None)
        is_config = isinstance(message, ConfigRecord)
        topic = message.name if isinstance(message, TopicRecord) else getattr(message, "topic_name", None)
        if topic is None and topic_id is not None:
            topic = self._names.get(topic_id)
        if is_config and message.resource_type == ConfigResourceType.TOPIC:
            topic = message.resource_name
        broker_id = getattr(message, "broker_id", None)
        if broker_id is None and read.kind in {"FENCE_BROKER_RECORD", "UNFENCE_BROKER_RECORD"}:
            broker_id = message.id
        return {
            **read.entry.place,
            "isControl": read.entry.is_control,
            "type": read.kind,
            "version": read.version,
            "topic": topic,
            "topicId": None if topic_id is None else str(topic_id),
            "partitionId": getattr(message, "partition_id", None),
            "brokerId": broker_id,
            "resourceType": _resource_type(message.resource_type) if is_config else None,
            "resourceName": message.resource_name if is_config else None,
            "configName": message.name if is_config else None,
            "configValue": message.value if is_config else None,
            "featureName": message.name if isinstance(message, FeatureLevelRecord) else None,
            "featureLevel": message.feature_level if isinstance(message, FeatureLevelRecord) else None,
            "json": None if message is None or read.version is None else describe(message, read.version),
        }


def describe(message: Message, version: int) -> str:
    """The fields of a record as Kafka's tools print them, on one line."""
    return json.dumps(message_to_json(message, version), separators=(",", ":"), ensure_ascii=False)


def _decode(entry: MetadataEntry) -> _Read:
    if not entry.is_control:
        message, version = decode_metadata_record(entry.value or b"")
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(message).__name__)
        return _Read(entry, message, words.upper(), version)
    kind, control = decode_control_record(entry.key or b"", entry.value or b"")
    if control is None:
        # Kafka 4.3.1 does not know it, and skips it.
        return _Read(entry, None, f"UNKNOWN({kind})", None)
    name = _CONTROL_NAMES.get(type(control), type(control).__name__)
    return _Read(entry, control, name, int.from_bytes((entry.value or b"")[:2], "big"))


def _quorum_changes(read: _Read) -> Iterator[_Change]:
    place = read.entry.place
    match read.message:
        case LeaderChangeMessage() as message:
            yield (
                "leader_changes",
                {
                    **place,
                    "leaderId": message.leader_id,
                    "voters": [_voter(voter) for voter in message.voters],
                    "grantingVoters": [_voter(voter) for voter in message.granting_voters],
                },
            )
        case VotersRecord() as message:
            for voter in message.voters:
                versions = voter.k_raft_version_feature
                yield (
                    "voters",
                    {
                        **place,
                        "voterId": voter.voter_id,
                        "directoryId": str(voter.voter_directory_id),
                        "endpoints": [
                            {"name": endpoint.name, "host": endpoint.host, "port": endpoint.port}
                            for endpoint in voter.endpoints
                        ],
                        "minKRaftVersion": versions.min_supported_version,
                        "maxKRaftVersion": versions.max_supported_version,
                    },
                )
        case KRaftVersionRecord() as message:
            yield "features", {**place, "name": "kraft.version", "level": message.kraft_version}
        case _:
            return


def _voter(voter: Any) -> Row:
    return {"voterId": voter.voter_id, "directoryId": str(voter.voter_directory_id)}


def _topic(name: str, topic_id: Uuid) -> Row:
    return {"topic": name, "topicId": str(topic_id)}


def _topic_removed(topic: TopicImage, image: MetadataImage, place: Row) -> Iterator[_Change]:
    yield "topics", {**place, "event": "deleted", **_topic(topic.name, topic.topic_id)}
    for index, partition in sorted(topic.partitions.items()):
        yield "partitions", {**place, "event": "deleted", **_partition(topic.name, topic.topic_id, index, partition)}
    for name in sorted(image.configs.get(ConfigResourceType.TOPIC, topic.name)):
        row = {**place, "event": "removed", **_config(ConfigResourceType.TOPIC, topic.name)}
        yield "configs", {**row, "name": name, "value": None}


def _partition(name: str | None, topic_id: Uuid, index: int, partition: PartitionImage) -> Row:
    return {
        "topic": name,
        "topicId": str(topic_id),
        "partition": index,
        "leader": None if partition.leader == NO_LEADER else partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "eligibleLeaderReplicas": list(partition.elr),
        "lastKnownElr": list(partition.last_known_elr),
        "addingReplicas": list(partition.adding_replicas),
        "removingReplicas": list(partition.removing_replicas),
        "directories": [str(directory) for directory in partition.directories],
        "leaderRecoveryState": "RECOVERING" if partition.leader_recovery_state else "RECOVERED",
    }


def _resource_type(number: int) -> str:
    try:
        return ConfigResourceType(number).name
    except ValueError:
        return f"UNKNOWN({number})"


def _config(resource_type: int, resource_name: str) -> Row:
    return {"resourceType": _resource_type(resource_type), "resourceName": resource_name}


def _broker_event(message: Message, is_snapshot: bool) -> str:
    if isinstance(message, RegisterBrokerRecord):
        return "present" if is_snapshot else "registered"
    return "unregistered" if isinstance(message, UnregisterBrokerRecord) else "changed"


def _broker(broker: BrokerImage) -> Row:
    cordoned = broker.cordoned_log_dirs
    return {
        "role": "broker",
        "id": broker.broker_id,
        "brokerEpoch": broker.epoch,
        "incarnationId": str(broker.incarnation_id),
        "rack": broker.rack,
        "fenced": broker.fenced,
        "inControlledShutdown": broker.in_controlled_shutdown,
        "endpoints": _endpoints(broker),
        "logDirs": [str(directory) for directory in broker.log_dirs],
        "cordonedLogDirs": None if cordoned is None else [str(directory) for directory in cordoned],
        "features": _features(broker),
    }


def _controller(controller: ControllerImage) -> Row:
    return {
        "role": "controller",
        "id": controller.controller_id,
        "brokerEpoch": None,
        "incarnationId": str(controller.incarnation_id),
        "rack": None,
        "fenced": None,
        "inControlledShutdown": None,
        "endpoints": _endpoints(controller),
        "logDirs": None,
        "cordonedLogDirs": None,
        "features": _features(controller),
    }


def _endpoints(node: BrokerImage | ControllerImage) -> list[Row]:
    known = range(len(_SECURITY_PROTOCOLS))
    return [
        {
            "name": point.name,
            "host": point.host,
            "port": point.port,
            "securityProtocol": _SECURITY_PROTOCOLS[point.security_protocol]
            if point.security_protocol in known
            else f"UNKNOWN({point.security_protocol})",
        }
        for point in node.end_points
    ]


def _features(node: BrokerImage | ControllerImage) -> list[Row]:
    return [
        {"name": name, "minVersion": low, "maxVersion": high} for name, (low, high) in sorted(node.features.items())
    ]
