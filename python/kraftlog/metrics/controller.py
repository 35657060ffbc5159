"""``KafkaController``, ``ControllerEventManager`` and ``ControllerStats``: the controller's view of the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from kraftlog.metrics.histogram import Histogram
from kraftlog.metrics.idle_ratio import IdleRatio
from kraftlog.metrics.meter import Meter
from kraftlog.metrics.registry import MetricGroup, Metrics, Reading

__all__ = ["ClusterCounts", "ControllerMetrics", "ControllerProgress"]


class ClusterCounts(NamedTuple):
    """What is committed, counted.

    Attributes:
        active_brokers: Those that are not fenced, as Kafka counts them: shutting down or not.
        fenced_brokers: Fenced ones.
        shutting_down_brokers: In controlled shutdown.
        topics: All topics.
        partitions: All partitions.
        offline_partitions: Those without a leader.
        imbalanced_partitions: Those that their first replica does not lead.
    """

    active_brokers: int = 0
    fenced_brokers: int = 0
    shutting_down_brokers: int = 0
    topics: int = 0
    partitions: int = 0
    offline_partitions: int = 0
    imbalanced_partitions: int = 0


class ControllerProgress(NamedTuple):
    """How far a controller is.

    Attributes:
        is_active: Whether it is the active controller.
        applied_offset: Last record in its state, on the active one with what is not committed yet; -1 for none.
        applied_timestamp_ms: That record's append time, Unix ms; -1 for none.
        committed_offset: Last committed record in its state; -1 for none.
    """

    is_active: bool = False
    applied_offset: int = -1
    applied_timestamp_ms: int = -1
    committed_offset: int = -1


class ControllerMetrics:
    """The metrics of one controller. All methods but reading are called on its loop.

    Args:
        metrics: Where they are registered, until ``close``.
        wall_ms: Unix clock, for lags.
        clock_ns: Monotonic clock, for everything else.
    """

    def __init__(
        self, metrics: Metrics, *, wall_ms: Callable[[], int], clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ms = wall_ms
        self._clock_ns = clock_ns
        self._counts = ClusterCounts()
        self._progress = ControllerProgress()
        self._metadata_errors = 0
        self._new_active_controllers = 0
        self._operations_started = 0
        self._operations_timed_out = 0
        self._heartbeats_timed_out = 0
        self._ignores_static_voters = False
        self._queue_time_ms = Histogram(seed=1)
        self._processing_time_ms = Histogram(seed=2)
        self._idle = IdleRatio(clock_ns())
        self._unclean_elections = Meter(clock_ns() / 1e9)
        self._elr_elections = Meter(clock_ns() / 1e9)
        self._metrics = metrics
        self._groups = (
            MetricGroup("kafka.controller", "KafkaController", self._read_controller),
            MetricGroup("kafka.controller", "ControllerEventManager", self._read_events),
            MetricGroup("kafka.controller", "ControllerStats", self._read_stats),
        )
        for group in self._groups:
            metrics.register(group)

    def close(self) -> None:
        """The controller is gone."""
        for group in self._groups:
            self._metrics.unregister(group)

    # Events

    def on_counts(self, counts: ClusterCounts) -> None:
        """The committed cluster changed."""
        self._counts = counts

    def on_progress(self, progress: ControllerProgress) -> None:
        """Records were applied, or it became or ceased to be the active controller."""
        self._progress = progress

    def on_new_active_controller(self) -> None:
        """Somebody became the active controller."""
        self._new_active_controllers += 1

    def on_error(self) -> None:
        """Records could not be applied, or the log failed."""
        self._metadata_errors += 1

    def on_static_voters_ignored(self, *, is_ignored: bool) -> None:
        """Whether controller.quorum.voters is set, though the voter set comes from the log."""
        self._ignores_static_voters = is_ignored

    def on_operation(self, submitted_ns: int, started_ns: int, ended_ns: int) -> None:
        """An operation waited and then ran."""
        now_s = ended_ns / 1e9
        self._operations_started += 1
        self._queue_time_ms.record((started_ns - submitted_ns) / 1e6, now_s)
        self._processing_time_ms.record((ended_ns - started_ns) / 1e6, now_s)
        self._idle.record_busy(started_ns, ended_ns)

    def on_operation_timed_out(self) -> None:
        """An operation waited too long to be begun."""
        self._operations_timed_out += 1

    def on_heartbeat_timed_out(self) -> None:
        """A broker's heartbeat waited too long to be begun."""
        self._heartbeats_timed_out += 1

    def on_elections(self, *, unclean: int, from_eligible: int) -> None:
        """Partitions got leaders from outside their in-sync sets: any replica, or one of the eligible ones."""
        now_s = self._clock_ns() / 1e9
        if unclean:
            self._unclean_elections.mark(unclean, now_s)
        if from_eligible:
            self._elr_elections.mark(from_eligible, now_s)

    # Reading

    def _read_controller(self) -> list[Reading]:
        counts, progress = self._counts, self._progress
        lag_ms = 0
        if not progress.is_active and progress.applied_timestamp_ms >= 0:
            lag_ms = max(0, self._wall_ms() - progress.applied_timestamp_ms)
        errors, started = self._metadata_errors, self._operations_started
        return [
            Reading("ActiveControllerCount", int(progress.is_active), "1 on the active controller, 0 on others"),
            Reading("ActiveBrokerCount", counts.active_brokers, "Brokers that are not fenced"),
            Reading("FencedBrokerCount", counts.fenced_brokers, "Brokers that are fenced"),
            Reading("ControlledShutdownBrokerCount", counts.shutting_down_brokers, "Brokers in controlled shutdown"),
            Reading("GlobalTopicCount", counts.topics, "Topics"),
            Reading("GlobalPartitionCount", counts.partitions, "Partitions"),
            Reading("OfflinePartitionsCount", counts.offline_partitions, "Partitions without a leader"),
            Reading(
                "PreferredReplicaImbalanceCount",
                counts.imbalanced_partitions,
                "Partitions that their preferred replica does not lead",
            ),
            Reading("MetadataErrorCount", errors, "Errors while applying metadata", is_counter=True),
            Reading("LastAppliedRecordOffset", progress.applied_offset, "Last record applied; -1 for none"),
            Reading("LastAppliedRecordTimestamp", progress.applied_timestamp_ms, "Its time (Unix ms); -1 for none"),
            Reading("LastAppliedRecordLagMs", lag_ms, "Age of that record (ms); 0 on the active controller"),
            Reading("LastCommittedRecordOffset", progress.committed_offset, "Last committed record; -1 for none"),
            Reading(
                "NewActiveControllersCount",
                self._new_active_controllers,
                "How often this node saw a new active controller",
                is_counter=True,
            ),
            Reading(
                "TimedOutBrokerHeartbeatCount",
                self._heartbeats_timed_out,
                "Heartbeats of brokers that waited too long",
                is_counter=True,
            ),
            Reading("EventQueueOperationsStartedCount", started, "Operations started", is_counter=True),
            Reading(
                "EventQueueOperationsTimedOutCount",
                self._operations_timed_out,
                "Operations that waited too long",
                is_counter=True,
            ),
            Reading(
                "IgnoredStaticVoters",
                int(self._ignores_static_voters),
                "1 when controller.quorum.voters is set but the voter set comes from the log",
            ),
        ]

    def _read_events(self) -> list[Reading]:
        return [
            Reading("EventQueueTimeMs", self._queue_time_ms.value(), "How long operations waited (ms)"),
            Reading("EventQueueProcessingTimeMs", self._processing_time_ms.value(), "How long operations ran (ms)"),
            Reading("AvgIdleRatio", self._idle.value(self._clock_ns()), "Share of the time without operations"),
        ]

    def _read_stats(self) -> list[Reading]:
        now_s = self._clock_ns() / 1e9
        return [
            Reading(
                "UncleanLeaderElectionsPerSec",
                self._unclean_elections.value(now_s),
                "Partitions led by a replica that was not in sync",
            ),
            Reading(
                "ElectionFromEligibleLeaderReplicasPerSec",
                self._elr_elections.value(now_s),
                "Partitions led by an eligible leader replica",
            ),
        ]
