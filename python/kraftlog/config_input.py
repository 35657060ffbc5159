"""Settings as Python callers give them: a mapping of Kafka's dotted keys, or keywords with underscores for dots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

__all__ = ["ConfigInput", "config_properties", "config_property"]

ConfigInput: TypeAlias = str | int | float | bool


def config_property(value: ConfigInput) -> str:
    """A value as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def config_properties(config: Mapping[str, ConfigInput] | None, keywords: Mapping[str, ConfigInput]) -> dict[str, str]:
    """Both forms as properties; a keyword goes before the same key of ``config``."""
    properties = {key: config_property(value) for key, value in (config or {}).items()}
    properties.update({key.replace("_", "."): config_property(value) for key, value in keywords.items()})
    return properties
