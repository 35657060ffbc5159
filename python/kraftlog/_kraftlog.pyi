"""Typed face of the Rust extension ``kraftlog._kraftlog`` (checked by stubtest)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, TypeVar, Unpack, final

from typing_extensions import Buffer

from kraftlog.types import Uuid

_Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
_TimestampType: TypeAlias = Literal["CreateTime", "LogAppendTime"]
_Header: TypeAlias = tuple[str | bytes, Buffer | None]
_Record: TypeAlias = tuple[int, Buffer | None, Buffer | None, Sequence[_Header]]

_M = TypeVar("_M")
_T = TypeVar("_T")

build_profile: str

# -- records -----------------------------------------------------------------------------------------------------------

def crc32c(data: Buffer, crc: int = 0) -> int:
    """CRC-32C of ``data``, going on from ``crc``, the checksum of what came before it.

    Releases the interpreter lock for large input; do not write into ``data`` meanwhile.
    """

def xxh3_64(data: bytes) -> int:
    """XXH3 of ``data`` with 64 bits and without a seed, as a signed number."""

@final
class TopicPattern:
    """A regular expression, in the syntax of Rust's ``regex``, that has to match a whole topic name.

    To compile one takes at most some 15 ms of processor time, to match one name at most 0.04 ms times ``cost``.

    Args:
        pattern: At most 8 KiB of UTF-8.
        is_text: Whether names may have other characters than those of topics.

    Raises:
        ValueError: The pattern does not parse, or takes more than 128 KiB when compiled; the text says why.
    """

    def __new__(cls, pattern: str, *, is_text: bool = False) -> Self: ...
    @property
    def cost(self) -> int:
        """How long a match may take: 1 for a common pattern, up to 250 for a large one."""
    def matches(self, name: str) -> bool:
        """Whether the whole of ``name`` matches."""

@final
class PlainOffsetCommit:
    """An OffsetCommit request of version 8 to 10 that stays bytes: each topic, and partition of a topic, named once."""

    @staticmethod
    def parse(frame: Buffer, *, partitions_max: int) -> PlainOffsetCommit | None:
        """Read a request's frame, which starts behind its size.

        Args:
            frame: The whole of it.
            partitions_max: A request with more topics, or more partitions, is not plain.

        Returns:
            None for a request that is not plain, or does not decode.
        """

    @property
    def group_id(self) -> str:
        """Whose offsets."""
    @property
    def generation_id_or_member_epoch(self) -> int:
        """Generation of a classic group, or epoch of a member; -1 for a commit of no member."""
    @property
    def member_id(self) -> str:
        """Who commits; empty for a commit of no member."""
    @property
    def group_instance_id(self) -> str | None:
        """The static member that commits, if any."""
    @property
    def metadata_units_max(self) -> int:
        """The most UTF-16 code units that the metadata of a partition has."""
    @property
    def topics(self) -> list[tuple[str | bytes, tuple[int, ...]]]:
        """Name of each topic, or its id from version 10 on, and the indexes of its partitions."""
    def records(
        self, topics: list[tuple[str, Uuid]], commit_timestamp_ms: int
    ) -> tuple[list[tuple[bytes, bytes | None]], list[tuple[tuple[str, int], int, int, str, Uuid]]]:
        """Key and value of the record of each partition, and the position that it keeps.

        Args:
            topics: Name and id of each topic, in the request's order.
            commit_timestamp_ms: Milliseconds since 1970.

        Returns:
            Records of ``__consumer_offsets``, and (topic and partition, offset, leader epoch, metadata, topic id).

        Raises:
            ValueError: Another number of topics, or an id that has not 16 bytes.
        """
    def answer(self, error_code: int) -> bytes:
        """The whole frame of the response, its size included, with ``error_code`` for each partition."""

def read_batches(data: Buffer, *, check_crc: bool = True) -> list[RecordBatch]:
    """The record batches that lie back to back in ``data``; a truncated one at the end is left out.

    An outermost message of formats v0 and v1 is a batch too, of one record or of as many as are compressed in it.

    Args:
        data: Bytes of a segment or of a records field. They stay exported while a batch lives.
        check_crc: Compare every batch's checksum.

    Raises:
        CorruptRecordError: A length, an unknown magic or a checksum that no batch has; the text names the position.
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
        """Format version: 2, or 0 or 1 in logs of Kafka before 0.11."""

    @property
    def crc(self) -> int:
        """CRC-32C as stored; a CRC-32 before format v2."""

    @property
    def attributes(self) -> int:
        """Codec, timestamp type and flags as stored."""

    @property
    def compression(self) -> str:
        """Name of the codec, or ``unknown(id)``."""

    @property
    def timestamp_type(self) -> str:
        """CreateTime, LogAppendTime, or NoTimestampType for a message of format v0."""

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

    def message_checksums(self) -> list[tuple[int, bool]] | None:
        """CRC-32 of each message of formats v0 and v1 and whether it is right; None for v2.

        Raises:
            CorruptRecordError: As ``records``.
        """

    def records(self) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        """(offset, timestamp in ms, key, value, headers) of each record.

        Raises:
            CorruptRecordError: The body does not decompress within its bound, or a record is damaged.
        """

    def values(self, start_offset: int = 0) -> list[bytes | None]:
        """The value of each record from ``start_offset`` (inclusive) on.

        Raises:
            CorruptRecordError: As ``records``.
        """

# -- wire --------------------------------------------------------------------------------------------------------------

class StructBase:
    """Base of every message class: keyword arguments over Kafka's defaults, frozen."""

    def __init__(self, *args: Any, **values: Any) -> None: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    def __delattr__(self, name: str, /) -> None: ...

def decode_message(cls: type[_M], buffer: Buffer, version: int, *, max_elements: int = ...) -> _M:
    """Read one message that fills the buffer; records become memoryviews of it."""

def decode_prefix(cls: type[_M], buffer: Buffer, version: int, *, max_elements: int = ...) -> tuple[_M, int]:
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

    def decode_small_request(self, frame: Buffer, max_elements: int) -> tuple[Any, Any] | None:
        """The same for a small request; None when it has more array elements, or more bytes that are copied."""

    def begin_request(self, frame: Buffer) -> tuple[Any, RequestDecoder]:
        """Decode the header of a frame without its size, and begin with its request."""

    def encode_response(self, api_key: int, version: int, correlation_id: int, response: Any) -> list[Any]:
        """Buffers of a response; the first begins with the size of the frame."""

    def encode_small_response(
        self, api_key: int, version: int, correlation_id: int, response: Any, max_elements: int
    ) -> list[Any] | None:
        """The same for a small response; None when it has more array elements."""

    def begin_response(self, api_key: int, version: int, correlation_id: int, response: Any) -> ResponseEncoder:
        """Begin to write a response."""

    def encode_request(
        self, api_key: int, version: int, correlation_id: int, client_id: str | None, request: Any
    ) -> list[Any]:
        """Buffers of a request; the first begins with the size of the frame."""

    def decode_response(self, api_key: int, version: int, frame: Buffer) -> tuple[int, Any, int]:
        """Correlation id and response of a frame without its size."""

@final
class RequestDecoder:
    """Decodes one request a step at a time."""

    def step(self, elements: int) -> Any | None:
        """Decode about so many further array elements; the request when it is complete, else None."""

    def abandon(self) -> list[Any]:
        """Give up: what was decoded so far, for ``Discard``."""

@final
class ResponseEncoder:
    """Encodes one response a step at a time."""

    def step(self, elements: int) -> list[Any] | None:
        """Encode about so many further array elements; the buffers when they are complete, else None.

        The first of them begins with the size of the frame.
        """

@final
class Discard:
    """Frees what nobody else refers to, a step at a time."""

    def __new__(cls, objects: list[Any]) -> Discard:
        """Take over the objects of a list, which is empty afterwards."""

    def step(self, count: int) -> bool:
        """Free about so many further objects; True when all are gone."""

