"""Options of the two writers, checked on the driver before a row is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraftlog._kraftlog import LogConfig, check_compression
from kraftlog.types import Uuid

__all__ = ["ProduceOptions", "SegmentOptions"]

BATCH_BYTES: Final = 128 << 10
BATCH_ROWS_MAX: Final = 2**31 - 1
# Kafka's max.block.ms: how long a producer asks for a topic before it gives up.
MAX_BLOCK_MS: Final = 60_000
KAFKA_PREFIX: Final = "kafka."

_SEGMENT_OPTIONS = (
    "path",
    "topic",
    "partition",
    "topicIds",
    "leaderEpoch",
    "ifExists",
    "compression.type",
    "compression.level",
    "batch.bytes",
    "batch.rows",
    "segment.bytes",
    "segment.ms",
    "index.interval.bytes",
    "message.timestamp.type",
)
_PRODUCE_OPTIONS = ("topic", "checkpointLocation", "kafka.*")
# Spark's own Kafka sink refuses these too: rows are bytes when they come here.
_REFUSED_KAFKA = ("key.serializer", "value.serializer")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """What ``df.write.format("kraftlog").option(...)`` can say for segment files; names are not case sensitive.

    Args:
        path: ``path``: the log directory that gets the partition directories; made when it is not there.
        topic: ``topic``: of all rows, whatever a column says.
        partition: ``partition``: of all rows, whatever a column says.
        topic_ids: ``topicIds``: a JSON object of topic and id (Kafka's base64 form) for ``partition.metadata``.
        leader_epoch: ``leaderEpoch``: of the batches; at least the latest of a log that is appended to.
        must_be_new: ``ifExists=error``: a partition that has records already is an error (``append`` otherwise).
        compression: ``compression.type``.
        compression_level: ``compression.level``; Kafka's default of the codec when None.
        batch_bytes: ``batch.bytes``: a record batch ends before it grows beyond this uncompressed.
        batch_rows: ``batch.rows``: most records of a record batch.
        segment_bytes: ``segment.bytes``.
        segment_ms: ``segment.ms``: most time between the timestamps of a segment.
        index_interval_bytes: ``index.interval.bytes``.
        timestamp_type: ``message.timestamp.type``; what the column ``timestampType`` says, or CreateTime, when None.
    """

    path: str
    topic: str | None = None
    partition: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epoch: int | None = None
    must_be_new: bool = False
    compression: str = "none"
    compression_level: int | None = None
    batch_bytes: int = BATCH_BYTES
    batch_rows: int = BATCH_ROWS_MAX
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    index_interval_bytes: int = 4096
    timestamp_type: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SegmentOptions:
        """The options from Spark's text form.

        Raises:
            ValueError: An option that does not exist, a value that is none, or no path.
        """
        given = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(given, _SEGMENT_OPTIONS, "to write segments")
        level = _number(given, "compression.level")
        compression = given.get("compression.type", "none").lower()
        if compression == "uncompressed":
            compression = "none"
        if_exists = given.get("ifexists", "append").lower()
        if if_exists not in {"append", "error"}:
            message = f"option ifExists is append or error, not {given['ifexists']!r}"
            raise ValueError(message)
        try:
            check_compression(compression, level)
        except ValueError as error:
            message = f"options compression.type and compression.level: {error}"
            raise ValueError(message) from None
        parsed = cls(
            path=_local_path(given.get("path")),
            topic=given.get("topic"),
            partition=_number(given, "partition", least=0, most=2**31 - 1),
            topic_ids=_topic_ids(given.get("topicids")),
            leader_epoch=_number(given, "leaderEpoch", least=0, most=2**31 - 1),
            must_be_new=if_exists == "error",
            compression=compression,
            compression_level=level,
            batch_bytes=_number(given, "batch.bytes", least=1, most=2**31 - 1) or BATCH_BYTES,
            batch_rows=_number(given, "batch.rows", least=1, most=BATCH_ROWS_MAX) or BATCH_ROWS_MAX,
            segment_bytes=_number(given, "segment.bytes", least=1024, most=2**31 - 1) or 1 << 30,
            segment_ms=_number(given, "segment.ms", least=1, most=2**63 - 1) or 604_800_000,
            index_interval_bytes=_number(given, "index.interval.bytes", least=1, most=2**31 - 1) or 4096,
            timestamp_type=_timestamp_type(given.get("message.timestamp.type")),
        )
        parsed.log_config()
        return parsed

    def log_config(self) -> LogConfig:
        """Settings of the logs that are written."""
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self.segment_ms,
            index_interval_bytes=self.index_interval_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    """What the writer to a broker takes; names are not case sensitive.

    Args:
        config: ``kafka.*`` without the prefix: properties of the client.
        topic: ``topic``: of all rows, whatever a column says.
        max_block_ms: ``kafka.max.block.ms``: how long a topic is looked for before the task fails.
    """

    config: Mapping[str, str]
    topic: str | None = None
    max_block_ms: int = MAX_BLOCK_MS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ProduceOptions:
        """The options from Spark's text form.

        Raises:
            ValueError: An option that does not exist or may not be set, or no bootstrap servers.
        """
        given = {name.lower(): value for name, value in options.items()}
        config = {
            name.removeprefix(KAFKA_PREFIX): value for name, value in given.items() if name.startswith(KAFKA_PREFIX)
        }
        _refuse_unknown(
            {name: value for name, value in given.items() if not name.startswith(KAFKA_PREFIX)},
            _PRODUCE_OPTIONS,
            "to produce to a broker",
        )
        if not config.get("bootstrap.servers"):
            raise ValueError("option kafka.bootstrap.servers is missing: host:port of a broker, several with commas")
        for name in _REFUSED_KAFKA:
            if name in config:
                message = f"option kafka.{name} is not supported: keys and values are written as bytes"
                raise ValueError(message)
        max_block_ms = _number(given, "kafka.max.block.ms", least=1, most=2**31 - 1) or MAX_BLOCK_MS
        config.pop("max.block.ms", None)
        return cls(config=config, topic=given.get("topic"), max_block_ms=max_block_ms)


def _refuse_unknown(given: Mapping[str, str], known: tuple[str, ...], purpose: str) -> None:
    unknown = sorted(set(given) - {name.lower() for name in known})
    if unknown:
        message = f"unknown option {', '.join(unknown)}: {purpose} there are {', '.join(known)}"
        raise ValueError(message)


def _number(options: Mapping[str, str], name: str, *, least: int | None = None, most: int | None = None) -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        message = f"option {name} must be a whole number, not {value!r}"
        raise ValueError(message) from None
    if (least is not None and number < least) or (most is not None and number > most):
        message = f"option {name} is in [{least}, {most}], not {number}"
        raise ValueError(message)
    return number


def _local_path(path: str | None) -> str:
    if not path:
        raise ValueError(
            "option path is missing: the log directory to write to (or kafka.bootstrap.servers, to produce to a broker)"
        )
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    if "://" in path:
        message = f"option path: segments are written to a directory of the file system, not to {path!r}"
        raise ValueError(message)
    return str(Path(path).absolute())


def _timestamp_type(name: str | None) -> str | None:
    if name is None:
        return None
    for known in ("CreateTime", "LogAppendTime"):
        if name.lower() == known.lower():
            return known
    message = f"option message.timestamp.type is CreateTime or LogAppendTime, not {name!r}"
    raise ValueError(message)


def _topic_ids(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    try:
        ids = json.loads(text)
        if not isinstance(ids, dict):
            raise TypeError  # the same words for any text that is none
        return {str(topic): str(Uuid.parse(topic_id)) for topic, topic_id in ids.items()}
    except (ValueError, TypeError, AttributeError):
        message = f'option topicIds is a JSON object of topic and id, such as {{"orders": "..."}}, not {text!r}'
        raise ValueError(message) from None
