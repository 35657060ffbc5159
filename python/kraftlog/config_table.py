"""Kafka's configuration keys: names, types, defaults, limits, and how a value's text is read.

The facts are text constants in :mod:`kraftlog.config_facts` that are parsed on first use, so that importing this
module costs next to nothing. Refusals are :class:`~kraftlog.errors.KafkaError` 40 (INVALID_CONFIG) with the sentence of
Kafka's ``ConfigDef``, which is what people find when they search for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from os.path import abspath
from typing import TYPE_CHECKING, Final

from kraftlog.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "ConfigDefinition",
    "ConfigType",
    "ConfigValue",
    "broker_config",
    "broker_config_synonyms",
    "broker_configs",
    "config_description",
    "config_text",
    "cordoned_log_dirs",
    "group_config",
    "group_configs",
    "is_dynamic_only",
    "parse_value",
    "strip_listener_prefix",
    "topic_config",
    "topic_config_default",
    "topic_config_synonyms",
    "topic_configs",
    "validate_dynamic_broker_configs",
    "validate_topic_configs",
]

ConfigValue = bool | int | float | str | tuple[str, ...] | None

INVALID_CONFIG: Final = 40

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?|[+-]?(NaN|Infinity)", re.ASCII)
_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
_LISTENER_PREFIX = re.compile(r"listener\.name\.([^.]*)\.(.*)", re.DOTALL)
_COMMA = re.compile(r"\s*,\s*")
_INTEGER_BITS: Final = {"SHORT": 16, "INT": 32, "LONG": 64}
_THROTTLED_REPLICAS_FORM: Final = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
_KEY_MATERIAL_PREFIXES: Final = ("ssl.key.password", "ssl.keystore.", "ssl.truststore.")
_JAVA_WHITE_SPACE: Final = "".join(map(chr, range(0x21)))


class ConfigType(IntEnum):
    """The type of a key, numbered as DescribeConfigs sends it."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDefinition:
    """What is known about one key.

    ``default_text`` is the default as Kafka prints it, None for null; ``valid`` is the limit in ``ConfigDef``'s own
    notation, empty when there is none.
    """

    name: str
    type: ConfigType
    default_text: str | None
    valid: str
    importance: str
    internal: bool
    required: bool
    refuses_empty_list: bool
    dynamic_per_broker: bool
    dynamic_cluster_wide: bool

    @property
    def default(self) -> ConfigValue:
        """The default as a value."""
        return None if self.default_text is None else _parse_type(self, self.default_text)

    @property
    def is_list(self) -> bool:
        """Whether IncrementalAlterConfigs may APPEND to it and SUBTRACT from it."""
        return self.type is ConfigType.LIST

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def is_dynamic(self) -> bool:
        """Whether it may change while the broker runs (``!read-only``)."""
        return self.dynamic_per_broker or self.dynamic_cluster_wide


def _parse_facts(text: str) -> dict[str, ConfigDefinition]:
    definitions: dict[str, ConfigDefinition] = {}
    for line in text.splitlines():
        if not line:
            continue
        name, type_name, default, valid, importance, flags = line.split("\t")
        definitions[name] = ConfigDefinition(
            name=name,
            type=ConfigType[type_name],
            default_text=None if default == r"\N" else default,
            valid=valid,
            importance=importance,
            internal="i" in flags,
            required="r" in flags,
            refuses_empty_list="e" in flags,
            dynamic_per_broker="b" in flags,
            dynamic_cluster_wide="c" in flags,
        )
    return definitions


@cache
def broker_configs() -> Mapping[str, ConfigDefinition]:
    """Every broker key, sorted by name."""
    from kraftlog.config_facts import BROKER

    return _parse_facts(BROKER)


@cache
def topic_configs() -> Mapping[str, ConfigDefinition]:
    """Every topic key, sorted by name."""
    from kraftlog.config_facts import TOPIC

    return _parse_facts(TOPIC)


@cache
def group_configs() -> Mapping[str, ConfigDefinition]:
    """Every group key, sorted by name."""
    from kraftlog.config_facts import GROUP

    return _parse_facts(GROUP)