def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16, as a signed integer of 32 bits."""

def untracked(object: _T) -> _T:
    """Hide an object from the collector of garbage, and give it back; it must not be part of a cycle."""

def release_free_memory() -> None:
    """Give free memory of the allocator back to the operating system; other threads run meanwhile."""

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
    @property
    def missing_bytes(self) -> int:
        """Bytes that a frame larger than 64 KiB still lacks; 0 when none is incomplete."""

    def set_max_frame_bytes(self, max_frame_bytes: int) -> None:
        """Raise or lower the limit, as after authentication."""

    def clear(self) -> None:
        """Forget an incomplete frame and free its memory."""

    def get_buffer(self, size_hint: int, /) -> memoryview:
        """Where the next bytes of the connection go."""

    def buffer_updated(self, count: int) -> list[bytes | bytearray | memoryview]:
        """Frames completed by ``count`` bytes that were put into the buffer.

        Raises:
            RemoteProtocolError: A size is negative or above the limit; the text names it.
        """

    def feed(self, data: Buffer) -> list[bytes | bytearray | memoryview]:
        """Frames completed by bytes that arrived; raises as ``buffer_updated``."""

# -- data path ---------------------------------------------------------------------------------------------------------

@final
class GrantTable:
    """What an authorizer has allowed to which principal and host; the I/O threads answer nothing else.

    Bounded: what does not fit is not granted, and a table that is full forgets what it had. Each ``allow`` names the
    generation of the ACLs that it follows from. If that is not the one of the last ``revoke``, it grants nothing and
    returns False.
    """

    def __new__(cls) -> Self:
        """Nothing is granted, in generation 0."""

    def revoke(self, generation: int) -> None:
        """Forget all grants. Once this returned, no request that arrives is answered by an earlier one."""

    def allow_topics(self, generation: int, principal: str, host: str, topic_ids: bytes, *, to_write: bool) -> bool:
        """Grant READ or WRITE on topics.

        Args:
            generation: Of the ACLs.
            principal: As ACLs name it: ``User:alice``.
            host: The client's address.
            topic_ids: 16 bytes for each.
            to_write: WRITE; otherwise READ.

        Raises:
            ValueError: The bytes are no whole number of ids.
        """

    def allow_transactional_id(self, generation: int, principal: str, host: str, transactional_id: str) -> bool:
        """Grant WRITE on a transactional id."""

    def allow_replication(self, generation: int, principal: str, host: str) -> bool:
        """Grant CLUSTER_ACTION: fetches as a replica."""

@final
class Admission:
    """Which connections a node takes: Kafka's bounds (``ConnectionQuotas``) over all its listeners.

    A connection arrives when it was accepted from the kernel, and may have to wait; then its listener needs a slot;
    then it is admitted and counted until it has ended, or refused. A listener has one acceptor. Any thread may call.
    """

    def __new__(cls) -> Self:
        """Admits all until limits are published."""

    def publish(
        self,
        *,
        max_connections: int,
        max_connections_per_ip: int,
        per_ip_overrides: dict[str, int],
        creation_rate: int,
        max_connections_by_listener: dict[str, int],
        creation_rate_by_listener: dict[str, int],
        unlimited_listener: str | None,
    ) -> None:
        """Replace the limits; what is open stays.

        Args:
            max_connections: Open at once, of the node.
            max_connections_per_ip: Of one address.
            per_ip_overrides: The latter by address.
            creation_rate: New connections of the node per second.
            max_connections_by_listener: By lower-case name of the listener.
            creation_rate_by_listener: Likewise.
            unlimited_listener: The listener for which ``creation_rate`` does not count.

        Raises:
            OverflowError: A number is negative.
        """

    def arrived(self, listener: str, now_s: float, /) -> float:
        """Count a connection for the rates; the seconds that it has to wait, at most one.

        Args:
            listener: Name.
            now_s: ``time.monotonic``, or another clock if no I/O thread accepts.
        """

    def has_slot(self, listener: str, /) -> bool:
        """Whether the listener may have one more connection."""

    def publish_address_rates(self, default: int | None, by_address: dict[str, int], /) -> None:
        """Replace the quotas ``connection_creation_rate`` of addresses (KIP-612); what came lately stays.

        Args:
            default: Connections per second of each address that has no quota of its own; None is no bound.
            by_address: Of single addresses.
        """

    def held_for(self, host: str, now_s: float, /) -> float:
        """Seconds after which to close a connection without serving it, as its address connects too often.

        At most one; 0 if it may be admitted, and then it counts for the rate of its address.

        Args:
            host: Address.
            now_s: As for ``arrived``.
        """

    def admit(self, listener: str, host: str, /) -> str | None:
        """Count a connection as open; or, without counting it, the reason why it is refused."""

    def ended(self, listener: str, host: str, /) -> None:
        """An admitted connection is closed."""

    @property
    def open(self) -> int:
        """Connections that were admitted and have not ended."""

@final
class DataPath:
    """Threads that own the sockets of clients: they answer plain Produce and Fetch requests and hand others over.

    Never hold the interpreter lock. Errors of a socket end its connection and come as events.

    Args:
        partitions: A request is answered by the threads only if each of its partitions is here and published.
        inbox: Gets the events of sockets.
        threads: At least one.
        max_frame_bytes: Largest frame without its size field.
        max_idle_ms: Connections that are silent for so long are closed; 0 or less closes none.
        fetch_max_bytes: Most bytes of records in an answer, unless the first batch is larger.
        fetch_sessions_max: Fetch sessions; 0 turns them off.
        fetch_session_eviction_ms: A session unused for so long gives way to another one.
        selects_replicas: Hand fetches of consumers that name their rack over (KIP-392).
        max_queued_requests: Connections that may have requests in Python that it has not taken up.
        max_queued_bytes: Above this many bytes of such requests no further one is handed over; 0 or less is no bound.
        grants: With an authorizer: requests that need what it has not are handed over.

    Raises:
        OSError: No descriptor or thread is left.
    """

    DRAINED: int
    """Kind of an event: the peer took answers, as ``DataSocket.ask_for_drained`` asked to be told."""
    LOST: int
    """Kind of an event: the connection is closed; has the reason to log, or None."""
    FAILED: int
    """Kind of an event: a thread ended by a defect, which the text describes."""
    ACCEPTED: int
    """Kind of an event: a connection was accepted, which comes before all else of it; has the ``DataSocket``, the
    number of the listener, the peer's host and port."""
    REFUSED: int
    """Kind of an event: a connection was closed at once; has the number of the listener, host, port and the reason."""
    PAUSED: int
    """Kind of an event: a listener, whose number is the key, accepts no more until descriptors are free; the reason."""
    RESUMED: int
    """Kind of an event: a listener, whose number is the key, accepts again."""
    LISTENER_ENDED: int
    """Kind of an event: a listener, whose number is the key, is closed; nothing of it comes after this."""

    def __new__(
        cls,
        partitions: Partitions,
        inbox: Inbox,
        *,
        threads: int,
        max_frame_bytes: int,
        max_idle_ms: int,
        fetch_max_bytes: int,
        fetch_sessions_max: int,
        fetch_session_eviction_ms: int,
        selects_replicas: bool = False,
        max_queued_requests: int = 500,
        max_queued_bytes: int = ...,
        grants: GrantTable | None = None,
    ) -> Self: ...
    def adopt(
        self,
        fd: int,
        *,
        listener: int,
        host: str,
        principal: str,
        received: bytes,
        unsent: bytes,
        place: tuple[Admission, str] | None = None,
        session_ms: int | None = None,
    ) -> DataSocket:
        """Give a connected, non-blocking socket away; its descriptor belongs to the thread from then on.

        Args:
            fd: The descriptor.
            listener: Index of the listener.
            host: The peer's address without its port.
            principal: Its authenticated identity, as ACLs name it.
            received: Bytes that were received and not handled; frames with their sizes, the last one may be incomplete.
            unsent: Bytes of answers that go out before all others.
            place: If the connection was admitted: by whom, and the name of its listener. The thread gives the place
                back, also if this call fails.
            session_ms: Milliseconds after which the session of the peer ends (KIP-368); None if it does not end.
                See ``DataSocket.set_session``.

        Raises:
            RuntimeError: There are no threads.
        """

    def listen(self, fd: int, *, listener: int, name: str, admission: Admission, send_buffer_bytes: int = ...) -> None:
        """Give a listening, non-blocking socket away: the first thread accepts its connections for all threads.

        At most 256 connections are taken of which ``Inbox.take`` has not told; others wait in the kernel's queue.

        Args:
            fd: The descriptor.
            listener: Its number in events and for ``publish_brokers``.
            name: Names it for ``admission``.
            admission: Decides which connections are taken.
            send_buffer_bytes: For the kernel; 0 or less leaves it to its own tuning.
        """

    def end_listener(self, listener: int, /) -> None:
        """Close a listener soon; connections that it accepted stay. ``LISTENER_ENDED`` follows."""

    def flush(self) -> None:
        """Tell the threads what was asked of sockets since the last call."""

    def hand_over_clients(self, is_on: bool, /) -> None:
        """Whether every Produce and every Fetch of a consumer goes to Python, as client quotas may apply to them."""

    def publish_brokers(self, by_listener: Sequence[Sequence[tuple[int, str, int, str | None]]]) -> None:
        """Name these brokers from now on when they lead (KIP-951).

        Args:
            by_listener: Id, host, port and rack of the brokers that clients reach, one list for each listener.
        """

    def stop(self) -> None:
        """Close all sockets and end the threads; waits for them."""

@final
class DataSocket:
    """A connection that a thread owns. What is asked of it is done after ``DataPath.flush``.

    After the connection is lost nothing of it reaches anyone.
    """

    @property
    def key(self) -> int:
        """Names the connection in events; no other one of the process has it."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the kernel has not taken."""

    @property
    def owed(self) -> int:
        """Requests that the thread itself will answer, without long polls."""

    def answer(self, number: int, outputs: Sequence[Buffer | FileSlice] | None, /) -> None:
        """Answer a request; None if the protocol wants no answer. Answers leave in the order of the requests.

        Buffers are copied.
        """

    def begin_answer(self, number: int, outputs: Sequence[Buffer | FileSlice], /) -> None:
        """Copy a part of an answer, which ``answer`` completes: of a large one at once would hold the loop up."""

    def begun(self, number: int, /) -> None:
        """The requests up to this one have begun: their appends come before those of later requests."""

    def taken(self, number: int, /) -> None:
        """The requests up to this one wait for the loop no more, as after ``begun`` and ``answer``."""

    def close(self, reason: str | None, /) -> None:
        """Send what can be sent at once, then close; the reason comes back in the event."""

    def mute(self, is_on: bool, /) -> None:
        """Handle and receive no more requests until called with False; what is pending is still answered."""

    def set_session(self, left_ms: int | None, /) -> None:
        """The session of the peer lasts for so many milliseconds from now on; None if it does not end.

        The thread hands every frame over once a session has ended, or a frame is a SaslHandshake, until this is
        called.
        """

    def stop_reading(self) -> None:
        """Handle no more requests; what is pending is still answered."""

    def ask_for_drained(self) -> None:
        """Ask for one ``DataPath.DRAINED`` when at most half of 4 MiB are unsent; look at ``unsent_bytes`` again."""

# -- log ---------------------------------------------------------------------------------------------------------------

@final
class LogConfig:
    """Settings of one log, named as Kafka's topic settings. Sizes are bytes, times milliseconds."""

    def __new__(
        cls,
        *,
        segment_bytes: int = 1073741824,
        segment_ms: int = 604800000,
        segment_jitter_ms: int = 0,
        segment_index_bytes: int = 10485760,
        index_interval_bytes: int = 4096,
        max_message_bytes: int = 1048588,
        retention_ms: int = 604800000,
        retention_bytes: int = ...,
        compression_type: str = "producer",
        compression_level: int | None = None,
        timestamp_type: str = "CreateTime",
        timestamp_before_max_ms: int = 9223372036854775807,
        timestamp_after_max_ms: int = 3600000,
        cleanup_policy: str = "delete",
        file_delete_delay_ms: int = 60000,
        preallocate: bool = False,
        producer_id_expiration_ms: int = 86400000,
        segment_jitter_seed: int = 0,
    ) -> LogConfig:
        """Raises ValueError for a name that is unknown or a size that makes no sense.

        The jitter of a segment follows from ``segment_jitter_seed``, the directory and its base offset. With
        ``preallocate`` a new segment's file gets ``segment_bytes`` at once and is cut when the segment is closed.
        """

@final
class AppendInfo:
    """What an append did."""

    @property
    def first_offset(self) -> int:
        """Offset of the first record; -1 when nothing was appended."""

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""

    @property
    def log_append_time_ms(self) -> int:
        """Time the records got with LogAppendTime, else -1; of a duplicate, its largest timestamp."""

    @property
    def log_start_offset(self) -> int:
        """First readable offset of the log."""

    @property
    def duplicate(self) -> bool:
        """The batch had been appended before: nothing was written, the offsets are those of then."""

    @property
    def record_count(self) -> int:
        """Records appended."""

    @property
    def size_bytes(self) -> int:
        """Bytes appended."""

    @property
    def rolled(self) -> bool:
        """A new segment was begun."""

