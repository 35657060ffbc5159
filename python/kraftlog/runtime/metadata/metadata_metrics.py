"""What the metrics of a node are told of its metadata quorum."""

from __future__ import annotations

from collections.abc import Callable

from kraftlog import host
from kraftlog.controller import MetadataDelta, MetadataImage
from kraftlog.errors import CorruptRecordError
from kraftlog.features import KRAFT_VERSION, METADATA_VERSION, supported_ranges
from kraftlog.metrics import Metrics
from kraftlog.metrics.controller import ControllerMetrics, ControllerProgress
from kraftlog.metrics.metadata import BrokerMetadataMetrics, LoaderMetrics, register_node_metrics
from kraftlog.metrics.raft import RaftMetrics
from kraftlog.raft.core import RaftCore
from kraftlog.runtime.metadata.cluster_counts import ClusterCounter
from kraftlog.runtime.metadata.settings import MetadataSettings

__all__ = ["MetadataMetrics"]


class MetadataMetrics:
    """The groups that a node has by its roles, from the start of its metadata quorum to its end.

    Args:
        settings: Of the quorum.
        metrics: Where the groups are registered.
        wall_ms: Unix clock.

    Attributes:
        raft: For the driver, which closes it.
    """

    def __init__(self, settings: MetadataSettings, metrics: Metrics, *, wall_ms: Callable[[], int]) -> None:
        self._metrics = metrics
        self._has_static_voters = bool(settings.static_voters.ids)
        self.raft = RaftMetrics(
            metrics, sample_count=settings.metrics_num_samples, window_ms=settings.metrics_sample_window_ms
        )
        self._loader = LoaderMetrics(metrics)
        self._node_group = register_node_metrics(metrics, supported_ranges())
        self._broker = BrokerMetadataMetrics(metrics, wall_ms=wall_ms) if settings.is_broker else None
        self._controller = ControllerMetrics(metrics, wall_ms=wall_ms) if settings.is_controller else None
        self._counter = ClusterCounter(MetadataImage())
        self._kraft_version = -1

    def close(self) -> None:
        """The node stops: take all groups back."""
        self.raft.close()
        self._loader.close()
        self._metrics.unregister(self._node_group)
        if self._broker is not None:
            self._broker.close()
        if self._controller is not None:
            self._controller.close()

    def on_snapshot_loaded(self, image: MetadataImage) -> None:
        """The image was begun anew from a checkpoint."""
        self._loader.on_snapshot_loaded()
        if self._controller is not None:
            self._counter = ClusterCounter(image)
            self._controller.on_counts(self._counter.counts)
        self._kraft_version = -1  # its features are told of with the next progress

    def on_changed(self, image: MetadataImage, delta: MetadataDelta, core: RaftCore) -> None:
        """Committed records changed the image."""
        if self._controller is not None:
            counter = self._counter
            unclean, from_eligible = counter.unclean_elections, counter.elections_from_eligible
            counter.apply(image, delta)
            self._controller.on_counts(counter.counts)
            self._controller.on_elections(
                unclean=counter.unclean_elections - unclean,
                from_eligible=counter.elections_from_eligible - from_eligible,
            )
        if delta.features_changed:
            self._note_versions(image, core)

    def on_applied(self, image: MetadataImage, core: RaftCore, *, active_end_offset: int | None) -> None:
        """Everything that is committed is in the image.

        Args:
            image: What is committed.
            core: The replica.
            active_end_offset: End of what the active controller has proposed; None on others.
        """
        timestamp_ms = image.timestamp_ms if image.offset >= 0 else -1
        if self._broker is not None:
            self._broker.on_applied(image.offset, timestamp_ms)
        if self._controller is not None:
            is_active = active_end_offset is not None
            applied_offset = image.offset if active_end_offset is None else active_end_offset - 1
            progress = ControllerProgress(
                is_active=is_active,
                applied_offset=applied_offset,
                applied_timestamp_ms=timestamp_ms,
                committed_offset=image.offset,
            )
            self._controller.on_progress(progress)
        self._note_voters(core)
        if core.kraft_version != self._kraft_version:
            self._note_versions(image, core)

    def on_batch(self, start_ns: int) -> None:
        """Committed records were applied from ``start_ns`` until now."""
        self._loader.on_batch(start_ns, host.monotonic_ns())

    def on_leader_changed(self, leader_id: int | None) -> None:
        """The leader became known, or unknown."""
        self._loader.on_loaded(self._loader.loaded._replace(controller_id=-1 if leader_id is None else leader_id))
        if leader_id is not None and self._controller is not None:
            self._controller.on_new_active_controller()

    def on_operation(self, submitted_ns: int, started_ns: int) -> None:
        """An operation of the controller waited, and ran from ``started_ns`` until now."""
        if self._controller is not None:
            self._controller.on_operation(submitted_ns, started_ns, host.monotonic_ns())

    def on_operation_timed_out(self) -> None:
        """An operation waited too long to be begun."""
        if self._controller is not None:
            self._controller.on_operation_timed_out()

    def on_heartbeat_timed_out(self) -> None:
        """A broker's heartbeat did."""
        if self._controller is not None:
            self._controller.on_heartbeat_timed_out()

    def on_snapshot_written(self, size_bytes: int) -> None:
        """This node made a checkpoint."""
        self._loader.on_snapshot_written(size_bytes)

    def on_apply_error(self) -> None:
        """What was committed could not be acted on."""
        if self._broker is not None:
            self._broker.on_apply_error()

    def on_failure(self, error: BaseException) -> None:
        """The metadata log failed, or what it holds cannot be replayed."""
        if self._broker is not None and isinstance(error, CorruptRecordError):
            self._broker.on_load_error()
        if self._controller is not None:
            self._controller.on_error()

    def _note_versions(self, image: MetadataImage, core: RaftCore) -> None:
        self._kraft_version = core.kraft_version
        features = tuple(sorted({**image.features, KRAFT_VERSION: core.kraft_version}.items()))
        metadata_version = image.features.get(METADATA_VERSION, -1)
        loaded = self._loader.loaded._replace(metadata_version=metadata_version, features=features)
        self._loader.on_loaded(loaded)

    def _note_voters(self, core: RaftCore) -> None:
        is_ignored = self._has_static_voters and core.voters_offset is not None
        if self._broker is not None:
            self._broker.on_static_voters_ignored(is_ignored=is_ignored)
        if self._controller is not None:
            self._controller.on_static_voters_ignored(is_ignored=is_ignored)
