"""Answers and words: as an Apache Kafka 4.3.1 node was seen to give them to the same requests."""

from __future__ import annotations

import pytest

from kraftlog.wire.messages.alter_configs import AlterConfigsRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlog.wire.messages.metadata_records import ConfigRecord
from metadata_fixture import one_broker

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32


@pytest.fixture
def cluster():
    cluster = one_broker()
    cluster.create("t")
    return cluster


def resource(resource_type, name, *configs):
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ],
    )


def change(cluster, resource_type, name, *configs, **options):
    request = IncrementalAlterConfigsRequest(resources=[resource(resource_type, name, *configs)], **options)
    result = cluster.run(cluster.core.incremental_alter_configs(request)).responses[0]
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result.error_code, result.error_message


def replace(cluster, resource_type, name, *configs, **options):
    one = AlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in configs],
    )
    result = cluster.run(cluster.core.alter_configs(AlterConfigsRequest(resources=[one], **options))).responses[0]
    return result.error_code, result.error_message


def test_set_writes_a_record_only_when_the_value_changes(cluster):
    assert change(cluster, TOPIC, "t", ("retention.ms", SET, "77")) == (0, None)
    assert cluster.records == [ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="77")]
    assert change(cluster, TOPIC, "t", ("retention.ms", SET, "77")) == (0, None)
    assert cluster.records == []
    assert cluster.delta is not None


def test_delete_of_what_is_not_set_is_no_error(cluster):
    change(cluster, TOPIC, "t", ("retention.ms", SET, "77"))
    assert change(cluster, TOPIC, "t", ("retention.ms", DELETE, "")) == (0, None)
    assert cluster.records == [ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None)]
    assert change(cluster, TOPIC, "t", ("unknown", DELETE, None)) == (0, None)
    assert cluster.image.configs.get(TOPIC, "t") == {}


