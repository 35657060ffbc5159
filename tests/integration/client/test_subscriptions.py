"""Subscriptions by pattern with both group protocols, and their end."""

from __future__ import annotations

import itertools
import re
import time

import pytest

import kraftlog
from integration.client.lying_broker import LyingBroker
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition
from kraftlog.wire.frame import encode_response
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

pytestmark = pytest.mark.timeout(120)
_numbers = itertools.count()
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
COMPILED = re.compile


@pytest.fixture(scope="module")
def broker():
    with kraftlog.Broker(
        config={"group.consumer.heartbeat.interval.ms": 100, "group.consumer.min.heartbeat.interval.ms": 100}
    ) as node:
        yield node


@pytest.fixture
def prefix(broker):
    """A part of topic names that no other test uses."""
    return f"t{next(_numbers)}"


def consumer(broker, **settings):
    return kraftlog.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        **{"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "metadata_max_age_ms": 200, **settings},
    )


def fill(broker, *topics, count=3):
    with kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for topic in topics:
            for number in range(count):
                producer.send(topic, b"%s %d" % (topic.encode(), number), partition=0)


def values(reader, count):
    """The values of so many records, sorted."""
    found = []
    while len(found) < count:
        records = reader.poll_records(60)
        assert records, (found, reader.assignment)
        found += [record.value for record in records]
    return sorted(found)


def poll_until(is_so, *readers):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, [reader.assignment for reader in readers]
        for reader in readers:
            assert reader.poll(0.05) is None


@pytest.mark.slow
@PROTOCOLS
@pytest.mark.parametrize("make", [str, COMPILED], ids=["text", "compiled"])
def test_pattern_reads_matching_topics_and_new_ones_and_drops_deleted_ones(broker, prefix, protocol, make):
    first, second, other = f"{prefix}-a", f"{prefix}-b", f"other-{prefix}-a"
    broker.create_topic(first)
    broker.create_topic(other)
    fill(broker, first, other)
    with consumer(broker, group_id=prefix, group_protocol=protocol) as reader:
        reader.subscribe(pattern=make(f"{prefix}-.*"))
        assert values(reader, 3) == [b"%s %d" % (first.encode(), number) for number in range(3)]
        broker.create_topic(second)
        fill(broker, second)
        assert values(reader, 3) == [b"%s %d" % (second.encode(), number) for number in range(3)]
        broker.delete_topic(first)
        poll_until(lambda: reader.assignment == (TopicPartition(second, 0),), reader)
        is_matched_by_broker = (protocol, make) == ("consumer", str)
        assert reader.subscription == (() if is_matched_by_broker else (second,))
        assert first not in reader.list_topics(), "asking for metadata created the topic again"


@PROTOCOLS
def test_members_with_a_pattern_share_partitions_and_a_subscription_replaces_another(broker, prefix, protocol):
    broker.create_topic(f"{prefix}-a", partitions=2)
    broker.create_topic(f"{prefix}-b", partitions=2)
    settings = {"group_id": prefix, "group_protocol": protocol}
    with consumer(broker, **settings) as first, consumer(broker, **settings) as second:
        for reader in (first, second):
            reader.subscribe(pattern=f"{prefix}-[ab]")
        poll_until(lambda: len(first.assignment) == len(second.assignment) == 2, first, second)
        assert not set(first.assignment) & set(second.assignment)
        second.subscribe([f"{prefix}-b"])
        poll_until(
            lambda: (
                {name.topic for name in second.assignment} == {f"{prefix}-b"}
                and len(first.assignment) + len(second.assignment) == 4
            ),
            first,
            second,
        )


def subscribe_and_poll(reader, pattern):
    reader.subscribe(pattern=pattern)
    reader.poll(30)


def only_version_0(link, header, request):
    """A broker such as Kafka 3.9: it has KIP-848, but not its regular expressions."""
    host, port = link.getsockname()
    key, version, correlation = header.request_api_key, header.request_api_version, header.correlation_id
    assert isinstance(request, FindCoordinatorRequest), "a heartbeat would leave the pattern out"
    found = FindCoordinatorResponse(node_id=1, host=host, port=port)
    for buffer in encode_response(key, version, correlation, found):
        link.sendall(buffer)


