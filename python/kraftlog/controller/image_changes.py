"""Metadata records, prepared so that an image takes over thousands of them in less than a millisecond.

A batch takes effect in the image at once: a reader of the image never sees half of a topic. What takes time (a value
for each partition, the keys under which it is found) is done before, a few records at a time.
"""

from __future__ import annotations

from typing import Protocol

from kraftlog.controller.partition_values import PartitionValues
from kraftlog.controller.topic_image import PartitionImage
from kraftlog.controller.topics_image import TopicsImage
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from kraftlog.wire.struct import Message

__all__ = ["ImageChange", "ImageChanges"]


_OTHERS = (TopicRecord, ConfigRecord, RegisterBrokerRecord, BrokerRegistrationChangeRecord, UnregisterBrokerRecord)
"""Records that leave partitions as they are and stand beside records of partitions."""

ImageChange = Message | PartitionValues
"""What ``MetadataImage.replay`` takes."""


class PartitionSource(Protocol):
    """An image, as far as records of partitions depend on it."""

    @property
    def is_in_transaction(self) -> bool:
        """Whether records are held back."""
        ...

    @property
    def topics(self) -> TopicsImage:
        """All topics."""
        ...


class ImageChanges:
    """Prepares records in their order.

    Equal partitions are one value: thousands of partitions have few different sets of replicas, and the garbage
    collector looks at each object.

    Args:
        image: What the records will change, if that is known: nothing else may change it until they are applied.
            Without it a changed partition is found when the change is applied.
        after: Records before these that are not applied yet either.

    Attributes:
        changes: The records as an image takes them.
    """

    def __init__(self, image: PartitionSource | None = None, *, after: ImageChanges | None = None) -> None:
        self.changes: list[ImageChange] = []
        self._partitions: dict[PartitionImage, PartitionImage] = {} if after is None else after._partitions
        self._pending: dict[tuple[Uuid, int], PartitionImage] = {} if after is None else after._pending
        known = image if after is None else after._image
        self._image: PartitionSource | None = None if known is None or known.is_in_transaction else known
        self._values: PartitionValues | None = None

    def add(self, record: Message) -> bool:
        """Take one more record; returns whether it is, or begins, a change of its own."""
        partition = self._partition(record)
        if partition is None or not isinstance(record, PartitionRecord | PartitionChangeRecord):
            if not isinstance(record, _OTHERS):
                self._image = None  # it may change partitions in ways that are not looked at here
            self._values = None
            self.changes.append(record)
            return True
        values = self._values
        is_first = values is None or values.topic_id != record.topic_id
        if values is None or is_first:
            values = self._values = PartitionValues(record.topic_id)
            self.changes.append(values)
        partition = self._partitions.setdefault(partition, partition)
        key = (record.topic_id, record.partition_id)
        if self._image is not None:
            self._pending[key] = partition
        values.by_index[record.partition_id] = partition
        values.by_key[key] = partition
        return is_first

    def _partition(self, record: Message) -> PartitionImage | None:
        """The partition as the record leaves it; None if the record is another one, or that cannot be told yet."""
        if isinstance(record, PartitionRecord):
            return PartitionImage.from_record(record)
        if self._image is None or not isinstance(record, PartitionChangeRecord):
            return None
        before = self._pending.get((record.topic_id, record.partition_id))
        if before is None:
            topic = self._image.topics.by_id(record.topic_id)
            before = None if topic is None else topic.partitions.get(record.partition_id)
        return None if before is None else before.merge(record)