@final
class SegmentInfo:
    """A segment of a log."""

    @property
    def base_offset(self) -> int:
        """First offset it may hold."""

    @property
    def size_bytes(self) -> int:
        """Bytes in the ``.log``."""

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp, -1 for none."""

    @property
    def path(self) -> Path:
        """The ``.log``."""

@final
class ProducerInfo:
    """What a log knows of one producer."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def last_sequence(self) -> int:
        """Sequence of its last record, -1 for none."""

    @property
    def last_offset(self) -> int:
        """Offset of its last record, -1 for none."""

    @property
    def last_timestamp(self) -> int:
        """Timestamp of its last batch or marker."""

    @property
    def coordinator_epoch(self) -> int:
        """Epoch of the coordinator that wrote its last marker, -1 for none."""

    @property
    def current_txn_first_offset(self) -> int | None:
        """First offset of its open transaction."""

@final
class FileSlice:
    """Whole record batches in a segment file, not read yet.

    Keeps the file open, also after the segment was deleted. For sendfile: :meth:`fileno`, :attr:`position` and
    :attr:`nbytes`. As a buffer (``memoryview(slice)``) it reads its bytes once and keeps them.
    """

    def fileno(self) -> int:
        """Descriptor of the file. Raises ValueError for an empty slice."""

    @property
    def position(self) -> int:
        """Byte position in the file."""

    @property
    def nbytes(self) -> int:
        """Bytes of the slice."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the slice."""

    @property
    def path(self) -> Path:
        """The file."""

    def part(self, position: int, size_bytes: int) -> FileSlice:
        """The bytes ``[position, position + size_bytes)`` of the file, which nothing reads yet.

        Raises:
            ValueError: They are not all in this slice.
        """

    def read(self) -> bytes:
        """The bytes. Raises OSError when the log was truncated meanwhile."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class CleanCancel:
    """Stops a ``Log.clean`` from another thread, before its next chunk of input."""

    def __init__(self) -> None: ...
    def cancel(self) -> None:
        """Ask for the end."""

    @property
    def cancelled(self) -> bool:
        """Whether that was asked."""

@final
class CleanThrottle:
    """A rate that all cleans which share it keep together.

    Args:
        bytes_per_second: Bytes read plus bytes written; infinity is no limit.
    """

    def __new__(cls, bytes_per_second: float) -> Self: ...
    def set_rate(self, bytes_per_second: float) -> None:
        """Use another rate from the next chunk on."""

@final
class CleanReport:
    """What ``Log.clean`` did. Messages are records, those of aborted transactions and markers included."""

    @property
    def outcome(self) -> Literal["completed", "cancelled", "overtaken"]:
        """``overtaken``: retention, a truncation or another clean took segments away meanwhile."""

    @property
    def next_dirty_offset(self) -> int:
        """Exclusive end of what is clean; where the clean began unless it was completed."""

    @property
    def map_bytes_read(self) -> int:
        """Bytes read for the map of keys."""

    @property
    def map_messages_read(self) -> int:
        """Messages read for the map of keys."""

    @property
    def map_keys(self) -> int:
        """Different keys in the map."""

    @property
    def map_utilization(self) -> float:
        """Share of the buffer that was used, 0 to 1."""

    @property
    def map_is_full(self) -> bool:
        """The dirty section did not fit: more is left to be cleaned."""

    @property
    def bytes_read(self) -> int:
        """Bytes read to be copied."""

    @property
    def bytes_written(self) -> int:
        """Bytes that are left of them."""

    @property
    def messages_read(self) -> int:
        """Messages read to be copied."""

    @property
    def messages_retained(self) -> int:
        """Messages that are left of them."""

    @property
    def invalid_messages(self) -> int:
        """Messages without a key, which were dropped."""

    @property
    def batches_grown(self) -> int:
        """Batches that grew beyond ``max.message.bytes``."""

    @property
    def segments_read(self) -> int:
        """Segments that were replaced."""

    @property
    def segments_written(self) -> int:
        """Segments that took their place."""

@final
class CleanSegment:
    """What decides whether a segment is cleaned."""

    @property
    def base_offset(self) -> int:
        """First offset it may hold."""

    @property
    def size_bytes(self) -> int:
        """Bytes in the ``.log``."""

    @property
    def largest_timestamp(self) -> int:
        """Largest timestamp, or when the file was last written if it has none."""

    @property
    def first_timestamp(self) -> int | None:
        """Largest timestamp of the first batch; None for no batch, or when it was not asked for."""

@final
class Log:
    """One partition directory: segments, indexes, leader epochs, producer state.

    Any thread may call; the interpreter lock is released. After a failed write or fsync every call raises
    PoisonedLogError.
    """

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        config: LogConfig,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        recovery_threads: int = 1,
        progress: RecoveryProgress | None = None,
    ) -> Log:
        """Open a partition directory, creating it when absent.

        Args:
            path: The directory, such as ``data/orders-0``.
            config: Settings of the topic.
            now_ms: Wall clock.
            recovery_point: From ``recovery-point-offset-checkpoint``: all before it was flushed.
            log_start_offset: From ``log-start-offset-checkpoint``.
            clean_shutdown: ``.kafka_cleanshutdown`` was there. Without it the segments from the recovery point on are
                checked batch by batch, and the log ends before the first damaged one.
            recovery_threads: How many segments are checked at once.
            progress: Told how far the check is; may be read from another thread meanwhile.

        Raises:
            CorruptRecordError: Damage that cannot be cut off: offsets that do not rise or overflow, unreadable markers.
            LogError: A file that is not what its name says.
        """

    @property
    def path(self) -> Path:
        """The directory."""

    @property
    def log_start_offset(self) -> int:
        """First readable offset."""

    @property
    def log_end_offset(self) -> int:
        """Offset the next record gets."""

    @property
    def recovery_point(self) -> int:
        """All before it survives a crash (exclusive)."""

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments."""

    @property
    def segment_count(self) -> int:
        """Number of segments, at least one."""

    @property
    def active_segment_base_offset(self) -> int:
        """Base offset of the segment that appends go to."""

    @property
    def topic_id(self) -> bytes | None:
        """Id in ``partition.metadata``, 16 bytes."""

    @property
    def recovery_events(self) -> list[RecoveryEvent]:
        """What opening the log cut, removed or built anew; empty for a sound directory."""

    @property
    def poisoned(self) -> str | None:
        """The first failed write or fsync."""

    @property
    def latest_epoch(self) -> int | None:
        """Newest leader epoch."""

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of a transaction that is open, or whose marker is not below :meth:`update_high_watermark`."""

    def write_partition_metadata(self, topic_id: bytes) -> None:
        """Write ``partition.metadata`` durably. Raises LogError when it holds another id."""

    def begin_verification(
        self, producer_id: int, *, epoch: int, sequence: int, supports_epoch_bump: bool, now_ms: int
    ) -> int | None:
        """Before the coordinator is asked about the first batch of a transaction (KIP-890).

        Args:
            producer_id: Of the transaction.
            epoch: Of the producer.
            sequence: The first of the batch.
            supports_epoch_bump: Whether the producer gets a new epoch with each transaction.
            now_ms: Wall clock.

        Returns:
            The guard that the append has to bring, or None if the transaction is open here: then nobody is asked.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH; the producer is fenced.
        """

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Literal["client", "coordinator", "raft"] = "client",
        transaction_version: int = 0,
        verification: tuple[int, bool] | None = None,
    ) -> AppendInfo:
        """Append batches; they get the next offsets, the epoch and, with LogAppendTime, the time.

        ``records`` is not changed. Clients send exactly one batch and no control records; the others may send several.

        Args:
            records: The batches.
            leader_epoch: Written into them.
            now_ms: Wall clock.
            origin: Who appends, which decides how much is checked.
            transaction_version: Of the coordinator that writes a marker: from 2 on its epoch has to be above that of
                the transaction's records (KIP-1228).
            verification: (lowest sequence seen, producer gets a new epoch with each transaction) of the transaction
                that these records begin, as its verification told (KIP-890).

        Raises:
            KafkaError: 2, 10, 18, 32, 45, 47, 48, 52, 76 or 87, as the producer is to be told. Nothing was appended.
            OSError: The write failed; the log is poisoned.
        """

    def append_as_follower(self, records: Buffer, *, leader_epoch: int, now_ms: int | None = None) -> AppendInfo:
        """Append batches fetched from the leader; offsets and epochs stay as they are.

        Batches of an epoch above ``leader_epoch`` and all after them are left out.

        Raises:
            CorruptRecordError: A CRC differs or the offsets do not rise. Nothing is appended.
            OffsetOutOfRangeError: The first offset lies before the log end offset.
        """

    def read(self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool = True) -> FileSlice:
        """Whole batches from the one that holds ``offset`` on, all from one segment.

        Args:
            offset: In [log_start_offset, log_end_offset].
            max_bytes: At most so much, but the first batch always when ``min_one_batch``.
            end_offset: Exclusive bound, the high watermark or the log end offset.
            min_one_batch: See ``max_bytes``.

        Raises:
            OffsetOutOfRangeError: ``offset`` is outside of the log.
        """

    def flush(self) -> int:
        """Make all appended so far durable; returns the exclusive offset that holds for. Appends go on meanwhile."""

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader_epoch) of the first record that is at least as new; epoch -1 for none."""

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader_epoch) of the first record with the largest timestamp (KIP-734)."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= ``epoch``, its exclusive end offset), (-1, -1) when unknown (KIP-320)."""

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote ``offset``."""

    def epoch_entries(self) -> list[tuple[int, int]]:
        """(epoch, first offset) of all epochs."""

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Note durably that ``epoch`` begins at ``offset``."""

    def truncate_to(
        self,
        offset: int,
        *,
        now_ms: int | None = None,
        keep_recovery_point: Callable[[int], object] | None = None,
    ) -> bool:
        """Drop all records at and after ``offset``, durably; False when there were none.

        Args:
            offset: A batch that holds it in its middle goes as a whole.
            now_ms: Wall clock; now when absent.
            keep_recovery_point: Called with the recovery point before anything is cut, to write it to
                ``recovery-point-offset-checkpoint``: a crash must not leave a checkpoint that vouches for offsets
                that are written anew. What it raises comes out, and nothing is cut. It must not flush or truncate.
        """

    def truncate_fully_and_start_at(
        self,
        offset: int,
        *,
        now_ms: int | None = None,
        keep_recovery_point: Callable[[int], object] | None = None,
    ) -> None:
        """Drop everything and begin anew at ``offset``, durably; ``keep_recovery_point`` as in ``truncate_to``."""

    def advance_log_start_offset(self, offset: int) -> bool:
        """Let the log start at ``offset`` (DeleteRecords); False when it starts there or later already.

        The caller has compared it with the high watermark. Raises OffsetOutOfRangeError beyond the log end offset.
        """

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> list[int]:
        """Delete what retention no longer keeps, never beyond ``high_watermark``; returns base offsets.

        Files are renamed to ``.deleted``. Also forgets producers that have expired.
        """

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files of segments that were deleted ``file_delete_delay_ms`` ago; returns their number."""

    def update_high_watermark(self, high_watermark: int) -> None:
        """Transactions that ended below it are stable for good; see :attr:`first_unstable_offset`."""

    def roll(self, now_ms: int) -> int:
        """Begin a new segment at the log end offset; returns its base offset."""

    def take_producer_snapshot(self) -> None:
        """Write a producer snapshot at the log end offset, unless there is one."""

    def active_producers(self) -> list[ProducerInfo]:
        """All known producers."""

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int, int, int]]:
        """(producer_id, first_offset, last_offset, last_stable_offset) of those with data in [start, end)."""

    def update_config(self, config: LogConfig) -> None:
        """Use other settings from the next append on."""

    def segments(self) -> list[SegmentInfo]:
        """All segments in order."""

    def clean(
        self,
        *,
        first_dirty_offset: int,
        first_uncleanable_offset: int,
        now_ms: int,
        delete_retention_ms: int = 86_400_000,
        dedupe_buffer_bytes: int = 134_217_728,
        load_factor: float = 0.9,
        io_buffer_bytes: int = 262_144,
        cancel: CleanCancel | None = None,
        throttle: CleanThrottle | None = None,
    ) -> CleanReport:
        """Compact the log: the latest record of each key stays, with its offset. Appends and reads go on meanwhile.

        Args:
            first_dirty_offset: The last clean's ``next_dirty_offset``, or the log start offset.
            first_uncleanable_offset: Exclusive end, at most the high watermark. The active segment and open
                transactions are left alone in any case.
            now_ms: Wall clock.
            delete_retention_ms: ``delete.retention.ms``, for tombstones and for markers whose data is gone.
            dedupe_buffer_bytes: Memory for keys, 24 bytes each.
            load_factor: How full that may become, 0 to 1.
            io_buffer_bytes: Bytes read at once; as much again is written at once.
            cancel: Ends the clean when told to.
            throttle: Slows it down.

        Raises:
            CorruptRecordError: A batch is damaged. What was not swapped yet is as it was; the log is usable, but cannot
                be cleaned past this batch.
            LogError: The buffer has no room for one key.
            OSError: A segment cannot be read or copied; the log is as it was.
            PoisonedLogError: A swap failed before.
        """

    def cleanable_segments(self, start_offset: int) -> list[CleanSegment]:
        """All segments but the active one, with timestamps from the one that holds ``start_offset`` on."""

    def close(self) -> None:
        """Flush, write a producer snapshot, trim the indexes. Closing again does nothing."""

    def discard(self) -> None:
        """Let go of all files without flushing, before the directory is removed; later calls fail."""

    def delete(self) -> None:
        """Remove all files and the directory."""

@final
class DataServiceProbe:
    """A data service over logs of its own: tests hold its answers against those of the Python handlers."""

    def __new__(
        cls,
        directory: str | PathLike[str],
        *,
        flush_on_ack: bool,
        fetch_max_bytes: int = 57671680,
        session_slots: int = 1000,
        session_eviction_ms: int = 120000,
        partitions: Partitions | None = None,
    ) -> DataServiceProbe:
        """Logs are made in ``directory``; ``partitions`` may have others already.

        Raises:
            OSError: No descriptor is left.
        """

    def stop_clock(self, now_ms: int) -> None:
        """Let the wall clock stand at ``now_ms``, milliseconds since 1970."""

    def add_partition(self, topic: str, topic_id: bytes, index: int, *, leader_epoch: int, config: LogConfig) -> None:
        """Open a partition that the service leads alone.

        Raises:
            LogError: Its log cannot be opened.
        """

    def handle(self, frame: Buffer) -> tuple[str, bytes | None, str | None]:
        """Handle a frame without its size, and wait for what becomes of it.

        Returns:
            "answer" with the bytes, "none", "hand over", or "close" with a reason.
        """

    def append(self, topic: str, index: int, records: Buffer, *, is_coordinator: bool = False) -> int:
        """Append past the service and wait for the commit; returns the first offset.

        Raises:
            KeyError: There is no such partition.
            KafkaError: The batch is refused.
        """

    def delete_records(self, topic: str, index: int, offset: int) -> None:
        """Move the log start; as ``Log.advance_log_start_offset``."""

    def publish(self, topic: str, index: int, is_published: bool) -> None:
        """Let the service answer for a partition, or not."""

    def log_end_offset(self, topic: str, index: int) -> int:
        """Offset the next record gets."""

    def high_watermark(self, topic: str, index: int) -> int:
        """Exclusive end of what is committed."""

    @property
    def session_count(self) -> int:
        """Fetch sessions that are open."""

@final
class DirectoryLock:
    """A locked data directory; unlocked when released or collected."""

    @property
    def path(self) -> Path:
        """The directory, absolute."""

    def release(self) -> None:
        """Unlock. Further calls do nothing."""

def lock_directory(path: str | PathLike[str]) -> DirectoryLock:
    """Lock ``<path>/.lock`` the way Kafka does. Raises LogError naming the file when someone holds it."""

@final
class SegmentRecovery:
    """What :func:`recover_segment` found and did."""

    @property
    def truncated_bytes(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def offset_index(self) -> list[tuple[int, int]]:
        """(offset, position) each."""

    @property
    def time_index(self) -> list[tuple[int, int]]:
        """(timestamp, offset) each."""

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) each."""

    @property
    def producer_count(self) -> int: ...