@pytest.mark.spec("NGRP-35")
def test_broker_that_does_not_match_patterns_is_an_error_that_says_so(prefix):
    broker = LyingBroker(only_version_0, versions=[(10, 0, 3), (68, 0, 0)])
    with consumer(broker, group_id=prefix, group_protocol="consumer") as reader:
        reader.subscribe(pattern=f"{prefix}-.*")
        with pytest.raises(KafkaError, match=f"UNSUPPORTED_VERSION: .*{prefix}-.*version 0 .*compiled pattern"):
            reader.poll(30)
    broker.close()


@pytest.mark.parametrize("settings", [{"group_protocol": "classic"}, {"group_protocol": "consumer"}, {}])
def test_pattern_that_does_not_compile_is_an_error_that_names_it(broker, prefix, settings):
    broker.create_topic(prefix)
    with consumer(broker, group_id=prefix, **settings) as reader:
        for _ in range(2):
            with pytest.raises(KafkaError, match=re.escape(f"subscribe(pattern='{prefix}('")) as caught:
                subscribe_and_poll(reader, f"{prefix}(")
            assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
        fill(broker, prefix)
        reader.subscribe(pattern=prefix)
        assert len(values(reader, 3)) == 3


@pytest.mark.spec("NGRP-28")
def test_broker_matches_text_by_its_own_rules_and_the_client_what_is_compiled(broker, prefix):
    broker.create_topic(f"{prefix}-A")
    fill(broker, f"{prefix}-A")
    with consumer(broker, group_id=prefix, group_protocol="consumer") as reader:
        reader.subscribe(pattern=f"{prefix}-(?=a)a")
        with pytest.raises(KafkaError, match="INVALID_REGULAR_EXPRESSION"):  # RE2 has no look-ahead
            reader.poll(30)
        reader.subscribe(pattern=re.compile(f"{prefix}-(?=a)a", re.IGNORECASE))
        assert len(values(reader, 3)) == 3
        assert reader.subscription == (f"{prefix}-A",)


@PROTOCOLS
def test_internal_topics_match_a_pattern_of_the_client_only_if_they_are_not_excluded(broker, prefix, protocol):
    with consumer(broker, group_id=prefix) as reader:
        reader.committed([(prefix, 0)])  # makes the topic
    settings = {"group_id": f"{prefix}-pattern", "group_protocol": protocol}
    for excludes, expected in (("true", ()), ("false", ("__consumer_offsets",))):
        with consumer(broker, exclude_internal_topics=excludes, **settings) as reader:
            reader.subscribe(pattern=re.compile("__consumer_.*"))
            while reader.group_metadata.generation <= 0:
                reader.poll(0.05)
            assert reader.subscription == expected


def test_arguments_that_select_nothing_certain_are_errors(broker, prefix):
    with consumer(broker, group_id=prefix) as reader:
        for arguments in ({}, {"topics": ["a"], "pattern": "a"}):
            with pytest.raises(TypeError, match="subscribe to topics or to a pattern"):
                reader.subscribe(**arguments)
        with pytest.raises(ValueError, match=r"unsubscribe\(\) ends a subscription"):
            reader.subscribe([])
        with pytest.raises(ValueError, match=re.escape("subscribe(pattern='^orders')")):
            reader.subscribe(["^orders"])
        reader.assign([(prefix, 0)])
        with pytest.raises(KafkaError, match=r"call unsubscribe\(\) before subscribe\(\)"):
            reader.subscribe([prefix])
    with consumer(broker) as reader, pytest.raises(KafkaError, match=r"group\.id must be set"):
        reader.subscribe(pattern="a")


# The end of a subscription


def committed(broker, group_id, topic):
    with consumer(broker, group_id=group_id) as reader:
        found = reader.committed([(topic, 0)])
    return found[TopicPartition(topic, 0)].offset if found else None