# ``DynamicConfig.Broker``: keys that no file may have, and no list of all keys has.
_DYNAMIC_ONLY: Final[Mapping[str, ConfigDefinition]] = {
    name: ConfigDefinition(
        name=name,
        type=ConfigType.LONG,
        default_text=str((1 << 63) - 1),
        valid="[0,...]",
        importance="MEDIUM",
        internal=False,
        required=False,
        refuses_empty_list=False,
        dynamic_per_broker=False,
        dynamic_cluster_wide=True,
    )
    for name in (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}


def broker_config(name: str) -> ConfigDefinition | None:
    """Look up a broker key; a ``listener.name.<listener>.`` prefix is looked through."""
    found = broker_configs().get(name) or _DYNAMIC_ONLY.get(name)
    return found if found is not None else broker_configs().get(strip_listener_prefix(name))


def is_dynamic_only(name: str) -> bool:
    """Whether a broker key has no effect in a file."""
    return name in _DYNAMIC_ONLY


def topic_config(name: str) -> ConfigDefinition | None:
    """Look up a topic key."""
    return topic_configs().get(name)


def group_config(name: str) -> ConfigDefinition | None:
    """Look up a group key."""
    return group_configs().get(name)


@cache
def _descriptions() -> Mapping[str, str]:
    from kraftlog.config_descriptions import DESCRIPTIONS

    return dict(line.split("\t", 1) for line in DESCRIPTIONS.strip().split("\n"))


def config_description(name: str) -> str | None:
    """One sentence on a key of a broker, topic, group or client metrics subscription; None for an unknown key."""
    return _descriptions().get(name) or _descriptions().get(strip_listener_prefix(name))


def strip_listener_prefix(name: str) -> str:
    """``listener.name.internal.ssl.keystore.type`` -> ``ssl.keystore.type``; other names as they are."""
    match = _LISTENER_PREFIX.fullmatch(name)
    return match.group(2) if match else name


@cache
def _topic_synonyms() -> Mapping[str, tuple[tuple[str, int], ...]]:
    from kraftlog.config_facts import TOPIC_SYNONYMS

    synonyms: dict[str, tuple[tuple[str, int], ...]] = {}
    for line in TOPIC_SYNONYMS.split("\n"):
        name, _, keys = line.partition("\t")
        if name:
            pairs = (key.rpartition("*") for key in keys.split())
            synonyms[name] = tuple((key, int(factor)) for key, _, factor in pairs)
    return synonyms


def topic_config_synonyms(name: str) -> tuple[tuple[str, int], ...]:
    """Broker keys a topic key falls back to, the strongest first, each with its factor to the topic key's unit.

    Source: Kafka's ``ServerTopicConfigSynonyms``.
    """
    return _topic_synonyms().get(name, ())


_BROKER_SYNONYM_FAMILIES: Final = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)


def broker_config_synonyms(name: str) -> tuple[str, ...]:
    """Every key that may set broker key ``name``, the strongest first, itself among them.

    Source: Kafka's ``DynamicBrokerConfig.brokerConfigSynonyms``.
    """
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    for family in _BROKER_SYNONYM_FAMILIES:
        if name in family:
            return family
    base = strip_listener_prefix(name)
    return (name,) if base == name else (name, base)


def topic_config_default(name: str, broker_values: Mapping[str, str]) -> str | None:
    """The text topic key ``name`` has when the topic itself does not set it.

    Args:
        name: A topic key.
        broker_values: What the broker sets explicitly, by broker key; absent keys have their defaults.
    """
    synonyms = topic_config_synonyms(name)
    for key, factor in synonyms:
        if key in broker_values:
            return _scale(broker_values[key], factor)
    for key, factor in synonyms:
        definition = broker_configs()[key]
        if definition.default_text is not None:
            return _scale(definition.default_text, factor)
    definition = topic_configs()[name]
    return definition.default_text


def _scale(text: str, factor: int) -> str:
    if factor == 1:
        return text
    value = int(text)
    return str(value * factor) if value >= 0 else "-1"


