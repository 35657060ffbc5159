"""Configuration keys: what Kafka 4.3.1 accepts, refuses and says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from kraftlog import config_table
from kraftlog.config_descriptions import DESCRIPTIONS
from kraftlog.errors import KafkaError

ROOT = Path(__file__).resolve().parents[2]
INVALID_CONFIG = 40


def test_facts_are_what_the_generator_makes() -> None:
    generator = runpy.run_path(str(ROOT / ".ci" / "generate_config_table.py"))
    assert generator["TARGET"].read_text(encoding="utf-8") == generator["generate"](), "run the generator"


def test_every_default_lies_within_its_limits() -> None:
    for table in (config_table.broker_configs(), config_table.topic_configs(), config_table.group_configs()):
        for definition in table.values():
            if definition.default_text is not None:
                value = config_table.parse_value(definition, definition.default_text)
                assert definition.type is config_table.ConfigType.DOUBLE or (
                    config_table.config_text(definition, value) == definition.default_text
                )


# Key, text, and the sentence Kafka's LogConfig.validate refuses it with (None: accepted).
TOPIC_ROWS: list[tuple[str, str, str | None]] = [
    ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", " 5 ", None),
    ("segment.bytes", "1", "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
    (
        "segment.bytes",
        "3000000000",
        "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT",
    ),
    (
        "cleanup.policy",
        "delete,foo",
        "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    ("cleanup.policy", "", None),
    ("cleanup.policy", "delete,delete", None),
    ("cleanup.policy", "delete,,compact", "Configuration 'cleanup.policy' values must not be empty."),
    (
        "compression.type",
        "foo",
        "Invalid value foo for configuration compression.type: "
        "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        "compression.gzip.level",
        "0",
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    ("compression.gzip.level", "-1", None),
    (
        "compression.zstd.level",
        "23",
        "Invalid value 23 for configuration compression.zstd.level: Value must be no more than 22",
    ),
    (
        "preallocate",
        "yes",
        "Invalid value yes for configuration preallocate: Expected value to be either true or false",
    ),
    ("preallocate", "TRUE", None),
    (
        "min.cleanable.dirty.ratio",
        "1.5",
        "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        "min.cleanable.dirty.ratio",
        "x",
        "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
    ),
    (
        "leader.replication.throttled.replicas",
        "a:b",
        "Invalid value [a:b] for configuration leader.replication.throttled.replicas: "
        "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
    ("leader.replication.throttled.replicas", "1:2,3:4", None),
    ("leader.replication.throttled.replicas", "*", None),
    ("leader.replication.throttled.replicas", "", None),
    ("nosuch", "1", "Unknown topic config name: nosuch"),
    ("min.insync.replicas", "5.0", "Invalid value 5.0 for configuration min.insync.replicas: Not a number of type INT"),
    ("flush.ms", "+5", None),
]


@pytest.mark.parametrize(("name", "text", "message"), TOPIC_ROWS)
def test_topic_config_is_judged_as_kafka_judges_it(name: str, text: str, message: str | None) -> None:
    if message is None:
        config_table.validate_topic_configs({name: text})
        return
    with pytest.raises(KafkaError) as raised:
        config_table.validate_topic_configs({name: text})
    assert raised.value.code == INVALID_CONFIG
    assert raised.value.message == message


def test_compaction_lags_that_cross_are_refused() -> None:
    with pytest.raises(KafkaError) as raised:
        config_table.validate_topic_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
    assert raised.value.message == (
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    )


DYNAMIC_ROWS: list[tuple[str, str, bool, str | None]] = [
    ("zookeeper.connect", "x", True, None),
    ("node.id", "1", True, "Cannot update these configs dynamically: [node.id]"),
    ("log.retention.hours", "4", False, "Cannot update these configs dynamically: [log.retention.hours]"),
    (
        "ssl.keystore.location",
        "x",
        True,
        "These security configs can be dynamically updated only per-listener using the listener prefix: "
        "[ssl.keystore.location]",
    ),
    ("listener.name.x.ssl.keystore.location", "x", True, None),
    (
        "listeners",
        "PLAINTEXT://:1",
        False,
        "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
    ),
    ("listeners", "PLAINTEXT://:1", True, None),
    ("num.io.threads", "x", True, "Invalid value x for configuration num.io.threads: Not a number of type INT"),
]


@pytest.mark.parametrize(("name", "text", "per_broker", "message"), DYNAMIC_ROWS)
def test_dynamic_broker_config_is_judged_as_kafka_judges_it(
    name: str, text: str, per_broker: bool, message: str | None
) -> None:
    if message is None:
        config_table.validate_dynamic_broker_configs({name: text}, per_broker=per_broker)
        return
    with pytest.raises(KafkaError) as raised:
        config_table.validate_dynamic_broker_configs({name: text}, per_broker=per_broker)
    assert raised.value.message == message


def test_topic_default_follows_the_strongest_broker_key() -> None:
    assert config_table.topic_config_default("retention.ms", {}) == "604800000"
    assert config_table.topic_config_default("retention.ms", {"log.retention.hours": "2"}) == "7200000"
    assert config_table.topic_config_default("retention.ms", {"log.retention.hours": "-1"}) == "-1"
    strongest = {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}
    assert config_table.topic_config_default("retention.ms", strongest) == "4"
    assert config_table.topic_config_default("max.message.bytes", {"message.max.bytes": "7"}) == "7"
    assert config_table.topic_config_default("leader.replication.throttled.replicas", {}) == ""


def test_flags() -> None:
    password = config_table.broker_config("ssl.keystore.password")
    assert password is not None
    assert password.is_sensitive
    assert password.is_dynamic
    node_id = config_table.broker_config("node.id")
    assert node_id is not None
    assert not node_id.is_dynamic
    prefixed = config_table.broker_config("listener.name.internal.ssl.keystore.type")
    assert prefixed is not None
    assert prefixed.name == "ssl.keystore.type"
    policy = config_table.topic_config("cleanup.policy")
    assert policy is not None
    assert policy.is_list
    assert policy.default == ("delete",)
    assert config_table.broker_config_synonyms("log.retention.hours")[0] == "log.retention.ms"


def test_every_key_has_a_description():
    tables = (config_table.broker_configs(), config_table.topic_configs(), config_table.group_configs())
    keys = {name for table in tables for name in table if not table[name].internal} | {
        "interval.ms",
        "match",
        "metrics",
    }
    told = dict(line.split("\t") for line in DESCRIPTIONS.strip().split("\n"))
    assert keys - told.keys() == set()
    internal = {name for table in tables for name in table if table[name].internal}
    assert told.keys() - keys <= internal
    for name, sentence in told.items():
        assert sentence.endswith("."), name
        assert sentence[0].isupper() or not sentence[0].isalpha(), name
    assert config_table.config_description("listener.name.x.ssl.keystore.type") == told["ssl.keystore.type"]
    assert config_table.config_description("no.such.key") is None


def test_tiered_storage_of_a_topic_is_refused():
    config_table.validate_topic_configs({"remote.storage.enable": "false", "local.retention.ms": "5"})
    with pytest.raises(KafkaError, match="Tiered Storage functionality is disabled in the broker") as caught:
        config_table.validate_topic_configs({"remote.storage.enable": "true"})
    assert caught.value.code == 40
