"""The compact text that stands in every message class as ``SCHEMA``, parsed.

One line a field, words separated by blanks:

    name type versions [?nullable] [#tag@tagged] [~] [!]

``name`` is Kafka's own (camelCase); ``type`` is bool, int8 ... float64, uuid, string, bytes, records, the
name of a nested class, or ``[]`` and one of these. Version ranges are inclusive: ``3+`` has no end, ``0-12``
has. ``~`` (ignorable) lets a value that is not the default be left out where the version lacks the field;
``!`` keeps the field's old encoding in flexible versions (the client id of a request header).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftlog.wire.struct import Struct

__all__ = ["FieldSchema", "parse_schema"]

_END = 32767


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Inclusive on both ends."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


_NONE = VersionRange(0, -1)


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """One field of a struct.

    Args:
        name: Attribute of the class.
        json_name: Kafka's name.
        element: Type without ``[]``.
        is_array: Whether the type began with ``[]``.
        versions: Where the field exists.
        nullable: Where it may be null.
        tag: Its tag, or -1.
        tagged: Where it is a tagged field.
        ignorable: Whether a version without the field may drop a value.
        never_flexible: Whether it keeps the old encoding in flexible versions.
    """

    name: str
    json_name: str
    element: str
    is_array: bool
    versions: VersionRange
    nullable: VersionRange = _NONE
    tag: int = -1
    tagged: VersionRange = _NONE
    ignorable: bool = False
    never_flexible: bool = False


def _parse_range(text: str) -> VersionRange:
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), _END)
    low, high = text.split("-")
    return VersionRange(int(low), int(high))


def _parse_line(line: str, name: str) -> FieldSchema:
    json_name, kind, versions, *rest = line.split()
    nullable, tag, tagged, ignorable, never_flexible = _NONE, -1, _NONE, False, False
    for word in rest:
        if word.startswith("?"):
            nullable = _parse_range(word[1:])
        elif word.startswith("#"):
            number, _, where = word[1:].partition("@")
            tag, tagged = int(number), _parse_range(where)
        elif word == "~":
            ignorable = True
        elif word == "!":
            never_flexible = True
    return FieldSchema(
        name,
        json_name,
        kind.removeprefix("[]"),
        kind.startswith("[]"),
        _parse_range(versions),
        nullable,
        tag,
        tagged,
        ignorable,
        never_flexible,
    )


@cache
def parse_schema(cls: type[Struct]) -> tuple[FieldSchema, ...]:
    """The fields of a message or nested struct, in the order of the wire."""
    return tuple(map(_parse_line, cls.SCHEMA.splitlines(), cls.FIELDS))
