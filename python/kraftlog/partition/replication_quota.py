"""Throttles of replication: which replicas they hold, and whether their rate is exceeded (KIP-73)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["UNLIMITED", "ReplicationQuota", "ThrottledReplicas"]

UNLIMITED = 2**63 - 1
_EVERY = "*"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """A value of ``leader.replication.throttled.replicas`` or ``follower.replication.throttled.replicas``.

    Attributes:
        has_all: Every replica of the topic is throttled.
        replicas: Partition and broker of each throttled replica otherwise.
    """

    has_all: bool = False
    replicas: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def parse(cls, entries: Sequence[str]) -> ThrottledReplicas:
        """From ``*`` or ``partition:broker`` entries, which the configuration has checked."""
        if _EVERY in entries:
            return cls(has_all=True)
        pairs = (entry.partition(":") for entry in entries)
        return cls(replicas=frozenset((int(partition), int(broker)) for partition, _, broker in pairs))

    def has(self, partition: int, broker_id: int) -> bool:
        """Whether a replica is throttled."""
        return self.has_all or (partition, broker_id) in self.replicas


class ReplicationQuota:
    """Bytes per second over the last windows, as Kafka's ``ReplicationQuotaManager`` measures them.

    Args:
        window_ms: replication.quota.window.size.seconds.
        windows: replication.quota.window.num.
    """

    def __init__(self, window_ms: int = 1_000, windows: int = 11) -> None:
        self._window_ms = window_ms
        self._windows = windows
        self.bytes_per_second = UNLIMITED
        # Start of a window and the bytes in it, the oldest first.
        self._samples: deque[tuple[int, int]] = deque()

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Throttled replicas moved so many bytes, in sync or not."""
        if self._samples and now_ms - self._samples[-1][0] < self._window_ms:
            start_ms, counted = self._samples[-1]
            self._samples[-1] = (start_ms, counted + size_bytes)
        else:
            self._samples.append((now_ms, size_bytes))
        self._drop(now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether throttled replicas that are not in sync have to wait."""
        if self.bytes_per_second == UNLIMITED:
            return False
        return self.rate(now_ms) > self.bytes_per_second

    def rate(self, now_ms: int) -> float:
        """Bytes per second; the time is at least one window."""
        self._drop(now_ms)
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0][0], self._window_ms)
        return sum(size_bytes for _, size_bytes in self._samples) * 1000 / elapsed_ms

    def _drop(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._window_ms * self._windows:
            self._samples.popleft()
