"""``consumer-metrics``, ``producer-metrics`` and those by node: connections of a client, and its requests.

Source: ``Selector`` and ``Sender`` of Kafka 4.3.1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from kraftlog.metrics.rated import RatedCounters, mean_and_maximum
from kraftlog.metrics.registry import Reading
from kraftlog.metrics.sensor import SampledSensor

__all__ = ["ClientRequests", "RequestTimes"]

_TRAFFIC = {
    "connection-creation": "Connections that were opened",
    "connection-close": "Connections that ended",
    "request": "Requests sent",
    "response": "Answers received",
    "outgoing-byte": "Bytes sent",
    "incoming-byte": "Bytes received",
}


class RequestTimes:
    """The requests of one kind, or to one node.

    Args:
        name: Under which they are counted.
        what: What is counted.
        now_ms: A clock that does not go back.

    Attributes:
        counts: How many were answered.
        latency_ms: Time until the answer.
        throttle_ms: How long the broker then asked the client to wait.
    """

    __slots__ = ("_last_ms", "_name", "counts", "latency_ms", "throttle_ms")

    def __init__(self, name: str, what: str, now_ms: int) -> None:
        self._name = name
        self._last_ms: int | None = None
        self.counts = RatedCounters({name: what}, now_ms)
        self.latency_ms = SampledSensor()
        self.throttle_ms = SampledSensor()

    def on_answer(self, latency_ms: float, throttle_ms: int, now_ms: int) -> None:
        """An answer came."""
        self.counts.add(self._name, 1, now_ms)
        self.latency_ms.record(latency_ms, now_ms)
        self.throttle_ms.record(throttle_ms, now_ms)
        self._last_ms = now_ms

    def seconds_since(self, now_ms: int) -> float:
        """Seconds since the last answer; NaN before the first."""
        return math.nan if self._last_ms is None else (now_ms - self._last_ms) / 1000


class ClientRequests:
    """Measures the requests of one client; called on its event loop.

    Args:
        counters: Connections opened and closed, requests, answers, bytes sent and received.
        kinds: API keys and description of the requests that are measured by kind, by name.
        clock_ns: Monotonic clock.

    Attributes:
        by_kind: Requests by name.
    """

    __slots__ = ("_by_key", "_by_node", "_clock_ns", "_counters", "_rates", "by_kind")

    def __init__(
        self,
        counters: Callable[[], tuple[int, ...]],
        kinds: Mapping[str, tuple[tuple[int, ...], str]],
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock_ns = clock_ns
        self._counters = counters
        self._rates = RatedCounters(_TRAFFIC, self.now_ms(), counters)
        self.by_kind = {name: RequestTimes(name, what, self.now_ms()) for name, (_, what) in kinds.items()}
        self._by_key = {key: self.by_kind[name] for name, (keys, _) in kinds.items() for key in keys}
        self._by_node: dict[int, RequestTimes] = {}

    def now_ms(self) -> int:
        """Milliseconds of the clock."""
        return self._clock_ns() // 1_000_000

    def begin(self) -> int:
        """A request is about to be sent; returns the time, for ``on_answer``."""
        now_ns = self._clock_ns()
        self._rates.begin_event(now_ns // 1_000_000)
        return now_ns

    def on_answer(self, api_key: int, node_id: int, begun_ns: int, throttle_ms: int) -> None:
        """An answer came.

        Args:
            api_key: Of the request.
            node_id: Which node sent it.
            begun_ns: What ``begin`` returned.
            throttle_ms: How long the broker asks the client to wait.
        """
        now_ns = self._clock_ns()
        now_ms = now_ns // 1_000_000
        self._rates.begin_event(now_ms)
        of_node = self._by_node.get(node_id)
        if of_node is None:
            of_node = RequestTimes("response", "Answers received", now_ms)
            # Replaced as a whole: a reader on another thread may be going through it.
            self._by_node = {**self._by_node, node_id: of_node}
        latency_ms = (now_ns - begun_ns) / 1e6
        of_node.on_answer(latency_ms, throttle_ms, now_ms)
        of_kind = self._by_key.get(api_key)
        if of_kind is not None:
            of_kind.on_answer(latency_ms, throttle_ms, now_ms)

    def read(self) -> list[Reading]:
        """The readings of all connections at one moment."""
        opened, closed, *_ = self._counters()
        return [Reading("connection-count", opened - closed, "Open connections"), *self._rates.read(self.now_ms())]

    def read_nodes(self) -> list[Reading]:
        """The readings by node. Coordinators have connections and ids of their own, as in Kafka's client."""
        now_ms = self.now_ms()
        readings = []
        for node_id, times in self._by_node.items():
            tags = (("node-id", f"node-{node_id}"),)
            readings += times.counts.read(now_ms, tags)
            readings += mean_and_maximum("request-latency", times.latency_ms, "time to an answer (ms)", now_ms, tags)
        return readings