@final
class RecoveryEvent:
    """One thing that was cut, removed or built anew while a log was opened; see :attr:`Log.recovery_events`."""

    @property
    def kind(self) -> str:
        """What was done: segment-cut, segment-removed, index-rebuilt, orphan-removed, epochs-rebuilt, ..."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def position(self) -> int:
        """First byte of the file that is concerned."""

    @property
    def offset(self) -> int:
        """First offset that is concerned, -1 when none is known."""

    @property
    def lost_bytes(self) -> int:
        """Bytes of records that are gone."""

    @property
    def reason(self) -> str:
        """What was found."""

@final
class RecoveryProgress:
    """How far the recovery of a log is; see :meth:`Log.open`. Any thread may read it."""

    def __new__(cls) -> RecoveryProgress: ...
    @property
    def segments_total(self) -> int:
        """Segments to be checked, as far as that is known."""

    @property
    def segments_done(self) -> int:
        """Segments checked."""

    @property
    def bytes_total(self) -> int:
        """Bytes of the segments to be checked."""

    @property
    def bytes_done(self) -> int:
        """Bytes checked."""

def recover_segment(path: str | PathLike[str], *, index_interval_bytes: int = 4096) -> SegmentRecovery:
    """Recover one ``.log`` as if the partition held nothing else: cut it before damage, rewrite its indexes.

    Raises:
        CorruptRecordError: Offsets that overflow or do not rise, or an unreadable marker; the log is as it was.
    """

# -- data path ---------------------------------------------------------------------------------------------------------

@final
class PartitionCore:
    """The state machine of one replica alone: calls tell it what happened, effects say what is to be done."""

    def __new__(
        cls,
        *,
        node_id: int,
        flush_on_ack: bool,
        min_insync_replicas: int,
        log_end_offset: int,
        flushed_offset: int,
        high_watermark: int,
    ) -> Self:
        """A replica without a leader.

        Args:
            node_id: This node.
            flush_on_ack: Whether the leader's own records count as replicated only once they are durable.
            min_insync_replicas: The topic's min.insync.replicas.
            log_end_offset: Offset the next record gets.
            flushed_offset: Exclusive end of what is durable.
            high_watermark: As the checkpoint had it, at most ``log_end_offset``.
        """

    @property
    def min_insync_replicas(self) -> int:
        """The topic's setting."""

    @property
    def effective_min_insync_replicas(self) -> int:
        """The setting, at most the number of replicas."""

    @property
    def log_end_offset(self) -> int:
        """Offset the next record gets."""

    @property
    def flushed_offset(self) -> int:
        """Exclusive end of what is durable."""

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is committed."""

    @property
    def leader_id(self) -> int:
        """The leader the metadata names, -1 for none."""

    @property
    def leader_epoch(self) -> int:
        """The epoch the metadata gives, -1 before any."""

    @property
    def partition_epoch(self) -> int:
        """The partition epoch the metadata gives, -1 before any."""

    @property
    def epoch_start_offset(self) -> int:
        """Where the epoch that this node leads began, -1 before any."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""

    @property
    def is_high_watermark_settled(self) -> bool:
        """Whether the high watermark has come to this epoch."""

    def last_caught_up_ms(self, replica_id: int) -> int | None:
        """When a follower last had everything; None for a replica that this leader does not know."""

    def handle_assignment(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        now_ms: int,
    ) -> None:
        """Follow the metadata; an older partition epoch, or an older leader epoch, changes nothing."""

    def update_min_insync_replicas(self, min_insync_replicas: int) -> None:
        """The topic's setting changed."""

    def check_leader_epoch(self, current_leader_epoch: int, *, needs_leader: bool = True) -> int:
        """The epoch check of KIP-320: 0, or the error code for the client."""

    def check_append(self, acks: int) -> int:
        """Whether a client may append now: 0 or an error code."""

    def follower_refusal(self, current_leader_epoch: int) -> int:
        """The error code for a fetch from a broker that may not replicate from here."""

    def on_appended(self, log_end_offset: int) -> None:
        """The log of the leader grew."""

    def on_flushed(self, flushed_offset: int) -> None:
        """Everything below ``flushed_offset`` is durable."""

    def on_follower_fetch(
        self,
        replica_id: int,
        fetch_offset: int,
        now_ms: int,
        *,
        broker_epoch: int = ...,
        log_start_offset: int = 0,
    ) -> tuple[int, int, int, list[tuple[int, int]]] | None:
        """A follower asked for ``fetch_offset``: it has everything below, durably. A proposal, if it is to join."""

    def propose_shrink(self, now_ms: int) -> tuple[int, int, int, list[tuple[int, int]]] | None:
        """Number, leader epoch, partition epoch and members of a proposal without those that fell behind."""

    def on_isr_committed(self, number: int, leader_epoch: int, partition_epoch: int, isr: list[int]) -> bool:
        """The controller confirmed a proposal; False for one that metadata has overtaken."""

    def on_isr_refused(self, number: int) -> None:
        """The controller refused a proposal."""

    def update_live_brokers(self, brokers: list[tuple[int, int, bool]]) -> None:
        """(broker, epoch, whether it shuts down) of those registered and not fenced."""

    def update_lag_max_ms(self, lag_max_ms: int) -> None:
        """replica.lag.time.max.ms."""

    def is_stale_broker(self, replica_id: int, broker_epoch: int) -> bool:
        """Whether a fetch comes from an earlier life of its broker."""

    @property
    def isr(self) -> list[int]:
        """As the controller confirmed it; empty on a follower."""

    @property
    def maximal_isr(self) -> list[int]:
        """With the replica that is about to join."""

    @property
    def pending_proposal(self) -> int | None:
        """Number of the proposal in flight."""

    @property
    def is_under_min_isr(self) -> bool:
        """Whether too few replicas are in sync to commit."""

    @property
    def is_at_min_isr(self) -> bool:
        """Whether just enough replicas are in sync to commit."""

    @property
    def is_under_replicated(self) -> bool:
        """Whether an assigned replica is not in sync."""

    def in_sync_followers_with(self, offset: int) -> list[tuple[int, int, int]]:
        """The other in-sync replicas that have ``offset``: id, log end, time when each was caught up."""

    def follower_end_offset(self, replica_id: int) -> int | None:
        """What a follower had at its last fetch."""

    def on_replicated(self, log_end_offset: int, leader_high_watermark: int, log_start_offset: int) -> None:
        """A follower appended what its leader sent."""

    def on_truncated(self, log_end_offset: int) -> None:
        """A follower's log was cut."""

    def on_truncated_fully(self, start_offset: int) -> None:
        """The log was emptied and starts at ``start_offset``."""

    def on_log_failed(self) -> None:
        """The log takes no more writes."""

    def wait_for_ack(self, end_offset: int, token: Any) -> None:
        """Report with AckCompleted when everything below ``end_offset`` is committed."""

    def close(self) -> None:
        """The replica goes away."""

    def take_effects(self) -> list[tuple[Any, ...]]:
        """Hand out and forget what is to be done, in order: the name of each effect and its fields."""

