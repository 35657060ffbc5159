"""Record batches in the form that the rows of tests/golden have."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kraftlog._kraftlog import RecordBatch

GOLDEN = Path(__file__).parent / "golden"
SMALL_BYTES = 64

Row = dict[str, Any]


def read_rows(path: Path) -> Iterator[Row]:
    """The JSON objects of a ``.jsonl`` or ``.jsonl.gz`` file."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            yield json.loads(line)


def describe_bytes(value: bytes | None) -> Row | None:
    """Bytes as the rows have them: whole when small, by digest when not."""
    if value is None:
        return None
    if len(value) < SMALL_BYTES:
        return {"len": len(value), "b64": base64.b64encode(value).decode()}
    return {"len": len(value), "sha256": hashlib.sha256(value).hexdigest()}


def describe_batch(batch: RecordBatch) -> Row:
    """All that a row says of a batch and its records, read by kraftlog."""
    return {
        "position": batch.position,
        "size": batch.size_bytes,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "magic": batch.magic,
        "crc": batch.crc,
        "valid": batch.is_crc_valid(),
        "compression": batch.compression,
        "timestampType": batch.timestamp_type,
        "maxTimestamp": batch.max_timestamp,
        "batchLength": batch.size_bytes - 12,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "attributes": batch.attributes,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "lastOffsetDelta": batch.last_offset - batch.base_offset,
        "baseTimestamp": batch.base_timestamp,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "count": batch.record_count,
        "records": [
            {
                "offset": offset,
                "timestamp": timestamp,
                "key": describe_bytes(key),
                "value": describe_bytes(value),
                "headers": [[name, describe_bytes(content)] for name, content in headers],
            }
            for offset, timestamp, key, value, headers in batch.records()
        ],
    }


def comparable(row: Row) -> Row:
    """A golden batch row without what our reader does not tell: decoded contents, record sizes and sequences."""
    kept = ("offset", "timestamp", "key", "value", "headers")
    records = [{name: record[name] for name in kept} for record in row.get("records", ())]
    return {**row, "records": records}
