"""When a producer asks about its topics again, which it forgets, and when it starts again (KIP-526, KIP-899)."""

from __future__ import annotations

from math import inf

from kraftlog.client.state.producer_topics import ProducerTopics, TopicOptions

TIMES = TopicOptions(
    metadata_max_age_ms=1000, metadata_max_idle_ms=5000, retry_backoff_ms=100, rebootstrap_after_ms=3000
)


def test_metadata_is_due_when_it_is_old():
    topics = ProducerTopics(TIMES)
    assert topics.due_ms is None
    topics.answered(50)
    assert topics.due_ms == 1050
    topics.failed(1060)
    assert topics.due_ms == 1160
    topics.answered(1200)
    assert topics.due_ms == 2200


def test_what_waits_is_asked_for_after_the_back_off():
    topics = ProducerTopics(TIMES)
    topics.want()
    assert topics.due_ms == -inf
    topics.ask(0)
    assert topics.due_ms is None
    topics.want()  # what is under way does not count: it may have been answered before
    topics.answered(10)
    assert topics.due_ms == 110
    topics.ask(110)
    topics.failed(120)
    topics.want()
    assert topics.due_ms == 220


def test_an_age_of_nothing_is_the_back_off():
    topics = ProducerTopics(TopicOptions(metadata_max_age_ms=0, retry_backoff_ms=100))
    topics.answered(50)
    assert topics.due_ms == 150


def test_topics_without_records_are_forgotten():
    topics = ProducerTopics(TIMES)
    topics.use("b", 0)
    topics.use("a", 10)
    assert topics.ask(4999) == ["a", "b"]
    topics.use("b", 4999)
    assert topics.ask(5010) == ["b"]
    topics.discard("b")
    assert topics.ask(5011) == []


def test_it_starts_again_once_nothing_came_for_long():
    topics = ProducerTopics(TIMES)
    assert not topics.failed(100)
    assert not topics.failed(3099)
    assert topics.failed(3100)
    assert not topics.failed(3200)
    topics.answered(3300)
    assert not topics.failed(7000)
    never = ProducerTopics(TopicOptions(rebootstrap_after_ms=None))
    assert not never.failed(0)
    assert not never.failed(10**9)
