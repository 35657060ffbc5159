"""``ReplicaManager``, ``ReplicaFetcherManager``, ``ReplicaAlterLogDirsManager``, ``LogManager``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from kraftlog.metrics.meter import Meter
from kraftlog.metrics.registry import MetricGroup, Metrics, Reading

__all__ = ["FetcherCounts", "ReplicaCounts", "ReplicaMetrics"]

_FETCHER_TAGS = (("clientId", "Replica"),)
_MOVE_TAGS = (("clientId", "ReplicaAlterLogDirs"),)


class ReplicaCounts(NamedTuple):
    """The replicas of a broker, counted.

    Attributes:
        partitions: Replicas whose logs are open.
        leaders: Those that this broker leads; the following four count among these.
        under_replicated: With an assigned replica that is not in sync.
        under_min_isr: With fewer replicas in sync than min.insync.replicas asks for.
        at_min_isr: With exactly that many.
        reassigning: With replicas that are being added or removed.
        offline: Replicas whose log cannot be used.
        offline_directories: Data directories that failed.
        late_transactions: Of those that are led here, with an open transaction that has been idle for too long.
    """

    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    offline: int = 0
    offline_directories: int = 0
    late_transactions: int = 0


class FetcherCounts(NamedTuple):
    """The replica fetchers of a broker, or its moves between data directories.

    Attributes:
        max_lag: Largest number of committed records that a followed partition, or of records that a copy, does not have
            yet.
        min_fetch_rate: Lowest rate of any fetcher's requests, or of the parts that any move copies, per second over a
            minute.
        failed_partitions: Partitions that wait for another leader epoch, or copies that cannot be filled.
        dead_loops: Those that ended by a defect.
    """

    max_lag: int = 0
    min_fetch_rate: float = 0.0
    failed_partitions: int = 0
    dead_loops: int = 0


class ReplicaMetrics:
    """The metrics of one broker's replicas. Marks are made on its loop; readers may be on any thread.

    Args:
        metrics: Where they are registered, until ``close``.
        counts: Counts the replicas; called on the thread of a reader.
        fetchers: Counts the fetchers; likewise.
        moves: Counts the moves between data directories; likewise.
        clock_ns: Monotonic clock.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        counts: Callable[[], ReplicaCounts],
        fetchers: Callable[[], FetcherCounts],
        moves: Callable[[], FetcherCounts],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._counts = counts
        self._fetchers = fetchers
        self._moves = moves
        self._clock_ns = clock_ns
        now_s = clock_ns() / 1e9
        self._expands, self._shrinks, self._failures = Meter(now_s), Meter(now_s), Meter(now_s)
        self._replicated_in, self._replicated_out = Meter(now_s), Meter(now_s)
        self._reassigned_in, self._reassigned_out = Meter(now_s), Meter(now_s)
        self._metrics = metrics
        self._groups = (
            MetricGroup("kafka.server", "ReplicaManager", self._read_replicas),
            MetricGroup("kafka.server", "ReplicaFetcherManager", self._read_fetchers),
            MetricGroup("kafka.server", "ReplicaAlterLogDirsManager", self._read_moves),
            MetricGroup("kafka.server", "BrokerTopicMetrics", self._read_traffic),
            MetricGroup("kafka.log", "LogManager", self._read_directories),
        )
        for group in self._groups:
            metrics.register(group)

    def close(self) -> None:
        """The broker is gone."""
        for group in self._groups:
            self._metrics.unregister(group)

    def on_isr_expanded(self) -> None:
        """The controller confirmed a larger in-sync set."""
        self._expands.mark(1, self._clock_ns() / 1e9)

    def on_isr_shrunk(self) -> None:
        """The controller confirmed a smaller in-sync set."""
        self._shrinks.mark(1, self._clock_ns() / 1e9)

    def on_isr_update_failed(self) -> None:
        """The controller refused a change of an in-sync set, or its answer came too late."""
        self._failures.mark(1, self._clock_ns() / 1e9)

    def on_replicated_in(self, size_bytes: int, *, is_reassignment: bool) -> None:
        """Bytes of a leader were appended here."""
        now_s = self._clock_ns() / 1e9
        self._replicated_in.mark(size_bytes, now_s)
        if is_reassignment:
            self._reassigned_in.mark(size_bytes, now_s)

    def on_replicated_out(self, size_bytes: int, *, is_reassignment: bool) -> None:
        """A follower was answered with so many bytes."""
        now_s = self._clock_ns() / 1e9
        self._replicated_out.mark(size_bytes, now_s)
        if is_reassignment:
            self._reassigned_out.mark(size_bytes, now_s)

    # Reading

    def _read_traffic(self) -> list[Reading]:
        now_s = self._clock_ns() / 1e9
        return [
            Reading(
                "ReplicationBytesInPerSec", self._replicated_in.value(now_s), "Bytes that replicas took from leaders"
            ),
            Reading("ReplicationBytesOutPerSec", self._replicated_out.value(now_s), "Bytes that followers were sent"),
            Reading(
                "ReassignmentBytesInPerSec", self._reassigned_in.value(now_s), "Those of replicas that are being added"
            ),
            Reading(
                "ReassignmentBytesOutPerSec",
                self._reassigned_out.value(now_s),
                "Those to replicas that are being added",
            ),
        ]

    def _read_replicas(self) -> list[Reading]:
        counts = self._counts()
        now_s = self._clock_ns() / 1e9
        return [
            Reading("LeaderCount", counts.leaders, "Partitions that this broker leads"),
            Reading("PartitionCount", counts.partitions, "Replicas of partitions on this broker"),
            Reading("OfflineReplicaCount", counts.offline, "Replicas whose log cannot be used"),
            Reading(
                "UnderReplicatedPartitions",
                counts.under_replicated,
                "Partitions led here with a replica that is not in sync",
            ),
            Reading(
                "UnderMinIsrPartitionCount",
                counts.under_min_isr,
                "Partitions led here with fewer in-sync replicas than min.insync.replicas",
            ),
            Reading(
                "AtMinIsrPartitionCount",
                counts.at_min_isr,
                "Partitions led here with just as many in-sync replicas as min.insync.replicas",
            ),
            Reading("ReassigningPartitions", counts.reassigning, "Partitions led here that are being reassigned"),
            Reading(
                "PartitionsWithLateTransactionsCount",
                counts.late_transactions,
                "Partitions led here whose oldest open transaction should have ended long ago",
            ),
            Reading("IsrExpandsPerSec", self._expands.value(now_s), "In-sync sets that grew"),
            Reading("IsrShrinksPerSec", self._shrinks.value(now_s), "In-sync sets that shrank"),
            Reading(
                "FailedIsrUpdatesPerSec", self._failures.value(now_s), "Changes of in-sync sets that were not confirmed"
            ),
        ]

    def _read_fetchers(self) -> list[Reading]:
        fetchers = self._fetchers()
        return [
            Reading("MaxLag", fetchers.max_lag, "Largest lag of a followed partition, in records", tags=_FETCHER_TAGS),
            Reading(
                "MinFetchRate",
                fetchers.min_fetch_rate,
                "Requests per second of the fetcher that sends the fewest",
                tags=_FETCHER_TAGS,
            ),
            Reading(
                "FailedPartitionsCount",
                fetchers.failed_partitions,
                "Followed partitions that wait for another leader epoch",
                tags=_FETCHER_TAGS,
            ),
            Reading("DeadThreadCount", fetchers.dead_loops, "Fetchers that ended by a defect", tags=_FETCHER_TAGS),
        ]

    def _read_moves(self) -> list[Reading]:
        moves = self._moves()
        return [
            Reading("MaxLag", moves.max_lag, "Largest lag of a replica's copy, in records", tags=_MOVE_TAGS),
            Reading(
                "MinFetchRate",
                moves.min_fetch_rate,
                "Parts per second of the copy that is filled the slowest",
                tags=_MOVE_TAGS,
            ),
            Reading(
                "FailedPartitionsCount",
                moves.failed_partitions,
                "Replicas whose copy cannot be filled",
                tags=_MOVE_TAGS,
            ),
            Reading("DeadThreadCount", moves.dead_loops, "Moves that ended by a defect", tags=_MOVE_TAGS),
        ]

    def _read_directories(self) -> list[Reading]:
        return [
            Reading("OfflineLogDirectoryCount", self._counts().offline_directories, "Data directories that failed"),
        ]