@final
class Inbox:
    """A mailbox of an event loop, filled by other threads."""

    def __new__(cls) -> Self:
        """An empty mailbox.

        Raises:
            OSError: No descriptor is left.
        """

    def fileno(self) -> int:
        """A descriptor that is readable while something waits."""

    def take(self) -> tuple[list[tuple[int, int]], list[int], list[tuple[Any, ...]], list[tuple[int, int, Any]]]:
        """What waits: acknowledgements, partitions that moved, all else by name, and events of sockets.

        An acknowledgement is a token and an error code. An event of a socket has the key of the connection, what
        happened, and what belongs to it: the number of a request, whose frame without its size field needs an answer,
        or one of the kinds that ``DataPath`` names. Nothing of a connection comes after it was lost.
        """

@final
class MemoryDisk:
    """A disk in memory: every path below ``root`` is opened there, by this class and by ``Log`` alike.

    What was not synced is lost in a crash, and operations fail when they are told to. The same calls with the same
    seeds leave the same bytes.

    Args:
        root: An absolute path, of which nothing needs to exist.

    Raises:
        ValueError: It is not absolute, or there is a disk with this root.
    """

    def __new__(cls, root: str | PathLike[str]) -> Self: ...
    @property
    def root(self) -> Path:
        """The path that was given."""

    @property
    def change_count(self) -> int:
        """Operations since the last crash that changed or synced something."""

    def close(self) -> None:
        """Give the root back; files that are open stay usable."""

    def open(self, path: str | PathLike[str], mode: Literal["read", "write", "create", "truncate"]) -> MemoryFile:
        """Open a file: ``write`` an existing one, ``create`` it empty if absent, ``truncate`` empties it."""

    def metadata(self, path: str | PathLike[str]) -> tuple[int, int, bool] | None:
        """(size in bytes, modification time in ms, whether it is a directory); None when there is nothing."""

    def rename(self, source: str | PathLike[str], target: str | PathLike[str]) -> None:
        """Rename a file or a directory; replaces a file."""

    def remove(self, path: str | PathLike[str]) -> None:
        """Remove a file."""

    def files(self, path: str | PathLike[str]) -> list[str]:
        """Names of the files in a directory, in order."""

    def directories(self, path: str | PathLike[str]) -> list[str]:
        """Names of the directories in a directory, in order."""

    def create_directory(self, path: str | PathLike[str]) -> None:
        """Create a directory and its parents; nothing happens when it exists."""

    def remove_directory(self, path: str | PathLike[str]) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: str | PathLike[str]) -> None:
        """Make the names in a directory survive a crash."""

    def set_now_ms(self, now_ms: int) -> None:
        """Modification time of what is written from here on."""

    def crash(
        self,
        data: Literal["nothing", "everything", "suffix", "torn", "pages", "contents"],
        names: Literal["nothing", "everything", "suffix", "any"],
        *,
        seed: int,
    ) -> None:
        """Lose what was not synced, and every lock and fault; files that were open fail from here on.

        Args:
            data: What is lost of the bytes of each file.
            names: What is lost of the changes of directories.
            seed: Chooses where several outcomes are possible.
        """

    def fail(self, operation: Literal["read", "write", "sync", "change", "open"], countdown: int, errno: int) -> None:
        """Let the operation number ``countdown`` (0 is the next) of this kind fail once."""

    def stop_after(self, changes: int | None, *others: MemoryDisk) -> None:
        """After so many further changes and syncs every one fails with EIO, until a crash; None takes that back.

        Args:
            changes: Of this disk and the others together.
            others: Disks of the same machine, which stop together.
        """

    def flip_on_read(self, countdown: int) -> None:
        """Let the read number ``countdown`` (0 is the next) see one bit inverted."""

    def flip_bit(self, path: str | PathLike[str], bit: int) -> bool:
        """Invert one bit of a file; False when there is no such file or bit."""

    def set_short_io(self, seed: int | None) -> None:
        """With a seed, reads and writes of logs move fewer bytes than asked or are interrupted, now and then."""

    def set_fault_seed(self, seed: int) -> None:
        """What decides which pages a failed sync had written, and which bit a read sees inverted."""

    def set_capacity(self, capacity_bytes: int | None) -> None:
        """Bytes in all files together beyond which writes fail with ENOSPC."""

    def clear_faults(self) -> None:
        """From here on nothing fails."""

    @property
    def has_pending_faults(self) -> bool:
        """Whether a failure that was set has not happened yet."""

