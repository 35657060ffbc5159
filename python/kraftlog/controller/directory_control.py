"""Log directories of brokers: failed ones, cordoned ones, and which of them holds a replica (KIP-858, KIP-1066)."""

from __future__ import annotations

from collections.abc import Sequence

from kraftlog.controller.cluster_image import BrokerImage
from kraftlog.controller.config_control import ConfigControl
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.partition_change import Election
from kraftlog.controller.partition_changes import PartitionChanges
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.steps import STEP_ITEMS, Steps
from kraftlog.controller.topic_image import PartitionImage, TopicImage
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from kraftlog.wire.messages.metadata_records import BrokerRegistrationChangeRecord

__all__ = ["DirectoryControl"]

_OFFLINE_VERSION = 2
_CORDONED_VERSION = 3

_Directory = AssignReplicasToDirsResponse.DirectoryData
_Topic = AssignReplicasToDirsResponse.TopicData
_Partition = AssignReplicasToDirsResponse.PartitionData


class DirectoryControl:
    """The operations on log directories; they read the image and answer with records.

    Args:
        image: The controller's image.
        configs: Settings of topics.
    """

    def __init__(self, image: MetadataImage, configs: ConfigControl) -> None:
        self._image = image
        self._configs = configs

    def failing(self, broker: BrokerImage, offline: Sequence[Uuid]) -> list[Uuid]:
        """Which of these directories, that a broker says have failed, count as online until now.

        Those that its registration does not have, or no longer has, change nothing.
        """
        if not offline or not self._image.metadata_version.is_directory_assignment_supported:
            return []
        return [directory for directory in broker.log_dirs if directory in offline]

    def go_offline(self, broker: BrokerImage, failed: Sequence[Uuid]) -> Steps[list[VersionedRecord]]:
        """Take a broker out of the partitions whose replica lies in a directory that is ``failing``."""
        records: list[VersionedRecord] = []
        for directory in failed:
            changes = PartitionChanges(self._image, self._configs, removed=broker.broker_id)

            def lies_there(partition: PartitionImage, directory: Uuid = directory) -> bool:
                return directory in partition.directories

            records += yield from changes.where(lies_there)
        if failed:
            remaining = tuple(directory for directory in broker.log_dirs if directory not in failed)
            record = BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=remaining
            )
            records.append((record, _OFFLINE_VERSION))
        return records

    def cordon(self, broker: BrokerImage, cordoned: Sequence[Uuid] | None) -> list[VersionedRecord]:
        """Record which directories get no new replicas; None, from a broker that is not caught up, changes nothing."""
        if cordoned is None or not self._image.metadata_version.is_cordoned_log_dirs_supported:
            return []
        if broker.cordoned_log_dirs is not None and set(broker.cordoned_log_dirs) == set(cordoned):
            return []
        record = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=tuple(cordoned)
        )
        return [(record, _CORDONED_VERSION)]

    def assign_replicas(
        self, broker: BrokerImage, request: AssignReplicasToDirsRequest
    ) -> Steps[ControllerResult[AssignReplicasToDirsResponse]]:
        """Record in which directories a broker has its replicas; each partition gets its own result.

        The broker leaves the in-sync sets of partitions that lie in a directory which is not online.
        """
        changes = PartitionChanges(self._image, self._configs)
        records: list[VersionedRecord] = []
        offline: dict[tuple[Uuid, int], TopicImage] = {}
        directories: list[_Directory] = []
        for wanted_directory in request.directories:
            is_online = broker.has_online_directory(wanted_directory.id)
            topics: list[_Topic] = []
            for wanted_topic in wanted_directory.topics:
                yield
                topic = self._image.topics.by_id(wanted_topic.topic_id)
                partitions: list[_Partition] = []
                for number, wanted in enumerate(wanted_topic.partitions, 1):
                    if number % STEP_ITEMS == 0:
                        yield
                    index = wanted.partition_index
                    code = _refusal(topic, index, broker.broker_id)
                    if topic is not None and not code:
                        _assign(changes, topic, index, {broker.broker_id: wanted_directory.id}, records)
                        if not is_online:
                            offline[topic.topic_id, index] = topic
                    partitions.append(_Partition(partition_index=index, error_code=code))
                topics.append(_Topic(topic_id=wanted_topic.topic_id, partitions=partitions))
            directories.append(_Directory(id=wanted_directory.id, topics=topics))
        if offline:
            removal = PartitionChanges(self._image, self._configs, removed=broker.broker_id)
            records += yield from removal.of(offline)
        return ControllerResult(AssignReplicasToDirsResponse(directories=directories), records, is_atomic=False)


def _assign(
    changes: PartitionChanges,
    topic: TopicImage,
    index: int,
    directories: dict[int, Uuid],
    records: list[VersionedRecord],
) -> None:
    record = changes.record(topic, index, changes.rules(topic), election=Election.ONLINE, directories=directories)
    if record is not None:
        records.append((record, changes.record_version))


def _refusal(topic: TopicImage | None, index: int, broker_id: int) -> int:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER
