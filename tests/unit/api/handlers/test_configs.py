"""Settings through a live node: altered, described with their sources, refused."""

from __future__ import annotations

import logging
import threading

import pytest

import kraftlog
from kraftlog.api.config_view import ConfigSource
from kraftlog.errors import ErrorCode
from kraftlog.runtime.replica import topic_config
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.alter_configs import AlterConfigsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.describe_configs import DescribeConfigsRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlog.wire.messages.list_config_resources import ListConfigResourcesRequest
from raw_client import RawClient
from waiting import until_true

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    config = {"node.id": "1", "log.retention.hours": "2", "ssl.keystore.password": "secret"}
    with kraftlog.Broker(tmp_path_factory.mktemp("data"), config=config) as one:
        one.create_topic("t", partitions=1)
        one.create_topic("other", partitions=1)
        yield one


@pytest.fixture
def client(broker):
    with RawClient(broker.bootstrap_servers) as one:
        yield one


def describe(client, kind, name, *keys, version=4, synonyms=True):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
    (result,) = client.call(request, version).results
    return result


def alter(client, kind, name, *changes, validate_only=False):
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = client.call(request).responses
    return result.error_code, result.error_message


def entry(client, kind, name, key):
    (one,) = describe(client, kind, name, key).configs
    return one


def test_topic_setting_hides_the_brokers_and_shows_it_as_synonym(client):
    assert alter(client, TOPIC, "t", ("retention.ms", SET, "1234")) == (ErrorCode.NONE, None)
    one = entry(client, TOPIC, "t", "retention.ms")
    assert (one.value, one.config_source) == ("1234", ConfigSource.TOPIC)
    assert alter(client, TOPIC, "t", ("retention.ms", DELETE, None)) == (ErrorCode.NONE, None)
    # Kafka names only log.retention.ms behind retention.ms, so the hours that are in force have no synonym.
    one = entry(client, TOPIC, "t", "retention.ms")
    assert one.value == "7200000"


