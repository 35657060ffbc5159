"""Typed face of the Rust extension ``kraftlog._kraftlog`` (checked by stubtest)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, final

from typing_extensions import Buffer

_Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
_TimestampType: TypeAlias = Literal["CreateTime", "LogAppendTime"]
_Header: TypeAlias = tuple[str | bytes, Buffer | None]
_Record: TypeAlias = tuple[int, Buffer | None, Buffer | None, Sequence[_Header]]

_M = TypeVar("_M")

build_profile: str

# -- records -----------------------------------------------------------------------------------------------------------

def crc32c(data: Buffer, crc: int = 0) -> int:
    """CRC-32C of ``data``, going on from ``crc``, the checksum of what came before it.

    Releases the interpreter lock for large input; do not write into ``data`` meanwhile.
    """

def read_batches(data: Buffer, *, check_crc: bool = True) -> list[RecordBatch]:
    """The v2 record batches that lie back to back in ``data``; a truncated one at the end is left out.

    Args:
        data: Bytes of a segment or of a records field. They stay exported while a batch lives.
        check_crc: Compare every batch's checksum.

    Raises:
        CorruptRecordError: A length, a magic other than 2 or a checksum that no batch has; the text names the position.
    """

def encode_batch(
    records: Iterable[_Record],
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    compression: _Compression = "none",
    compression_level: int | None = None,
    timestamp_type: _TimestampType = "CreateTime",
    log_append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    max_timestamp_ms: int | None = None,
) -> bytes:
    """One record batch; without compression the bytes are those of Kafka's ``MemoryRecordsBuilder``.

    Args:
        records: (timestamp in ms, key, value, headers); a header is a key and a value.
        base_offset: Offset of the first record.
        partition_leader_epoch: Epoch of the leader that appends the batch, -1 before.
        compression: Codec of the records.
        compression_level: Level of the codec, Kafka's default when None.
        timestamp_type: Whose time the batch has.
        log_append_time_ms: Largest timestamp of the header for LogAppendTime.
        producer_id: -1 without idempotence.
        producer_epoch: -1 without idempotence.
        base_sequence: Sequence of the first record, -1 without idempotence.
        transactional: Set the transactional flag.
        control: Set the control flag.
        delete_horizon_ms: Base timestamp and flag that compaction sets.
        offset_deltas: Offset of each record less ``base_offset``, growing; 0, 1, 2, ... when None.
        last_offset_delta: Of the header, when it is not the last record's. With it a batch without records is a
            header, as compaction leaves it; without it such a batch is no bytes, as with Kafka's builder.
        max_timestamp_ms: Of the header, when it is not the largest of the records.

    Raises:
        ValueError: An unknown codec or level, deltas that do not grow, or a batch of 2 GiB or more.
    """

def encode_values(  # noqa: D417
    values: list[bytes | None] | list[bytes],
    *,
    timestamps: int | Sequence[int] | None = None,
    keys: list[bytes | None] | list[bytes] | None = None,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    compression: _Compression = "none",
    compression_level: int | None = None,
    timestamp_type: _TimestampType = "CreateTime",
    log_append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    batch_bytes_max: int | None = None,
) -> bytes:
    """Record batches of values, and of keys if given, without headers: the short way for lists.

    Args:
        values: One a record.
        timestamps: In ms: one for all records or one each; -1 (no timestamp) when None.
        keys: One a record; all null when None.
        batch_bytes_max: Begin another batch before one passes this size uncompressed; one batch when None.

    What is not named here is as in :func:`encode_batch`.
    """

def encode_columns(  # noqa: D417
    keys: Any,
    values: Any,
    timestamps: Any,
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    compression: _Compression = "none",
    compression_level: int | None = None,
    timestamp_type: _TimestampType = "CreateTime",
    log_append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    batch_bytes_max: int | None = None,
) -> bytes:
    """Record batches of Arrow arrays (anything with ``__arrow_c_array__``), without headers.

    Args:
        keys: Binary or text array, or None for null keys.
        values: Binary or text array.
        timestamps: int64 or timestamp[ms] array, or one int in ms for all records; a null is -1.
        batch_bytes_max: Begin another batch before one passes this size uncompressed; one batch when None.

    What is not named here is as in :func:`encode_batch`. Runs without the interpreter lock.
    """

@final
class RecordBatch:
    """Header of a v2 record batch. The records stay in the buffer, which is kept; do not write into it."""

    @property
    def position(self) -> int:
        """Byte position in the buffer."""

    @property
    def size_bytes(self) -> int:
        """Size of the batch, header included."""

    @property
    def base_offset(self) -> int:
        """Offset of the first record as written."""

    @property
    def last_offset(self) -> int:
        """Offset of the last record as written, inclusive."""

    @property
    def magic(self) -> int:
        """Format version, 2."""

    @property
    def crc(self) -> int:
        """CRC-32C as stored."""

    @property
    def attributes(self) -> int:
        """Codec, timestamp type and flags as stored."""

    @property
    def compression(self) -> str:
        """Name of the codec, or ``unknown(id)``."""

    @property
    def timestamp_type(self) -> str:
        """CreateTime or LogAppendTime."""

    @property
    def base_timestamp(self) -> int:
        """What timestamp deltas count from, in ms."""

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of the records, or the append time, in ms."""

    @property
    def partition_leader_epoch(self) -> int:
        """Epoch of the leader that appended the batch, or -1."""

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction."""

    @property
    def is_control(self) -> bool:
        """Holds control records."""

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove tombstones of the batch."""

    @property
    def producer_id(self) -> int:
        """-1 without idempotence."""

    @property
    def producer_epoch(self) -> int:
        """-1 without idempotence."""

    @property
    def base_sequence(self) -> int:
        """Sequence of the first record, or -1."""

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, inclusive, or -1."""

    @property
    def record_count(self) -> int:
        """Records in the batch."""

    def is_crc_valid(self) -> bool:
        """Whether the stored checksum is that of the bytes."""

    def records(self) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        """(offset, timestamp in ms, key, value, headers) of each record.

        Raises:
            CorruptRecordError: The body does not decompress within its bound, or a record is damaged.
        """

# -- wire ---------------------------------------------------------------------------------------------------------------

class StructBase:
    """Base of every message class: keyword arguments over Kafka's defaults, frozen."""

    def __init__(self, **values: Any) -> None: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    def __delattr__(self, name: str, /) -> None: ...