@final
class MemoryFile:
    """An open file of a ``MemoryDisk``."""

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Up to ``size_bytes`` from ``position`` on; empty at the end."""

    def write_at(self, position: int, data: bytes) -> int:
        """Write, and return how many bytes were taken."""

    def truncate(self, size_bytes: int) -> None:
        """Set the length."""

    def sync(self) -> None:
        """Make the bytes survive a crash."""

    def close(self) -> None:
        """Close."""

@final
class FlushPool:
    """Threads that make logs durable; a log is in at most one round at a time."""

    def __new__(cls, name: str, *, threads_max: int = 8) -> Self:
        """A pool without a thread yet.

        Args:
            name: Of the threads, for debuggers.
            threads_max: fsyncs at a time.
        """

    @staticmethod
    def stepped(name: str) -> FlushPool:
        """A pool that never has a thread: what is queued waits for ``run_next``. For simulations."""

    @property
    def queued_count(self) -> int:
        """Flushes that wait for a thread, or for a step."""

    def run_next(self, index: int) -> bool:
        """Carry out the queued flush number ``index`` here and now; False when there is none."""

    @property
    def thread_count(self) -> int:
        """Threads that exist now."""

    def request_log(self, log: Log, inbox: Inbox, token: int) -> None:
        """Flush a log that belongs to no partition; ``inbox`` gets ("log_flushed", token, end offset, error)."""

    def stop(self) -> None:
        """End the threads after what is queued; later requests are dropped."""

@final
class Appended:
    """What an append to a partition did."""

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""

    @property
    def log_append_time_ms(self) -> int:
        """Time the records got with LogAppendTime, else -1; of a duplicate, its largest timestamp."""

    @property
    def log_start_offset(self) -> int:
        """First readable offset of the log."""

    @property
    def duplicate(self) -> bool:
        """The batch had been appended before: nothing was written, the offsets are those of then."""

    @property
    def leader_epoch(self) -> int:
        """The epoch under which it was appended."""

    @property
    def is_committed(self) -> bool:
        """Everything was committed at once."""

    @property
    def needs_flush(self) -> bool:
        """The caller has to ask for a flush, once for all appends of a turn."""

@final
class Partition:
    """A log and the state machine of its replica under one lock. Any thread may call."""

    def __new__(
        cls,
        *,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        node_id: int,
        flush_on_ack: bool,
        min_insync_replicas: int,
        high_watermark: int,
        flushed_offset: int,
        pool: FlushPool,
        inbox: Inbox,
        number: int,
    ) -> Self:
        """A partition that nobody leads yet.

        Args:
            topic: Its name.
            topic_id: 16 bytes.
            index: Of the partition.
            log: Its log, open.
            node_id: This node.
            flush_on_ack: Whether the leader's own records count as replicated only once they are durable.
            min_insync_replicas: The topic's min.insync.replicas.
            high_watermark: As the checkpoint had it, within the log.
            flushed_offset: Exclusive end of what is durable.
            pool: Flushes the logs of its directory.
            inbox: Told of acknowledgements, moves and failures.
            number: What events call this partition.
        """

    @property
    def leader_id(self) -> int:
        """The leader the metadata names, -1 for none."""

    @property
    def leader_epoch(self) -> int:
        """The epoch the metadata gives, -1 before any."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is committed."""

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what a read_committed consumer may see."""

    @property
    def log_end_offset(self) -> int:
        """Offset the next record gets."""

    @property
    def is_high_watermark_settled(self) -> bool:
        """Whether the high watermark has come to this epoch."""

    @property
    def is_published(self) -> bool:
        """Whether I/O threads may answer requests for it."""

    @property
    def serves_followers(self) -> bool:
        """Whether I/O threads may answer fetches of followers: not of a throttled replica, nor once it is withdrawn."""

    @property
    def min_insync_replicas(self) -> int:
        """The topic's setting."""

    @property
    def partition_epoch(self) -> int:
        """The partition epoch the metadata gives, -1 before any."""

    @property
    def flushed_offset(self) -> int:
        """Exclusive end of what is known to be durable."""

    def check_leader_epoch(self, current_leader_epoch: int, *, needs_leader: bool = True) -> int:
        """The epoch check of KIP-320: 0, or the error code for the client.

        Args:
            current_leader_epoch: What the client believes; -1 when it does not say.
            needs_leader: Whether a follower must refuse. A wrong epoch comes before a wrong role.
        """

    def follower_refusal(self, current_leader_epoch: int) -> int:
        """The error code for a fetch from a broker that may not replicate from here."""

    def append(
        self,
        records: Buffer,
        *,
        acks: int,
        now_ms: int,
        origin: Literal["client", "coordinator", "raft"] = "client",
        transaction_version: int | None = None,
        guard: int | None = None,
        requires_verification: bool = False,
    ) -> Appended:
        """Append one batch, in the epoch that this node leads then. Do not write into ``records`` meanwhile.

        Args:
            records: The batch.
            acks: -1 refuses when there are too few in-sync replicas.
            now_ms: Wall clock.
            origin: Who appends, which decides how much is checked.
            transaction_version: Of the coordinator that writes a marker, as in ``Log.append_as_leader``; a marker
                without it is refused.
            guard: What ``Log.begin_verification`` gave.
            requires_verification: Whether a transactional batch of a client has to belong to an open transaction or
                bring a guard that holds (KIP-890); else KafkaError INVALID_TXN_STATE.

        Raises:
            KafkaError: Not the leader, too few in-sync replicas, or what the engine refuses; nothing is appended.
            CorruptRecordError: The batch is damaged; nothing is appended.
            LogError: A marker comes without the version of its transaction; nothing is appended.
            PoisonedLogError: The log takes no more writes.
            OSError: A write failed.
        """

    def wait_for_ack(self, end_offset: int, *, leader_epoch: int, token: int) -> int | None:
        """Wait until everything below ``end_offset`` is committed; the inbox gets ``token``.

        Args:
            end_offset: Exclusive.
            leader_epoch: Of the append; under another one the records may be gone.
            token: What the acknowledgement carries.

        Returns:
            The error code if it is known already: then nothing follows.
        """

    def watch(self) -> None:
        """Have the inbox told when the high watermark, the leadership or the log start moves."""

    def unwatch(self) -> None:
        """End ``watch``."""

    def request_flush(self) -> None:
        """Make what was appended durable soon."""

    def flush_in_time(self) -> None:
        """``flush.ms`` is over since an ("unflushed", number) event: flush if something is not durable."""

    def log_start_moved(self) -> None:
        """The log start moved: tell those who wait."""

    def assign(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        now_ms: int,
        brokers: list[tuple[int, int, bool]] | None = None,
    ) -> tuple[int, int] | None:
        """Follow the metadata; then nothing of an older epoch can be appended any more.

        ``brokers`` as in ``update_live_brokers``, in force from the same moment on; None leaves them as they are.

        Returns:
            Epoch and first offset to be written into the log's leader epochs. The partition is held until then.
        """

    def update(
        self,
        *,
        min_insync_replicas: int,
        flush_messages: int,
        flushes_in_time: bool,
        answers_followers: bool = False,
    ) -> None:
        """Follow the topic's settings.

        Args:
            min_insync_replicas: min.insync.replicas.
            flush_messages: Offsets behind the last flush that make the next one due.
            flushes_in_time: Whether the inbox gets ("unflushed", number) at the first append behind a flush.
            answers_followers: Whether I/O threads answer fetches of followers; Python has the quota of those that are
                throttled.
        """

    def publish(self, is_published: bool) -> None:
        """Let I/O threads answer requests for it, or not any more."""

    def hold(self, is_held: bool) -> None:
        """Have I/O threads hand requests over while appends wait in a queue, or no longer."""

    def withdraw(self) -> None:
        """Nothing can be appended any more, and every wait ends; the log stays open."""

    @property
    def isr(self) -> list[int]:
        """Members of the in-sync set as the controller confirmed it; empty on a follower."""

    @property
    def maximal_isr(self) -> list[int]:
        """These and the replica that was proposed as a member, which may be one already (KIP-497)."""

    @property
    def is_under_min_isr(self) -> bool:
        """Whether too few replicas are in sync to commit; false on a follower."""

    @property
    def is_under_replicated(self) -> bool:
        """Whether an assigned replica is not in sync; false on a follower."""

    def in_sync_followers_with(self, offset: int) -> list[tuple[int, int, int]]:
        """The other in-sync replicas that have ``offset``: id, log end, time when each was caught up (ms)."""

    @property
    def low_watermark(self) -> int:
        """The smallest log start over the leader and its live followers."""

    def follower_fetch(
        self,
        *,
        replica_id: int,
        broker_epoch: int,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
        now_ms: int,
        is_arrival: bool,
    ) -> tuple[int, tuple[int, int] | None, int, int, int, tuple[int, int, int, list[tuple[int, int]]] | None]:
        """Check a follower's fetch, and record it if it has just arrived.

        Returns:
            Error code, (epoch, end offset) to truncate to, high watermark before this fetch, log start, log end, and
            a proposal of an in-sync set: number, leader epoch, partition epoch, (member, broker epoch) pairs.
        """

    def propose_shrink(self, now_ms: int) -> tuple[int, int, int, list[tuple[int, int]]] | None:
        """A proposal without the members that fell behind, None when there is none or one is in flight."""

    def is_proposal_pending(self, number: int) -> bool:
        """Whether the answer to a proposal is still awaited."""

    def isr_committed(self, number: int, *, leader_epoch: int, partition_epoch: int, isr: list[int]) -> bool:
        """The controller confirmed a proposal; False for one that metadata has overtaken."""

    def isr_refused(self, number: int) -> None:
        """The controller refused a proposal; another one may follow."""

    def set_adding(self, replica_ids: list[int]) -> None:
        """The replicas that a reassignment adds: bytes that they are sent count apart."""

    def update_live_brokers(self, brokers: list[tuple[int, int, bool]]) -> None:
        """(broker, epoch, whether it shuts down) of the other replicas that are registered and not fenced."""

    def update_lag_max_ms(self, lag_max_ms: int) -> None:
        """replica.lag.time.max.ms."""

    def write_epoch_start(self, leader_epoch: int, start_offset: int) -> None:
        """Write the beginning of the epoch that this replica leads; nothing happens once it no longer leads in it.

        Raises:
            LogError: The log takes no writes.
        """

    def watch_appends(self, number: int) -> None:
        """Tell the inbox, under ``number``, of each append and change of leaders from now on."""

    def unwatch_appends(self) -> None:
        """End that."""

    def truncate_as_follower(
        self, offset: int, *, leader_epoch: int, now_ms: int, keep_recovery_point: Callable[[int], object]
    ) -> tuple[int, int, int] | None:
        """Drop all records at and after ``offset``, durably, while this replica follows in ``leader_epoch``.

        Args:
            offset: The new end; a batch that holds it in its middle goes as a whole.
            leader_epoch: Under which that was decided.
            now_ms: Wall clock.
            keep_recovery_point: Makes the lowered recovery point durable before anything is cut.

        Returns:
            Log end, last epoch and high watermark; None when it does not follow in that epoch any more.

        Raises:
            LogError: The log could not be cut.
        """

    def restart_as_follower(
        self, offset: int, *, leader_epoch: int, now_ms: int, keep_recovery_point: Callable[[int], object]
    ) -> tuple[int, int, int] | None:
        """Like :meth:`truncate_as_follower`, but everything goes and the log starts at ``offset``."""

    def set_future(self, log: Log | None) -> None:
        """Fill ``log`` from now on, a copy in another data directory; None fills none any more."""

    def on_log_failed(self, reason: str) -> None:
        """The log takes no more writes: acknowledgements that wait end with KAFKA_STORAGE_ERROR."""

def copy_to_future(
    partition: Partition, *, max_bytes: int, now_ms: int
) -> tuple[str, int, int, int, BaseException | None]:
    """Copy the next part of a partition's log, ``max_bytes`` at most but one batch at least.

    Returns:
        Outcome ("", "gone" without a copy, "source" or "target" for the log that failed), exclusive ends of the copy
        and, before this part, of the log, copied bytes, and the error of a failure.
    """

def replace_with_future(
    partition: Partition, *, retired: str, pool: FlushPool, max_bytes: int, now_ms: int
) -> tuple[str, BaseException | None]:
    """Let the copy take the place of the log, whose directory is renamed to ``retired``; appends wait meanwhile.

    Returns:
        Outcome as above, or "behind" while more than ``max_bytes`` is left to be copied, and the error of a failure.
    """

def flush_logs(logs: Sequence[Log]) -> list[int | BaseException]:
    """Flush several logs, one after the other; returns for each what ``Log.flush`` returns, or the error it raises.

    The interpreter is free from the first to the last. The error of one log leaves the others alone.
    """

def append_fetched(
    fetched: Sequence[tuple[Partition, Buffer, int, int, int, int]], *, now_ms: int, flush: bool
) -> list[tuple[str, int, int, int, int, int, BaseException | None]]:
    """Append what was fetched of leaders: partition, records, fetch offset, leader epoch, high watermark, log start.

    With ``flush`` what grew is durable on return. One partition's failure leaves the others alone.

    Returns:
        Outcome ("", "superseded", "moved" or "failed"), log end, log start, last epoch, high watermark, size in bytes
        and the error of a failure, for each in order.
    """

@final
class Partitions:
    """The partitions that I/O threads find, by topic id and by name."""

    def __new__(cls) -> Self:
        """An empty registry."""

    def __len__(self) -> int:
        """How many there are."""

    def add(self, partition: Partition) -> None:
        """A partition's log was opened. It replaces one of the same key or name."""

    def take_replicated_out(self) -> tuple[int, int]:
        """Bytes that I/O threads sent to followers since the last call, and those of them to replicas being added."""

    def lead(self, topic_id: bytes, index: int, follower_ids: Sequence[int]) -> None:
        """This node begins to lead a partition: fetches of these followers that wait on I/O threads are answered.

        Until a fetch of such a follower names the partition, they wait for 5, 10, 20 ms and so on, for at most two
        seconds.
        """

    def remove(self, partition: Partition) -> None:
        """A partition is deleted or its directory failed; another one of its key or name stays."""

    def counts(self) -> tuple[int, int, int, int, int]:
        """Partitions; of those led here all, and those under-replicated, under and at min.insync.replicas."""

# -- rows to segments --------------------------------------------------------------------------------------------------

_StartTuple: TypeAlias = tuple[str, int, int, int]

@final
class WrittenRows:
    """What a :class:`RowWriter` made of one partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """Offset after the last record."""

    @property
    def rows(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Of the segments."""

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """Each epoch with its first offset."""

@final
class RowWriter:
    """Writes Arrow rows into new partition directories ``<topic>-<partition>``, each with its segments and indexes.

    The rows of a partition come one behind the other. Columns, found by name: ``value``, and if there ``key``,
    ``topic``, ``partition``, ``headers``, ``timestamp`` (any unit, or int64 of milliseconds), ``timestampType``,
    ``offset`` and ``leaderEpoch``. Any thread may call; the interpreter lock is released.

    Args:
        directory: Exists and is empty.
        config: Settings of the logs.
        topic: Of all rows, whatever a column says.
        partition: Of all rows, whatever a column says.
        starts: Partitions that have records already: topic, partition, least offset of the first record, leader epoch.
        leader_epoch: Of the partitions not in ``starts``, for rows without one.
        compression: Codec.
        compression_level: Level of the codec, Kafka's default when None.
        timestamp_type: Of all records; None: as ``timestampType`` says, or CreateTime.
        batch_bytes: A batch ends before it grows beyond this uncompressed, header included.
        batch_rows: Most records of a batch.

    Raises:
        ValueError: An option makes no sense.
    """

    def __new__(
        cls,
        directory: str | PathLike[str],
        *,
        config: LogConfig,
        topic: str | None = None,
        partition: int | None = None,
        starts: Sequence[_StartTuple] = ...,
        leader_epoch: int = 0,
        compression: str = "none",
        compression_level: int | None = None,
        timestamp_type: str | None = None,
        batch_bytes: int = 131072,
        batch_rows: int = 2147483647,
    ) -> RowWriter: ...
    def write(self, rows: Any, now_ms: int) -> None:
        """Append the rows of an Arrow record batch or struct array; ``now_ms`` is the time of those without one.

        Raises:
            ValueError: Rows that make no log: the text names topic, partition and offset. The writer is finished then.
            OSError: A file cannot be written.
        """

    def finish(self) -> list[WrittenRows]:
        """Close all files, durably."""

