"""Metadata records, prepared so that an image takes over thousands of them in less than a millisecond.

A batch takes effect in the image at once: a reader of the image never sees half of a topic. What takes time (a value
for each partition, the keys under which it is found) is done before, a few records at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftlog.controller.topic_image import PartitionImage
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import PartitionRecord
from kraftlog.wire.struct import Message

__all__ = ["ImageChange", "ImageChanges", "NewPartitions"]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """PartitionRecords of one topic that follow one another.

    Args:
        topic_id: Their topic.
        by_index: The partitions by index.
        by_key: The same partitions by topic id and index.
    """

    topic_id: Uuid
    by_index: dict[int, PartitionImage] = field(default_factory=dict)
    by_key: dict[tuple[Uuid, int], PartitionImage] = field(default_factory=dict)


ImageChange = Message | NewPartitions
"""What ``MetadataImage.replay`` takes."""


class ImageChanges:
    """Prepares records in their order.

    Equal partitions are one value: thousands of partitions have few different sets of replicas, and the garbage
    collector looks at each object.

    Attributes:
        changes: The records as an image takes them.
    """

    def __init__(self) -> None:
        self.changes: list[ImageChange] = []
        self._partitions: dict[PartitionImage, PartitionImage] = {}
        self._new: NewPartitions | None = None

    def add(self, record: Message) -> bool:
        """Take one more record; returns whether it is, or begins, a change of its own."""
        if not isinstance(record, PartitionRecord):
            self._new = None
            self.changes.append(record)
            return True
        new = self._new
        is_first = new is None or new.topic_id != record.topic_id
        if new is None or is_first:
            new = self._new = NewPartitions(record.topic_id)
            self.changes.append(new)
        made = PartitionImage.from_record(record)
        partition = self._partitions.setdefault(made, made)
        index = record.partition_id
        new.by_index[index] = partition
        new.by_key[new.topic_id, index] = partition
        return is_first
