"""Keys and values of records as text: plain, or those of Kafka's own topics as JSON."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from kraftlog.errors import ProtocolError
from kraftlog.wire.json import message_to_json
from kraftlog.wire.messages.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kraftlog.wire.messages.group_coordinator_records import ConsumerGroupMemberMetadataValue, GroupMetadataValue
from kraftlog.wire.records import (
    decode_control_record,
    decode_coordinator_key,
    decode_coordinator_value,
    decode_metadata_record,
)

__all__ = ["Decoder", "control_json", "control_text", "decoder_of", "plain_decoder"]

# Offset, key and value to what stands for key and payload; None leaves it out.
Decoder: TypeAlias = Callable[[int, bytes | None, bytes | None], tuple[Any, Any]]

_CONTROL_NAMES = {
    "LeaderChangeMessage": "LeaderChange",
    "SnapshotHeaderRecord": "SnapshotHeader",
    "SnapshotFooterRecord": "SnapshotFooter",
    "KRaftVersionRecord": "KRaftVersion",
    "VotersRecord": "KRaftVoters",
}
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()
_END_TXN_TYPES = {0: "ABORT", 1: "COMMIT"}


def decoder_of(args: argparse.Namespace) -> Decoder | None:
    """The decoder that the arguments ask for."""
    if args.cluster_metadata_decoder:
        return metadata_decoder
    for coordinator, asked in (
        ("group", args.offsets_decoder),
        ("transaction", args.transaction_log_decoder),
        ("share", args.share_group_state_decoder),
    ):
        if asked:
            return coordinator_decoder(coordinator)
    return None


def plain_decoder(_offset: int, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    """Key and value as text; bytes that are not UTF-8 become U+FFFD."""
    return _java_text(key), _java_text(value)


def _java_text(data: bytes | None) -> str | None:
    """Text as Java's String reads it: a surrogate, whole or cut short, becomes one U+FFFD and not one for each byte."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def metadata_decoder(offset: int, _key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    """A record of the metadata log, which has no key."""
    try:
        record, version = decode_metadata_record(value or b"")
    except ProtocolError as error:
        return None, f"Error at {offset}, skipping. {error}"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(record).__name__)
    return None, {"type": words.upper(), "version": version, "data": message_to_json(record, version)}


def coordinator_decoder(coordinator: str) -> Decoder:
    """Records of a coordinator's topic: group, transaction or share."""

    def decode(offset: int, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
        if key is None:
            return None, f"Error at offset {offset}, skipping. The record has no key."
        try:
            kind, decoded_key = decode_coordinator_key(coordinator, key)
            if decoded_key is None:
                return f"Unknown record type {kind} at offset {offset}, skipping.", None
            described = {"type": str(kind), "data": message_to_json(decoded_key, 0)}
            if value is None:
                return described, "<DELETE>"
            version, decoded = decode_coordinator_value(coordinator, kind, value)
            data = message_to_json(decoded, version)
            if isinstance(decoded, ConsumerGroupMemberMetadataValue):
                # An empty struct, not null, is the default that Kafka's class leaves out.
                data.setdefault("classicMemberMetadata", None)
            if isinstance(decoded, GroupMetadataValue) and decoded.protocol_type == "consumer":
                _open_consumer_members(data, decoded)
            return described, {"version": str(version), "data": data}
        except ProtocolError as error:
            return f"Error at offset {offset}, skipping. {error}", None

    return decode


def _open_consumer_members(data: dict[str, Any], group: GroupMetadataValue) -> None:
    """Puts what consumers keep inside a member's bytes in their place, where it decodes."""
    for described, member in zip(data["members"], group.members, strict=True):
        for name, cls, embedded in (
            ("subscription", ConsumerProtocolSubscription, member.subscription),
            ("assignment", ConsumerProtocolAssignment, member.assignment),
        ):
            version = min(int.from_bytes(embedded[:2], "big", signed=True), cls.VERSIONS[1])
            try:
                described[name] = message_to_json(cls.decode(embedded[2:], version), version)
            except ProtocolError:
                continue


def control_text(key: bytes, value: bytes) -> str:
    """A control record as Kafka's dump has it."""
    described = control_json(key, value)
    if "endTxnMarker" in described:
        return f"endTxnMarker: {described['endTxnMarker']} coordinatorEpoch: {described['coordinatorEpoch']}"
    data = described.get("data")
    if data is None:
        return f"controlType: {described['controlType']}"
    name = described["controlType"]
    return (
        f"{name}{':' if name == 'LeaderChange' else ''} {json.dumps(data, separators=(',', ':'), ensure_ascii=False)}"
    )


def control_json(key: bytes, value: bytes) -> dict[str, Any]:
    """What a control record says."""
    try:
        kind, message = decode_control_record(key, value)
    except ProtocolError as error:
        return {"controlType": f"UNKNOWN(-1): {error}"}
    if message is None:
        return {"controlType": f"UNKNOWN({kind})"}
    name = type(message).__name__
    if name == "EndTxnMarker":
        data: Any = message
        return {"endTxnMarker": _END_TXN_TYPES[kind], "coordinatorEpoch": data.coordinator_epoch}
    version = int.from_bytes(value[:2], "big")
    return {"controlType": _CONTROL_NAMES[name], "data": message_to_json(message, version)}
