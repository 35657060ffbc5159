"""Which changes of settings a running broker takes; answers of Kafka 4.3.1 where it has the key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraftlog.config_table import broker_configs, cordoned_log_dirs
from kraftlog.controller.dynamic_broker_configs import (
    check_cordoned_by_controller,
    check_dynamic_broker_configs,
    cleaner_thread_problem,
    connection_overrides,
    is_supported_at_run_time,
)
from kraftlog.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("current", "wanted", "is_refused"),
    [(1, 1, False), (1, 2, False), (1, 3, True), (1, 0, True), (5, 2, False), (5, 1, True), (4, 8, False)],
)
def test_cleaner_threads_change_by_half_or_double(current: int, wanted: int, is_refused: bool) -> None:
    assert bool(cleaner_thread_problem(current, wanted)) == is_refused


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("num.io.threads", "16", None),
        ("num.io.threads", "4", None),
        ("num.io.threads", "17", "value should not be greater than double the current value 8"),
        ("num.io.threads", "3", "value should be at least half the current value 8"),
        ("num.io.threads", "0", "Value must be at least 1"),
        ("num.io.threads", "x", "Not a number of type INT"),
        ("num.network.threads", "1", None),
        ("num.network.threads", "7", "double the current value 3"),
        ("num.replica.fetchers", "3", "double the current value 1"),
        ("num.recovery.threads.per.data.dir", "5", "double the current value 2"),
        ("background.threads", "21", "double the current value 10"),
        ("log.cleaner.threads", "3", "cannot be increased to more than double the current value 1"),
        ("log.cleaner.dedupe.buffer.size", "5", "must be at least 1MB per cleaner thread"),
        ("max.connection.creation.rate", "5", None),
        ("max.connection.creation.rate", "-1", "Value must be at least 0"),
        ("max.connections", "5", None),
        ("max.connections", "-1", "Value must be at least 0"),
        ("max.connections.per.ip", "0", "can be set to zero only if max.connections.per.ip.overrides"),
        ("max.connections.per.ip.overrides", "127.0.0.1:3", None),
        ("max.connections.per.ip.overrides", "nonsense", "each entry has the form address:count"),
        ("max.connections.per.ip.overrides", "127.0.0.1:x", "each entry has the form address:count"),
        ("log.local.retention.ms", "999999999999", "must not be more than log.retention.ms property value: 604800000"),
        ("log.retention.ms", "5", None),
        ("log.retention.hours", "5", "Cannot update these configs dynamically"),
        ("listeners", "PLAINTEXT://127.0.0.1:1", "broker id must be specified"),
        ("no.such.key", "1", None),
    ],
)
def test_cluster_wide_change_is_taken_or_refused_as_kafka_does(key: str, text: str, reason: str | None) -> None:
    if reason is None:
        check_dynamic_broker_configs({}, {key: text}, per_broker=False)
        return
    with pytest.raises(KafkaError, match=reason) as caught:
        check_dynamic_broker_configs({}, {key: text}, per_broker=False)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_bounds_go_by_the_value_in_force() -> None:
    check_dynamic_broker_configs({"num.io.threads": "16"}, {"num.io.threads": "32"}, per_broker=True)
    with pytest.raises(KafkaError, match="double the current value 2"):
        check_dynamic_broker_configs({"num.io.threads": "2"}, {"num.io.threads": "5"}, per_broker=True)
    check_dynamic_broker_configs({"num.io.threads": "99"}, {"num.io.threads": "99"}, per_broker=True)
    check_dynamic_broker_configs({"num.io.threads": "99"}, {"num.io.threads": None}, per_broker=True)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("listeners", "PLAINTEXT://127.0.0.1:1"),
        ("listener.security.protocol.map", "PLAINTEXT:SSL"),
        ("ssl.client.auth", "required"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.plaintext.ssl.keystore.location", "/x"),
        ("remote.fetch.max.wait.ms", "7"),
    ],
)
def test_key_that_has_no_effect_at_run_time_is_refused_unless_it_stays_as_it_is(key: str, text: str) -> None:
    per_broker = not key.startswith(("remote.", "max."))
    with pytest.raises(KafkaError, match="cannot be changed while this broker runs") as caught:
        check_dynamic_broker_configs({}, {key: text}, per_broker=per_broker)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    check_dynamic_broker_configs({key: text}, {key: text}, per_broker=per_broker)


def test_every_dynamic_key_of_kafka_is_supported_or_refused() -> None:
    """A new key of Kafka's has to be thought about: these are the ones that take effect or size a thread pool."""
    supported = {
        name
        for name, definition in broker_configs().items()
        if definition.is_dynamic and is_supported_at_run_time(name)
    }
    topic_defaults = {name for name in supported if name.startswith(("log.", "compression."))}
    assert supported - topic_defaults == {
        "background.threads",
        "cordoned.log.dirs",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "message.max.bytes",
        "min.insync.replicas",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "unclean.leader.election.enable",
    }


def test_connection_overrides_are_read_by_address() -> None:
    assert connection_overrides("") == {}
    assert connection_overrides("127.0.0.1:3, localhost:4,[::1]:5") == {"127.0.0.1": 4, "::1": 5}


@pytest.mark.parametrize("key", ["max.connections", "max.connection.creation.rate"])
def test_limit_of_a_listener_is_positive_and_of_one_broker(key: str) -> None:
    name = f"listener.name.plaintext.{key}"
    check_dynamic_broker_configs({}, {name: "1"}, per_broker=True)
    with pytest.raises(KafkaError, match="Value must be at least 1"):
        check_dynamic_broker_configs({}, {name: "0"}, per_broker=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", None),
        ("*", None),
        ("/data/a", None),
        ("/data/b , /data/a", None),
        ("/data/c", "Missing entries : /data/c"),
        ("/data/a,*", "it must not contain other values"),
    ],
)
def test_cordoned_directories_are_entries_of_log_dirs(text: str, reason: str | None) -> None:
    current = {"log.dirs": "/data/a,/data/b"}
    if reason is None:
        check_dynamic_broker_configs(current, {"cordoned.log.dirs": text}, per_broker=True)
        return
    with pytest.raises(KafkaError, match=re.escape(reason)) as caught:
        check_dynamic_broker_configs(current, {"cordoned.log.dirs": text}, per_broker=True)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_relative_directory_is_cordoned_by_either_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-20901: Kafka 4.3.1 refuses the absolute path, and the relative one has no effect."""
    monkeypatch.chdir(tmp_path)
    both = {str(tmp_path / "a"), str(tmp_path / "b")}
    assert cordoned_log_dirs("a", ["a", str(tmp_path / "b")]) == {str(tmp_path / "a")}
    assert cordoned_log_dirs(str(tmp_path / "a"), ["a", "b"]) == {str(tmp_path / "a")}
    assert cordoned_log_dirs("*", ["a", "b"]) == cordoned_log_dirs("b,a", ["a", "b"]) == both
    assert cordoned_log_dirs("", ["a"]) == set()


@pytest.mark.parametrize(
    ("current", "added", "is_refused"),
    [
        ("/a,/b", "/b", False),
        ("/a, /b", "/b,/a", False),
        ("/a", "", False),
        ("/a", None, False),
        (None, "", False),
        (None, "/a", True),
        ("/a", "/a,/b", True),
        ("*", "/a", True),
    ],
)
def test_controller_only_takes_cordoned_directories_away(
    current: str | None, added: str | None, is_refused: bool
) -> None:
    if not is_refused:
        check_cordoned_by_controller(current, added)
        return
    with pytest.raises(KafkaError, match="must be a subset of the current") as caught:
        check_cordoned_by_controller(current, added)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
