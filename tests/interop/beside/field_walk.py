"""Requests that are plain but for one field: for each field of a request schema, the values that servers get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kraftlog.types import Uuid
from kraftlog.wire.schema import FieldSchema, parse_schema
from kraftlog.wire.struct import Struct

__all__ = ["Variant", "facts_of", "variants"]

NO_TOPIC = Uuid(b"no-topic-has-it!")
_TEXTS = ("", " ", "..", "a/b", "é中", "a\x00b", "nosuch", "b" * 250)
_LIMITS: Mapping[str, tuple[Any, ...]] = {
    "bool": (True,),
    "bytes": (b"", b"\xff" * 9),
    "float64": (float("nan"), -1.0),
    "int8": (-128, 127, -1, 1),
    "int16": (-(1 << 15), (1 << 15) - 1, -1, 1),
    "int32": (-(1 << 31), (1 << 31) - 1, -2, -1, 1),
    "int64": (-(1 << 63), (1 << 63) - 1, -2, -1, 1),
    "records": (b"", b"\x00" * 70),
    "string": _TEXTS,
    "uint16": ((1 << 16) - 1,),
    "uint32": ((1 << 32) - 1,),
    "uuid": (NO_TOPIC, Uuid.ZERO),
}
_PLAIN: Mapping[str, Any] = {"bool": False, "bytes": b"", "float64": 0.0, "records": None, "string": "x"}

Path = tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """One request.

    Attributes:
        label: The field and its value; ``plain`` for the request that has nothing odd.
        make: The request, given the id of the topic that exists.
    """

    label: str
    make: Callable[[Uuid], Any]


def variants(message: Any, version: int, values: Mapping[str, Any]) -> Iterator[Variant]:
    """The plain request first, with one element in each array; then one change at a time.

    Args:
        message: The class of the request.
        version: Of the API.
        values: What plain fields have, by Kafka's name of the field; 0, "x", false or nothing for the others.
    """
    walk = _Walk(message, version, values)
    yield Variant("plain", lambda topic_id: walk.build(message, topic_id, {}))
    for path, label, change in walk.changes(message, ()):
        yield Variant(
            f"{'.'.join(path)} {label}", lambda topic_id, at=path, to=change: walk.build(message, topic_id, {at: to})
        )


def facts_of(value: Any, at: str = "") -> Iterator[tuple[str, int]]:
    """The error codes of a response and the lengths of its arrays, with where they are."""
    if isinstance(value, Struct):
        for field in parse_schema(type(value)):
            yield from facts_of(getattr(value, field.name), f"{at}.{field.name}")
    elif isinstance(value, list | tuple):
        yield f"{at}.length", len(value)
        for index, element in enumerate(value):
            yield from facts_of(element, f"{at}[{index}]")
    elif at.endswith("error_code"):
        yield at, value


def _twice(array: list[Any]) -> list[Any]:
    return array * 2


@dataclass(frozen=True)
class _Walk:
    message: Any
    version: int
    values: Mapping[str, Any]

    def fields(self, struct: Any) -> Iterator[FieldSchema]:
        for field in parse_schema(struct):
            if self.version in field.versions:
                yield field

    def struct(self, field: FieldSchema) -> Any:
        """The class of a field's elements; None if they are not structs."""
        return None if field.element in _LIMITS else getattr(self.message, field.element)

    def build(self, struct: Any, topic_id: Uuid, changed: Mapping[Path, Callable[[Any], Any]], at: Path = ()) -> Any:
        made = {}
        for field in self.fields(struct):
            path = (*at, field.name)
            value = self.plain(field, topic_id, changed, path)
            if field.is_array:
                value = [value]
            if path in changed:
                value = changed[path](value)
            made[field.name] = value
        return struct(**made)

    def plain(self, field: FieldSchema, topic_id: Uuid, changed: Mapping[Path, Any], path: Path) -> Any:
        struct = self.struct(field)
        if struct is not None:
            return self.build(struct, topic_id, changed, path)
        value = topic_id if field.element == "uuid" else self.values.get(field.json_name, _PLAIN.get(field.element, 0))
        element = (*path, "element")
        return changed[element](value) if element in changed else value

    def changes(self, struct: Any, at: Path) -> Iterator[tuple[Path, str, Callable[[Any], Any]]]:
        for field in self.fields(struct):
            path = (*at, field.name)
            nested = self.struct(field)
            if self.version in field.nullable:
                yield path, "null", lambda _: None
            if field.is_array:
                yield path, "empty", lambda _: []
                yield path, "twice", _twice
            if nested is not None:
                yield from self.changes(nested, path)
                continue
            where = (*path, "element") if field.is_array else path
            for value in _LIMITS[field.element]:
                label = f"{value[:1]!r} x {len(value)}" if field.element == "string" and len(value) > 9 else repr(value)
                yield where, f"= {label}", lambda _, to=value: to
