"""Settings of clients: forms, values that are refused, and hints at what the writer may have meant."""

from __future__ import annotations

import re

import pytest

from kraftlog.client.config import ClientConfig, ClientConfigError
from kraftlog.config_input import config_properties


@pytest.mark.parametrize(
    ("kind", "key", "hint"),
    [
        ("consumer", "auto.offset.rest", "did you mean auto.offset.reset?"),
        ("consumer", "fetch.wait.max.ms", "did you mean fetch.max.wait.ms?"),
        ("consumer", "group_id", "did you mean group.id?"),
        ("consumer", "sasl.mechanisms", "did you mean sasl.mechanism?"),
        ("consumer", "ssl.ca.location", "did you mean ssl.truststore.location, with ssl.truststore.type=PEM?"),
        ("consumer", "key.deserializer", "keys and values are bytes; remove it"),
        ("consumer", "acks", "a setting of a producer"),
        ("producer", "group.id", "a setting of a consumer"),
        ("producer", "queue.buffering.max.ms", "did you mean linger.ms?"),
        ("producer", "retries", "delivery.timeout.ms bounds them; remove it"),
    ],
)
def test_unknown_setting_comes_with_a_hint(kind, key, hint):
    with pytest.raises(ClientConfigError, match=re.escape(f"unknown settings of a {kind}: {key} ({hint})")):
        ClientConfig({"bootstrap.servers": "a:1", key: "x"}, kind)


def test_setting_like_no_other_is_named_without_a_hint():
    with pytest.raises(ClientConfigError, match=r"^unknown settings of a producer: x\.y\.z$"):
        ClientConfig({"bootstrap.servers": "a:1", "x.y.z": "1"}, "producer")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("bootstrap.servers", "a", "'a' must have the form host:port"),
        ("bootstrap.servers", ":9092", "':9092' must have the form host:port"),
        ("bootstrap.servers", "a:1,PLAINTEXT://b:2", "'PLAINTEXT://b:2' must have the form host:port"),
        ("bootstrap.servers", "a:0", "'a:0' must have the form host:port"),
        ("bootstrap.servers", "a:65536", "'a:65536' must have the form host:port"),
        ("bootstrap.servers", "a:" + "1" * 5000, "must have the form host:port"),
        ("bootstrap.servers", "::1:9092", "must have the form host:port"),
        ("session.timeout.ms", "1.5", "must be a whole number"),
        ("session.timeout.ms", "9" * 5000, "must be a whole number"),
        ("partition.assignment.strategy", "sticky", "sticky is no assignor; there are range, roundrobin"),
        ("partition.assignment.strategy", "", "nothing is no assignor"),
    ],
)
def test_value_that_cannot_be_used_is_refused(key, value, text):
    with pytest.raises(ClientConfigError, match=re.escape(text)):
        ClientConfig({"bootstrap.servers": "a:1", key: value}, "consumer")


def test_java_names_of_assignors_and_addresses_of_ipv6_are_taken():
    java = "org.apache.kafka.clients.consumer"
    strategy = f"{java}.RangeAssignor, {java}.CooperativeStickyAssignor"
    config = ClientConfig(
        {"bootstrap.servers": "[::1]:1,b-1.x:2", "partition.assignment.strategy": strategy}, "consumer"
    )
    assert config["bootstrap.servers"] == ("[::1]:1", "b-1.x:2")
    assert config["partition.assignment.strategy"] == ("range", "cooperative-sticky")


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({"compression.type": "zstd", "compression.zstd.level": "3", "compression.level": "5"}, 3),
        ({"compression.type": "gzip", "compression.zstd.level": "3", "compression.level": "5"}, 5),
        ({"compression.type": "lz4"}, None),
    ],
)
def test_level_of_a_codec_wins_over_the_one_of_all(settings, level):
    assert ClientConfig({"bootstrap.servers": "a:1", **settings}, "producer").compression_level == level


def test_none_is_not_set_lists_are_joined_and_keywords_win():
    given = {"bootstrap.servers": ["a:1", "b:2"], "group.id": "g", "client.id": "x", "check.crcs": True}
    found = config_properties(given, {"group_id": None, "client_id": "y", "session_timeout_ms": 5})
    assert found == {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "y",
        "check.crcs": "true",
        "session.timeout.ms": "5",
    }
    with pytest.raises(TypeError, match="not 'a:1'"):
        config_properties("a:1", {})
