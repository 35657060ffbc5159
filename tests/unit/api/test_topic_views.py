"""What Metadata answers of a topic is built once per state of the metadata, and never outlives it."""

from __future__ import annotations

import pytest

from kraftlog.api.topic_views import TopicViews
from kraftlog.controller.image import MetadataImage
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

TOPIC_ID = Uuid(bytes(15) + b"\x09")


@pytest.fixture
def image():
    image = MetadataImage()
    end_point = RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
    replay(
        image,
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        RegisterBrokerRecord(broker_id=1, broker_epoch=1, fenced=False, end_points=[end_point]),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        *(PartitionRecord(partition_id=i, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1) for i in (1, 0, 2)),
    )
    return image


def replay(image, *records):
    for record in records:
        image.replay(record)
    image.offset += len(records)


def asked(views, image, listener_name="PLAINTEXT", api_version=12):
    return views.partitions(image, image.topics.by_name("t"), listener_name, api_version)


def test_same_metadata_gives_the_same_partitions_in_order(image):
    views = TopicViews()
    first = asked(views, image)
    assert [partition.partition_index for partition in first] == [0, 1, 2]
    assert asked(views, image) is first


def test_change_of_a_partition_is_answered(image):
    views = TopicViews()
    asked(views, image)
    replay(image, PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=-1))
    assert [partition.leader_id for partition in asked(views, image)] == [1, -1, 1]


def test_fenced_broker_is_answered(image):
    views = TopicViews()
    asked(views, image)
    replay(image, FenceBrokerRecord(id=1, epoch=1))
    assert {partition.error_code for partition in asked(views, image)} == {ErrorCode.LEADER_NOT_AVAILABLE}


def test_broker_whose_process_has_ended_leads_nothing(image):
    gone = frozenset()
    views = TopicViews(lambda: gone)
    asked(views, image)
    gone = frozenset({1})
    assert {(view.error_code, view.leader_id) for view in asked(views, image)} == {(ErrorCode.LEADER_NOT_AVAILABLE, -1)}
    gone = frozenset({2})
    assert {(view.error_code, view.leader_id) for view in asked(views, image)} == {(ErrorCode.NONE, 1)}


def test_another_image_at_the_same_offset_is_answered(image):
    # A snapshot that was loaded.
    views = TopicViews()
    asked(views, image)
    other = MetadataImage()
    replay(other, TopicRecord(name="t", topic_id=TOPIC_ID))
    other.offset = image.offset
    assert asked(views, other) == ()


def test_listeners_and_old_versions_have_answers_of_their_own(image):
    views = TopicViews()
    assert {partition.error_code for partition in asked(views, image)} == {ErrorCode.NONE}
    assert {partition.error_code for partition in asked(views, image, "OTHER")} == {ErrorCode.LISTENER_NOT_FOUND}
    assert {partition.error_code for partition in asked(views, image, "OTHER", 5)} == {ErrorCode.LEADER_NOT_AVAILABLE}
