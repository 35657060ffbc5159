"""Changes of many partitions: who may lead now, what the settings of each topic are, and the records that follow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from kraftlog.controller.config_control import ConfigControl
from kraftlog.controller.directory import DIRECTORY_UNASSIGNED
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.partition_change import PartitionChange, PartitionRules
from kraftlog.controller.steps import STEP_ITEMS, Steps
from kraftlog.controller.topic_image import PartitionImage, TopicImage
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import PartitionChangeRecord

__all__ = ["MAX_RECORDS_PER_OPERATION", "NOBODY", "SCANNED_PER_STEP", "PartitionChanges", "check_record_count"]

MAX_RECORDS_PER_OPERATION: Final = 10_000
"""Most records that a client's request may lead to (Kafka's QuorumController)."""

NOBODY: Final = -1
SCANNED_PER_STEP: Final = 1024
"""Partitions that one step of an operation may look at, if it does nothing but compare."""


def check_record_count(count: int) -> None:
    """Refuse a request that leads to too many records.

    Raises:
        KafkaError: POLICY_VIOLATION; more than ``MAX_RECORDS_PER_OPERATION``.
    """
    if count > MAX_RECORDS_PER_OPERATION:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


class PartitionChanges:
    """Makes the changes that one operation asks for; valid until the image changes.

    Args:
        image: The controller's image.
        configs: Settings of topics.
        added: A broker that counts as active although the image has it fenced: it is about to be unfenced.
        removed: A broker that may lead nothing and leaves in-sync sets: it is about to be fenced.
        unclean: As ``removed``, for a broker that may have lost data: it leaves eligible leader replicas as well.
        failing: Log directories that are about to be offline although the image has them: no replica there may lead.
    """

    def __init__(
        self,
        image: MetadataImage,
        configs: ConfigControl,
        *,
        added: int = NOBODY,
        removed: int = NOBODY,
        unclean: int = NOBODY,
        failing: Collection[Uuid] = (),
    ) -> None:
        self._image = image
        self._configs = configs
        self._brokers = image.cluster.brokers
        self._gone = frozenset({removed, unclean})
        self._unclean = frozenset({unclean}) - {NOBODY}
        self._active = {broker_id for broker_id in self._brokers if image.cluster.is_active(broker_id)}
        self._active = (self._active | {added}) - self._gone
        self._failing = failing
        self._version = image.metadata_version
        self._is_elr_enabled = configs.is_elr_enabled
        self._default_min_isr, self._default_unclean = configs.min_isr_default, configs.unclean_election_default
        self.record_version = self._version.partition_change_record_version

    def can_lead(self, partition: PartitionImage, broker_id: int) -> bool:
        """Whether the broker is active, and its replica of the partition in a directory that is online."""
        if broker_id not in self._active or broker_id not in partition.replicas:
            return False
        broker, directory = self._brokers.get(broker_id), partition.directory(broker_id)
        return broker is not None and broker.has_online_directory(directory) and directory not in self._failing

    def default_directory(self, broker_id: int) -> Uuid:
        """Directory of a replica that a broker is given now."""
        broker = self._brokers.get(broker_id)
        return DIRECTORY_UNASSIGNED if broker is None else broker.default_directory

    def rules(self, topic: TopicImage) -> PartitionRules:
        """What holds for the partitions of a topic."""
        min_isr = self._configs.own_min_isr(topic.name)
        is_unclean_allowed = self._configs.own_unclean_election(topic.name)
        return PartitionRules(
            metadata_version=self._version,
            min_isr=min(self._default_min_isr if min_isr is None else min_isr, len(topic.partitions[0].replicas)),
            is_elr_enabled=self._is_elr_enabled,
            is_unclean_election_allowed=self._default_unclean if is_unclean_allowed is None else is_unclean_allowed,
        )

    def record(
        self, topic: TopicImage, index: int, rules: PartitionRules, **wanted: Any
    ) -> PartitionChangeRecord | None:
        """The record that a change of one partition leads to, None if that is none.

        Args:
            topic: Its topic.
            index: Of the partition, which exists.
            rules: Of the topic.
            wanted: Fields of ``PartitionChange``.
        """
        wanted.setdefault("election", rules.default_election)
        return PartitionChange(
            topic_id=topic.topic_id,
            index=index,
            partition=topic.partitions[index],
            rules=rules,
            can_lead=self.can_lead,
            default_directory=self.default_directory,
            unclean_replicas=self._unclean,
            **wanted,
        ).build()

    def where(self, concerns: Callable[[PartitionImage], bool]) -> Steps[list[VersionedRecord]]:
        """Take the broker that goes out of the partitions that a change concerns, and elect leaders where needed."""
        records: list[VersionedRecord] = []
        scanned = 0
        for topic in self._image.topics.all():
            rules: PartitionRules | None = None
            for index, partition in list(topic.partitions.items()):
                scanned += 1
                if scanned >= SCANNED_PER_STEP:
                    scanned = 0
                    yield
                if not concerns(partition):
                    continue
                rules = self.rules(topic) if rules is None else rules
                self._update(topic, index, rules, records)
                scanned += SCANNED_PER_STEP // STEP_ITEMS
            scanned += 1
        return records

    def of(self, partitions: Mapping[tuple[Uuid, int], TopicImage]) -> Steps[list[VersionedRecord]]:
        """As ``where``, for these partitions: their topics by topic id and index."""
        records: list[VersionedRecord] = []
        for number, ((_, index), topic) in enumerate(partitions.items()):
            if number % STEP_ITEMS == 0:
                yield
            self._update(topic, index, self.rules(topic), records)
        return records

    def _update(self, topic: TopicImage, index: int, rules: PartitionRules, records: list[VersionedRecord]) -> None:
        isr = tuple(replica for replica in topic.partitions[index].isr if replica not in self._gone)
        record = self.record(topic, index, rules, isr=isr)
        if record is not None:
            records.append((record, self.record_version))
