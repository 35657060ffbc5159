"""Settings as DescribeConfigs shows them: the value in force, where it comes from, and what it hides.

Follows Kafka's ``ConfigHelper`` and ``DynamicBrokerConfig``, oddities included: a topic's setting names only the first
broker key as its synonym, and ``log.retention.hours`` does not show up behind ``log.retention.ms``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

from kraftlog.api.logger_levels import logger_levels
from kraftlog.config_table import (
    ConfigDefinition,
    ConfigType,
    broker_config,
    broker_config_synonyms,
    broker_configs,
    config_description,
    config_text,
    group_configs,
    parse_value,
    topic_config_default,
    topic_config_synonyms,
    topic_configs,
)
from kraftlog.errors import KafkaError
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.describe_configs import DescribeConfigsResponse

if TYPE_CHECKING:
    from kraftlog.controller.image import MetadataImage

__all__ = ["ConfigSource", "ConfigView"]

Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


_CLIENT_METRICS_KEYS = (
    ("interval.ms", ConfigType.INT, "300000"),
    ("match", ConfigType.LIST, ""),
    ("metrics", ConfigType.LIST, ""),
)


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as in the protocol."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigView:
    """The settings of one node at one moment.

    Args:
        node_id: Of this node.
        properties: What server.properties says.
        image: What has been altered since.
        has_synonyms: Whether entries name where their value may come from.
        has_documentation: Whether entries explain their key.
    """

    def __init__(
        self,
        node_id: int,
        properties: Mapping[str, str],
        image: MetadataImage,
        *,
        has_synonyms: bool = True,
        has_documentation: bool = False,
    ) -> None:
        self._image = image
        self._has_synonyms = has_synonyms
        self._has_documentation = has_documentation
        # A request may name 200 000 resources with forty settings each. Resources without settings of their own share
        # the entries of their type, and a resource that is named again gets the entries that it got before.
        self._known: dict[tuple[ConfigResourceType, str], Sequence[Entry]] = {}
        self._node_id = node_id
        # Either key may be given for the other, and Kafka shows both.
        text = str(node_id)
        self._static = {"broker.id": text, "node.id": text, **properties}
        configs = image.configs
        self._dynamic = configs.get(ConfigResourceType.BROKER, text)
        self._dynamic_default = configs.get(ConfigResourceType.BROKER, "")

    def topic(self, name: str) -> Sequence[Entry]:
        """Every setting of a topic."""
        return self._of_resource(ConfigResourceType.TOPIC, name, self._topic)

    def group(self, name: str) -> Sequence[Entry]:
        """Every setting of a group."""
        return self._of_resource(ConfigResourceType.GROUP, name, self._group)

    def client_metrics(self, name: str) -> Sequence[Entry]:
        """Every setting of a client metrics subscription (KIP-714)."""
        return self._of_resource(ConfigResourceType.CLIENT_METRICS, name, self._client_metrics)

    def broker(self) -> Sequence[Entry]:
        """Every setting of this broker."""
        return self._once((ConfigResourceType.BROKER, str(self._node_id)), self._broker)

    def cluster_default(self) -> Sequence[Entry]:
        """What was set for all brokers."""
        return self._once((ConfigResourceType.BROKER, ""), self._cluster_default)

    def loggers(self) -> Sequence[Entry]:
        """The level of every logger of this process."""
        return self._once((ConfigResourceType.BROKER_LOGGER, ""), self._loggers)

    def _of_resource(
        self, kind: ConfigResourceType, name: str, describe: Callable[[Mapping[str, str]], list[Entry]]
    ) -> Sequence[Entry]:
        own = self._image.configs.get(kind, name)
        # No resource of these types has an empty name.
        return self._once((kind, name if own else ""), partial(describe, own))

    def _once(self, key: tuple[ConfigResourceType, str], describe: Callable[[], list[Entry]]) -> Sequence[Entry]:
        entries = self._known.get(key)
        if entries is None:
            entries = self._known[key] = [self._shown(entry) for entry in describe()]
        return entries

    def _shown(self, entry: Entry) -> Entry:
        """An entry with as much as was asked for."""
        if not self._has_synonyms:
            entry = replace(entry, synonyms=())
        if self._has_documentation and entry.config_source is not ConfigSource.DYNAMIC_BROKER_LOGGER:
            entry = replace(entry, documentation=config_description(entry.name))
        return entry

    def _topic(self, own: Mapping[str, str]) -> list[Entry]:
        broker_values = {**self._static, **self._dynamic_default, **self._dynamic}
        entries = []
        for definition in _visible(topic_configs().values()):
            text = own.get(definition.name)
            value = _normal(definition, topic_config_default(definition.name, broker_values) if text is None else text)
            broker_keys = topic_config_synonyms(definition.name)
            synonyms = self._broker_synonyms(broker_keys[0][0]) if broker_keys else []
            if text is not None:
                synonyms.insert(0, Synonym(name=definition.name, value=value, source=ConfigSource.TOPIC))
            entries.append(_entry(definition, value, synonyms, read_only=False))
        return entries

    def _group(self, own: Mapping[str, str]) -> list[Entry]:
        entries = []
        for definition in _visible(group_configs().values()):
            text = own.get(definition.name)
            broker_key = f"group.{definition.name}"
            if broker_key in broker_configs():
                synonyms = self._broker_synonyms(broker_key)
            else:
                default = definition.default_text
                synonyms = [Synonym(name=definition.name, value=default, source=ConfigSource.DEFAULT)]
            if text is not None:
                synonyms.insert(0, Synonym(name=definition.name, value=text, source=ConfigSource.GROUP))
            entries.append(_entry(definition, synonyms[0].value, synonyms, read_only=False))
        return entries

    def _client_metrics(self, own: Mapping[str, str]) -> list[Entry]:
        return [
            Entry(
                name=key,
                value=own.get(key, default),
                config_source=ConfigSource.CLIENT_METRICS if key in own else ConfigSource.DEFAULT,
                config_type=kind,
                synonyms=[Synonym(name=key, value=own[key], source=ConfigSource.CLIENT_METRICS)] if key in own else (),
                documentation=None,
            )
            for key, kind, default in _CLIENT_METRICS_KEYS
        ]

    def _broker(self) -> list[Entry]:
        entries = []
        for definition in _visible(broker_configs().values()):
            synonyms = self._broker_synonyms(definition.name)
            value = None if definition.is_sensitive else _normal(definition, self._broker_value(definition))
            entries.append(_entry(definition, value, synonyms, read_only=not definition.is_dynamic))
        known = {entry.name for entry in entries}
        others = sorted({*self._static, *self._dynamic_default, *self._dynamic} - known)
        return entries + [self._unlisted(name) for name in others]

    def _loggers(self) -> list[Entry]:
        return [
            Entry(
                name=logger,
                value=level,
                config_source=ConfigSource.DYNAMIC_BROKER_LOGGER,
                config_type=ConfigType.STRING,
                documentation=None,
            )
            for logger, level in logger_levels().items()
        ]

    def _cluster_default(self) -> list[Entry]:
        entries = []
        for name, text in sorted(self._dynamic_default.items()):
            definition = broker_config(name)
            sensitive = _is_sensitive(name, definition)
            value = None if sensitive else text
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER
            entries.append(
                Entry(
                    name=name,
                    value=value,
                    read_only=definition is None or not definition.is_dynamic,
                    config_source=source,
                    is_sensitive=sensitive,
                    synonyms=[Synonym(name=name, value=value, source=source)],
                    config_type=ConfigType.UNKNOWN if definition is None else definition.type,
                    documentation=None,
                )
            )
        return entries

    def _broker_value(self, definition: ConfigDefinition) -> str | None:
        for values in (self._dynamic, self._dynamic_default, self._static):
            if definition.name in values:
                return values[definition.name]
        return definition.default_text

    def _broker_synonyms(self, name: str) -> list[Synonym]:
        """Values of a broker key and its kin, strongest first; the first is the key itself (``ConfigHelper``)."""
        definition = broker_config(name)
        sensitive = _is_sensitive(name, definition)
        kin = broker_config_synonyms(name)
        synonyms: list[Synonym] = []
        for values, source in (
            (self._dynamic, ConfigSource.DYNAMIC_BROKER),
            (self._dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self._static, ConfigSource.STATIC_BROKER),
        ):
            synonyms += [
                Synonym(name=key, value=None if sensitive else values[key], source=source)
                for key in kin
                if key in values
            ]
        for key in kin:
            known = broker_configs().get(key)
            if known is not None and not known.required and known.default_text is not None:
                value = None if sensitive else known.default_text
                synonyms.append(Synonym(name=key, value=value, source=ConfigSource.DEFAULT))
        first = next((index for index, synonym in enumerate(synonyms) if synonym.name == name), len(synonyms))
        return synonyms[first:]

    def _unlisted(self, name: str) -> Entry:
        """A key beside the documented ones: the value of one that no table has may be a secret and is never shown."""
        synonyms = self._broker_synonyms(name)
        definition = broker_config(name)
        is_sensitive = _is_sensitive(name, definition)
        if definition is None or is_sensitive:
            value = synonyms[0].value
        else:
            value = _normal(definition, self._broker_value(definition))
        return Entry(
            name=name,
            value=value,
            read_only=definition is None or not definition.is_dynamic,
            config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            is_sensitive=is_sensitive,
            synonyms=synonyms,
            config_type=ConfigType.UNKNOWN if definition is None else definition.type,
            documentation=None,
        )


def _is_sensitive(name: str, definition: ConfigDefinition | None) -> bool:
    """Whether a key's value is never shown. A key that no table has may hold a secret, unless it is kraftlog's own."""
    return not name.startswith("kraftlog.") if definition is None else definition.is_sensitive


def _visible(definitions: Iterable[ConfigDefinition]) -> Iterable[ConfigDefinition]:
    return (definition for definition in definitions if not definition.internal)


def _normal(definition: ConfigDefinition, text: str | None) -> str | None:
    """The text as Kafka prints the parsed value; text that does not parse stands for itself."""
    if text is None:
        return None
    try:
        return (
            text.strip()
            if definition.type is ConfigType.DOUBLE
            else config_text(definition, parse_value(definition, text))
        )
    except KafkaError:
        return text


def _entry(definition: ConfigDefinition, value: str | None, synonyms: list[Synonym], *, read_only: bool) -> Entry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return Entry(
        name=definition.name,
        value=None if definition.is_sensitive else value,
        read_only=read_only,
        config_source=source,
        is_sensitive=definition.is_sensitive,
        synonyms=synonyms,
        config_type=definition.type,
        documentation=None,
    )