def key_partitions(keys: Any, values: Any, partition_count: int) -> ArrowArray:
    """The partition of each row as Kafka's default partitioner has it, int32; of the value where the key is null.

    Args:
        keys: Binary or text array.
        values: The same, as long.
        partition_count: At least 1.

    Raises:
        ValueError: Another type or count.
    """

def check_compression(compression: str, level: int | None = None) -> None:
    """Raises ValueError when there is no such codec, or it has no such level."""

# -- scan --------------------------------------------------------------------------------------------------------------

_BinaryType: TypeAlias = Literal["binary", "large_binary", "binary_view"]

class _ColumnOptions(TypedDict, total=False):
    columns: Sequence[str] | None
    binary_type: _BinaryType
    timestamp_unit: Literal["ms", "us"]
    topic_dictionary: bool
    empty_headers_null: bool
    topic: str | None
    partition: int | None
    batch_rows: int
    batch_bytes: int
    check_crc: bool
    include_control: bool
    start_offset: int | None
    end_offset: int | None
    from_timestamp: int | None
    to_timestamp: int | None

class _ScanOptions(_ColumnOptions, total=False):
    isolation_level: Literal["read_uncommitted", "read_committed"]
    on_corrupt: Literal["raise", "skip"]
    memory_map: bool
    drop_behind: bool
    threads: int

class _HasDirectory(Protocol):
    def __kraftlog_directory__(self) -> RemoteDirectory: ...

# A directory of this machine, or a value that stands for one elsewhere.
_Directory: TypeAlias = str | PathLike[str] | _HasDirectory
_AbortedTuple: TypeAlias = tuple[int, int, int]
_SourceTuple: TypeAlias = tuple[
    _Directory, str | None, int | None, int | None, int | None, Sequence[_AbortedTuple] | None
]
_ReportTuple: TypeAlias = tuple[int, int, int, int, int, int, list[tuple[str, int, int, int, str]]]

@final
class ArrowBatch:
    """Rows in columns, for any reader of the Arrow PyCapsule interface; an Arrow record batch."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
    @property
    def column_names(self) -> list[str]:
        """Names of the columns in order."""
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> Any:
        """Capsule ``arrow_schema``."""
    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Capsules ``arrow_schema`` and ``arrow_array``.

        Args:
            requested_schema: As in :meth:`ArrowStream.__arrow_c_stream__`.
        """

@final
class ArrowArray:
    """One Arrow array, for any reader of the Arrow PyCapsule interface."""

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> Any:
        """Capsule ``arrow_schema``."""
    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Capsules ``arrow_schema`` and ``arrow_array``.

        Args:
            requested_schema: A capsule ``arrow_schema`` with the type that is wanted; what cannot be given as that is
                given as it is.
        """

@final
class ArrowBatchIterator:
    """One pass over an :class:`ArrowStream`. Any thread may take the next batch."""

    def __iter__(self) -> ArrowBatchIterator: ...
    def __next__(self) -> ArrowBatch: ...

@final
class ArrowStream:
    """A scan that starts anew for each consumer, be it a loop or a reader of the Arrow PyCapsule interface.

    A loop raises :class:`~kraftlog.errors.CorruptRecordError`; the C interface can only hand on its text.
    """

    @property
    def column_names(self) -> list[str]:
        """Names of the columns in order."""
    def report(self) -> _ReportTuple:
        """Counters of the pass that was begun last, also while it runs.

        Returns:
            Bytes read, segments opened, batches taken, batches stepped over by their header, rows given, damaged
            ranges left out, and the first 10 000 of these: path, first byte, exclusive end, base offset, reason.
        """
    def __iter__(self) -> ArrowBatchIterator: ...
    def __arrow_c_schema__(self) -> Any:
        """Capsule ``arrow_schema``."""
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Capsule ``arrow_array_stream`` of a new scan, which begins when its first batch is asked for.

        Args:
            requested_schema: A capsule ``arrow_schema`` with types that are wanted: bytes and texts with 32-bit or
                64-bit offsets or as views, timestamps in milli-, micro- or nanoseconds and with any zone, topic and
                codec as dictionaries with any keys, headers as a large list. A column keeps its type where another is
                wanted.

        Raises:
            ValueError: The requested schema has other columns.
        """

def decode_batches(data: Buffer | list[Any], **options: Unpack[_ColumnOptions]) -> ArrowBatch:
    """The records of whole record batches as one Arrow batch; a truncated one at the end of a buffer is left out.

    Args:
        data: Record batches back to back, or a list of such buffers. Read-only buffers are shared, others copied.
        options: As :func:`scan_stream`; the bounds on rows and bytes are not looked at.

    Raises:
        CorruptRecordError: A batch is not sound; the text names its position.
        LogError: The keys and values take more than 1 GiB.
    """

def decode_cells(
    cells: Any,
    *,
    start: int = 0,
    first_row: int = 0,
    on_error: Literal["fail", "null"] = "fail",
    keep_truncated: bool = False,
    **options: Unpack[_ColumnOptions],
) -> tuple[ArrowArray, int, int]:
    """The records of cells that hold whole record batches: a list of structs for each cell, null for a null cell.

    Args:
        cells: An Arrow array of binary, large binary or binary views (anything with ``__arrow_c_array__``).
        start: The first cell to decode.
        first_row: What error texts call the first cell of the array.
        on_error: ``null`` gives a null list for a bad cell, ``fail`` raises.
        keep_truncated: Leave out bytes at a cell's end that are the beginning of a batch, as in answers to a fetch;
            else such a cell is bad.
        options: As :func:`scan_stream`; ``batch_bytes`` bounds what one call gives, though a single cell may give up
            to 1 GiB.

    Returns:
        The lists, the cell after the last that was decoded, and how many cells are null because they are bad.

    Raises:
        CorruptRecordError: A cell is bad; names its row, byte position and base offset.
        LogError: A cell has more than 1 GiB of records.
    """

def scan_stream(
    sources: Sequence[_SourceTuple],
    **options: Unpack[_ScanOptions],
) -> ArrowStream:
    """Scans partition directories one after the other.

    Args:
        sources: Directory, topic, partition, first offset (inclusive), end offset (exclusive) of each, and for
            read_committed the aborted transactions (producer id, first offset, offset of the marker) when they are
            known and the end offset is no later than the last stable offset.
        options: ``columns`` in the wanted order; ``batch_rows`` and ``batch_bytes`` bound each Arrow batch. Without
            ``check_crc`` headers are believed, and the rows of a batch may come from its header alone.
    """

def batch_stream(
    open: Callable[
        [
            Literal["binary", "large_binary", "binary_view"] | None,
            Literal["ms", "us"] | None,
            bool | None,
        ],
        Iterable[ArrowBatch],
    ],
    *,
    columns: Sequence[str] | None = None,
    binary_type: Literal["binary", "large_binary", "binary_view"] = "binary",
    timestamp_unit: Literal["ms", "us"] = "ms",
    topic_dictionary: bool = False,
    empty_headers_null: bool = False,
) -> ArrowStream:
    """Batches that Python gives one by one, as a stream with the schema of a scan.

    Args:
        open: Begins a pass: returns the batches, whose types may be those that it is called with (binary type,
            timestamp unit, topic dictionary; None for those of the stream). Others are converted. An iterator with
            ``close`` is closed when the pass ends.
        columns: Of the batches.
        binary_type: Of keys and values.
        timestamp_unit: Of timestamps.
        topic_dictionary: Whether the topic is a dictionary.
        empty_headers_null: Whether a record without headers has null for them.
    """

def scan_batches_stream(
    sources: Sequence[_SourceTuple],
    *,
    columns: Sequence[str] | None = None,
    timestamp_unit: Literal["ms", "us"] = "ms",
    check_crc: bool = False,
    begin_in_range: bool = False,
    on_corrupt: Literal["raise", "skip"] = "raise",
    batch_rows: int = 16384,
) -> ArrowStream:
    """A row for each record batch: what its header says, and with ``check_crc`` whether its checksum is right.

    Args:
        sources: As :func:`scan_stream`.
        columns: In the wanted order, in snake case or in the camel case that the Spark source has; all but
            ``has_delete_horizon`` and ``file`` when None.
        timestamp_unit: Of ``base_timestamp`` and ``max_timestamp``.
        check_crc: Fill ``crc_ok``, for which every byte is read.
        begin_in_range: Only batches whose first offset is in the range of their source; else those that have an
            offset in it.
        on_corrupt: ``skip`` goes on at the next batch that ``.index`` names, else with the next segment, and
            reports what was left out. A batch with a wrong checksum has a row in any case.
        batch_rows: Most rows of an Arrow batch.

    Raises:
        ValueError: A column that does not exist.
    """

