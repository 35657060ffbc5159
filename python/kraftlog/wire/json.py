"""Messages as Kafka's own JSON converters print and read them.

Names are Kafka's; a uuid is its text form, bytes and records are base64, a tagged field that has its default is
left out, and so is every field that the version lacks. ``QuorumStateData`` is kept on disk in this form.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, TypeVar

from kraftlog.errors import LocalProtocolError, RemoteProtocolError
from kraftlog.types import Uuid
from kraftlog.wire.schema import FieldSchema, parse_schema
from kraftlog.wire.struct import Message

__all__ = ["message_from_json", "message_to_json"]

_M = TypeVar("_M", bound=Message)


def message_to_json(message: Message, version: int) -> dict[str, Any]:
    """A message as the object that ``json.dumps`` takes.

    Raises:
        LocalProtocolError: The message has no such version, or a value that the version cannot hold.
    """
    _check_version(type(message), version)
    return _struct_to_json(message, version)


def message_from_json(cls: type[_M], value: Mapping[str, Any], version: int) -> _M:
    """A message from what ``json.loads`` gave; absent tagged fields have their defaults.

    Raises:
        LocalProtocolError: The message has no such version.
        RemoteProtocolError: A field is missing or has a value that cannot be read.
    """
    _check_version(cls, version)
    message: _M = _struct_from_json(cls, cls, value, version)
    return message


def _check_version(cls: type[Message], version: int) -> None:
    low, high = cls.VERSIONS
    if not low <= version <= high:
        raise LocalProtocolError(f"{cls.__name__} has versions {low} to {high}, not {version}")


def _struct_to_json(struct: Any, version: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    cls: Any = type(struct)
    for field, default in zip(parse_schema(cls), cls.DEFAULTS, strict=True):
        value = getattr(struct, field.name)
        is_default = value == default or (field.is_array and default == () and value is not None and not value)
        if version not in field.versions:
            if not is_default and not field.ignorable:
                raise LocalProtocolError(f"{cls.__name__}.{field.name} cannot be set in version {version}")
        elif version not in field.tagged or not is_default:
            out[field.json_name] = _field_to_json(field, value, version)
    return out


def _field_to_json(field: FieldSchema, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_value_to_json(field.element, item, version) for item in value]
    return _value_to_json(field.element, value, version)


def _value_to_json(kind: str, value: Any, version: int) -> Any:
    if kind == "uuid":
        return str(Uuid(value))
    if kind in {"bytes", "records"}:
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (bool, int, float, str)):
        return value
    return _struct_to_json(value, version)


def _struct_from_json(top: type[Message], cls: Any, value: Any, version: int) -> Any:
    if not isinstance(value, Mapping):
        raise RemoteProtocolError(f"{cls.__name__} is an object, not {value!r}")
    fields: dict[str, Any] = {}
    for field in parse_schema(cls):
        if version not in field.versions:
            continue
        if field.json_name not in value:
            if version in field.tagged:
                continue
            raise RemoteProtocolError(f"{cls.__name__}: field '{field.json_name}' is missing")
        item = value[field.json_name]
        if item is None:
            if version not in field.nullable:
                raise RemoteProtocolError(f"{cls.__name__}: field '{field.json_name}' is null")
            fields[field.name] = None
        elif field.is_array:
            if not isinstance(item, list):
                raise RemoteProtocolError(f"{cls.__name__}: field '{field.json_name}' is a list, not {item!r}")
            fields[field.name] = tuple(_value_from_json(top, field, element, version) for element in item)
        else:
            fields[field.name] = _value_from_json(top, field, item, version)
    return cls(**fields)


def _value_from_json(top: type[Message], field: FieldSchema, value: Any, version: int) -> Any:
    kind = field.element
    try:
        match kind:
            case "bool" if isinstance(value, bool):
                return value
            case "string" if isinstance(value, str):
                return value
            case "uuid" if isinstance(value, str):
                return Uuid.parse(value)
            case "bytes" | "records" if isinstance(value, str):
                return base64.b64decode(value, validate=True)
            case "float64" if isinstance(value, (int, float)):
                return float(value)
            case "int8" | "int16" | "uint16" | "int32" | "uint32" | "int64" if isinstance(value, int):
                return value
    except (ValueError, binascii.Error) as error:
        raise RemoteProtocolError(f"field '{field.json_name}': {error}") from error
    if kind[0].isupper():
        return _struct_from_json(top, getattr(top, kind), value, version)
    raise RemoteProtocolError(f"field '{field.json_name}' is {kind}, not {value!r}")