def _refuse(name: str, value: object, reason: str) -> KafkaError:
    return KafkaError(INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {reason}")


def _parse_type(definition: ConfigDefinition, text: str) -> ConfigValue:
    """``ConfigDef.parseType``: the text as a value of the key's type, limits not yet looked at."""
    trimmed = text.strip(_JAVA_WHITE_SPACE)
    kind = definition.type
    if kind is ConfigType.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise _refuse(definition.name, text, "Expected value to be either true or false")
        return lowered == "true"
    if kind in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG):
        bits = _INTEGER_BITS[kind.name]
        if _INTEGER.fullmatch(trimmed) and len(trimmed) < 4000:
            value = int(trimmed)
            if -(1 << bits - 1) <= value < 1 << bits - 1:
                return value
        raise _refuse(definition.name, text, f"Not a number of type {kind.name}")
    if kind is ConfigType.DOUBLE:
        if not _DOUBLE.fullmatch(trimmed):
            raise _refuse(definition.name, text, f"Not a number of type {kind.name}")
        return float(trimmed.rstrip("fFdD")) if trimmed[-1] in "fFdD" else float(trimmed)
    if kind is ConfigType.LIST:
        return tuple(dict.fromkeys(_COMMA.split(trimmed))) if trimmed else ()
    return text if kind is ConfigType.PASSWORD else trimmed


def parse_value(definition: ConfigDefinition, text: str) -> ConfigValue:
    """Read the text of a value as Kafka reads it.

    A list's repeated elements are dropped, as Kafka drops them with a warning.

    Raises:
        KafkaError: INVALID_CONFIG; the text is not of the key's type or outside its limits.
    """
    value = _parse_type(definition, text)
    if definition.type is ConfigType.LIST:
        _check_list(definition, value if isinstance(value, tuple) else ())
    elif definition.valid:
        _check_valid(definition, value)
    return value


def _check_list(definition: ConfigDefinition, elements: tuple[str, ...]) -> None:
    name, valid = definition.name, definition.valid
    if valid == _THROTTLED_REPLICAS_FORM:
        if elements != ("*",) and not all(_THROTTLED_REPLICA.fullmatch(element) for element in elements):
            reason = f"{name} must be the literal '*' or a list of replicas in the following format: {valid}"
            raise _refuse(name, f"[{', '.join(elements)}]", reason)
        return
    if not elements and definition.refuses_empty_list:
        msg = f"Configuration '{name}' must not be empty. Valid values include: {valid or 'any non-empty value'}"
        raise KafkaError(INVALID_CONFIG, msg)
    if "" in elements:
        msg = f"Configuration '{name}' values must not be empty."
        raise KafkaError(INVALID_CONFIG, msg)
    if valid:
        allowed = valid.strip("[]").split(", ")
        for element in elements:
            if element not in allowed:
                raise _refuse(name, element, f"String must be one of: {', '.join(allowed)}")


# ``Duration.parse`` of Java: days, then hours, minutes and seconds after a T; at least one of them.
_BY_DURATION: Final = re.compile(
    r"by_duration:P(?=.*\d)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?", re.IGNORECASE
)


def _check_valid(definition: ConfigDefinition, value: ConfigValue) -> None:
    name, valid = definition.name, definition.valid
    if isinstance(value, str):
        folded = valid.startswith("(case insensitive) ")
        allowed = valid.removeprefix("(case insensitive) ").strip("[]").split(", ")
        if value in allowed or (folded and value.upper() in allowed):
            return
        if any(form.startswith("by_duration:") for form in allowed):
            if _BY_DURATION.fullmatch(value):
                return
            reason = (
                f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or"
            )
            raise _refuse(name, value, f"{reason} of the format 'by_duration:<PnDTnHnMn.nS>'.")
        fold = " (case insensitive)" if folded else ""
        raise _refuse(name, value, f"String must be one of{fold}: {', '.join(allowed)}")
    if isinstance(value, tuple) or value is None:
        return
    bounds, _, alternative = valid.partition(" or ")
    low_text, _, high_text = bounds.strip("[]").partition(",...")
    low, high = _bound(low_text), _bound(high_text.removeprefix(","))
    below, above = low is not None and value < low, high is not None and value > high
    if not below and not above:
        return
    if alternative:
        if value != int(alternative):
            raise _refuse(
                name, value, f"Value must be between {low_text} and {high_text[1:]} or equal to {alternative}"
            )
        return
    raise _refuse(
        name, value, f"Value must be at least {low_text}" if below else f"Value must be no more than {high_text[1:]}"
    )


