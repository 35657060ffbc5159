"""Options of the formats, checked before anything is read.

The names are those of Spark's own Kafka source where it has the option; they are not case sensitive. Each format says
which of them it knows; whatever else is given is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from kraftlog.reading.remote_files import FILE_SYSTEM_KINDS, FileSystemKind
from kraftlog.spark.option_values import (
    given_options,
    read_choice,
    read_duration_ms,
    read_flag,
    read_json,
    read_names,
    read_number,
    read_partition_numbers,
    read_partition_values,
    read_storage_options,
)

__all__ = [
    "BATCH_OPTIONS",
    "EARLIEST",
    "LATEST",
    "PATH_OPTIONS",
    "REMOTE_OPTIONS",
    "SELECT_OPTIONS",
    "SPLIT_BYTES",
    "STREAM_OPTIONS",
    "OffsetLimit",
    "SourceOptions",
    "check_known",
]

SPLIT_BYTES = 64 << 20
MAX_TRIGGER_DELAY_MS = 15 * 60_000

# Offsets in JSON that are none, as Kafka's ListOffsets has them.
LATEST = -1
EARLIEST = -2

PATH_OPTIONS = ("path", "paths")
# How URLs among the paths are reached.
REMOTE_OPTIONS = ("storageOptions", "kraftlog.fs")
SELECT_OPTIONS = ("subscribe", "topics", "subscribePattern", "assign")
_START_OPTIONS = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)
_END_OPTIONS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_READ_OPTIONS = (
    "endOffset",
    "failOnDataLoss",
    "dataLossReport",
    "kafka.isolation.level",
    "columns",
    "includeHeaders",
    "controlRecords",
    "verifyCrc",
    "dropBehind",
    "fromTimestamp",
    "toTimestamp",
    "splitBytes",
    "minPartitions",
    "maxRecordsPerPartition",
)
_TRIGGER_OPTIONS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

# What spark.read.format("kraftlog") knows. The options of triggers are accepted as Spark's Kafka source accepts them:
# they mean nothing to a batch query, and it says so in a warning.
BATCH_OPTIONS = (
    *PATH_OPTIONS,
    *SELECT_OPTIONS,
    *_START_OPTIONS,
    *_END_OPTIONS,
    *_READ_OPTIONS,
    "pushdown",
    *_TRIGGER_OPTIONS,
    *REMOTE_OPTIONS,
)
# What spark.readStream.format("kraftlog") knows: a stream has no end, and no filters are handed to it.
STREAM_OPTIONS = (*PATH_OPTIONS, *SELECT_OPTIONS, *_START_OPTIONS, *_READ_OPTIONS, *_TRIGGER_OPTIONS)

# Options of Spark's Kafka source that are about a connection to brokers.
_BROKER_OPTIONS = (
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "useDeprecatedOffsetFetching",
)

_OFFSETS_EXAMPLE = '{"orders": {"0": 23, "1": -1}}'
_TIMESTAMPS_EXAMPLE = '{"orders": {"0": 1700000000000}}'
_ASSIGN_EXAMPLE = '{"orders": [0, 1]}'
_PATHS_EXAMPLE = '["/var/kafka-1", "/var/kafka-2"]'

LimitKind: TypeAlias = Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLimit:
    """Where to start or to end, as an option said it.

    Args:
        option: Name of the option, for errors; the one whose default it is when none was given.
        kind: Which of the others matters.
        by_partition: Offsets, where -2 is the earliest and -1 the latest, or timestamps (ms), by topic and partition.
        timestamp: Milliseconds for all partitions: the first record by offset that is as late or later.
    """

    option: str
    kind: LimitKind
    by_partition: Mapping[tuple[str, int], int] | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What ``spark.read.format("kraftlog").option(...)`` can say; names are not case sensitive.

    Args:
        paths: ``path``, or ``paths`` as a JSON list: log directories, or directories of partitions; URLs too.
        storage_options: ``storageOptions``: arguments of the file systems of URLs, as a JSON object.
        file_system: ``kraftlog.fs``: which library opens URLs.
        topics: ``subscribe`` (or ``topics``), separated by commas; with ``topic_pattern`` and ``assign`` None too,
            all topics but the internal ones.
        topic_pattern: ``subscribePattern``: a regular expression for whole names of topics that are not internal.
        assign: ``assign``: only these partitions.
        starting: The first of ``startingTimestamp``, ``startingOffsetsByTimestamp`` and ``startingOffsets`` that is
            given, as in Spark's Kafka source; inclusive.
        ending: The same with ``ending``; exclusive.
        timestamp_strategy: ``startingOffsetsByTimestampStrategy``: what becomes of a start time after all records.
        end: ``endOffset``: ``hw`` ends at the high watermark, ``logEnd`` at the last whole batch.
        fail_on_data_loss: ``failOnDataLoss``: records that were asked for and are gone or damaged end the query;
            else they are left out, with a warning and a count.
        data_loss_report: ``dataLossReport``: directory for a JSON line on each range that was left out.
        isolation_level: ``kafka.isolation.level``.
        columns: ``columns``, separated by commas; Spark reads every column of the schema, needed or not.
        include_headers: ``includeHeaders``: the schema has the headers.
        control_records: ``controlRecords``: rows for transaction markers too.
        verify_crc: ``verifyCrc``: compare the checksum of each batch.
        drop_behind: ``dropBehind``: leave the page cache as it was, for directories that a broker serves from it.
        from_timestamp: ``fromTimestamp``: least record timestamp in milliseconds, inclusive; a filter of rows.
        to_timestamp: ``toTimestamp``: exclusive.
        split_bytes: ``splitBytes``: about how much of a segment one task reads.
        min_partitions: ``minPartitions``: about how many tasks there are at least.
        max_records_per_partition: ``maxRecordsPerPartition``: how many offsets a task reads at most.
        pushdown: ``pushdown``: take filters from Spark.
        max_offsets_per_trigger: ``maxOffsetsPerTrigger``, of streams.
        min_offsets_per_trigger: ``minOffsetsPerTrigger``, of streams.
        max_trigger_delay_ms: ``maxTriggerDelay``, of streams.
    """

    paths: tuple[str, ...]
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    file_system: FileSystemKind = "auto"
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    assign: tuple[tuple[str, int], ...] | None = None
    starting: OffsetLimit = OffsetLimit(option="startingOffsets", kind="earliest")
    ending: OffsetLimit = OffsetLimit(option="endingOffsets", kind="latest")
    timestamp_strategy: Literal["error", "latest"] = "error"
    end: Literal["hw", "logEnd"] = "hw"
    fail_on_data_loss: bool = True
    data_loss_report: str | None = None
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    columns: tuple[str, ...] | None = None
    include_headers: bool = False
    control_records: bool = False
    verify_crc: bool = True
    drop_behind: bool = False
    from_timestamp: int | None = None
    to_timestamp: int | None = None
    split_bytes: int = SPLIT_BYTES
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    pushdown: bool = False
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS

    @classmethod
    def parse(
        cls, options: Mapping[str, str], *, known: Collection[str] = BATCH_OPTIONS, streaming: bool = False
    ) -> SourceOptions:
        """The options from Spark's text form.

        Args:
            options: Names and texts.
            known: Which names the format has; those that are not options of this class it reads by itself.
            streaming: A stream starts at the latest offsets when nothing is said, and may.

        Raises:
            ValueError: An option that the format does not know, a value that is none, options that exclude each
                other, or no path. The text names the option and what is allowed.
        """
        given = given_options(options)
        check_known(options, known)
        starting = _limit(given, "starting", "latest" if streaming else "earliest")
        ending = _limit(given, "ending", "latest")
        _check_limits(starting, ending, streaming=streaming)
        max_offsets = read_number(given, "maxOffsetsPerTrigger", least=1)
        min_offsets = read_number(given, "minOffsetsPerTrigger", least=1)
        if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
            message = f"option minOffsetsPerTrigger {min_offsets} is more than maxOffsetsPerTrigger {max_offsets}"
            raise ValueError(message)
        from_timestamp = read_number(given, "fromTimestamp", least=-(2**63))
        to_timestamp = read_number(given, "toTimestamp", least=-(2**63))
        if from_timestamp is not None and to_timestamp is not None and from_timestamp > to_timestamp:
            message = f"option fromTimestamp {from_timestamp} is after toTimestamp {to_timestamp}"
            raise ValueError(message)
        fail_on_data_loss = read_flag(given, "failOnDataLoss", default=True)
        if fail_on_data_loss and "datalossreport" in given:
            raise ValueError("option dataLossReport has nothing to report without failOnDataLoss=false")
        topics, pattern, assign = _selection(given)
        strategy = read_choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest"))
        end = read_choice(given, "endOffset", ("hw", "logEnd"))
        isolation = read_choice(given, "kafka.isolation.level", ("read_uncommitted", "read_committed"))
        return cls(
            paths=_paths(given),
            storage_options=read_storage_options(given),
            file_system=_file_system(given),
            topics=topics,
            topic_pattern=pattern,
            assign=assign,
            starting=starting,
            ending=ending,
            timestamp_strategy="latest" if strategy == "latest" else "error",
            end="logEnd" if end == "logEnd" else "hw",
            fail_on_data_loss=fail_on_data_loss,
            data_loss_report=given.get("datalossreport"),
            isolation_level="read_committed" if isolation == "read_committed" else "read_uncommitted",
            columns=read_names(given, "columns"),
            include_headers=read_flag(given, "includeHeaders", default=False),
            control_records=read_flag(given, "controlRecords", default=False),
            verify_crc=read_flag(given, "verifyCrc", default=True),
            drop_behind=read_flag(given, "dropBehind", default=False),
            from_timestamp=from_timestamp,
            to_timestamp=to_timestamp,
            split_bytes=read_number(given, "splitBytes", least=1) or SPLIT_BYTES,
            min_partitions=read_number(given, "minPartitions", least=1),
            max_records_per_partition=read_number(given, "maxRecordsPerPartition", least=1),
            pushdown=read_flag(given, "pushdown", default=False),
            max_offsets_per_trigger=max_offsets,
            min_offsets_per_trigger=min_offsets,
            max_trigger_delay_ms=read_duration_ms(given, "maxTriggerDelay", default_ms=MAX_TRIGGER_DELAY_MS),
        )

    def trigger_options_given(self) -> bool:
        """True when an option was given that only means something to a stream."""
        return (
            self.max_offsets_per_trigger is not None
            or self.min_offsets_per_trigger is not None
            or self.max_trigger_delay_ms != MAX_TRIGGER_DELAY_MS
        )


