"""Partitions as a sequence of records leaves them, ready to be put into an image at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftlog.controller.topic_image import PartitionImage
from kraftlog.types import Uuid

__all__ = ["PartitionValues"]


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """Partitions of one topic as records that follow one another make or change them.

    Args:
        topic_id: Their topic.
        by_index: The partitions by index.
        by_key: The same partitions by topic id and index.
    """

    topic_id: Uuid
    by_index: dict[int, PartitionImage] = field(default_factory=dict)
    by_key: dict[tuple[Uuid, int], PartitionImage] = field(default_factory=dict)
