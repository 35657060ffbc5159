"""Fields of records and rows of tables as an application gives them to a producer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kraftlog.extras import require

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Headers", "record_batches", "record_bytes"]

RECORD_OVERHEAD_BYTES = 32
TIMESTAMP_END = 2**63
Headers: TypeAlias = Sequence[tuple[str, "Buffer | None"]]


def _byte_count(data: Buffer | None, what: str) -> int:
    if data is None:
        return 0
    if isinstance(data, bytes):
        return len(data)
    try:
        return memoryview(data).nbytes
    except TypeError:
        message = f"{what} must be bytes or None, not {type(data).__name__}; text has to be encoded"
        raise TypeError(message) from None


def _check_type(found: object, wanted: type, what: str) -> None:
    if not isinstance(found, wanted):
        message = f"{what}, not {type(found).__name__}"
        raise TypeError(message)


def record_bytes(value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | None) -> int:
    """The size of a record, roughly, whose fields can be encoded; a batch fails with all of its records.

    Raises:
        TypeError: A field has another type.
        ValueError: The timestamp is negative or takes more than 64 bits, or the name of a header is not UTF-8.
    """
    size = RECORD_OVERHEAD_BYTES + _byte_count(value, "the value") + _byte_count(key, "the key")
    for name, found in headers:
        _check_type(name, str, "the name of a header must be str")
        size += len(name.encode()) + _byte_count(found, f"header {name}")
    if timestamp is not None:
        _check_type(timestamp, int, "the timestamp must be milliseconds as int")
        if not 0 <= timestamp < TIMESTAMP_END:
            message = f"timestamp {timestamp} is out of range"
            raise ValueError(message)
    return size


def record_batches(table: Any) -> Iterable[Any]:
    """The record batches of a table; a record batch is one already."""
    if hasattr(table, "__arrow_c_array__"):
        return (table,)
    require("arrow", "send_table() of a table")
    import pyarrow as pa

    batches: Iterable[Any] = pa.RecordBatchReader.from_stream(table)
    return batches
