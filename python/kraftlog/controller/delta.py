"""What a stretch of committed records changed, for those who act on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftlog.controller.topic_image import PartitionImage, TopicImage
from kraftlog.types import Uuid

__all__ = ["MetadataDelta"]


@dataclass(slots=True)
class MetadataDelta:
    """Changes since the listeners were last told.

    Args:
        created_topics: Topics that are new, by id, with the name they have.
        deleted_topics: Topics that are gone, by id, as they were last; never one of ``created_topics``.
        changed_partitions: Partitions that are new or have changed, by topic id and index, in their latest form;
            those of deleted topics are left out.
        changed_configs: (resource type, resource name) whose settings changed.
        changed_brokers: Brokers registered, unregistered, fenced, unfenced or otherwise changed.
        features_changed: Whether a feature level changed.
        producer_ids_changed: Whether a block of producer ids was handed out.
        security_changed: Whether an ACL, credential, token or quota changed.
        quotas_changed: Whether a client quota changed.
    """

    created_topics: dict[Uuid, TopicImage] = field(default_factory=dict)
    deleted_topics: dict[Uuid, TopicImage] = field(default_factory=dict)
    changed_partitions: dict[tuple[Uuid, int], PartitionImage] = field(default_factory=dict)
    changed_configs: set[tuple[int, str]] = field(default_factory=set)
    changed_brokers: set[int] = field(default_factory=set)
    features_changed: bool = False
    producer_ids_changed: bool = False
    security_changed: bool = False
    quotas_changed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not (
            self.created_topics
            or self.deleted_topics
            or self.changed_partitions
            or self.changed_configs
            or self.changed_brokers
            or self.features_changed
            or self.producer_ids_changed
            or self.security_changed
        )