def check_known(options: Mapping[str, str], known: Collection[str]) -> None:
    """Refuses options that a format does not know.

    Raises:
        ValueError: Names them, and what there is; an option that is about brokers is told so.
    """
    names = {name.lower() for name in known}
    unknown = sorted(name for name in options if name.lower() not in names)
    for name in unknown:
        if name.lower().startswith("kafka.") or name.lower() in {
            broker_option.lower() for broker_option in _BROKER_OPTIONS
        }:
            message = (
                f"option {name} is about a connection to Kafka brokers; this format reads files, and of the options "
                "with kafka. it knows kafka.isolation.level"
                if "kafka.isolation.level" in names
                else f"option {name} is about a connection to Kafka brokers, which this format does not make"
            )
            raise ValueError(message)
    if unknown:
        message = f"unknown option {', '.join(unknown)}: there are {', '.join(known)}"
        raise ValueError(message)


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    paths = [given["path"]] if "path" in given else []
    if "paths" in given:
        more = read_json("paths", given["paths"], example=_PATHS_EXAMPLE)
        if not isinstance(more, list) or not all(isinstance(path, str) and path for path in more):
            message = f"option paths must be a JSON list such as {_PATHS_EXAMPLE}, not {given['paths']!r}"
            raise ValueError(message)
        paths += more
    if not paths or not all(paths):
        raise ValueError("option path is missing: a log directory, or the directory of a partition")
    return tuple(paths)