def _bound(text: str) -> float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)


def config_text(definition: ConfigDefinition, value: ConfigValue) -> str | None:
    """A value as the text Kafka would print for it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    del definition
    return str(value)


def validate_topic_configs(configs: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Check a topic's own settings as ``LogConfig.validate`` does.

    Returns:
        The parsed values of the keys given.

    Raises:
        KafkaError: INVALID_CONFIG; an unknown key, a bad value, two settings that cannot be set together, or tiered
            storage, which is not supported.
    """
    definitions = topic_configs()
    for name in configs:
        if name not in definitions:
            msg = f"Unknown topic config name: {name}"
            raise KafkaError(INVALID_CONFIG, msg)
    values = {name: parse_value(definitions[name], text) for name, text in configs.items()}
    if values.get("remote.storage.enable") is True:
        msg = (
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
        raise KafkaError(INVALID_CONFIG, msg)
    least = values.get("min.compaction.lag.ms", definitions["min.compaction.lag.ms"].default)
    most = values.get("max.compaction.lag.ms", definitions["max.compaction.lag.ms"].default)
    if isinstance(least, int) and isinstance(most, int) and least > most:
        msg = f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        raise KafkaError(INVALID_CONFIG, msg)
    return values


def validate_dynamic_broker_configs(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Check settings meant for a running broker, or for all of them, as ``DynamicBrokerConfig`` does.

    Keys no table knows pass: they may belong to a plugin.

    Args:
        configs: Name to text.
        per_broker: Whether they are for one broker (else the cluster-wide default).

    Raises:
        KafkaError: INVALID_CONFIG; a key that does not change at run time or not at that level, or a bad value.
    """
    table = broker_configs()
    fixed = [name for name in configs if name in table and not table[name].is_dynamic]
    if fixed:
        raise _refuse_names("Cannot update these configs dynamically", fixed)
    bare = [name for name in configs if name.startswith(_KEY_MATERIAL_PREFIXES) and name in table]
    if bare:
        what = "These security configs can be dynamically updated only per-listener using the listener prefix"
        raise _refuse_names(what, bare)
    for name, text in configs.items():
        definition = broker_config(name)
        if definition is not None:
            parse_value(definition, text)
    if not per_broker:
        narrow = [name for name in configs if (found := broker_config(name)) is not None and found.dynamic_per_broker]
        if narrow:
            what = "Cannot update these configs at default cluster level, broker id must be specified"
            raise _refuse_names(what, narrow)


def cordoned_log_dirs(text: str, log_dirs: Sequence[str]) -> set[str]:
    """The directories that cordoned.log.dirs names (KIP-1066), as absolute paths.

    Kafka 4.3.1 compares texts, and a relative path then has no effect (KAFKA-20901).

    Args:
        text: The value; ``*`` stands for every directory.
        log_dirs: The entries of log.dirs.

    Raises:
        KafkaError: INVALID_CONFIG; an entry that is not in log.dirs, or one beside ``*``.
    """
    entries = [entry for entry in _COMMA.split(text.strip()) if entry]
    known = {abspath(entry) for entry in log_dirs}
    if "*" in entries:
        if len(entries) > 1:
            raise KafkaError(INVALID_CONFIG, "When cordoned.log.dirs is set to *, it must not contain other values")
        return known
    missing = [entry for entry in entries if abspath(entry) not in known]
    if missing:
        what = "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries"
        raise KafkaError(INVALID_CONFIG, f"{what} : {','.join(missing)}")
    return {abspath(entry) for entry in entries}


def _refuse_names(what: str, names: Iterable[str]) -> KafkaError:
    return KafkaError(INVALID_CONFIG, f"{what}: [{', '.join(names)}]")
