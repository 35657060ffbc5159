"""Decode and encode messages by their schema."""

from __future__ import annotations

import struct
from typing import Any

from kraftlog.errors import LocalProtocolError, RemoteProtocolError
from kraftlog.types import Uuid
from kraftlog.wire.schema import parse_schema

_FIXED = {k: struct.Struct(f) for k, f in {"bool": ">?", "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}.items()}


class _Reader:
    def __init__(self, buffer: Any) -> None:
        self.view = memoryview(buffer)
        self.position = 0

    def take(self, count: int) -> memoryview:
        if count < 0 or self.position + count > len(self.view):
            raise RemoteProtocolError(f"{count} bytes wanted at position {self.position}, {len(self.view) - self.position} are left")
        self.position += count
        return self.view[self.position - count : self.position]

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise RemoteProtocolError("varint is longer than 5 bytes")


def _check(cls: Any, version: int) -> bool:
    low, high = cls.VERSIONS
    if not low <= version <= high:
        raise LocalProtocolError(f"{cls.__name__} has versions {low} to {high}, not {version}")
    return cls.FLEXIBLE_VERSIONS is not None and version >= cls.FLEXIBLE_VERSIONS[0]


def decode_message(cls: Any, buffer: Any, version: int) -> Any:
    """Read one message that fills the buffer."""
    message, position = decode_prefix(cls, buffer, version)
    if position != len(memoryview(buffer)):
        raise RemoteProtocolError(f"{cls.__name__} v{version}: {len(memoryview(buffer)) - position} bytes left over")
    return message


def decode_prefix(cls: Any, buffer: Any, version: int) -> tuple[Any, int]:
    """Read one message; also where it ended."""
    flexible = _check(cls, version)
    reader = _Reader(buffer)
    return _read_struct(cls, cls, reader, version, flexible), reader.position


def _read_struct(top: Any, cls: Any, r: _Reader, version: int, flexible: bool) -> Any:
    values: dict[str, Any] = {}
    tags = {}
    for field in parse_schema(cls):
        if version in field.tagged:
            tags[field.tag] = field
        elif version in field.versions:
            values[field.name] = _read_field(top, field, r, version, flexible and not field.never_flexible)
    if flexible:
        unknown = []
        for _ in range(r.uvarint()):
            tag, size = r.uvarint(), r.uvarint()
            if tag in tags:
                values[tags[tag].name] = _read_field(top, tags[tag], r, version, True)
            else:
                unknown.append((tag, bytes(r.take(size))))
        values["unknown_tagged_fields"] = tuple(unknown)
    return cls(**values)


def _read_field(top: Any, field: Any, r: _Reader, version: int, flexible: bool) -> Any:
    nullable = version in field.nullable
    if field.is_array:
        count = r.uvarint() - 1 if flexible else _FIXED["int32"].unpack(r.take(4))[0]
        if count < 0:
            if nullable:
                return None
            raise RemoteProtocolError(f"{field.name} was null")
        if count > len(r.view) - r.position:
            raise RemoteProtocolError(f"{field.name}: {count} elements cannot be in what is left")
        return tuple(_read_value(top, field.element, r, version, flexible, False, field.name) for _ in range(count))
    return _read_value(top, field.element, r, version, flexible, nullable, field.name)


def _read_value(top: Any, kind: str, r: _Reader, version: int, flexible: bool, nullable: bool, name: str) -> Any:
    if kind in _FIXED:
        fixed = _FIXED[kind]
        return fixed.unpack(r.take(fixed.size))[0]
    if kind == "uuid":
        return Uuid(r.take(16))
    if kind in ("string", "bytes", "records"):
        if flexible:
            size = r.uvarint() - 1
        else:
            fixed = _FIXED["int16" if kind == "string" else "int32"]
            size = fixed.unpack(r.take(fixed.size))[0]
        if size < 0:
            if nullable:
                return None
            raise RemoteProtocolError(f"{name} was null")
        data = r.take(size)
        return data if kind == "records" else bytes(data) if kind == "bytes" else str(data, "utf-8", "replace")
    if nullable and r.take(1)[0] >= 128:
        return None
    return _read_struct(top, getattr(top, kind), r, version, flexible)


def encode_message(message: Any, version: int) -> bytes:
    """The bytes of one message."""
    return b"".join(bytes(part) for part in encode_parts(message, version))


def encode_parts(message: Any, version: int) -> list[Any]:
    """The bytes of one message; values of type records stay items of their own."""
    cls = type(message)
    out: list[Any] = [bytearray()]
    _write_struct(cls, message, out, version, _check(cls, version))
    return [part for part in out if len(part)]


def _uvarint(out: list[Any], value: int) -> None:
    while value > 127:
        out[-1].append(value & 127 | 128)
        value >>= 7
    out[-1].append(value)


def _write_struct(top: Any, value: Any, out: list[Any], version: int, flexible: bool) -> None:
    tagged = []
    cls = type(value)
    for field, default in zip(parse_schema(cls), cls.DEFAULTS, strict=True):
        item = getattr(value, field.name)
        if version in field.tagged:
            if item != default and not (field.is_array and default == () and item is not None and len(item) == 0):
                tagged.append((field.tag, field, item))
        elif version in field.versions:
            _write_field(top, field, item, out, version, flexible and not field.never_flexible)
        elif not field.ignorable and item != default:
            raise LocalProtocolError(f"{cls.__name__}.{field.name} cannot be set in version {version}")
    if flexible:
        tagged += [(tag, None, data) for tag, data in value.unknown_tagged_fields]
        _uvarint(out, len(tagged))
        for tag, field, item in sorted(tagged, key=lambda entry: entry[0]):
            body: list[Any] = [bytearray()]
            if field is None:
                body[0] += item
            else:
                _write_field(top, field, item, body, version, True)
            data = b"".join(bytes(part) for part in body)
            _uvarint(out, tag)
            _uvarint(out, len(data))
            out[-1].extend(data)


def _write_field(top: Any, field: Any, item: Any, out: list[Any], version: int, flexible: bool) -> None:
    nullable = version in field.nullable
    if item is None and not nullable:
        raise LocalProtocolError(f"{field.name} cannot be null in version {version}")
    if field.is_array:
        count = -1 if item is None else len(item)
        if flexible:
            _uvarint(out, count + 1)
        else:
            out[-1].extend(_FIXED["int32"].pack(count))
        for element in item or ():
            _write_value(top, field.element, element, out, version, flexible, False)
    else:
        _write_value(top, field.element, item, out, version, flexible, nullable)


def _write_value(top: Any, kind: str, item: Any, out: list[Any], version: int, flexible: bool, nullable: bool) -> None:
    if kind in _FIXED:
        out[-1].extend(_FIXED[kind].pack(item))
    elif kind == "uuid":
        out[-1].extend(item)
    elif kind in ("string", "bytes", "records"):
        data = item.encode("utf-8", "replace") if kind == "string" and item is not None else item
        size = -1 if data is None else memoryview(data).nbytes
        if flexible:
            _uvarint(out, size + 1)
        else:
            out[-1].extend(_FIXED["int16" if kind == "string" else "int32"].pack(size))
        if kind == "records" and data is not None:
            out.append(data)
            out.append(bytearray())
        elif data is not None:
            out[-1].extend(data)
    else:
        if nullable:
            out[-1].append(255 if item is None else 1)
        if item is not None:
            _write_struct(top, item, out, version, flexible)
