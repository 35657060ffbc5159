"""The columns of the source: names, types, and what the decoder calls them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["COLUMNS", "KAFKA_COLUMNS", "SourceColumn", "find_column", "find_columns"]

HEADERS_TYPE = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column: its name in a schema, its type in Spark's words, and its name in a scan."""

    name: str
    type_name: str
    scan_name: str


# The first seven are those of Spark's Kafka source, headers is its eighth; the others have to be named.
COLUMNS = (
    SourceColumn("key", "binary", "key"),
    SourceColumn("value", "binary", "value"),
    SourceColumn("topic", "string", "topic"),
    SourceColumn("partition", "int", "partition"),
    SourceColumn("offset", "bigint", "offset"),
    SourceColumn("timestamp", "timestamp", "timestamp"),
    SourceColumn("timestampType", "int", "timestamp_type"),
    SourceColumn("headers", HEADERS_TYPE, "headers"),
    SourceColumn("keyLength", "int", "key_length"),
    SourceColumn("valueLength", "int", "value_length"),
    SourceColumn("leaderEpoch", "int", "leader_epoch"),
    SourceColumn("producerId", "bigint", "producer_id"),
    SourceColumn("producerEpoch", "smallint", "producer_epoch"),
    SourceColumn("sequence", "int", "sequence"),
    SourceColumn("isTransactional", "boolean", "is_transactional"),
    SourceColumn("isControl", "boolean", "is_control"),
    SourceColumn("compression", "string", "compression"),
    SourceColumn("batchBaseOffset", "bigint", "batch_base_offset"),
    SourceColumn("batchPosition", "bigint", "batch_position"),
    SourceColumn("crcOk", "boolean", "crc_ok"),
)
KAFKA_COLUMNS = COLUMNS[:7]

# Spark resolves names whatever their case; the names of scans are accepted too.
_BY_NAME = {column.name.lower(): column for column in COLUMNS} | {column.scan_name: column for column in COLUMNS}


def find_column(name: str) -> SourceColumn:
    """The column of this name, in any case or as a scan calls it.

    Raises:
        ValueError: There is none; the text lists those that there are.
    """
    found = _BY_NAME.get(name.lower())
    if found is None:
        message = f"no column {name!r}: there are {', '.join(column.name for column in COLUMNS)}"
        raise ValueError(message)
    return found


def find_columns(names: Iterable[str]) -> tuple[SourceColumn, ...]:
    """The columns of these names, in order.

    Raises:
        ValueError: A name that is no column, or a column named twice.
    """
    columns = tuple(map(find_column, names))
    for number, column in enumerate(columns):
        if column in columns[:number]:
            message = f"column {column.name} is named twice"
            raise ValueError(message)
    return columns
