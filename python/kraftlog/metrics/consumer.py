"""``consumer-fetch-manager-metrics``, ``consumer-coordinator-metrics``, ``consumer-metrics``: what a consumer does.

Source: ``FetchMetricsRegistry``, ``ConsumerCoordinatorMetrics`` and ``KafkaConsumerMetrics`` of Kafka 4.3.1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kraftlog.metrics.client_requests import ClientRequests
from kraftlog.metrics.rated import RatedCounters, SpentTimes, mean_and_maximum
from kraftlog.metrics.registry import MetricGroup, Metrics, Reading
from kraftlog.metrics.sensor import SampledSensor
from kraftlog.types import TopicPartition

__all__ = ["ConsumerMetrics", "PartitionProgress"]

# API keys by name.
_KINDS = {
    "fetch": ((1,), "Fetches that were answered"),
    "commit": ((8,), "Commits of offsets that were answered"),
    "join": ((11,), "Requests to join the group that were answered"),
    "sync": ((14,), "Requests for an assignment that were answered"),
    "heartbeat": ((12, 68), "Heartbeats that were answered"),
}
# Calls whose time is added up.
_CALLS = {"commit-sync": "commit", "committed": "committed"}
# Kafka measures rebalances per hour over hours.
_HOUR_MS = 3_600_000
_CONSUMED = {
    "records-consumed": "Records that the application got",
    "bytes-consumed": "Bytes of the batches that they were in, as the broker sent them",
}


class PartitionProgress(NamedTuple):
    """Where a consumer is in a partition.

    Attributes:
        partition: Which.
        lag: Records between the position and the end; None before the first fetch.
        lead: Records between the first one of the log and the position; None likewise.
        preferred_replica: The follower that it fetches from; None for the leader.
    """

    partition: TopicPartition
    lag: int | None
    lead: int | None
    preferred_replica: int | None


class ConsumerMetrics:
    """Measures one consumer; called on its event loop, once per answer, poll or rebalance, never per record.

    Args:
        counters: As for :class:`ClientRequests`.
        progress: Where the consumer is in each of its partitions; called on the thread of a reader.
        clock_ns: Monotonic clock.

    Attributes:
        requests: For the connections.
        timed: Gives a block whose time is that of a call: commit-sync or committed.
        snapshot: All metrics now; may be called on any thread.
    """

    def __init__(
        self,
        counters: Callable[[], tuple[int, ...]],
        progress: Callable[[], Sequence[PartitionProgress]],
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock_ns = clock_ns
        self._progress = progress
        self.requests = ClientRequests(counters, _KINDS, clock_ns=clock_ns)
        now_ms = self.requests.now_ms()
        self._consumed = RatedCounters(_CONSUMED, now_ms)
        self._by_topic: dict[str, RatedCounters] = {}
        self._fetch_bytes = SampledSensor()
        self._lag = SampledSensor()
        self._negative_lead = SampledSensor()  # sensors have maxima only
        self._lag_by_partition: dict[TopicPartition, SampledSensor] = {}
        self._rebalance_ms = SampledSensor()
        rebalances = {"rebalance": "Assignments that this member took"}
        self._rebalances = RatedCounters(rebalances, now_ms, window_ms=_HOUR_MS)
        self._rebalance_ms_total = 0
        self._rebalance_at_ms: int | None = None
        self._between_polls_ms = SampledSensor()
        self._poll_ratio = SampledSensor()
        self._spent = SpentTimes(_CALLS, clock_ns)
        self.timed = self._spent.timed
        self._poll_begun_ns: int | None = None
        self._poll_ended_ns: int | None = None
        metrics = Metrics()
        for name, read in (
            ("consumer-metrics", self._read_consumer),
            ("consumer-node-metrics", self.requests.read_nodes),
            ("consumer-fetch-manager-metrics", self._read_fetches),
            ("consumer-coordinator-metrics", self._read_group),
        ):
            metrics.register(MetricGroup("kafka.consumer", name, read))
        self.snapshot = metrics.snapshot

    # Events

    def on_poll(self) -> None:
        """The application begins to poll."""
        now_ns = self._clock_ns()
        if self._poll_begun_ns is not None:
            self._between_polls_ms.record((now_ns - self._poll_begun_ns) / 1e6, now_ns // 1_000_000)
        self._poll_begun_ns = now_ns

    def on_poll_end(self) -> None:
        """It has what it polled for."""
        now_ns, begun_ns, before_ns = self._clock_ns(), self._poll_begun_ns, self._poll_ended_ns
        if begun_ns is not None and before_ns is not None and now_ns > before_ns:
            self._poll_ratio.record((now_ns - begun_ns) / (now_ns - before_ns), now_ns // 1_000_000)
        self._poll_ended_ns = now_ns

    def on_fetched(self, byte_count: int) -> None:
        """A fetch was answered with so many bytes of records."""
        self._fetch_bytes.record(byte_count, self.requests.now_ms())

    def on_records(self, partition: TopicPartition, count: int, lag: int | None, lead: int | None) -> None:
        """The application gets records of a partition.

        Args:
            partition: Which.
            count: How many records.
            lag: Records behind them in the log.
            lead: Records before the position in the log.
        """
        now_ms = self.requests.now_ms()
        self._count("records-consumed", partition.topic, count, now_ms)
        if lead is not None:
            self._negative_lead.record(-lead, now_ms)
        if lag is not None:
            self._lag.record(lag, now_ms)
            self._lag_of(partition).record(lag, now_ms)

    def _lag_of(self, partition: TopicPartition) -> SampledSensor:
        found = self._lag_by_partition.get(partition)
        if found is None:
            found = SampledSensor()
            assigned = {progress.partition for progress in self._progress()}
            kept = {name: sensor for name, sensor in self._lag_by_partition.items() if name in assigned}
            # Replaced as a whole: a reader on another thread may be going through it.
            self._lag_by_partition = {**kept, partition: found}
        return found

    def on_bytes(self, topic: str, count: int) -> None:
        """The application got all records of so many bytes."""
        self._count("bytes-consumed", topic, count, self.requests.now_ms())

    def _count(self, name: str, topic: str, count: int, now_ms: int) -> None:
        of_topic = self._by_topic.get(topic)
        if of_topic is None:
            of_topic = RatedCounters(_CONSUMED, now_ms)
            # Replaced as a whole: a reader on another thread may be going through it.
            self._by_topic = {**self._by_topic, topic: of_topic}
        self._consumed.add(name, count, now_ms)
        of_topic.add(name, count, now_ms)

    def on_rebalanced(self, duration_ms: int) -> None:
        """The member took an assignment; it began to ask for it, or to follow it, so long ago."""
        now_ms = self.requests.now_ms()
        self._rebalances.add("rebalance", 1, now_ms)
        self._rebalance_ms.record(duration_ms, now_ms)
        self._rebalance_ms_total += duration_ms
        self._rebalance_at_ms = now_ms

    # Reading

    def _read_consumer(self) -> list[Reading]:
        now_ms = self.requests.now_ms()
        begun_ns = self._poll_begun_ns
        silent_s = math.nan if begun_ns is None else (self._clock_ns() - begun_ns) // 1_000_000_000
        return [
            Reading("last-poll-seconds-ago", silent_s, "Seconds since the application polled"),
            *mean_and_maximum("time-between-poll", self._between_polls_ms, "time from poll to poll (ms)", now_ms),
            Reading("poll-idle-ratio-avg", self._poll_ratio.average(now_ms), "Share of the time spent in poll"),
            *self._spent.read(),
            *self.requests.read(),
        ]

    def _read_fetches(self) -> list[Reading]:
        now_ms = self.requests.now_ms()
        fetches = self.requests.by_kind["fetch"]
        readings = [
            *self._consumed.read(now_ms),
            *fetches.counts.read(now_ms),
            *mean_and_maximum("fetch-latency", fetches.latency_ms, "time to the answer to a fetch (ms)", now_ms),
            *mean_and_maximum("fetch-throttle-time", fetches.throttle_ms, "wait that a quota asked for (ms)", now_ms),
            *mean_and_maximum("fetch-size", self._fetch_bytes, "bytes of records in an answer", now_ms),
            Reading("records-lag-max", self._lag.maximum(now_ms), "Largest lag after a poll"),
            Reading("records-lead-min", -self._negative_lead.maximum(now_ms), "Smallest lead after a poll"),
        ]
        for topic, counters in self._by_topic.items():
            readings += counters.read(now_ms, (("topic", topic),))
        for found in self._progress():
            tags = (("topic", found.partition.topic), ("partition", str(found.partition.partition)))
            if found.lag is not None:
                readings.append(Reading("records-lag", found.lag, "Records behind the position", tags))
            if found.lead is not None:
                readings.append(Reading("records-lead", found.lead, "Records before the position", tags))
            lag = self._lag_by_partition.get(found.partition)
            if lag is not None:
                readings += mean_and_maximum("records-lag", lag, "lag after a poll", now_ms, tags)
            replica = -1 if found.preferred_replica is None else found.preferred_replica
            readings.append(Reading("preferred-read-replica", replica, "Follower that is read from", tags))
        return readings

    def _read_group(self) -> list[Reading]:
        now_ms = self.requests.now_ms()
        of = self.requests.by_kind
        heartbeats, commits, joins, syncs = of["heartbeat"], of["commit"], of["join"], of["sync"]
        since_ms = self._rebalance_at_ms
        per_second, total = self._rebalances.read(now_ms)
        assert isinstance(per_second.value, float)
        return [
            Reading("assigned-partitions", len(self._progress()), "Partitions that are read"),
            *commits.counts.read(now_ms),
            *mean_and_maximum("commit-latency", commits.latency_ms, "time of a commit (ms)", now_ms),
            *heartbeats.counts.read(now_ms),
            Reading(
                "heartbeat-response-time-max", heartbeats.latency_ms.maximum(now_ms), "Longest time of a heartbeat (ms)"
            ),
            Reading("last-heartbeat-seconds-ago", heartbeats.seconds_since(now_ms), "Seconds since the last heartbeat"),
            *joins.counts.read(now_ms),
            *mean_and_maximum("join-time", joins.latency_ms, "time of a request to join (ms)", now_ms),
            *syncs.counts.read(now_ms),
            *mean_and_maximum("sync-time", syncs.latency_ms, "time of a request for an assignment (ms)", now_ms),
            total,
            Reading("rebalance-rate-per-hour", per_second.value * 3600, "Rebalances per hour"),
            *mean_and_maximum("rebalance-latency", self._rebalance_ms, "time of a rebalance (ms)", now_ms),
            Reading("rebalance-latency-total", self._rebalance_ms_total, "Time of rebalances (ms)", is_counter=True),
            Reading(
                "last-rebalance-seconds-ago",
                math.nan if since_ms is None else (now_ms - since_ms) // 1000,
                "Seconds since the last rebalance",
            ),
        ]
