"""Texts of options to values; every mistake is a ValueError that names the option and what is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = [
    "given_options",
    "read_choice",
    "read_duration_ms",
    "read_flag",
    "read_json",
    "read_names",
    "read_number",
    "read_partition_numbers",
    "read_partition_values",
    "read_storage_options",
]

_INT64_MAX = 2**63 - 1
_PARTITION_MAX = 2**31 - 1
# Spark's own units of times (JavaUtils.timeStringAsMs): a number without one is milliseconds.
_UNIT_MS = {"ms": 1, "": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def given_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in lower case."""
    return {name.lower(): value for name, value in options.items()}


def read_flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """True or false.

    Raises:
        ValueError: Anything else.
    """
    value = given.get(name.lower())
    if value is None:
        return default
    if value.strip().lower() not in {"true", "false"}:
        message = f"option {name} must be true or false, not {value!r}"
        raise ValueError(message)
    return value.strip().lower() == "true"


def read_number(given: Mapping[str, str], name: str, *, least: int) -> int | None:
    """A whole number from ``least`` up to 2**63 - 1; None when it is not given.

    Raises:
        ValueError: No number, or one out of bounds.
    """
    value = given.get(name.lower())
    if value is None:
        return None
    if re.fullmatch(r"[+-]?[0-9]{1,19}", value.strip()) is None:
        message = f"option {name} must be a whole number, not {value!r}"
        raise ValueError(message)
    number = int(value)
    if not least <= number <= _INT64_MAX:
        message = f"option {name} must be between {least} and {_INT64_MAX}, not {number}"
        raise ValueError(message)
    return number


def read_choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of these, whatever the case; the first when it is not given.

    Raises:
        ValueError: None of them.
    """
    value = given.get(name.lower())
    if value is None:
        return choices[0]
    for choice in choices:
        if choice.lower() == value.strip().lower():
            return choice
    message = f"option {name} is {' or '.join(choices)}, not {value!r}"
    raise ValueError(message)


def read_names(given: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Names between commas; None when it is not given.

    Raises:
        ValueError: There is no name in it.
    """
    value = given.get(name.lower())
    if value is None:
        return None
    names = tuple(part for part in map(str.strip, value.split(",")) if part)
    if not names:
        message = f"option {name} names no value: {value!r}"
        raise ValueError(message)
    return names


def read_duration_ms(given: Mapping[str, str], name: str, *, default_ms: int) -> int:
    """Milliseconds of a time such as ``15m``, in Spark's units.

    Raises:
        ValueError: It is no such time.
    """
    value = given.get(name.lower())
    if value is None:
        return default_ms
    match = re.fullmatch(r"([0-9]{1,15}) *([a-z]*)", value.strip().lower())
    if match is None or match[2] not in _UNIT_MS:
        message = f"option {name} must be a time such as 500ms, 30s, 15m, 1h or 1d, not {value!r}"
        raise ValueError(message)
    return int(match[1]) * _UNIT_MS[match[2]]


def read_partition_values(name: str, text: str, *, least: int, example: str) -> dict[tuple[str, int], int]:
    """A number for each partition: ``{"topic": {"0": 23, "1": -1}}``.

    Raises:
        ValueError: It is not of that shape, or a number is below ``least`` or above 2**63 - 1.
    """
    values: dict[tuple[str, int], int] = {}
    for topic, numbers in _topics(name, text, example).items():
        if not isinstance(numbers, dict):
            raise _bad_json(name, text, example)
        for number, value in numbers.items():
            if re.fullmatch(r"[0-9]{1,10}", number) is None or int(number) > _PARTITION_MAX:
                raise _bad_json(name, text, example)
            if type(value) is not int or not least <= value <= _INT64_MAX:
                message = f"option {name}: {value!r} of {topic}-{number} must be a whole number from {least} on"
                raise ValueError(message)
            if (topic, int(number)) in values:
                message = f"option {name} names {topic}-{int(number)} twice"
                raise ValueError(message)
            values[topic, int(number)] = value
    return values


def read_partition_numbers(name: str, text: str, *, example: str) -> tuple[tuple[str, int], ...]:
    """The partitions in ``{"topic": [0, 1]}``, in order of topic and number.

    Raises:
        ValueError: It is not of that shape, or names no partition.
    """
    found: set[tuple[str, int]] = set()
    for topic, numbers in _topics(name, text, example).items():
        if not isinstance(numbers, list):
            raise _bad_json(name, text, example)
        for number in numbers:
            if type(number) is not int or not 0 <= number <= _PARTITION_MAX:
                raise _bad_json(name, text, example)
            found.add((topic, number))
    if not found:
        raise _bad_json(name, text, example)
    return tuple(sorted(found))


def read_storage_options(given: Mapping[str, str]) -> dict[str, Any] | None:
    """The option ``storageOptions``; None when it is not given.

    Raises:
        ValueError: No JSON object. What was given is not in the text, as it may hold credentials.
    """
    text = given.get("storageoptions")
    if text is None:
        return None
    message = 'option storageOptions must be a JSON object such as {"endpoint_url": "http://127.0.0.1:9000"}'
    try:
        options = json.loads(text)
    except ValueError:
        raise ValueError(message) from None
    if not isinstance(options, dict):
        raise ValueError(message)  # noqa: TRY004 - options are texts
    return options


def read_json(name: str, text: str, *, example: str) -> Any:
    """What a JSON text says; a name that an object has twice is an error, as one of the two would be lost.

    Raises:
        ValueError: It is no JSON.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            message = f"option {name} has a name twice: {text}"
            raise ValueError(message)
        return found

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        message = f"option {name} must be JSON such as {example}, not {text!r}: {error}"
        raise ValueError(message) from None


def _topics(name: str, text: str, example: str) -> dict[str, Any]:
    found = read_json(name, text, example=example)
    if not isinstance(found, dict):
        raise _bad_json(name, text, example)
    return found


def _bad_json(name: str, text: str, example: str) -> ValueError:
    return ValueError(f"option {name} must be JSON such as {example}, not {text!r}")
