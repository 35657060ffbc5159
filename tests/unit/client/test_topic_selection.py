"""Which topics a consumer asks metadata about, by name and by pattern."""

from __future__ import annotations

import re

import pytest

from consumer_fixture import T0, TOPIC_ID, Scene, metadata
from kraftlog.client.state.request import RequestKind
from kraftlog.client.state.topic_selection import TopicPattern, TopicSelection
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata import MetadataResponse


def topics(*names, internal=(), refused=()):
    """Metadata of topics with one partition each."""
    nodes = [MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1)]
    return MetadataResponse(
        brokers=nodes,
        topics=[
            MetadataResponse.MetadataResponseTopic(
                name=name,
                topic_id=Uuid(name.encode().ljust(16)),
                is_internal=name in internal,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in refused else 0,
                partitions=[MetadataResponse.MetadataResponsePartition(leader_id=1, leader_epoch=0)],
            )
            for name in names
        ],
    )


def exchange(scene, *names, after_ms=200, **fields):
    """The request for metadata that is due, answered with topics."""
    scene.turn(after_ms)
    request = scene.only(RequestKind.METADATA).message
    scene.answer(scene.only(RequestKind.METADATA), topics(*names, **fields))
    return request


def pattern(text, *, excludes_internal=True):
    return TopicPattern(re.compile(text), excludes_internal)


def test_pattern_matches_whole_names_and_internal_topics_only_if_they_are_not_excluded():
    assert pattern("orders|pay").matches("pay", is_internal=False)
    assert not pattern("orders|pay").matches("payments", is_internal=False)
    assert not pattern(".*").matches("__consumer_offsets", is_internal=True)
    assert pattern(".*", excludes_internal=False).matches("__consumer_offsets", is_internal=True)


def test_selection_names_what_it_selects():
    assert str(TopicSelection(("a", "b"))) == "a, b"
    assert str(TopicSelection(pattern="a.*")) == str(TopicSelection(pattern=re.compile("a.*"))) == "the pattern 'a.*'"


def test_pattern_asks_for_all_topics_creates_none_and_keeps_those_that_match():
    scene = Scene()
    scene.core.subscribe((), pattern("orders-.*"))
    assert scene.core.matched_topics is None
    request = exchange(scene, "orders-b", "orders-a", "pay", "orders-in", internal={"orders-in"})
    assert (request.topics, request.allow_auto_topic_creation) == (None, False)
    assert scene.core.matched_topics == ("orders-a", "orders-b")
    assert scene.core.metadata.topics.keys() == {"orders-a", "orders-b"}


def test_pattern_is_matched_again_with_each_answer():
    scene = Scene(metadata_max_age_ms=1000)
    scene.core.subscribe((), pattern("o.*"))
    exchange(scene, "o1", "o2")
    exchange(scene, "o2", "o3", after_ms=1000)
    assert scene.core.matched_topics == ("o2", "o3")


def test_answer_about_names_does_not_count_for_a_pattern_that_came_meanwhile():
    scene = Scene()
    scene.core.subscribe({"pay"})
    scene.turn()
    scene.core.subscribe((), pattern("o.*"))
    scene.answer(scene.only(RequestKind.METADATA), topics("pay", "o1"))
    assert scene.core.matched_topics is None
    request = exchange(scene, "o1", after_ms=0)
    assert request.topics is None
    assert scene.core.matched_topics == ("o1",)


def test_topics_wanted_by_name_that_an_answer_about_all_topics_lacks_do_not_exist():
    scene = Scene()
    scene.core.subscribe((), pattern("o.*"))
    with scene.core.asking({"pay", "gone"}):
        exchange(scene, "o1", "pay")
        found = scene.core.metadata.topics
        assert found["gone"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found["pay"].partitions
    assert scene.core.matched_topics == ("o1",)


def test_deleted_topic_of_an_assigned_partition_keeps_its_id_until_it_is_given_up():
    scene = Scene(metadata_max_age_ms=1000)
    scene.core.subscribe((), pattern("t"))
    scene.turn()
    scene.answer(scene.only(RequestKind.METADATA), metadata((1, 0)))
    scene.core.assign([T0])
    exchange(scene, "other", after_ms=1000)
    assert scene.core.matched_topics == ()
    assert scene.core.metadata.topic_id("t") == TOPIC_ID


def test_topics_that_nobody_wants_any_more_are_not_asked_for():
    scene = Scene()
    scene.core.subscribe({"a"})
    with scene.core.asking({"b"}):
        assert [topic.name for topic in exchange(scene, "a", "b").topics] == ["a", "b"]
    scene.core.subscribe({"c"})
    request = exchange(scene, "c")
    assert [topic.name for topic in request.topics] == ["c"]
    assert request.allow_auto_topic_creation


def test_names_that_may_not_be_created_are_asked_for_as_such():
    scene = Scene()
    scene.core.subscribe({"a"}, may_create=False)
    assert not exchange(scene, "a").allow_auto_topic_creation


def test_refused_topic_is_raised_to_the_reader_and_not_where_it_was_only_asked_about():
    scene = Scene()
    with scene.core.asking({"b"}):
        exchange(scene, "b", refused={"b"})
    assert not scene.core.errors
    scene.core.subscribe({"a"})
    exchange(scene, "a", refused={"a"})
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED: topic a"):
        raise scene.core.errors.popleft()