@final
class LogSplit:
    """A part of a log, of one segment. It is read by its offsets, since compaction may swap the file meanwhile."""

    @property
    def segment_base_offset(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """Exclusive."""

    @property
    def position(self) -> int:
        """Of the first byte in the segment now."""

    @property
    def size_bytes(self) -> int:
        """In the segment now."""

@final
class LogTransactions:
    """What a partition directory knows of producers and transactions."""

    @property
    def last_stable_offset(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """Offset after the last batch."""

    @property
    def aborted(self) -> list[_AbortedTuple]:
        """Producer id, first offset and offset of the marker of each."""

    @property
    def producers(self) -> list[ProducerInfo]: ...

def read_transactions(
    directory: _Directory,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    on_corrupt: Literal["raise", "skip"] = "raise",
) -> LogTransactions:
    """What a partition directory knows of producers and transactions up to ``end_offset``, exclusive.

    Aborted transactions are those with records at or after ``start_offset``.
    """

def list_segments(directory: _Directory) -> list[tuple[int, Any, int]]:
    """Base offset, path (pathlib.Path) and size in bytes of each ``.log`` file, by rising offset."""

def log_end_offset(directory: _Directory) -> int:
    """The offset after the last whole batch in a partition directory, 0 without segments."""

def offset_for_timestamp(directory: _Directory, start_offset: int, timestamp: int) -> tuple[int, int] | None:
    """Offset and timestamp (ms) of the first record from ``start_offset`` on that is as late as ``timestamp``."""

def plan_splits(
    directory: _Directory,
    *,
    split_bytes: int,
    start_offset: int | None = None,
    end_offset: int | None = None,
) -> list[LogSplit]:
    """Parts of about ``split_bytes`` that together hold each offset once."""

@final
class RemoteDirectory:
    """A partition whose objects Python fetches; indexes that were fetched are kept, 16 MiB for the process.

    Args:
        reader: Has ``begin(object, start, end, check)``, which gives a future of the bytes of a range of the object
            with that index; with ``check`` the object has to be the one that was listed.
        url: For errors.
        objects: Kind (log, index, timeindex, txnindex, snapshot), offset, exclusive end of the offsets that are read
            from a log, URL and size in bytes.
        hint: Base offset of a segment, byte position of a batch at or before the first wanted one, and byte position
            behind the last.
        window_bytes: Most bytes of a range of a log.

    Raises:
        ValueError: A kind that is none.
    """

    def __new__(
        cls,
        reader: Any,
        url: str,
        objects: Sequence[tuple[str, int, int | None, str, int]],
        *,
        hint: tuple[int, int, int] | None = None,
        window_bytes: int = ...,
    ) -> RemoteDirectory: ...

def decompressed_size(data: Buffer) -> int:
    """Bytes that the records of whole batches take uncompressed: each is decompressed and nothing else.

    Raises:
        CorruptRecordError: A batch does not decompress.
    """

@final
class ArrowFileWriter:
    """Arrow batches to a file in the IPC format, which every Arrow library reads.

    Args:
        path: The file, which is replaced; stdout when None.
        schema: A stream of the batches that will be written.
        stream: The streaming format, for pipes, and not the file format, which ends with a table of contents.
    """

    def __new__(
        cls, path: str | PathLike[str] | None, schema: ArrowStream, *, stream: bool = False
    ) -> ArrowFileWriter: ...
    def write(self, batch: ArrowBatch) -> None:
        """Append a batch.

        Raises:
            OSError: The file cannot be written; BrokenPipeError when nobody reads it.
        """
    def close(self) -> None:
        """Write the end and close; again does nothing."""

@final
class LogDump:
    """Batches or records of a log or checkpoint file as lines, some at a time.

    Args:
        path: The file.
        form: ``text`` for the lines of Kafka's DumpLogSegments (bytes that are not UTF-8 become U+FFFD as in Java),
            ``json`` for one object per line (such bytes are base64 under a name like ``valueBase64``).
        records: A line for each record too; with ``json`` instead of those for batches.
        data: Records with key and value, and with ``json`` headers in full.
        record_metadata: Offset, timestamp, sizes and header keys of records (``text`` only).
        max_bytes: How much of the file to look at; all when None.
        start_offset: First offset of records, inclusive. The file's offset index says where to begin.
        end_offset: Exclusive.
        from_timestamp: Least record timestamp (ms), inclusive.
        to_timestamp: Exclusive (ms).
        aborted: Transactions whose records are left out, as producer id, first offset and offset of the marker.
        first_members: Members that each JSON object starts with, each followed by a comma.
        describe: Called with offset, key, value, whether it is a control record, and the text that goes before the
            first part; gives what stands for key and value, or None for the plain form. Not asked about markers that
            end transactions.
        describes_data: ``describe`` is asked about every record, not only about control records.

    Iterating raises CorruptRecordError naming file and position after the lines before the defect, and what
    ``describe`` raises.
    """

    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        form: Literal["text", "json"],
        records: bool = False,
        data: bool = False,
        record_metadata: bool = True,
        max_bytes: int | None = None,
        start_offset: int | None = None,
        end_offset: int | None = None,
        from_timestamp: int | None = None,
        to_timestamp: int | None = None,
        aborted: Sequence[tuple[int, int, int]] | None = None,
        first_members: str = "",
        describe: Callable[[int, bytes | None, bytes | None, bool, str], str | None] | None = None,
        describes_data: bool = False,
    ) -> LogDump: ...
    @property
    def position(self) -> int:
        """Byte position behind the last batch that was looked at."""
    @property
    def size_bytes(self) -> int:
        """Bytes of the file when it was opened, at most ``max_bytes``."""
    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Offsets of records that follow each other without being consecutive; the first is compared with -1."""
    def __iter__(self) -> LogDump: ...
    def __next__(self) -> bytes: ...

def verify_files(
    paths: Sequence[str | PathLike[str]],
    *,
    deep: bool = True,
    threads: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> str:
    """Check log directories, partition directories or files; nothing is changed.

    Args:
        paths: What to check.
        deep: Decode every record, not only frames and checksums.
        threads: Threads that read; 0 means one per processor.
        progress: Called now and then with bytes done and bytes altogether; an exception ends the work.

    Returns:
        JSON: ``status`` ("sound" or "problems"), ``live``, ``cancelled``, ``partitions``, ``findings``, ``plan``.

    Raises:
        LogError: A path is no log directory.
        OSError: A path cannot be read.
    """

def salvage_files(
    source: str | PathLike[str],
    output: str | PathLike[str],
    *,
    partial_batches: bool = False,
    threads: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> str:
    """Copy what is sound of a log into a new directory; nothing below ``source`` is written to.

    Args:
        source: Log directory, partition directory or ``.log`` file.
        output: A directory that is new or empty and not inside the source.
        partial_batches: Keep the first records of uncompressed batches with a wrong checksum too.
        threads: Threads; 0 means one per processor.
        progress: Called now and then with bytes done and bytes altogether; an exception ends the work.

    Returns:
        JSON: ``status`` ("complete" or "losses"), ``cancelled`` and ``partitions`` with their ``losses``.

    Raises:
        LogError: The output is refused, or the source is no log.
        OSError: The output cannot be written.
    """

# -- clients -----------------------------------------------------------------------------------------------------------

@final
class FetchedPartition:
    """The records of one partition in a Fetch response: given in columns or as objects until they are used up.

    Args:
        data: The records field; it stays exported while this or a batch of views lives.
        topic: Value of the topic column.
        partition: Value of the partition column.
        fetch_offset: Records before it are left out.
        aborted: Producer id and first offset of the aborted transactions in the answer, whose records are left out;
            None gives the records of all transactions.
        as_records: For ``next_records``; ``columns``, ``binary_type`` and ``timestamp_unit`` do not count then.
    """

    def __new__(
        cls,
        data: Buffer,
        topic: str,
        partition: int,
        fetch_offset: int,
        aborted: Sequence[tuple[int, int]] | None = None,
        *,
        as_records: bool = False,
        columns: Sequence[str] | None = None,
        binary_type: Literal["binary", "large_binary", "binary_view"] = "binary",
        timestamp_unit: Literal["ms", "us"] = "ms",
        topic_dictionary: bool = False,
        empty_headers_null: bool = False,
        batch_rows: int = 16384,
        batch_bytes: int = 8388608,
        check_crc: bool = True,
        end_offset: int | None = None,
    ) -> Self: ...
    def restart(self, data: Buffer, fetch_offset: int, aborted: Sequence[tuple[int, int]] | None = None) -> None:
        """Begin with another answer of the partition, in the memory of the decoder that is there."""
    def clear(self) -> None:
        """Let go of the records, those that were not given too."""
    @property
    def next_offset(self) -> int:
        """The offset after the rows given so far, and after what was left out before the next one."""
    @property
    def last_epoch(self) -> int:
        """Partition leader epoch of the last batch read; -1 when it has none, or none was read."""
    @property
    def is_finished(self) -> bool:
        """Whether all rows were given."""
    def next_batch(self) -> ArrowBatch | None:
        """The next rows; None when all were given.

        Raises:
            CorruptRecordError: A batch cannot be read, or the bytes hold nothing at the fetch offset or after it.
        """
    def next_records(self) -> list[ConsumerRecord] | None:
        """The same as objects."""

@final
class ConsumerRecord:
    """One record; its bytes become Python objects when they are asked for."""

    @property
    def topic(self) -> str:
        """Name of the topic."""
    @property
    def partition(self) -> int:
        """Number of the partition."""
    @property
    def offset(self) -> int:
        """Offset in the log."""
    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime, -1 none."""
    @property
    def key(self) -> bytes | None:
        """The key."""
    @property
    def value(self) -> bytes | None:
        """The value; None for a tombstone."""
    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Keys and values of the headers."""

def check_columns(columns: Sequence[str]) -> None:
    """Compare names with the columns that records have.

    Raises:
        ValueError: A name is no column, or is there twice.
    """

def murmur2(data: Buffer) -> int:
    """The hash that Kafka's producers take of a key (``Utils.murmur2``), as a signed integer of 32 bits."""

def produced_batches(
    rows: Any,
    *,
    partition_count: int,
    now_ms: int,
    sticky_partition: int = 0,
    compression: _Compression = "none",
    compression_level: int | None = None,
    batch_bytes: int = 1048576,
    key: str | None = None,
    value: str | None = None,
    partition_by: str | None = None,
) -> list[tuple[int, int, EncodedBatch]]:
    """The batches that a producer sends for Arrow rows: partition, number of records, the batch at offset 0.

    A batch that compression would not make smaller is not compressed.

    Args:
        rows: Columns ``value`` and maybe ``key``, ``headers``, ``timestamp`` and ``partition``.
        partition_count: Partitions of the topic. Rows without a partition go where the hash of their key says.
        now_ms: Timestamp of rows without one.
        sticky_partition: Where rows without a key go until a batch is full; then the next partition follows.
        compression: Codec.
        compression_level: Level of the codec, its default when None.
        batch_bytes: Most bytes of a batch before compression; a larger record gets a batch of its own.
        key: The column of the keys, instead of ``key``.
        value: The column of the values, instead of ``value``.
        partition_by: A column of bytes or text whose hash decides the partition, instead of that of the key; null
            counts as empty.

    Raises:
        ValueError: Another column or type, or a partition that the topic does not have.
    """

@final
class EncodedBatch:
    """A record batch that waits for its producer and sequence; a buffer once it is sealed, which never changes.

    Args:
        data: A whole batch (bytes); they are copied.
    """

    def __new__(cls, data: Buffer, /) -> Self: ...
    def __len__(self) -> int:
        """Bytes."""
    def seal(
        self,
        producer_id: int = ...,
        producer_epoch: int = ...,
        base_sequence: int = ...,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Give the batch its producer, none if the id is negative as by default, and its checksum.

        Raises:
            ValueError: It is sealed already, or has fewer bytes than a header.
        """
    def __buffer__(self, flags: int, /) -> memoryview: ...