def test_append_and_subtract_begin_with_the_value_in_effect(cluster):
    assert change(cluster, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert cluster.image.configs.get(TOPIC, "t") == {"cleanup.policy": "delete,compact"}
    assert change(cluster, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert change(cluster, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
    assert cluster.image.configs.get(TOPIC, "t") == {"cleanup.policy": "compact"}


def test_validate_only_writes_nothing(cluster):
    assert change(cluster, TOPIC, "t", ("retention.ms", SET, "77"), validate_only=True) == (0, None)
    assert change(cluster, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True)[0] == 40
    assert cluster.image.configs.get(TOPIC, "t") == {}


@pytest.mark.parametrize(
    ("target", "config", "expected"),
    [
        ((TOPIC, "nope"), ("retention.ms", SET, "7"), (3, "The topic 'nope' does not exist.")),
        ((TOPIC, ""), ("retention.ms", SET, "7"), (42, "Default topic resources are not allowed.")),
        ((TOPIC, "t"), ("foo", SET, "1"), (40, "Unknown topic config name: foo")),
        (
            (TOPIC, "t"),
            ("retention.ms", SET, "x"),
            (40, "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ),
        ((TOPIC, "t"), ("retention.ms", SET, None), (42, "Null value not supported for : retention.ms")),
        (
            (TOPIC, "t"),
            ("retention.ms", APPEND, "4"),
            (40, "Can't APPEND to key retention.ms because its type is not LIST."),
        ),
        (
            (TOPIC, "t"),
            ("retention.ms", SUBTRACT, "4"),
            (40, "Can't SUBTRACT to key retention.ms because its type is not LIST."),
        ),
        ((BROKER, "x"), ("message.max.bytes", SET, "2000000"), (42, "Node id must be an integer, but it is: x")),
        ((BROKER, "9"), ("message.max.bytes", SET, "2000000"), (102, "No broker with id 9 found.")),
        ((BROKER, ""), ("log.dirs", SET, "/x"), (42, "Cannot update these configs dynamically: [log.dirs]")),
        (
            (BROKER, ""),
            ("log.retention.ms", SET, "abc"),
            (42, "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"),
        ),
        (
            (BROKER, "1"),
            ("log.cleaner.threads", APPEND, "1"),
            (40, "Config value append is not allowed for config key: log.cleaner.threads"),
        ),
        (
            (BROKER, ""),
            ("min.insync.replicas", DELETE, None),
            (40, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
        ),
        (
            (BROKER, "1"),
            ("min.insync.replicas", SET, "1"),
            (40, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ),
        ((0, "q"), ("a", SET, "1"), (42, "Unknown resource type 0")),
        ((METRICS, ""), ("interval.ms", SET, "1000"), (42, "Subscription name can't be empty")),
        (
            (METRICS, "m"),
            ("interval.ms", SET, "1"),
            (42, "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        ),
        ((METRICS, "m"), ("other", SET, "1"), (42, "Unknown client metrics configuration: other")),
        *(
            ((METRICS, "m"), (name, SET, "a,,b"), (40, f"Configuration '{name}' values must not be empty."))
            for name in ("metrics", "match")
        ),
        *(
            ((METRICS, "m"), ("match", SET, f"client_id=a,{text}"), (40, f"Illegal client matching pattern: {text}"))
            for text in (
                "nope=x",
                "client_id",
                "client_id=",
                "client_id=a=b",
                "client_id=(",
                "client_id=*",
                "client_id=[a",
            )
        ),
        ((GROUP, ""), ("consumer.session.timeout.ms", SET, "50000"), (42, "Default group resources are not allowed.")),
        ((GROUP, "g"), ("foo", SET, "1"), (40, "Unknown group config name: foo")),
        (
            (GROUP, "g"),
            ("share.auto.offset.reset", SET, "later"),
            (
                40,
                "Invalid value later for configuration share.auto.offset.reset: Invalid value `later` for "
                "configuration share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format "
                "'by_duration:<PnDTnHnMn.nS>'.",
            ),
        ),
        (
            (GROUP, "g"),
            ("consumer.session.timeout.ms", SET, "5"),
            (
                40,
                "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
            ),
        ),
        (
            (GROUP, "g"),
            ("consumer.session.timeout.ms", SET, "99999999"),
            (40, "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms"),
        ),
        ((TOPIC, "t"), ("retention.ms", 9, "4"), (42, "Unknown operation type 9")),
    ],
)
def test_change_is_refused_with_kafkas_code_and_words(cluster, target, config, expected):
    assert change(cluster, *target, config) == expected
    assert not cluster.records


def test_other_resources_take_their_settings(cluster):
    for target, config in (
        ((BROKER, "1"), ("message.max.bytes", SET, "2000000")),
        ((BROKER, ""), ("message.max.bytes", SET, "2000000")),
        ((BROKER, ""), ("foo.bar", SET, "q")),
        ((BROKER, ""), ("min.insync.replicas", SET, "2")),
        ((METRICS, "m"), ("interval.ms", SET, "1000")),
        ((METRICS, "m"), ("match", SET, r"client_id=(a|b)+, client_software_name=\p{Alpha}[[a]]*")),
        ((METRICS, "m"), ("match", SET, "")),
        ((GROUP, "g"), ("consumer.session.timeout.ms", SET, "50000")),
    ):
        assert change(cluster, *target, config) == (0, None)
        assert cluster.image.configs.get(*target)[config[0]] == config[2]


def test_same_key_or_resource_twice_is_refused(cluster):
    assert change(cluster, TOPIC, "t", ("retention.ms", SET, "4"), ("retention.ms", SET, "5")) == (
        42,
        "Error due to duplicate config keys",
    )
    one = resource(TOPIC, "t", ("retention.ms", SET, "4"))
    request = IncrementalAlterConfigsRequest(resources=[one, one])
    responses = cluster.run(cluster.core.incremental_alter_configs(request)).responses
    assert [(two.error_code, two.error_message) for two in responses] == [
        (42, "Each resource must appear at most once.")
    ] * 2


def test_legacy_alter_configs_replaces_everything(cluster):
    change(cluster, TOPIC, "t", ("retention.ms", SET, "4"), ("cleanup.policy", SET, "compact"))
    assert replace(cluster, TOPIC, "t", ("retention.ms", "99")) == (0, None)
    assert cluster.image.configs.get(TOPIC, "t") == {"retention.ms": "99"}
    assert replace(cluster, TOPIC, "t") == (0, None)
    assert cluster.image.configs.get(TOPIC, "t") == {}
    assert replace(cluster, TOPIC, "t", ("retention.ms", None)) == (42, "Null value not supported for : retention.ms")
    assert replace(cluster, TOPIC, "t", ("retention.ms", "1"), ("retention.ms", "2")) == (
        42,
        "Error due to duplicate config keys",
    )
    assert replace(cluster, BROKER, "") == (
        40,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )


def test_cordoned_directories_need_a_metadata_version_that_has_a_place_for_them(cluster):
    assert change(cluster, BROKER, "1", ("cordoned.log.dirs", SET, "/a")) == (0, None)
    cluster.image.features["metadata.version"] = 29
    refusal = (
        40,
        "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0",
    )
    assert change(cluster, BROKER, "1", ("cordoned.log.dirs", SET, "")) == refusal
    assert change(cluster, BROKER, "1", ("cordoned.log.dirs", DELETE, None)) == refusal
    assert replace(cluster, BROKER, "1", ("message.max.bytes", "77")) == refusal, "it would delete the other one"
    assert change(cluster, BROKER, "1", ("message.max.bytes", SET, "77")) == (0, None)
