"""A topic's settings as the broker uses them: the topic's own over the broker's over Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraftlog import host
from kraftlog._kraftlog import LogConfig
from kraftlog.config_table import broker_configs, parse_value, topic_config, topic_config_default
from kraftlog.partition.compaction_policy import CleaningSettings
from kraftlog.partition.replication_quota import ThrottledReplicas

__all__ = ["TopicConfig", "TopicConfigs"]

_TOPIC_KEYS = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
)
_NOT_THROTTLED = ThrottledReplicas()
# Kafka's default is the largest long; a year is as good as never.
_NEVER_MS = 366 * 24 * 3600 * 1000
_LEVEL_KEYS = {codec: f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What a partition needs to know of its topic's settings.

    Attributes:
        flush_messages: Unflushed records that make a flush due at once.
        leader_throttle: Replicas whose serving of followers is held to a rate.
        follower_throttle: Replicas whose fetching is held to a rate.
        flush_ms: Age of the oldest unflushed record that makes a flush due; None leaves it to the operating system.
    """

    log_config: LogConfig
    min_insync_replicas: int
    cleanup_policy: frozenset[str]
    cleaning: CleaningSettings
    file_delete_delay_ms: int
    recompresses: bool
    flush_messages: int
    flush_ms: int | None
    leader_throttle: ThrottledReplicas = _NOT_THROTTLED
    follower_throttle: ThrottledReplicas = _NOT_THROTTLED


class TopicConfigs:
    """Builds and remembers settings; topics that set the same values share one object.

    Args:
        properties: What server.properties says.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        # Kafka draws the jitter of each segment at random.
        self._jitter_seed = host.random_bits(64)
        self._broker_overrides: dict[str, str] = {}
        self._built: dict[frozenset[tuple[str, str]], TopicConfig] = {}

    def update_broker_overrides(self, overrides: Mapping[str, str]) -> bool:
        """Take over dynamic broker settings; True when they differ, so that every topic has to be looked at again."""
        if overrides == self._broker_overrides:
            return False
        self._broker_overrides = dict(overrides)
        self._built.clear()
        return True

    def get(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The settings of a topic that sets ``overrides`` itself."""
        key = frozenset(overrides.items())
        built = self._built.get(key)
        if built is None:
            built = self._built[key] = self._build(overrides)
        return built

    def _build(self, overrides: Mapping[str, str]) -> TopicConfig:
        broker_values = {**self._properties, **self._broker_overrides}

        def value(name: str) -> object:
            text = overrides.get(name)
            if text is None:
                text = topic_config_default(name, broker_values)
            definition = topic_config(name)
            if definition is None or text is None:
                return None
            return parse_value(definition, text)

        def integer(name: str) -> int:
            number = value(name)
            return number if isinstance(number, int) else 0

        def throttled(name: str) -> ThrottledReplicas:
            entries = value(name)
            return ThrottledReplicas.parse(entries) if isinstance(entries, tuple) else ThrottledReplicas()

        values = {name: value(name) for name in _TOPIC_KEYS}
        policy = values["cleanup.policy"]
        ratio = values["min.cleanable.dirty.ratio"]
        cleanup_policy = policy if isinstance(policy, tuple) else ()
        compression_type = str(values["compression.type"])
        level_key = _LEVEL_KEYS.get(compression_type)
        segment_bytes = overrides.get("internal.segment.bytes") or broker_values.get("internal.segment.bytes")
        log_config = LogConfig(
            segment_bytes=int(segment_bytes) if segment_bytes else integer("segment.bytes"),
            segment_ms=integer("segment.ms"),
            segment_jitter_ms=integer("segment.jitter.ms"),
            segment_index_bytes=integer("segment.index.bytes"),
            index_interval_bytes=integer("index.interval.bytes"),
            max_message_bytes=integer("max.message.bytes"),
            retention_ms=integer("retention.ms"),
            retention_bytes=integer("retention.bytes"),
            compression_type=compression_type,
            compression_level=integer(level_key) if level_key else None,
            timestamp_type=str(values["message.timestamp.type"]),
            timestamp_before_max_ms=integer("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=integer("message.timestamp.after.max.ms"),
            cleanup_policy=",".join(cleanup_policy),
            file_delete_delay_ms=integer("file.delete.delay.ms"),
            preallocate=bool(values["preallocate"]),
            producer_id_expiration_ms=self._producer_id_expiration_ms(broker_values),
            segment_jitter_seed=self._jitter_seed,
        )
        flush_ms = integer("flush.ms")
        return TopicConfig(
            log_config=log_config,
            min_insync_replicas=integer("min.insync.replicas"),
            cleanup_policy=frozenset(cleanup_policy),
            cleaning=CleaningSettings(
                min_cleanable_ratio=ratio if isinstance(ratio, int | float) else 0.5,
                min_compaction_lag_ms=integer("min.compaction.lag.ms"),
                max_compaction_lag_ms=integer("max.compaction.lag.ms"),
                delete_retention_ms=integer("delete.retention.ms"),
            ),
            file_delete_delay_ms=integer("file.delete.delay.ms"),
            recompresses=compression_type != "producer",
            flush_messages=integer("flush.messages"),
            flush_ms=flush_ms if flush_ms < _NEVER_MS else None,
            leader_throttle=throttled("leader.replication.throttled.replicas"),
            follower_throttle=throttled("follower.replication.throttled.replicas"),
        )

    @staticmethod
    def _producer_id_expiration_ms(broker_values: Mapping[str, str]) -> int:
        """producer.id.expiration.ms, which no topic sets and which changes at run time."""
        definition = broker_configs()["producer.id.expiration.ms"]
        text = broker_values.get(definition.name)
        value = definition.default if text is None else parse_value(definition, text)
        return value if isinstance(value, int) else 0
