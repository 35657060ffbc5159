"""Settings as Python callers give them: a mapping of Kafka's dotted keys, or keywords with underscores for dots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

__all__ = ["ConfigInput", "config_properties", "config_property"]

ConfigInput: TypeAlias = str | int | float | bool | Sequence[str] | None


def config_property(value: ConfigInput) -> str:
    """A value as a properties file has it, several texts with commas between them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(value)
    return str(value)


def config_properties(config: Mapping[str, ConfigInput] | None, keywords: Mapping[str, ConfigInput]) -> dict[str, str]:
    """Both forms as properties; a keyword goes before the same key of ``config``, and None means not set.

    Raises:
        TypeError: ``config`` is no mapping.
    """
    found: object = config
    if found is not None and not isinstance(found, Mapping):
        message = f"the settings are a mapping or keywords such as client_id='x', not {found!r}"
        raise TypeError(message)
    given = {**(config or {}), **{key.replace("_", "."): value for key, value in keywords.items()}}
    return {key: config_property(value) for key, value in given.items() if value is not None}
