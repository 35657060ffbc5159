"""Records of ``__remote_log_metadata`` in the words of Kafka's classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlog.errors import ProtocolError, RemoteProtocolError
from kraftlog.wire.messages.storage_records import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from kraftlog.wire.records import read_frame

__all__ = ["remote_log_metadata_text"]

_SEGMENT_STATES: Mapping[int, str] = {
    0: "COPY_SEGMENT_STARTED",
    1: "COPY_SEGMENT_FINISHED",
    2: "DELETE_SEGMENT_STARTED",
    3: "DELETE_SEGMENT_FINISHED",
}
_PARTITION_STATES: Mapping[int, str] = {
    0: "DELETE_PARTITION_MARKED",
    1: "DELETE_PARTITION_STARTED",
    2: "DELETE_PARTITION_FINISHED",
}
_RECORDS: Mapping[int, Any] = {
    cls.API_KEY: cls
    for cls in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataSnapshotRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
    )
}


def remote_log_metadata_text(value: bytes) -> str:
    """What Kafka's class for the record prints.

    Raises:
        ProtocolError: The value does not decode.
    """
    kind, version, body = read_frame(value)
    cls = _RECORDS.get(kind)
    if cls is None or version not in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
        raise RemoteProtocolError(f"remote log metadata of type {kind} version {version} is unknown")
    record = cls.decode(body, version)
    try:
        name, fields = _described(record)
    except KeyError as error:
        raise ProtocolError(f"{cls.__name__} has state {error}, which is unknown") from None
    return f"{name}{{{', '.join(f'{field}={value}' for field, value in fields.items())}}}"


def _described(record: Any) -> tuple[str, dict[str, object]]:
    match record:
        case RemoteLogSegmentMetadataRecord():
            return "RemoteLogSegmentMetadata", {
                "remoteLogSegmentId": _segment_id(record.remote_log_segment_id),
                **_segment(record),
            }
        case RemoteLogSegmentMetadataSnapshotRecord():
            return "RemoteLogSegmentMetadataSnapshot", {"segmentId": record.segment_id, **_segment(record)}
        case RemoteLogSegmentMetadataUpdateRecord():
            return "RemoteLogSegmentMetadataUpdate", {
                "remoteLogSegmentId": _segment_id(record.remote_log_segment_id),
                "customMetadata": _custom(record.custom_metadata),
                "state": _SEGMENT_STATES[record.remote_log_segment_state],
                "eventTimestampMs": record.event_timestamp_ms,
                "brokerId": record.broker_id,
            }
        case _:
            return "RemotePartitionDeleteMetadata", {
                "topicPartition": _partition(record.topic_id_partition),
                "state": _PARTITION_STATES[record.remote_partition_delete_state],
                "eventTimestampMs": record.event_timestamp_ms,
                "brokerId": record.broker_id,
            }


def _segment(record: Any) -> dict[str, object]:
    if not 0 <= record.start_offset <= record.end_offset:
        raise RemoteProtocolError(f"a segment from offset {record.start_offset} to {record.end_offset}")
    if not record.segment_leader_epochs:
        raise RemoteProtocolError("a segment without leader epochs")
    epochs = sorted({entry.leader_epoch: entry.offset for entry in record.segment_leader_epochs}.items())
    return {
        "startOffset": record.start_offset,
        "endOffset": record.end_offset,
        "brokerId": record.broker_id,
        "maxTimestampMs": record.max_timestamp_ms,
        "eventTimestampMs": record.event_timestamp_ms,
        "segmentLeaderEpochs": f"{{{', '.join(f'{epoch}={offset}' for epoch, offset in epochs)}}}",
        "segmentSizeInBytes": record.segment_size_in_bytes,
        "customMetadata": _custom(record.custom_metadata),
        "state": _SEGMENT_STATES[record.remote_log_segment_state],
        "txnIdxEmpty": str(record.txn_index_empty).lower(),
    }


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _segment_id(entry: Any) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={_partition(entry.topic_id_partition)}, id={entry.id}}}"


def _partition(entry: Any) -> str:
    return f"{entry.id}:{entry.name}-{entry.partition}"
