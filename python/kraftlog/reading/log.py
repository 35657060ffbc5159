"""One partition's directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraftlog._kraftlog import (
    ArrowStream,
    list_segments,
    log_end_offset,
    offset_for_timestamp,
    read_transactions,
    scan_batches_stream,
)
from kraftlog.errors import LogError, OffsetOutOfRangeError
from kraftlog.reading.arrow_scan import ending_at
from kraftlog.reading.directory import (
    read_checkpoint,
    read_leader_epochs,
)
from kraftlog.reading.engine_scan import Scan
from kraftlog.reading.facts import (
    AbortedTransaction,
    IndexFile,
    IndexKind,
    LeaderEpoch,
    OffsetAndTimestamp,
    Producer,
    Segment,
)
from kraftlog.reading.scan_options import (
    DEFAULT_COLUMNS,
    BinaryType,
    End,
    IsolationLevel,
    OnCorrupt,
    ScanOptions,
    ScanSource,
    Timestamp,
    TimestampUnit,
    milliseconds,
)
from kraftlog.storage.checkpoints import LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kraftlog.types import TopicPartition, Uuid
from kraftlog.vocabulary import SYSTEM_TOPICS

__all__ = ["Log", "batches_of", "columns_of", "topic_id_of"]

_INDEX_KINDS: tuple[IndexKind, ...] = ("index", "timeindex", "txnindex", "snapshot")


@dataclass(frozen=True, slots=True)
class Log:
    """The directory of one partition, read only. Each property looks at the files anew.

    Args:
        path: The directory, such as ``kafka-logs/orders-0``.
        topic: Name of the topic.
        partition: Number of the partition.
    """

    path: Path
    topic: str
    partition: int

    @property
    def is_internal(self) -> bool:
        """One of Kafka's own topics, ``__cluster_metadata`` among them."""
        return self.topic in SYSTEM_TOPICS

    @property
    def topic_id(self) -> Uuid | None:
        """The id in ``partition.metadata``; None without the file.

        Raises:
            LogError: The file holds no id.
        """
        path = self.path / "partition.metadata"
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        return topic_id_of(text, origin=str(path))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments by rising base offset, with the files beside them."""
        return tuple(segment for found in list_segments(self.path) if (segment := _segment(*found)) is not None)

    @property
    def size_bytes(self) -> int:
        """Bytes of the ``.log`` files, which is what Kafka calls the size of a partition."""
        return sum(size for _, _, size in list_segments(self.path))

    @property
    def log_start_offset(self) -> int:
        """The first readable offset: of the first segment, or what a DeleteRecords request left."""
        segments = list_segments(self.path)
        first = segments[0][0] if segments else 0
        checkpoint = read_checkpoint(self.path.parent / LOG_START_OFFSET_CHECKPOINT)
        return max(first, checkpoint.get(self._topic_partition, 0))

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch."""
        return log_end_offset(self.path)

    @property
    def high_watermark(self) -> int | None:
        """The offset up to which (exclusive) all in-sync replicas have the log, by the broker's checkpoint.

        Kafka writes it every 5 s and when it stops: the true one of a running broker is the same or later. None
        without a checkpoint; the log start offset when the checkpoint does not name the partition.
        """
        path = self.path.parent / REPLICATION_OFFSET_CHECKPOINT
        if not path.is_file():
            return None
        start_offset = self.log_start_offset
        return max(read_checkpoint(path).get(self._topic_partition, start_offset), start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed ends: the first offset of an open transaction, else the log end offset."""
        return min(read_transactions(self.path).last_stable_offset, self.log_end_offset)

    @property
    def leader_epochs(self) -> tuple[LeaderEpoch, ...]:
        """Each leader epoch with its first offset; empty without a checkpoint of them."""
        return read_leader_epochs(self.path)

    def producers(self) -> tuple[Producer, ...]:
        """Idempotent and transactional producers by id: those of the newest snapshot, and what the log says since.

        None is left out for being idle, as a broker does after ``producer.id.expiration.ms``.
        """
        return tuple(
            Producer(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_offset=producer.last_offset,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_transaction_start_offset=producer.current_txn_first_offset,
            )
            for producer in read_transactions(self.path).producers
        )

    def aborted_transactions(
        self, start_offset: int | None = None, end_offset: int | None = None
    ) -> tuple[AbortedTransaction, ...]:
        """Aborted transactions with offsets in a range, by the offset of their markers.

        Args:
            start_offset: Inclusive; the start of the log when None.
            end_offset: Exclusive; the end of the log when None.
        """
        transactions = read_transactions(self.path, start_offset=start_offset, end_offset=end_offset)
        return tuple(AbortedTransaction(*fields) for fields in transactions.aborted)

    def offset_for_timestamp(self, timestamp: Timestamp) -> OffsetAndTimestamp | None:
        """The first record, by offset, that is as late as ``timestamp`` or later; None when there is none.

        Transaction markers count, as in Kafka's ``FileRecords.searchForTimestamp``, so that the answer is that of a
        consumer's ``offsetsForTimes``. A scan from there gives the records behind the marker.

        Args:
            timestamp: Milliseconds, or a datetime with a time zone.
        """
        since = milliseconds(timestamp)
        if since is None:
            raise ValueError("a timestamp is wanted")
        found = offset_for_timestamp(self.path, self.log_start_offset, since)
        return None if found is None else OffsetAndTimestamp(*found)

    def scan(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        end: End = "log_end",
        from_timestamp: Timestamp | None = None,
        to_timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        headers: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
        binary_type: BinaryType = "binary",
        timestamp_unit: TimestampUnit = "ms",
        topic_dictionary: bool = False,
        batch_rows: int = 16384,
        batch_bytes: int = 8 << 20,
        threads: int = 1,
        memory_map: bool = False,
        drop_behind: bool = False,
        check_crc: bool = True,
        include_control: bool = False,
        on_corrupt: OnCorrupt = "raise",
    ) -> Scan:
        """The records as a stream of Arrow batches: iterate it, or hand it to an Arrow library, as often as you like.

        Args:
            start_offset: First offset, inclusive; the log start offset when None.
            end_offset: Exclusive end; all that is there when None.
            end: ``high_watermark`` ends the scan at the checkpointed high watermark, beyond which a running broker may
                still take records back.
            from_timestamp: Least record timestamp, inclusive: milliseconds, or a datetime with a time zone.
            to_timestamp: Records with this timestamp or a later one are left out; none when None.
            columns: Of key, value, topic, partition, offset, timestamp, timestamp_type and headers, which are given
                when None, and leader_epoch, producer_id, producer_epoch, is_transactional, is_control, key_length,
                value_length, sequence, compression, batch_base_offset, batch_position and crc_ok, which says whether
                the checksum is right and is only ever false with ``check_crc=False``. With no column at all the batches
                still have their number of rows.
            headers: False leaves the headers out of the columns when ``columns`` is None.
            isolation_level: ``read_committed`` gives what a Kafka consumer with that level gets: nothing of aborted
                transactions, and nothing from the first open one on.
            binary_type: Arrow type of key and value; ``binary_view`` refers to the bytes instead of copying them.
            timestamp_unit: ``ms`` as Kafka has them, ``us`` for those who read nothing else.
            topic_dictionary: Give the topic as a dictionary of one value.
            batch_rows: Most rows of a batch, at least 1.
            batch_bytes: Most bytes of keys, values and headers in a batch; a larger record gets a batch of its own.
            threads: How many decode at once, at least 1; rows come in order all the same. Memory is bounded by
                ``threads + 1`` pieces of 4 MiB of log with at most 4 batches waiting in each.
            memory_map: Map segments that are no longer written to instead of reading them.
            drop_behind: Leave the page cache as it was: what it did not have before is dropped after reading, and
                nothing is read ahead. For bulk reads of files that a broker serves from the cache.
            check_crc: Verify the magic, CRC-32C and offsets of each record batch before any field of its header decides
                about it. False trusts headers: batches that are left out, or whose rows their header alone determines,
                are not read.
            include_control: Give the records of control batches, such as transaction markers, too.
            on_corrupt: ``skip`` leaves damaged batches out and counts them in :meth:`Scan.report`.

        Raises:
            OffsetOutOfRangeError: ``start_offset`` is before the log start offset.
            FileNotFoundError: The directory is gone, or ``end`` needs a checkpoint that is not there.
            ValueError: A column that does not exist, or a bound below 1.

        Iterating raises :class:`~kraftlog.errors.CorruptRecordError` where a batch is not sound, after the rows before.
        """
        options = ScanOptions(
            columns=columns_of(columns, headers=headers),
            from_timestamp=milliseconds(from_timestamp),
            to_timestamp=milliseconds(to_timestamp),
            isolation_level=isolation_level,
            binary_type=binary_type,
            timestamp_unit=timestamp_unit,
            topic_dictionary=topic_dictionary,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            threads=threads,
            memory_map=memory_map,
            drop_behind=drop_behind,
            check_crc=check_crc,
            include_control=include_control,
            on_corrupt=on_corrupt,
        )
        return Scan([ending_at(self.source(start_offset, None, end), end_offset, options)], options)

    def batches(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        check_crc: bool = False,
        batch_rows: int = 16384,
    ) -> ArrowStream:
        """A row for each record batch that has an offset in the range, from headers alone: for counts and audits.

        Columns: topic, partition, base_offset, last_offset, record_count, size_bytes, magic, compression,
        timestamp_type, base_timestamp, max_timestamp, leader_epoch, producer_id, producer_epoch, base_sequence,
        is_transactional, is_control, crc, crc_ok, segment_base_offset and position (in the segment file).

        Args:
            start_offset: Inclusive; the log start offset when None.
            end_offset: Exclusive; all that is there when None.
            check_crc: Fill ``crc_ok``, which reads every byte; else it is null.
            batch_rows: Most rows of an Arrow batch, at least 1.

        Iterating raises :class:`~kraftlog.errors.CorruptRecordError` where bytes are no batch, after the rows before.
        """
        source = self.source(start_offset, end_offset, "log_end")
        return batches_of([source], check_crc=check_crc, batch_rows=batch_rows)

    def source(self, start_offset: int | None, end_offset: int | None, end: End) -> ScanSource:
        """What a scan of these offsets reads.

        Raises:
            OffsetOutOfRangeError: ``start_offset`` is before the log start offset.
            FileNotFoundError: There is no checkpoint of high watermarks, and ``end`` asks for it.
            ValueError: ``end`` is neither.
        """
        log_start_offset = self.log_start_offset
        if start_offset is not None and start_offset < log_start_offset:
            message = f"offset {start_offset} is before the log start offset {log_start_offset} of {self.path}"
            raise OffsetOutOfRangeError(message)
        if end not in {"log_end", "high_watermark"}:
            message = f"end must be log_end or high_watermark, not {end!r}"
            raise ValueError(message)
        if end == "high_watermark":
            high_watermark = self.high_watermark
            if high_watermark is None:
                message = f"no {REPLICATION_OFFSET_CHECKPOINT} in {self.path.parent}"
                raise FileNotFoundError(message)
            end_offset = high_watermark if end_offset is None else min(end_offset, high_watermark)
        first = log_start_offset if start_offset is None else start_offset
        return ScanSource(self._scan_path(), self.topic, self.partition, first, end_offset)

    def _scan_path(self) -> Any:
        """What stands for the directory in a :class:`ScanSource`."""
        return str(self.path)

    @property
    def _topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def topic_id_of(text: str, *, origin: str) -> Uuid:
    """The topic id in the text of a ``partition.metadata``, which ``origin`` names in errors.

    Raises:
        LogError: There is none.
    """
    try:
        fields = dict(line.split(":", 1) for line in text.splitlines() if line)
        return Uuid.parse(fields["topic_id"].strip())
    except (ValueError, KeyError) as error:
        message = f"{origin}: no topic id: {error}"
        raise LogError(message) from error


def batches_of(sources: Sequence[ScanSource], *, check_crc: bool, batch_rows: int) -> ArrowStream:
    """A row for each record batch of these sources."""
    return scan_batches_stream(
        [
            (source.path, source.topic, source.partition, source.start_offset, source.end_offset, None)
            for source in sources
        ],
        check_crc=check_crc,
        batch_rows=batch_rows,
    )


def columns_of(columns: Sequence[str] | None, *, headers: bool) -> tuple[str, ...]:
    """The columns asked for, or all that a scan gives by itself."""
    if columns is not None:
        return (columns,) if isinstance(columns, str) else tuple(columns)
    return DEFAULT_COLUMNS if headers else DEFAULT_COLUMNS[:-1]


def _segment(base_offset: int, path: Path, size_bytes: int) -> Segment | None:
    try:
        modified_ms = path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:  # deleted since it was listed
        return None
    indexes = []
    for kind in _INDEX_KINDS:
        # A segment that compaction is about to put in place has sidecars with its suffix.
        name = path.name.replace(".log", f".{kind}") if kind != "snapshot" else f"{base_offset:020}.snapshot"
        try:
            indexes.append(IndexFile(kind, path.with_name(name), path.with_name(name).stat().st_size))
        except FileNotFoundError:
            continue
    return Segment(base_offset, path, size_bytes, modified_ms, tuple(indexes))