def test_list_setting_is_appended_to_and_subtracted_from(client):
    assert alter(client, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (ErrorCode.NONE, None)
    assert entry(client, TOPIC, "t", "cleanup.policy").value == "delete,compact"
    assert alter(client, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == (ErrorCode.NONE, None)
    assert entry(client, TOPIC, "t", "cleanup.policy").value == "compact"
    code, message = alter(client, TOPIC, "t", ("retention.ms", APPEND, "1"))
    assert code == ErrorCode.INVALID_CONFIG
    assert "not LIST" in message


def test_cluster_wide_default_reaches_topics_and_broker(client):
    assert alter(client, BROKER, "", ("message.max.bytes", SET, "2000000")) == (ErrorCode.NONE, None)
    one = entry(client, TOPIC, "other", "max.message.bytes")
    assert (one.value, one.config_source) == ("2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    (listed,) = describe(client, BROKER, "", "message.max.bytes").configs
    assert listed.value == "2000000"
    assert alter(client, BROKER, "1", ("message.max.bytes", SET, "3000000")) == (ErrorCode.NONE, None)
    one = entry(client, BROKER, "1", "message.max.bytes")
    assert [(synonym.value, synonym.source) for synonym in one.synonyms] == [
        ("3000000", ConfigSource.DYNAMIC_BROKER),
        ("2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("1048588", ConfigSource.DEFAULT),
    ]


def test_broker_settings_say_what_is_fixed_and_hide_what_is_secret(client):
    assert entry(client, BROKER, "1", "node.id").read_only
    assert not entry(client, BROKER, "1", "log.cleaner.threads").read_only
    secret = entry(client, BROKER, "1", "ssl.keystore.password")
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert all(synonym.value is None for synonym in secret.synonyms)
    assert entry(client, BROKER, "1", "log.retention.hours").config_source == ConfigSource.STATIC_BROKER


def test_broker_settings_beside_the_documented_ones_are_shown_if_their_kind_is_known(tmp_path):
    config = {"log.initial.task.delay.ms": "500", "my.own.key": "secret", "kraftlog.follower.fetches": "python"}
    with kraftlog.Broker(tmp_path, config=config) as one, RawClient(one.bootstrap_servers) as client:
        check_undocumented_settings(client)


def check_undocumented_settings(client):
    internal = entry(client, BROKER, "1", "log.initial.task.delay.ms")
    assert (internal.value, internal.is_sensitive, internal.config_source) == ("500", False, ConfigSource.STATIC_BROKER)
    unknown = entry(client, BROKER, "1", "my.own.key")
    assert (unknown.value, unknown.is_sensitive) == (None, True)
    own = entry(client, BROKER, "1", "kraftlog.follower.fetches")
    assert (own.value, own.is_sensitive) == ("python", False)


@pytest.mark.parametrize("broker_id", ["", "1"])
@pytest.mark.parametrize(
    "key",
    [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
def test_rates_of_replication_are_shown_checked_and_in_no_list_of_all_keys(client, broker_id, key):
    """``DynamicConfig.Broker``: keys that only change at run time."""
    assert not describe(client, BROKER, broker_id, key).configs
    assert alter(client, BROKER, broker_id, (key, SET, "1000000")) == (ErrorCode.NONE, None)
    set_one = entry(client, BROKER, broker_id, key)
    assert (set_one.value, set_one.is_sensitive, set_one.read_only) == ("1000000", False, False)
    assert [synonym.value for synonym in set_one.synonyms] == ["1000000"]
    code, message = alter(client, BROKER, broker_id, (key, SET, "x"))
    assert message == f"Invalid value x for configuration {key}: Not a number of type LONG"
    assert code == ErrorCode.INVALID_REQUEST
    assert alter(client, BROKER, broker_id, (key, DELETE, None)) == (ErrorCode.NONE, None)


def test_settings_of_a_group_name_the_default_that_they_replace(client):
    group = ConfigResourceType.GROUP
    own = (("share.isolation.level", SET, "read_committed"), ("consumer.session.timeout.ms", SET, "50000"))
    assert alter(client, group, "g", *own) == (ErrorCode.NONE, None)
    found = [entry(client, group, "g", key) for key, _, _ in own]
    assert [
        [(synonym.name, synonym.value, synonym.source) for synonym in described.synonyms] for described in found
    ] == [
        [
            ("share.isolation.level", "read_committed", ConfigSource.GROUP),
            ("share.isolation.level", "read_uncommitted", ConfigSource.DEFAULT),
        ],
        [
            ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP),
            ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
        ],
    ]


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_every_version(client, version):
    result = describe(client, TOPIC, "t", version=version, synonyms=False)
    names = [config.name for config in result.configs]
    assert names == sorted(names)
    assert len(names) == 33


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nosuch", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (BROKER, "7", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 7"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (ConfigResourceType.BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (ConfigResourceType.GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (77, "x", ErrorCode.INVALID_REQUEST, "Unsupported resource type: 77"),
    ],
)
def test_describe_configs_refuses_what_is_not_there(client, kind, name, code, message):
    result = describe(client, kind, name)
    assert result.error_code == code
    assert message in result.error_message


@pytest.mark.parametrize(
    ("kind", "name", "change", "code", "message"),
    [
        (TOPIC, "t", ("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG, "Not a number of type LONG"),
        (TOPIC, "nosuch", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (BROKER, "1", ("node.id", SET, "2"), ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically"),
        (BROKER, "1", ("log.cleaner.threads", SET, "3"), ErrorCode.INVALID_REQUEST, "more than double the current"),
        (BROKER, "9", ("num.io.threads", SET, "2"), ErrorCode.INVALID_REQUEST, "expected 1, but received 9"),
        (ConfigResourceType.BROKER_LOGGER, "1", ("no.such", SET, "INFO"), ErrorCode.INVALID_CONFIG, "does not exist"),
        (ConfigResourceType.BROKER_LOGGER, "1", ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG, "DEBUG, ERROR, FATAL"),
        (ConfigResourceType.BROKER_LOGGER, "1", ("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST, "APPEND"),
    ],
)
def test_incremental_alter_configs_refuses_what_kafka_refuses(client, kind, name, change, code, message):
    found_code, found_message = alter(client, kind, name, change)
    assert found_code == code
    assert message in found_message


def test_cleaner_threads_follow_the_setting(client):
    def has_second_thread():
        return any(thread.name == "kafka-log-cleaner-thread-1" for thread in threading.enumerate())

    assert not has_second_thread()
    for value, wanted in (("2", True), ("1", False)):
        code, message = alter(client, BROKER, "1", ("log.cleaner.threads", SET, value))
        assert code == 0, message
        until_true(lambda wanted=wanted: has_second_thread() == wanted)


def test_a_resource_named_twice_is_refused_twice(client):
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name="t")
    responses = client.call(IncrementalAlterConfigsRequest(resources=[resource, resource])).responses
    assert [response.error_code for response in responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_logger_levels_are_those_of_this_process(client):
    name = "kraftlog.api.dispatcher"
    kind = ConfigResourceType.BROKER_LOGGER
    try:
        assert alter(client, kind, "1", (name, SET, "DEBUG")) == (ErrorCode.NONE, None)
        assert logging.getLogger(name).level == logging.DEBUG
        assert entry(client, kind, "1", name).value == "DEBUG"
    finally:
        assert alter(client, kind, "1", (name, DELETE, None)) == (ErrorCode.NONE, None)
    assert logging.getLogger(name).level == logging.NOTSET


def test_alter_configs_replaces_everything(client):
    assert alter(client, TOPIC, "other", ("retention.ms", SET, "5"), ("segment.ms", SET, "600000"))[0] == 0
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="other",
        configs=[AlterConfigsRequest.AlterableConfig(name="segment.ms", value="700000")],
    )
    (result,) = client.call(AlterConfigsRequest(resources=[resource])).responses
    assert result.error_code == ErrorCode.NONE
    assert entry(client, TOPIC, "other", "segment.ms").value == "700000"
    assert entry(client, TOPIC, "other", "retention.ms").config_source != ConfigSource.TOPIC


def test_list_config_resources(client):
    found = client.call(ListConfigResourcesRequest(), 1).config_resources
    assert (TOPIC, "t") in {(resource.resource_type, resource.resource_name) for resource in found}
    assert client.call(ListConfigResourcesRequest(), 0).config_resources == ()
    assert client.call(ListConfigResourcesRequest(resource_types=[99]), 1).error_code == ErrorCode.UNSUPPORTED_VERSION


def replace_settings(client, kind, name, *settings):
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in settings],
    )
    (result,) = client.call(AlterConfigsRequest(resources=[resource])).responses
    return result.error_code, result.error_message


def test_thread_count_out_of_kafkas_bounds_is_refused_by_both_requests(client):
    for kind, name in ((BROKER, "1"), (BROKER, "")):
        code, message = alter(client, kind, name, ("num.io.threads", SET, "17"))
        assert code == ErrorCode.INVALID_REQUEST
        assert "value should not be greater than double the current value 8" in message
        code, message = replace_settings(client, kind, name, ("num.io.threads", "3"))
        assert code == ErrorCode.INVALID_REQUEST
        assert "value should be at least half the current value 8" in message
    assert alter(client, BROKER, "1", ("num.io.threads", SET, "16")) == (ErrorCode.NONE, None)
    assert alter(client, BROKER, "1", ("num.io.threads", SET, "32")) == (ErrorCode.NONE, None)
    assert alter(client, BROKER, "1", ("num.io.threads", DELETE, None)) == (ErrorCode.NONE, None)


def test_key_that_cannot_change_at_run_time_is_refused(client):
    for key, value in (("listeners", "PLAINTEXT://127.0.0.1:1"), ("ssl.client.auth", "required")):
        code, message = alter(client, BROKER, "1", (key, SET, value))
        assert code == ErrorCode.INVALID_REQUEST
        assert f"{key} cannot be changed while this broker runs" in message


@pytest.mark.parametrize("key", ["max.connections", "max.connections.per.ip"])
def test_altered_limit_of_connections_is_in_force_at_once(broker, client, key):
    assert alter(client, BROKER, "", (key, SET, "1")) == (ErrorCode.NONE, None)
    with RawClient(broker.bootstrap_servers) as refused:
        assert refused.is_closed_by_peer()
    assert alter(client, BROKER, "", (key, DELETE, None)) == (ErrorCode.NONE, None)
    with RawClient(broker.bootstrap_servers) as taken:
        assert entry(taken, BROKER, "1", key).value == "2147483647"


def test_one_address_may_have_another_limit_of_connections(broker, client):
    assert alter(client, BROKER, "1", ("max.connections.per.ip.overrides", SET, "127.0.0.1:1,10.0.0.1:7"))[0] == 0
    with RawClient(broker.bootstrap_servers) as refused:
        assert refused.is_closed_by_peer()
    assert alter(client, BROKER, "1", ("max.connections.per.ip.overrides", DELETE, None))[0] == 0


def test_altered_producer_id_expiration_reaches_the_logs(client, monkeypatch):
    built, log_config = [], topic_config.LogConfig
    monkeypatch.setattr(topic_config, "LogConfig", lambda **values: built.append(values) or log_config(**values))
    assert alter(client, BROKER, "", ("producer.id.expiration.ms", SET, "4321"))[0] == 0
    assert {values["producer_id_expiration_ms"] for values in built} == {4321}
    built.clear()
    assert alter(client, BROKER, "", ("producer.id.expiration.ms", DELETE, None))[0] == 0
    assert {values["producer_id_expiration_ms"] for values in built} == {86_400_000}


def test_documentation_is_given_when_it_is_asked_for(client):
    def texts(kind, name, *, is_wanted, version=4):
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_documentation=is_wanted)
        (result,) = client.call(request, version).results
        return {config.name: config.documentation for config in result.configs}

    for kind, name in ((TOPIC, "t"), (BROKER, "1"), (ConfigResourceType.CLIENT_METRICS, "m")):
        assert all(texts(kind, name, is_wanted=True).values()), kind
        assert not any(texts(kind, name, is_wanted=False).values()), kind
    assert "leadership" in texts(BROKER, "1", is_wanted=True)["auto.leader.rebalance.enable"]


def test_client_metrics_setting_is_its_own_synonym(client):
    kind = ConfigResourceType.CLIENT_METRICS
    assert alter(client, kind, "m", ("interval.ms", SET, "5000"))[0] == ErrorCode.NONE
    one = entry(client, kind, "m", "interval.ms")
    found = [(synonym.name, synonym.value, synonym.source) for synonym in one.synonyms]
    assert found == [("interval.ms", "5000", ConfigSource.CLIENT_METRICS)]
    assert not entry(client, kind, "m", "match").synonyms


def test_tiered_storage_is_refused_at_creation_and_later(client):
    topic = CreateTopicsRequest.CreatableTopic(
        name="tiered",
        num_partitions=1,
        replication_factor=1,
        configs=[CreateTopicsRequest.CreatableTopicConfig(name="remote.storage.enable", value="true")],
    )
    (refused,) = client.call(CreateTopicsRequest(topics=[topic])).topics
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    code, message = alter(client, TOPIC, "t", ("remote.storage.enable", SET, "true"))
    assert (code, "Tiered Storage functionality is disabled" in message) == (ErrorCode.INVALID_CONFIG, True)
    assert alter(client, TOPIC, "t", ("remote.storage.enable", SET, "false"))[0] == ErrorCode.NONE
    assert alter(client, TOPIC, "t", ("remote.storage.enable", DELETE, None))[0] == ErrorCode.NONE
