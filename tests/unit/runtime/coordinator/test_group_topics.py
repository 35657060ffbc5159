"""When the hash over a group's topics changes: with it the group's epoch rises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.controller import MetadataDelta, MetadataImage
from kraftlog.runtime.coordinator.group_topics import GroupTopics
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

FIRST, SECOND = Uuid(b"1" * 16), Uuid(b"2" * 16)


def broker(broker_id: int, rack: str | None, epoch: int = 1) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, fenced=False, rack=rack)


def topic(topic_id: Uuid, name: str = "t", partitions: int = 1) -> list[Any]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(partition_id=index, topic_id=topic_id, replicas=(1, 2), isr=(1, 2), leader=1)
            for index in range(partitions)
        ),
    ]


@pytest.mark.spec("NGRP-21")
@pytest.mark.parametrize(
    ("records", "changes"),
    [
        ([PartitionRecord(partition_id=1, topic_id=FIRST, replicas=(1, 2), isr=(1,), leader=1)], True),
        ([RemoveTopicRecord(topic_id=FIRST)], True),
        ([RemoveTopicRecord(topic_id=FIRST), *topic(SECOND)], True),
        ([broker(2, "another", epoch=5)], True),  # fails before the fix: nothing of a topic changed
        ([PartitionChangeRecord(partition_id=0, topic_id=FIRST, replicas=(1, 3), isr=(1,))], True),
        ([PartitionChangeRecord(partition_id=0, topic_id=FIRST, leader=2)], False),
        ([PartitionChangeRecord(partition_id=0, topic_id=FIRST, isr=(1,))], False),
        ([FenceBrokerRecord(id=2, epoch=1)], False),
        ([broker(2, "b", epoch=5)], False),
        (topic(SECOND, "other"), False),
    ],
)
def test_hash_of_a_topic_follows_what_assignments_depend_on(records: list[Any], changes: bool) -> None:
    image = MetadataImage()
    for record in (broker(1, "a"), broker(2, "b"), broker(3, None), *topic(FIRST)):
        image.replay(record)
    listeners: list[Any] = []
    topics = GroupTopics(SimpleNamespace(image=image, add_listener=listeners.append))  # type: ignore[arg-type]
    before, version = topics.group_hash(["t"]), topics.version
    delta = MetadataDelta()
    for record in records:
        image.replay(record, delta)
    image.offset += len(records)
    for listener in listeners:
        listener(image, delta)
    assert (topics.group_hash(["t"]) != before) is changes
    assert topics.version > version or not changes