def decode_message(cls: type[_M], buffer: Buffer, version: int, *, max_elements: int = 1048576) -> _M:
    """Read one message that fills the buffer; records become memoryviews of it."""

def decode_prefix(cls: type[_M], buffer: Buffer, version: int, *, max_elements: int = 1048576) -> tuple[_M, int]:
    """Read one message from the start of the buffer; also the position after it."""

def encode_message(message: StructBase, version: int) -> bytes:
    """The bytes of one message."""

def encode_parts(message: StructBase, version: int) -> list[Any]:
    """The bytes of one message; values of type records stay items of their own."""

@final
class FrameCodec:
    """Decodes and encodes whole frames by API key; the face of ``kraftlog.wire.frame``."""

    def __new__(
        cls, request_header: type[Any], response_header: type[Any], registry: Mapping[int, Any]
    ) -> FrameCodec: ...
    def decode_request(self, frame: Buffer) -> tuple[Any, Any]:
        """Header and request of a frame without its size."""

    def encode_response(self, api_key: int, version: int, correlation_id: int, response: Any) -> list[Any]:
        """Buffers of a response; the first begins with the size of the frame."""

    def encode_request(
        self, api_key: int, version: int, correlation_id: int, client_id: str | None, request: Any
    ) -> list[Any]:
        """Buffers of a request; the first begins with the size of the frame."""

    def decode_response(self, api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
        """Correlation id and response of a frame without its size."""

@final
class FrameReader:
    """Cuts the bytes of one connection into frames, sizes checked before any memory follows them.

    Use either ``feed``, or the pair of an ``asyncio.BufferedProtocol``: ``get_buffer`` and ``buffer_updated``.
    Frames come without their size, as bytes, or as a bytearray of their own when larger than 64 KiB (received in
    place).

    Args:
        max_frame_bytes: The largest frame accepted (``socket.request.max.bytes``).
    """

    def __new__(cls, max_frame_bytes: int) -> FrameReader: ...
    @property
    def max_frame_bytes(self) -> int: ...
    @property
    def pending_bytes(self) -> int:
        """Bytes of an incomplete frame that are held."""

    def set_max_frame_bytes(self, max_frame_bytes: int) -> None:
        """Raise or lower the limit, as after authentication."""

    def get_buffer(self, size_hint: int, /) -> memoryview:
        """Where the next bytes of the connection go."""

    def buffer_updated(self, count: int) -> list[bytes | bytearray]:
        """Frames completed by ``count`` bytes that were put into the buffer.

        Raises:
            RemoteProtocolError: A size is negative or above the limit; the text names it.
        """

    def feed(self, data: Buffer) -> list[bytes | bytearray]:
        """Frames completed by bytes that arrived; raises as ``buffer_updated``."""