@PROTOCOLS
def test_unsubscribe_commits_what_is_done_tells_the_listener_and_leaves_at_once(broker, prefix, protocol):
    broker.create_topic(prefix, partitions=2)
    fill(broker, prefix)
    settings = {"group_id": prefix, "group_protocol": protocol, "auto_commit_interval_ms": 10**6, "max_poll_records": 1}
    revoked = []
    with consumer(broker, **settings) as first, consumer(broker, **settings) as second:
        first.subscribe([prefix], on_revoke=revoked.extend)
        for _ in range(2):
            assert len(first.poll_records(60)) == 1
        first.unsubscribe()
        assert (first.assignment, first.subscription) == ((), ())
        assert sorted(name.partition for name in revoked) == [0, 1]
        assert first.group_metadata.generation == -1
        assert committed(broker, prefix, prefix) == 1, "the row of the last poll may not be done"
        with pytest.raises(KafkaError, match=r"call subscribe\(\) or assign\(\)"):
            first.poll(0)
        second.subscribe([prefix])
        assert values(second, 2) == [b"%s %d" % (prefix.encode(), number) for number in (1, 2)]
        assert len(second.assignment) == 2, "the other one is still a member"
        first.assign([(prefix, 0)])
        first.seek((prefix, 0), 0)
        assert values(first, 3)[0] == b"%s 0" % prefix.encode()
        first.unsubscribe()
        assert first.assignment == ()
        first.subscribe([prefix])
        poll_until(lambda: len(first.assignment) == len(second.assignment) == 1, first, second)


@PROTOCOLS
@pytest.mark.parametrize(
    ("leave_group", "instance", "stays"),
    [(None, None, False), (None, "i", True), (True, "i", False), (False, None, True), (False, "i", True)],
)
def test_close_leaves_the_group_as_it_is_told_to(broker, prefix, protocol, leave_group, instance, stays):
    """KIP-1092: another member gets the partitions at once, unless the first one stayed."""
    broker.create_topic(prefix)
    fill(broker, prefix)
    settings = {"group_id": prefix, "group_protocol": protocol, "session_timeout_ms": 40_000}
    first = consumer(broker, **settings, **({} if instance is None else {"group_instance_id": instance}))
    first.subscribe([prefix])
    assert len(values(first, 3)) == 3
    first.close(leave_group=leave_group)
    fill(broker, prefix)
    with consumer(broker, **settings) as second:
        second.subscribe([prefix])
        assert (second.poll(3 if stays else 30) is None) is stays


@PROTOCOLS
def test_error_of_a_listener_reaches_the_caller_and_the_member_leaves_nevertheless(broker, prefix, protocol):
    def fail(_partitions):
        raise LookupError("no such table")

    broker.create_topic(prefix)
    settings = {"group_id": prefix, "group_protocol": protocol}
    with consumer(broker, **settings) as first, consumer(broker, **settings) as second:
        first.subscribe([prefix], on_revoke=fail)
        poll_until(lambda: first.assignment, first)
        with pytest.raises(LookupError, match="no such table"):
            first.unsubscribe()
        second.subscribe([prefix])
        poll_until(lambda: second.assignment, second)


def test_enforced_rebalance_assigns_anew_in_a_classic_group_only(broker, prefix, caplog):
    broker.create_topic(prefix)
    with consumer(broker, group_id=prefix, group_protocol="classic") as reader:
        with pytest.raises(KafkaError, match="is not subscribed"):
            reader.enforce_rebalance()
        reader.subscribe([prefix])
        poll_until(lambda: reader.assignment, reader)
        generation = reader.group_metadata.generation
        reader.enforce_rebalance("more memory")
        poll_until(lambda: reader.group_metadata.generation == generation + 1, reader)
    with consumer(broker, group_id=f"{prefix}-2", group_protocol="consumer") as reader:
        reader.subscribe([prefix])
        poll_until(lambda: reader.assignment, reader)
        generation = reader.group_metadata.generation
        reader.enforce_rebalance("more memory")
        poll_until(lambda: "more memory changes nothing" in caplog.text, reader)
        assert reader.group_metadata.generation == generation
