"""Keys and values of records in words: control records, and those of Kafka's own topics as JSON."""

from __future__ import annotations

import argparse
import base64
import json
import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from kraftlog.cli.dump_remote import remote_log_metadata_text
from kraftlog.errors import ProtocolError
from kraftlog.vocabulary import (
    CLUSTER_METADATA_TOPIC,
    CONSUMER_OFFSETS_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from kraftlog.wire.json import message_to_json
from kraftlog.wire.messages.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kraftlog.wire.messages.group_coordinator_records import ConsumerGroupMemberMetadataValue, GroupMetadataValue
from kraftlog.wire.records import (
    decode_control_record,
    decode_coordinator_key,
    decode_coordinator_value,
    decode_metadata_record,
)

__all__ = ["Decoder", "Describe", "control_json", "control_text", "decoder_named", "describe_json", "describe_text"]

# Offset, key and value to what stands for key and payload; None leaves it out.
Decoder: TypeAlias = Callable[[int, bytes | None, bytes | None], tuple[Any, Any]]
# What LogDump asks: offset, key, value, whether a control record, what goes before the first part.
Describe: TypeAlias = Callable[[int, "bytes | None", "bytes | None", bool, str], "str | None"]

_CONTROL_NAMES = {
    "LeaderChangeMessage": "LeaderChange",
    "SnapshotHeaderRecord": "SnapshotHeader",
    "SnapshotFooterRecord": "SnapshotFooter",
    "KRaftVersionRecord": "KRaftVersion",
    "VotersRecord": "KRaftVoters",
}
# One tagged field: tag 0, one byte, null.
_NULL_CLASSIC_MEMBER = b"\x01\x00\x01\xff"
_END_TXN_TYPES = {0: "ABORT", 1: "COMMIT"}
_DECODER_OF_TOPIC = {
    CLUSTER_METADATA_TOPIC: "cluster_metadata",
    CONSUMER_OFFSETS_TOPIC: "offsets",
    TRANSACTION_STATE_TOPIC: "transaction_log",
    SHARE_GROUP_STATE_TOPIC: "share_group_state",
    REMOTE_LOG_METADATA_TOPIC: "remote_log_metadata",
}


def decoder_named(args: argparse.Namespace, topic: str | None) -> Decoder | None:
    """The decoder that the arguments ask for; without one, that of the topic whose directory is dumped.

    As in Kafka's tool the first of several wins.
    """
    asked = {
        "offsets": args.offsets_decoder,
        "transaction_log": args.transaction_log_decoder,
        "cluster_metadata": args.cluster_metadata_decoder,
        "remote_log_metadata": args.remote_log_metadata_decoder,
        "share_group_state": args.share_group_state_decoder,
    }
    name = next((name for name, wanted in asked.items() if wanted), _DECODER_OF_TOPIC.get(topic or ""))
    return None if name is None else _DECODERS[name]


def describe_text(decoder: Decoder | None) -> Describe:
    """Words for the text form."""

    def describe(offset: int, key: bytes | None, value: bytes | None, is_control: bool, before: str) -> str | None:
        if is_control:
            return f" {control_text(key or b'', value or b'')}"
        if decoder is None:
            return None
        decoded_key, payload = decoder(offset, key, value)
        text = ""
        if decoded_key is not None:
            text = f"{before}key: {_kafka_json(decoded_key)}"
            before = " "
        if payload is not None:
            text += f"{before}payload: {_kafka_json(payload)}"
        return text

    return describe


def describe_json(decoder: Decoder | None) -> Describe:
    """Members for the JSON form."""

    def describe(offset: int, key: bytes | None, value: bytes | None, is_control: bool, before: str) -> str | None:
        if is_control:
            return f",{_json(control_json(key or b'', value or b''))[1:-1]}"
        if decoder is None:
            return None
        decoded_key, payload = decoder(offset, key, value)
        return f'{before}"key":{_json(decoded_key)},"value":{_json(payload)}'

    return describe


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _kafka_json(value: Any) -> str:
    """Compact JSON as Kafka prints it; text stays as it is."""
    if isinstance(value, str):
        return value
    text = _json(value)
    if value.get("type") == "CLIENT_QUOTA_RECORD":
        number = value["data"]["value"]
        text = text.replace(f'"value":{_json(number)}', f'"value":{java_double(number)}', 1)
    return text


def java_double(number: float) -> str:
    """A number as Jackson and Java's Double.toString have it: with an exponent from 10 million on and below 0.001."""
    if math.isnan(number):
        return '"NaN"'
    if math.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(float(number))
    # The fewest digits that read back as the same number.
    short = next(text for text in (f"{number:.{digits}e}" for digits in range(1, 18)) if float(text) == number)
    mantissa, _, exponent = short.partition("e")
    return f"{mantissa}E{int(exponent)}"


def metadata_decoder(offset: int, _key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    """A record of the metadata log, which has no key."""
    try:
        record, version = decode_metadata_record(value or b"")
    except ProtocolError as error:
        return None, f"Error at {offset}, skipping. {error}"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(record).__name__)
    return None, {"type": words.upper(), "version": version, "data": message_to_json(record, version)}


def remote_decoder(offset: int, _key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    """A record of __remote_log_metadata, whose key says nothing."""
    try:
        return None, remote_log_metadata_text(value or b"")
    except ProtocolError as error:
        return None, f"Error at offset {offset}, skipping. {error}"


def coordinator_decoder(coordinator: str) -> Decoder:
    """Records of a coordinator's topic: group, transaction or share."""

    def decode(offset: int, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
        if key is None:
            # Kafka's tool ends here, with the records after it unseen.
            return f"Error at offset {offset}, skipping. The record has no key.", None
        try:
            kind, decoded_key = decode_coordinator_key(coordinator, key)
            if decoded_key is None:
                return f"Unknown record type {kind} at offset {offset}, skipping.", None
            described = {"type": str(kind), "data": message_to_json(decoded_key, 0)}
            if value is None:
                return described, "<DELETE>"
            version, decoded = decode_coordinator_value(coordinator, kind, value)
            data = message_to_json(decoded, version)
            if isinstance(decoded, ConsumerGroupMemberMetadataValue) and value.endswith(_NULL_CLASSIC_MEMBER):
                # An empty struct, not null, is the default that Kafka's class leaves out.
                data.setdefault("classicMemberMetadata", None)
            if isinstance(decoded, GroupMetadataValue) and decoded.protocol_type == "consumer":
                _open_consumer_members(data, decoded)
            return described, {"version": str(version), "data": data}
        except ProtocolError as error:
            return f"Error at offset {offset}, skipping. {error}", None

    return decode


_DECODERS: dict[str, Decoder] = {
    "offsets": coordinator_decoder("group"),
    "transaction_log": coordinator_decoder("transaction"),
    "cluster_metadata": metadata_decoder,
    "remote_log_metadata": remote_decoder,
    "share_group_state": coordinator_decoder("share"),
}


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
    """A control record as Kafka's dump has it; one that does not decode, which ends Kafka's tool, with the reason."""
    described = control_json(key, value)
    if "endTxnMarker" in described:
        return f"endTxnMarker: {described['endTxnMarker']} coordinatorEpoch: {described['coordinatorEpoch']}"
    data = described.get("data")
    if data is None:
        return f"controlType: {described['controlType']}"
    name = described["controlType"]
    return f"{name}{':' if name == 'LeaderChange' else ''} {_json(data)}"


def control_json(key: bytes, value: bytes) -> dict[str, Any]:
    """What a control record says."""
    try:
        kind, message = decode_control_record(key, value)
    except ProtocolError as error:
        kind = int.from_bytes(key[2:4], "big", signed=True)
        return {"controlType": f"UNREADABLE({kind}): {error}", "valueBase64": base64.b64encode(value).decode()}
    if message is None:
        return {"controlType": f"UNKNOWN({kind})", "valueBase64": base64.b64encode(value).decode()}
    name = type(message).__name__
    if name == "EndTxnMarker":
        data: Any = message
        return {"endTxnMarker": _END_TXN_TYPES[kind], "coordinatorEpoch": data.coordinator_epoch}
    version = int.from_bytes(value[:2], "big")
    return {"controlType": _CONTROL_NAMES[name], "data": message_to_json(message, version)}
