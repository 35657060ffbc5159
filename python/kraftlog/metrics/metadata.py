"""What a node knows of its metadata log: broker-metadata-metrics, MetadataLoader, SnapshotEmitter, node-metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kraftlog.metrics.idle_ratio import IdleRatio
from kraftlog.metrics.registry import MetricGroup, Metrics, Reading

__all__ = ["BrokerMetadataMetrics", "LoadedMetadata", "LoaderMetrics", "register_node_metrics"]


class BrokerMetadataMetrics:
    """How far a broker is in the metadata log.

    Args:
        metrics: Where they are registered, until ``close``.
        wall_ms: Unix clock, for the lag.
    """

    def __init__(self, metrics: Metrics, *, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._applied = (-1, -1)
        self._load_errors = 0
        self._apply_errors = 0
        self._ignores_static_voters = False
        self._metrics = metrics
        self._group = MetricGroup("kafka.server", "broker-metadata-metrics", self._read)
        metrics.register(self._group)

    def close(self) -> None:
        """The broker is gone."""
        self._metrics.unregister(self._group)

    def on_applied(self, offset: int, timestamp_ms: int) -> None:
        """Everything up to ``offset`` (inclusive) is applied; that record was appended at ``timestamp_ms``."""
        self._applied = (offset, timestamp_ms)

    def on_load_error(self) -> None:
        """The log could not be read or replayed."""
        self._load_errors += 1

    def on_apply_error(self) -> None:
        """What was committed could not be acted on."""
        self._apply_errors += 1

    def on_static_voters_ignored(self, *, is_ignored: bool) -> None:
        """Whether controller.quorum.voters is set, though the voter set comes from the log."""
        self._ignores_static_voters = is_ignored

    def _read(self) -> list[Reading]:
        offset, timestamp_ms = self._applied
        lag_ms = max(0, self._wall_ms() - timestamp_ms) if timestamp_ms >= 0 else 0
        ignored = int(self._ignores_static_voters)
        return [
            Reading("last-applied-record-offset", offset, "Last record applied by this broker; -1 for none"),
            Reading("last-applied-record-timestamp", timestamp_ms, "Its time (Unix ms); -1 for none"),
            Reading("last-applied-record-lag-ms", lag_ms, "Age of that record (ms)"),
            Reading("metadata-load-error-count", self._load_errors, "Errors while loading metadata", is_counter=True),
            Reading("metadata-apply-error-count", self._apply_errors, "Errors while acting on it", is_counter=True),
            Reading(
                "ignored-static-voters",
                ignored,
                "1 when controller.quorum.voters is set but the voter set comes from the log",
            ),
        ]


class LoadedMetadata(NamedTuple):
    """What a node's metadata loader has.

    Attributes:
        metadata_version: Finalized level of metadata.version, -1 for none.
        controller_id: The active controller, -1 when unknown.
        features: Finalized levels, by Kafka's feature name.
    """

    metadata_version: int = -1
    controller_id: int = -1
    features: tuple[tuple[str, int], ...] = ()


class LoaderMetrics:
    """``MetadataLoader`` and ``SnapshotEmitter``.

    Args:
        metrics: Where they are registered, until ``close``.
        clock_ns: Monotonic clock.
    """

    def __init__(self, metrics: Metrics, *, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._loaded = LoadedMetadata()
        self._loaded_snapshots = 0
        self._idle = IdleRatio(clock_ns())
        self._snapshot = (0, clock_ns())
        self._metrics = metrics
        self._groups = (
            MetricGroup("kafka.server", "MetadataLoader", self._read_loader),
            MetricGroup("kafka.server", "SnapshotEmitter", self._read_snapshot),
        )
        for group in self._groups:
            metrics.register(group)

    @property
    def loaded(self) -> LoadedMetadata:
        """What was told last."""
        return self._loaded

    def close(self) -> None:
        """The node is gone."""
        for group in self._groups:
            self._metrics.unregister(group)

    def on_loaded(self, loaded: LoadedMetadata) -> None:
        """Versions or the controller changed."""
        self._loaded = loaded

    def on_batch(self, start_ns: int, end_ns: int) -> None:
        """Committed records were applied."""
        self._idle.record_busy(start_ns, end_ns)

    def on_snapshot_loaded(self) -> None:
        """A checkpoint was loaded."""
        self._loaded_snapshots += 1

    def on_snapshot_written(self, size_bytes: int) -> None:
        """A checkpoint was made."""
        self._snapshot = (size_bytes, self._clock_ns())

    def _read_loader(self) -> list[Reading]:
        loaded = self._loaded
        return [
            Reading("CurrentMetadataVersion", loaded.metadata_version, "Level of metadata.version; -1 for none"),
            Reading("CurrentControllerId", loaded.controller_id, "Id of the active controller; -1 when unknown"),
            Reading("HandleLoadSnapshotCount", self._loaded_snapshots, "Checkpoints loaded", is_counter=True),
            Reading("AvgIdleRatio", self._idle.value(self._clock_ns()), "Share of the time nothing is applied"),
            *(
                Reading("FinalizedLevel", level, "Finalized feature level", tags=(("featureName", _camel_case(name)),))
                for name, level in loaded.features
            ),
        ]

    def _read_snapshot(self) -> list[Reading]:
        size_bytes, written_ns = self._snapshot
        age_ms = (self._clock_ns() - written_ns) // 1_000_000
        return [
            Reading("LatestSnapshotGeneratedBytes", size_bytes, "Size of the newest checkpoint; 0 for none"),
            Reading("LatestSnapshotGeneratedAgeMs", age_ms, "Time since it was made, or since the start (ms)"),
        ]


def register_node_metrics(metrics: Metrics, ranges: Mapping[str, tuple[int, int]]) -> MetricGroup:
    """``node-metrics``: the lowest and highest level of each feature that this node runs. They never change.

    Returns:
        The group, for ``Metrics.unregister``.
    """
    readings = [
        Reading(name, level, description, tags=(("feature-name", feature.replace(".", "-")),))
        for name, index, description in (
            ("maximum-supported-level", 1, "Highest level of a feature that this node runs"),
            ("minimum-supported-level", 0, "Lowest level of a feature that this node runs"),
        )
        for feature, limits in sorted(ranges.items())
        for level in (limits[index],)
    ]
    group = MetricGroup("kafka.server", "node-metrics", lambda: readings)
    metrics.register(group)
    return group


def _camel_case(feature: str) -> str:
    """Kafka's tag of a feature name: ``metadata.version`` is ``metadataVersion``."""
    first, *others = feature.split(".")
    return first + "".join(word.capitalize() for word in others)
