"""Messages inside records: of the metadata log, of control batches and of the coordinators' topics.

metadata record      uvarint 1 (frame version), uvarint type, uvarint version, body; the record has no key
control record       key: int16 0 (key version), int16 type; value: the version is its first int16
coordinator record   key: int16 type, body in version 0; value: int16 version, body
"""

from __future__ import annotations

import struct
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kraftlog._kraftlog import decode_message
from kraftlog.errors import LocalProtocolError, RemoteProtocolError
from kraftlog.wire.api_table import METADATA_RECORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kraftlog.wire.struct import Buffer, Message

__all__ = [
    "decode_control_record",
    "decode_coordinator_key",
    "decode_coordinator_value",
    "decode_metadata_record",
    "encode_control_record",
    "encode_coordinator_key",
    "encode_coordinator_value",
    "encode_metadata_record",
    "read_frame",
]

_INT16 = struct.Struct(">h")
_CONTROL_KEY = struct.Struct(">hh")
_FRAME_VERSION = 1

# type: class; the numbers are those of a control record's key
CONTROL_RECORDS: Mapping[int, str] = {
    0: "EndTxnMarker",
    1: "EndTxnMarker",
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}
CONTROL_TYPES: Mapping[str, int] = {name: kind for kind, name in CONTROL_RECORDS.items() if kind >= 2}


@cache
def _message_class(module: str, name: str) -> Any:
    return getattr(import_module(f"kraftlog.wire.messages.{module}"), name)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise RemoteProtocolError("a metadata record's frame ends within a varint")


def encode_metadata_record(record: Message, version: int) -> bytes:
    """A record value for the metadata log.

    Raises:
        LocalProtocolError: Not a metadata record, or a value that the version cannot hold.
    """
    if METADATA_RECORDS.get(record.API_KEY, ("",))[0] != type(record).__name__:
        raise LocalProtocolError(f"{type(record).__name__} is not a record of the metadata log")
    return _uvarint(_FRAME_VERSION) + _uvarint(record.API_KEY) + _uvarint(version) + record.encode(version)


def read_frame(value: Buffer) -> tuple[int, int, memoryview]:
    """Type, version and body of a record of the metadata log or of the remote log metadata.

    Raises:
        RemoteProtocolError: The frame is cut short or has another version than 1.
    """
    view = memoryview(value)
    frame_version, position = _read_uvarint(view, 0)
    if frame_version != _FRAME_VERSION:
        raise RemoteProtocolError(f"frame version {frame_version} of a metadata record is not {_FRAME_VERSION}")
    kind, position = _read_uvarint(view, position)
    version, position = _read_uvarint(view, position)
    return kind, version, view[position:]


def decode_metadata_record(value: Buffer) -> tuple[Message, int]:
    """The record and its version.

    Raises:
        RemoteProtocolError: Unknown frame version, type or version, or a body that does not decode.
    """
    kind, version, body = read_frame(value)
    known = METADATA_RECORDS.get(kind)
    if known is None:
        raise RemoteProtocolError(f"metadata record type {kind} is unknown")
    name, low, high = known
    if not low <= version <= high:
        raise RemoteProtocolError(f"{name} has versions {low} to {high}, not {version}")
    message: Message = decode_message(_message_class("metadata_records", name), body, version)
    return message, version


def encode_control_record(message: Message, version: int = 0, *, kind: int | None = None) -> tuple[bytes, bytes]:
    """Key and value of a control record.

    Args:
        message: One of the classes of ``control_records``.
        version: Of the value.
        kind: The type in the key; needed for an EndTxnMarker only (0 abort, 1 commit).

    Raises:
        LocalProtocolError: Not a control record, or one whose type cannot be told.
    """
    name = type(message).__name__
    number = CONTROL_TYPES.get(name) if kind is None else kind
    if number is None or CONTROL_RECORDS.get(number) != name:
        raise LocalProtocolError(f"{name} is not a control record of type {number}")
    value = message.encode(version)
    if name == "EndTxnMarker":
        value = _INT16.pack(version) + value
    return _CONTROL_KEY.pack(0, number), value


def decode_control_record(key: Buffer, value: Buffer) -> tuple[int, Message | None]:
    """The type and the value of a control record; no message for a type that Kafka 4.3.1 does not know.

    Raises:
        RemoteProtocolError: The key or the value does not decode.
    """
    view = memoryview(key)
    if len(view) < _CONTROL_KEY.size:
        raise RemoteProtocolError(f"the key of a control record has {len(view)} bytes, not {_CONTROL_KEY.size}")
    kind = _CONTROL_KEY.unpack_from(view)[1]
    name = CONTROL_RECORDS.get(kind)
    if name is None:
        return kind, None
    data = memoryview(value)
    if len(data) < _INT16.size:
        raise RemoteProtocolError(f"the value of a control record has {len(data)} bytes")
    version = _INT16.unpack_from(data)[0]
    cls = _message_class("control_records", name)
    low, high = cls.VERSIONS
    if name == "EndTxnMarker":  # EndTransactionMarker.java reads a later version as the last it knows
        data, version = data[2:6], min(version, high)
    if not low <= version <= high:
        raise RemoteProtocolError(f"{name} has versions {low} to {high}, not {version}")
    message: Message = decode_message(cls, data, version)
    return kind, message


def encode_coordinator_key(key: Message) -> bytes:
    """A key with its type before it."""
    return _INT16.pack(key.API_KEY) + key.encode(0)


def encode_coordinator_value(value: Message, version: int) -> bytes:
    """A value with its version before it."""
    return _INT16.pack(version) + value.encode(version)


def _coordinator_class(coordinator: str, kind: int, suffix: str) -> Any:
    module = import_module(f"kraftlog.wire.messages.{coordinator}_coordinator_records")
    for name in module.__all__:
        cls = getattr(module, name)
        if name.endswith(suffix) and kind == cls.API_KEY:
            return cls
    return None


def decode_coordinator_key(coordinator: str, key: Buffer) -> tuple[int, Message | None]:
    """The type of a key and the key; no message for an unknown type, which Kafka skips.

    Args:
        coordinator: ``group``, ``transaction`` or ``share``.
        key: The record's key.

    Raises:
        RemoteProtocolError: The key does not decode.
    """
    view = memoryview(key)
    if len(view) < _INT16.size:
        raise RemoteProtocolError(f"the key of a {coordinator} record has {len(view)} bytes")
    kind = _INT16.unpack_from(view)[0]
    cls = _coordinator_class(coordinator, kind, "Key")
    return kind, None if cls is None else decode_message(cls, view[2:], 0)


def decode_coordinator_value(coordinator: str, kind: int, value: Buffer) -> tuple[int, Message]:
    """The version of a value and the value.

    Args:
        coordinator: ``group``, ``transaction`` or ``share``.
        kind: The type in the record's key.
        value: The record's value.

    Raises:
        RemoteProtocolError: The value does not decode or has an unknown version.
    """
    view = memoryview(value)
    cls = _coordinator_class(coordinator, kind, "Value")
    if cls is None or len(view) < _INT16.size:
        raise RemoteProtocolError(f"a {coordinator} record of type {kind} with {len(view)} bytes is unknown")
    version = _INT16.unpack_from(view)[0]
    low, high = cls.VERSIONS
    if not low <= version <= high:
        raise RemoteProtocolError(f"{cls.__name__} has versions {low} to {high}, not {version}")
    return version, decode_message(cls, view[2:], version)
