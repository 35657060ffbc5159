"""``raft-metrics``: what one replica of a raft log is and how fast it goes (KIP-595, KIP-853, KIP-996)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kraftlog.metrics.idle_ratio import IdleRatio
from kraftlog.metrics.registry import MetricGroup, Metrics, Reading
from kraftlog.metrics.sensor import SampledSensor
from kraftlog.types import Uuid

__all__ = ["RAFT_STATES", "RaftMetrics", "RaftState"]

RAFT_STATES = (
    "leader",
    "prospective",
    "prospective-voted",
    "candidate",
    "unattached-voted",
    "follower",
    "observer",
    "unattached",
)


class RaftState(NamedTuple):
    """What a replica is at one moment.

    Attributes:
        state: One of ``RAFT_STATES``; a resigned leader is unattached.
        leader_id: The leader of the epoch, -1 when unknown.
        voted_id: Who has the vote of the epoch, -1 for nobody; itself while it leads or is a candidate.
        voted_directory_id: The same's directory id, zero for none.
        epoch: The epoch.
        high_watermark: Exclusive end of what is known to be committed, -1 when unknown.
        log_end_offset: Offset the next record gets.
        log_end_epoch: Epoch of the last record.
        voter_count: Size of the voter set in force.
        observer_count: Observers that fetched within the last five minutes; None on others than the leader.
        is_voter_change_uncommitted: None on others than the leader.
    """

    state: str = "unattached"
    leader_id: int = -1
    voted_id: int = -1
    voted_directory_id: Uuid = Uuid.ZERO
    epoch: int = 0
    high_watermark: int = -1
    log_end_offset: int = 0
    log_end_epoch: int = 0
    voter_count: int = 0
    observer_count: int | None = None
    is_voter_change_uncommitted: bool | None = None


class RaftMetrics:
    """The metrics of one replica. All methods but reading are called on its loop.

    Args:
        metrics: Where they are registered, until ``close``.
        sample_count: metrics.num.samples.
        window_ms: metrics.sample.window.ms.
        clock_ns: The clock of all times; monotonic.

    Raises:
        ValueError: Another replica's are registered there.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        sample_count: int = 2,
        window_ms: int = 30_000,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock_ns = clock_ns
        self._state = RaftState()
        self._highest = -1
        self._appended: deque[tuple[int, int, int]] = deque()
        self._election_start_ms: int | None = None
        sensors = [SampledSensor(sample_count=sample_count, window_ms=window_ms) for _ in range(4)]
        self._commit_latency, self._election_latency, self._fetched_records, self._appended_records = sensors
        self._idle = IdleRatio(clock_ns())
        self._group = MetricGroup("kafka.server", "raft-metrics", self._read)
        self._metrics = metrics
        metrics.register(self._group)

    @property
    def state(self) -> RaftState:
        """What the replica was after its last turn."""
        return self._state

    def close(self) -> None:
        """The replica is gone: others may register under this name."""
        self._metrics.unregister(self._group)

    # Events

    def on_turn(self, state: RaftState, start_ns: int, end_ns: int) -> None:
        """The replica did something from ``start_ns`` to ``end_ns`` and is ``state`` now."""
        self._highest = max(self._highest, state.high_watermark)
        # A new leader does not know what is committed for a moment; what was committed before still is.
        self._state = state if state.high_watermark == self._highest else state._replace(high_watermark=self._highest)
        self._idle.record_busy(start_ns, end_ns)

    def on_role(self, name: str) -> None:
        """The replica entered a role: leader, follower, candidate, prospective or another."""
        now_ms = self._now_ms()
        if name != "leader":
            self._appended.clear()
        if name in {"prospective", "candidate"}:
            self._election_start_ms = now_ms
        elif name in {"leader", "follower"} and self._election_start_ms is not None:
            self._election_latency.record(now_ms - self._election_start_ms, now_ms)
            self._election_start_ms = None

    def on_appended(self, end_offset: int, record_count: int) -> None:
        """As leader it appended a batch that ends before ``end_offset``."""
        now_ms = self._now_ms()
        self._appended.append((end_offset, now_ms, record_count))
        self._appended_records.record(record_count, now_ms)

    def on_fetched(self, record_count: int) -> None:
        """It appended records that it got from the leader."""
        self._fetched_records.record(record_count, self._now_ms())

    def on_committed(self, high_watermark: int) -> None:
        """Everything below is committed. As in Kafka a batch's time counts once, divided by its number of records."""
        appended = self._appended
        now_ms = self._now_ms() if appended else 0
        while appended and appended[0][0] <= high_watermark:
            _, appended_ms, record_count = appended.popleft()
            self._commit_latency.record((now_ms - appended_ms) / record_count, now_ms)

    # Reading

    def _now_ms(self) -> int:
        return self._clock_ns() // 1_000_000

    def _read(self) -> list[Reading]:
        state, now_ns = self._state, self._clock_ns()
        now_ms = now_ns // 1_000_000
        readings = [
            Reading("current-state", state.state, "State of this replica", choices=RAFT_STATES),
            Reading("current-leader", state.leader_id, "Id of the leader; -1 when unknown"),
            Reading("current-vote", state.voted_id, "Id voted for in the epoch; -1 for nobody"),
            Reading(
                "current-vote-directory-id",
                str(state.voted_directory_id),
                f"Directory id voted for in the epoch; {Uuid.ZERO} for none",
            ),
            Reading("current-epoch", state.epoch, "Epoch of the quorum"),
            Reading("high-watermark", state.high_watermark, "End of what is known to be committed; -1 when unknown"),
            Reading("log-end-offset", state.log_end_offset, "End of the local log"),
            Reading("log-end-epoch", state.log_end_epoch, "Epoch of the last record of the local log"),
            Reading("number-unknown-voter-connections", 0, "Always 0; kept for those who read it"),
            Reading("number-of-voters", state.voter_count, "Size of the voter set in force"),
        ]
        if state.observer_count is not None:
            description = "Observers that fetched within five minutes; on the leader only"
            readings.append(Reading("number-of-observers", state.observer_count, description))
        if state.is_voter_change_uncommitted is not None:
            description = "1 while a change of the voter set is not committed; on the leader only"
            readings.append(Reading("uncommitted-voter-change", int(state.is_voter_change_uncommitted), description))
        commit, election = self._commit_latency, self._election_latency
        readings += [
            Reading("commit-latency-avg", commit.average(now_ms), "Mean time from append to commit (ms)"),
            Reading("commit-latency-max", commit.maximum(now_ms), "Longest time from append to commit (ms)"),
            Reading("election-latency-avg", election.average(now_ms), "Mean time of an election (ms)"),
            Reading("election-latency-max", election.maximum(now_ms), "Longest time of an election (ms)"),
            Reading("fetch-records-rate", self._fetched_records.rate(now_ms), "Records per second from the leader"),
            Reading("append-records-rate", self._appended_records.rate(now_ms), "Records per second as leader"),
            Reading("poll-idle-ratio-avg", self._idle.value(now_ns), "Share of the time the replica waits"),
        ]
        return readings
