"""The cluster's metadata at an offset, replayed from a snapshot and the log after it, as one document.

Its shape is that of the tree in Kafka's metadata shell, with the voters beside it. A record that cannot be read or
applied is told in ``problems`` and left out; the rest is shown all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraftlog._kraftlog import RecordBatch, list_segments
from kraftlog.cli.dump_batches import log_batches, record_batches
from kraftlog.cli.dump_decoders import control_json
from kraftlog.cli.progress import Progress
from kraftlog.controller.cluster_image import BrokerImage, ControllerImage
from kraftlog.controller.image import MetadataImage
from kraftlog.controller.topic_image import TopicImage
from kraftlog.errors import KraftlogError, LogError
from kraftlog.vocabulary import CLUSTER_METADATA_DIRECTORY, ConfigResourceType
from kraftlog.wire.json import message_to_json
from kraftlog.wire.records import decode_metadata_record

__all__ = ["image_document"]

_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


@dataclass(slots=True)
class _Replay:
    """What was read so far."""

    image: MetadataImage = field(default_factory=MetadataImage)
    quorum: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def apply(self, batch: RecordBatch, from_offset: int, at_offset: int | None) -> None:
        for offset, _, key, value, _ in batch.records():
            if offset < from_offset or (at_offset is not None and offset > at_offset):
                continue
            try:
                if batch.is_control:
                    self._apply_control(control_json(key or b"", value or b""))
                else:
                    self.image.replay(decode_metadata_record(value or b"")[0])
            except KraftlogError as error:
                self.problems.append(f"offset {offset}: {error}")
            self.image.offset, self.image.epoch = offset, batch.partition_leader_epoch
            self.image.timestamp_ms = batch.max_timestamp

    def _apply_control(self, described: dict[str, Any]) -> None:
        data = described.get("data")
        match described.get("controlType"):
            case "KRaftVersion" if data is not None:
                self.quorum["kraftVersion"] = data["kRaftVersion"]
            case "KRaftVoters" if data is not None:
                self.quorum["voters"] = {str(voter["voterId"]): voter for voter in data["voters"]}
            case "LeaderChange" if data is not None:
                self.quorum["leaderId"] = data["leaderId"]
            case "SnapshotHeader" if data is not None:
                self.quorum["lastContainedLogTimestamp"] = data["lastContainedLogTimestamp"]
            case str(kind) if kind.startswith("UNREADABLE"):
                self.problems.append(f"control record {kind}")


def image_document(path: Path, *, at_offset: int | None = None, bar: Progress | None = None) -> dict[str, Any]:
    """The metadata that a path holds.

    Args:
        path: A ``.checkpoint`` or ``.log`` file of the metadata partition, its directory, or the log directory.
        at_offset: Last offset (inclusive) to apply; all that is there when None. A running quorum may still take back
            records at the end of the log.
        bar: Told how many bytes were read.

    Raises:
        FileNotFoundError: There is no such file or directory, or it has no metadata.
        LogError: The log does not reach back to the start and no snapshot is early enough.
        CorruptRecordError: Bytes that are no batch.
    """
    replay = _Replay()
    for batch, from_offset in _batches(path, at_offset, bar):
        if at_offset is not None and batch.base_offset > at_offset:
            break
        replay.apply(batch, from_offset, at_offset)
    return _document(replay)


def _batches(path: Path, at_offset: int | None, bar: Progress | None) -> Iterator[tuple[RecordBatch, int]]:
    """Batches to replay, each with the first offset of it that is wanted."""
    if path.is_file():
        yield from ((batch, 0) for batch in record_batches(path, bar))
        return
    if not path.is_dir():
        raise FileNotFoundError(f"{path}")
    directory = path / CLUSTER_METADATA_DIRECTORY if (path / CLUSTER_METADATA_DIRECTORY).is_dir() else path
    snapshots = sorted(
        (int(name[1]), int(name[2]), entry)
        for entry in directory.iterdir()
        if (name := _CHECKPOINT.fullmatch(entry.name))
    )
    usable = [snapshot for snapshot in snapshots if at_offset is None or snapshot[0] <= at_offset + 1]
    segments = list_segments(directory)
    if not segments and not usable:
        raise FileNotFoundError(f"{directory} has neither segments nor snapshots of metadata")
    from_offset = 0
    if usable:
        from_offset, _, snapshot = usable[-1]
        yield from ((batch, 0) for batch in record_batches(snapshot, bar))
    if segments and segments[0][0] > from_offset:
        raise LogError(f"{directory}: the log starts at {segments[0][0]}, and no snapshot covers the records before it")
    if segments:
        yield from ((batch, from_offset) for batch in log_batches(directory, from_offset, bar))


def _document(replay: _Replay) -> dict[str, Any]:
    image = replay.image
    document: dict[str, Any] = {
        "provenance": {"offset": image.offset, "epoch": image.epoch, "lastContainedLogTimeMs": image.timestamp_ms},
        "quorum": replay.quorum,
        "features": dict(sorted(image.features.items())),
        "cluster": {
            "brokers": {str(number): _broker(broker) for number, broker in sorted(image.cluster.brokers.items())},
            "controllers": {
                str(number): _controller(controller) for number, controller in sorted(image.cluster.controllers.items())
            },
        },
        "topics": {
            "byName": {topic.name: _topic(topic) for topic in sorted(image.topics, key=lambda topic: topic.name)},
            "byId": {
                str(topic.topic_id): _topic(topic) for topic in sorted(image.topics, key=lambda topic: topic.topic_id)
            },
        },
        "configs": _configs(image),
        "producerIds": {"nextProducerId": image.producer_ids.next_id},
        **_security(image),
    }
    if image.is_in_transaction:
        document["provenance"]["inTransaction"] = True
    if replay.problems:
        document["problems"] = replay.problems
    return document


def _broker(broker: BrokerImage) -> dict[str, Any]:
    return {
        "epoch": broker.epoch,
        "incarnationId": str(broker.incarnation_id),
        "listeners": _listeners(broker),
        "supportedFeatures": _features(broker),
        "rack": broker.rack,
        "fenced": broker.fenced,
        "inControlledShutdown": broker.in_controlled_shutdown,
        "isMigratingZkBroker": broker.is_migrating_zk_broker,
        "directories": [str(directory) for directory in broker.log_dirs],
        "cordonedDirectories": (
            None if broker.cordoned_log_dirs is None else [str(directory) for directory in broker.cordoned_log_dirs]
        ),
    }


def _controller(controller: ControllerImage) -> dict[str, Any]:
    return {
        "incarnationId": str(controller.incarnation_id),
        "zkMigrationReady": controller.zk_migration_ready,
        "listeners": _listeners(controller),
        "supportedFeatures": _features(controller),
    }


def _listeners(node: BrokerImage | ControllerImage) -> dict[str, Any]:
    return {
        point.name: {"host": point.host, "port": point.port, "securityProtocol": point.security_protocol}
        for point in node.end_points
    }


def _features(node: BrokerImage | ControllerImage) -> dict[str, str]:
    return {name: f"{low}-{high}" for name, (low, high) in sorted(node.features.items())}


def _topic(topic: TopicImage) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "partitions": {
            str(number): {
                "replicas": list(partition.replicas),
                "directories": [str(directory) for directory in partition.directories],
                "isr": list(partition.isr),
                "removingReplicas": list(partition.removing_replicas),
                "addingReplicas": list(partition.adding_replicas),
                "elr": list(partition.elr),
                "lastKnownElr": list(partition.last_known_elr),
                "leader": partition.leader,
                "leaderRecoveryState": "RECOVERING" if partition.leader_recovery_state else "RECOVERED",
                "leaderEpoch": partition.leader_epoch,
                "partitionEpoch": partition.partition_epoch,
            }
            for number, partition in sorted(topic.partitions.items())
        },
    }


def _configs(image: MetadataImage) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, name in sorted(image.configs.resources()):
        try:
            shown = ConfigResourceType(kind).name
        except ValueError:
            shown = f"UNKNOWN({kind})"
        found.setdefault(shown, {})[name] = dict(sorted(image.configs.get(kind, name).items()))
    return found


def _security(image: MetadataImage) -> dict[str, Any]:
    security = image.security
    quotas: dict[str, Any] = {}
    for entity, values in security.client_quotas.items():
        name = " ".join(f"{kind}({'default' if who is None else who})" for kind, who in entity)
        quotas[name] = dict(sorted(values.items()))
    scram: dict[str, Any] = {}
    for (mechanism, user), credential in sorted(security.scram.items()):
        # A dump of the state is no place for secrets; the records themselves have them.
        scram.setdefault(_SCRAM.get(mechanism, str(mechanism)), {})[user] = {"iterations": credential.iterations}
    return {
        "clientQuotas": dict(sorted(quotas.items())),
        "acls": {str(number): message_to_json(acl, 0) for number, acl in sorted(security.acls.items())},
        "scram": scram,
        "delegationTokens": {
            number: message_to_json(token, 0) for number, token in sorted(security.delegation_tokens.items())
        },
    }
