"""Counts of brokers, topics and partitions, kept up with what is committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.image import MetadataImage
from kraftlog.controller.topic_image import NO_LEADER, PartitionImage, TopicImage
from kraftlog.metrics.controller import ClusterCounts
from kraftlog.types import Uuid

__all__ = ["ClusterCounter"]


class ClusterCounter:
    """Counts by what changed, never by all partitions again; knows the partitions as they were before.

    Attributes:
        counts: As of the last ``apply``.
        unclean_elections: Partitions that got a leader which was neither in sync nor eligible.
        elections_from_eligible: Partitions that got one of their eligible leader replicas (KIP-966).
    """

    def __init__(self, image: MetadataImage) -> None:
        self.counts = ClusterCounts()
        self.unclean_elections = 0
        self.elections_from_eligible = 0
        self._partitions: dict[Uuid, dict[int, PartitionImage]] = {}
        self._offline = self._imbalanced = self._total = 0
        for topic in image.topics:
            self._put_topic(topic)
        self._publish(image, are_brokers_changed=True)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take over what ``delta`` changed; ``image`` is what came of it."""
        for topic_id in delta.deleted_topics:
            self._count_all(self._partitions.pop(topic_id, {}).values(), -1)
        created = {topic_id for topic_id in delta.created_topics if topic_id not in self._partitions}
        for topic_id in created:
            topic = image.topics.by_id(topic_id)
            if topic is not None:
                self._put_topic(topic)
        for (topic_id, index), partition in delta.changed_partitions.items():
            if topic_id in created:
                continue
            before = self._partitions.get(topic_id, {}).get(index)
            if before is not None:
                self._count(before, -1)
                self._note_election(before, partition)
            self._partitions.setdefault(topic_id, {})[index] = partition
            self._count(partition, 1)
        self._publish(image, are_brokers_changed=bool(delta.changed_brokers))

    def _put_topic(self, topic: TopicImage) -> None:
        self._partitions[topic.topic_id] = dict(topic.partitions)
        self._count_all(topic.partitions.values(), 1)

    def _count_all(self, partitions: Iterable[PartitionImage], sign: int) -> None:
        """Count the few different values of many partitions."""
        partitions = list(partitions)
        values = dict(zip(map(id, partitions), partitions, strict=True))
        for key, count in Counter(map(id, partitions)).items():
            self._count(values[key], sign * count)

    def _count(self, partition: PartitionImage, difference: int) -> None:
        self._total += difference
        if not partition.has_leader:
            self._offline += difference
        if partition.leader != partition.replicas[0]:
            self._imbalanced += difference

    def _note_election(self, before: PartitionImage, after: PartitionImage) -> None:
        leader = after.leader
        if leader in {NO_LEADER, before.leader} or leader in before.isr:
            return
        if leader in before.elr:
            self.elections_from_eligible += 1
        else:
            self.unclean_elections += 1

    def _publish(self, image: MetadataImage, *, are_brokers_changed: bool) -> None:
        counts = self.counts
        active, fenced, shutting_down = counts.active_brokers, counts.fenced_brokers, counts.shutting_down_brokers
        if are_brokers_changed:
            brokers = image.cluster.brokers.values()
            fenced = sum(broker.fenced for broker in brokers)
            active = len(brokers) - fenced
            shutting_down = sum(broker.in_controlled_shutdown for broker in brokers)
        self.counts = ClusterCounts(
            active_brokers=active,
            fenced_brokers=fenced,
            shutting_down_brokers=shutting_down,
            topics=len(image.topics),
            partitions=self._total,
            offline_partitions=self._offline,
            imbalanced_partitions=self._imbalanced,
        )