def _file_system(given: Mapping[str, str]) -> FileSystemKind:
    chosen = read_choice(given, "kraftlog.fs", FILE_SYSTEM_KINDS)
    return next((kind for kind in FILE_SYSTEM_KINDS if kind == chosen), "auto")


def _selection(
    given: Mapping[str, str],
) -> tuple[tuple[str, ...] | None, str | None, tuple[tuple[str, int], ...] | None]:
    chosen = [name for name in SELECT_OPTIONS if name.lower() in given]
    if len(chosen) > 1:
        message = f"only one of the options {', '.join(SELECT_OPTIONS)} can be given, not {' and '.join(chosen)}"
        raise ValueError(message)
    topics = read_names(given, "subscribe") or read_names(given, "topics")
    pattern = given.get("subscribepattern")
    if pattern is not None:
        pattern = pattern.strip()
        if not pattern:
            raise ValueError("option subscribePattern is empty")
        try:
            re.compile(pattern)
        except re.error as error:
            message = f"option subscribePattern must be a regular expression, not {pattern!r}: {error}"
            raise ValueError(message) from None
    assign = None
    if "assign" in given:
        assign = read_partition_numbers("assign", given["assign"], example=_ASSIGN_EXAMPLE)
    return topics, pattern, assign


def _limit(given: Mapping[str, str], side: Literal["starting", "ending"], default: LimitKind) -> OffsetLimit:
    # The order is that of Spark's Kafka source: the first that is given counts.
    option = f"{side}Timestamp"
    timestamp = read_number(given, option, least=0)
    if timestamp is not None:
        return OffsetLimit(option=option, kind="timestamp", timestamp=timestamp)
    option = f"{side}OffsetsByTimestamp"
    if option.lower() in given:
        values = read_partition_values(option, given[option.lower()], least=0, example=_TIMESTAMPS_EXAMPLE)
        return OffsetLimit(option=option, kind="timestamps", by_partition=values)
    option = f"{side}Offsets"
    text = given.get(option.lower(), default).strip()
    if text.lower() == "earliest":
        return OffsetLimit(option=option, kind="earliest")
    if text.lower() == "latest":
        return OffsetLimit(option=option, kind="latest")
    if not text.startswith("{"):
        message = f"option {option} must be earliest, latest or JSON such as {_OFFSETS_EXAMPLE}, not {text!r}"
        raise ValueError(message)
    values = read_partition_values(option, text, least=EARLIEST, example=_OFFSETS_EXAMPLE)
    return OffsetLimit(option=option, kind="offsets", by_partition=values)


