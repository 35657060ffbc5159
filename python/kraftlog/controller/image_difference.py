"""What changed between two images: for those who act on changes when a snapshot replaced the image."""

from __future__ import annotations

from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.image import MetadataImage

__all__ = ["image_difference"]


def image_difference(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """The delta that records leading from ``old`` to ``new`` would have made."""
    delta = MetadataDelta()
    before = {topic.topic_id: topic for topic in old.topics.all()}
    after = {topic.topic_id: topic for topic in new.topics.all()}
    delta.deleted_topics.update((topic_id, topic) for topic_id, topic in before.items() if topic_id not in after)
    for topic_id, topic in after.items():
        known = before.get(topic_id)
        if known is None:
            delta.created_topics[topic_id] = topic
        for index, partition in topic.partitions.items():
            if known is None or known.partitions.get(index) != partition:
                delta.changed_partitions[topic_id, index] = partition
    resources = {*old.configs.resources(), *new.configs.resources()}
    delta.changed_configs.update(
        resource for resource in resources if old.configs.get(*resource) != new.configs.get(*resource)
    )
    brokers = {*old.cluster.brokers, *new.cluster.brokers}
    delta.changed_brokers.update(
        broker for broker in brokers if old.cluster.brokers.get(broker) != new.cluster.brokers.get(broker)
    )
    delta.features_changed = old.features != new.features
    delta.producer_ids_changed = old.producer_ids != new.producer_ids
    delta.security_changed = any(
        getattr(old.security, name) != getattr(new.security, name)
        for name in ("acls", "scram", "delegation_tokens", "client_quotas")
    )
    delta.quotas_changed = old.security.client_quotas != new.security.client_quotas
    return delta
