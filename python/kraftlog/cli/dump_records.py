"""Batches and records as JSON objects, in the names of Kafka's own dumps."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from kraftlog._kraftlog import RecordBatch
from kraftlog.cli.dump_decoders import control_json

__all__ = ["batch_json", "record_json", "to_json"]


def to_json(value: Any) -> str:
    """Compact JSON as Kafka prints it; text stays as it is."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def batch_json(batch: RecordBatch, position: int) -> dict[str, Any]:
    """A batch's header."""
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.record_count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "position": position,
        "timestampType": batch.timestamp_type,
        "maxTimestamp": batch.max_timestamp,
        "size": batch.size_bytes,
        "magic": batch.magic,
        "compressCodec": batch.compression,
        "crc": batch.crc,
        "isValid": batch.is_crc_valid(),
    }


def _bytes_json(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data or b"").decode()}


def record_json(
    batch: RecordBatch,
    record: tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]],
    decoder: Callable[[int, bytes | None, bytes | None], tuple[Any, Any]],
) -> dict[str, Any]:
    """A record with its key and value decoded."""
    offset, timestamp, key, value, headers = record
    described: dict[str, Any] = {
        "offset": offset,
        "timestamp": timestamp,
        "timestampType": batch.timestamp_type,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "sequence": -1 if batch.base_sequence < 0 else (batch.base_sequence + offset - batch.base_offset) & 0x7FFFFFFF,
        "keySize": -1 if key is None else len(key),
        "valueSize": -1 if value is None else len(value),
        "headers": [{"key": name, **_bytes_json("value", data)} for name, data in headers],
    }
    if batch.is_control:
        described.update(control_json(key or b"", value or b""))
    else:
        decoded_key, payload = decoder(offset, key, value)
        described.update(key=decoded_key, value=payload)
    return described
