"""For every message and version: the codec in Rust and the straight-line one from the facts agree on any value."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wire_oracle
from kraftlog.types import Uuid
from wire_facts import Version, all_versions, generator, message_classes

INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}


@cache
def scalars(kind: str) -> st.SearchStrategy[Any]:
    if kind in INTEGERS:
        return st.integers(*INTEGERS[kind])
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.one_of(st.just(Uuid.ZERO), st.binary(min_size=16, max_size=16).map(Uuid)),
        "string": st.one_of(st.text(max_size=20), st.integers(100, 20000).map("é".__mul__).filter(fits)),
        "bytes": st.binary(max_size=200),
        "records": st.binary(max_size=200),
    }[kind]


def fits(text: str) -> bool:
    return len(text.encode()) <= 0x7FFF


def values(version: Version, field: dict[str, Any]) -> st.SearchStrategy[Any]:
    kind = field["type"]
    element = kind.removeprefix("[]")
    strategy = structs(version, element) if element[0].isupper() else scalars(element)
    if kind != element:
        # Structs hold lists of structs up to four deep: two of each keeps the largest message drawable.
        strategy = st.lists(strategy, max_size=2 if element[0].isupper() else 3).map(tuple)
    if version.has(field.get("nullable")):
        strategy = st.none() | strategy
    return strategy


@cache
def structs(version: Version, name: str) -> st.SearchStrategy[Any]:
    top = message_classes()[version.name]
    cls = top if name == version.name else getattr(top, name)
    fields = version.fields(name)
    parts = {generator().snake(field["name"]): st.deferred(bound(version, field)) for field in fields}
    if version.flexible:
        known = {field["tag"] for field in fields if version.has(field.get("tagged"))}
        free = [tag for tag in (0, 1, 2, 9, 77, 127, 128, 16384, 2**31 - 2) if tag not in known]
        found = st.dictionaries(st.sampled_from(free), st.binary(max_size=9), max_size=2)
        parts["unknown_tagged_fields"] = found.map(lambda entries: tuple(sorted(entries.items())))
    return st.builds(cls, **parts)


def bound(version: Version, field: dict[str, Any]) -> Any:
    return lambda: values(version, field)


@pytest.mark.parametrize("name", sorted({version.name for version in all_versions()}))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_codecs_agree(name, data):
    version = data.draw(st.sampled_from([version for version in all_versions() if version.name == name]))
    message = data.draw(structs(version, name))
    encoded = wire_oracle.encode(version, message)
    assert message.encode(version.version) == encoded
    decoded = type(message).decode(encoded, version.version)
    assert decoded == message
    assert wire_oracle.decode(version, encoded) == decoded
    assert decoded.encode(version.version) == encoded


def test_fields_of_the_classes_are_those_of_the_facts():
    for version in all_versions():
        top = message_classes()[version.name]
        for struct, fields in version.structs.items():
            cls = top if struct == version.name else getattr(top, struct)
            names = {field.name for field in dataclasses.fields(cls)}
            assert {generator().snake(field["name"]) for field in fields} <= names