def _check_limits(starting: OffsetLimit, ending: OffsetLimit, *, streaming: bool) -> None:
    """What Spark's Kafka source refuses before it looks at any partition."""
    if streaming:
        return
    _refuse(starting, "latest", LATEST)
    _refuse(ending, "earliest", EARLIEST)
    if starting.by_partition is not None and ending.by_partition is not None and starting.kind == ending.kind:
        if starting.by_partition.keys() != ending.by_partition.keys():
            message = f"options {starting.option} and {ending.option} name different partitions"
            raise ValueError(message)
        for (topic, partition), start in starting.by_partition.items():
            end = ending.by_partition[topic, partition]
            if start >= 0 and 0 <= end < start:
                message = f"option {starting.option}: {start} of {topic}-{partition} is after {end} of {ending.option}"
                raise ValueError(message)
    if starting.timestamp is not None and ending.timestamp is not None and starting.timestamp > ending.timestamp:
        message = f"option {starting.option} {starting.timestamp} is after {ending.option} {ending.timestamp}"
        raise ValueError(message)


def _refuse(limit: OffsetLimit, kind: LimitKind, offset: int) -> None:
    if limit.kind == kind:
        message = f"option {limit.option} cannot be {kind} in a batch query"
        raise ValueError(message)
    for (topic, partition), value in (limit.by_partition or {}).items():
        if value == offset and limit.kind == "offsets":
            message = f"option {limit.option}: {topic}-{partition} cannot be {offset} ({kind}) in a batch query"
            raise ValueError(message)
