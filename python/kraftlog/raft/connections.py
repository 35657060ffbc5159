"""Which request is under way to whom: one at a time for each destination, with time-outs and back-off (KIP-595).

Destinations that are known by address only, as from ``controller.quorum.bootstrap.servers``, have ids from -2 down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from kraftlog.raft.messages import Request
from kraftlog.raft.voter_set import Endpoint
from kraftlog.types import NodeId

__all__ = ["Connections", "Destination", "bootstrap_destinations"]


@dataclass(frozen=True, slots=True)
class Destination:
    """Whom to send to, and where it listens."""

    node_id: NodeId
    endpoint: Endpoint


def bootstrap_destinations(endpoints: Sequence[Endpoint]) -> tuple[Destination, ...]:
    """Destinations for addresses whose node ids are not known: -2, -3 and so on."""
    return tuple(Destination(NodeId(-2 - index), endpoint) for index, endpoint in enumerate(endpoints))


@dataclass(slots=True)
class _InFlight:
    correlation_id: int
    request: Request
    sent_ms: int


class Connections:
    """The state of every destination; those never used are ready."""

    __slots__ = ("_backoff_ends", "_in_flight", "_next_correlation_id", "request_timeout_ms", "retry_backoff_ms")

    def __init__(self, *, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self.request_timeout_ms = request_timeout_ms
        self.retry_backoff_ms = retry_backoff_ms
        self._in_flight: dict[NodeId, _InFlight] = {}
        self._backoff_ends: dict[NodeId, int] = {}
        self._next_correlation_id = 0

    def reset(self) -> None:
        """Forget everything, so that answers still under way are ignored (CONN-06)."""
        self._in_flight.clear()
        self._backoff_ends.clear()

    def forget(self, node_id: NodeId) -> None:
        """Give up what is under way to one destination; an answer that comes yet is ignored."""
        self._in_flight.pop(node_id, None)

    def is_ready(self, node_id: NodeId, now_ms: int) -> bool:
        """Whether a request may be sent."""
        under_way = self._in_flight.get(node_id)
        if under_way is not None:
            return under_way.sent_ms + self.request_timeout_ms <= now_ms
        return self._backoff_ends.get(node_id, now_ms) <= now_ms

    def ready_ms(self, node_id: NodeId, now_ms: int) -> int:
        """From when on a request may be sent, unless an answer comes first."""
        under_way = self._in_flight.get(node_id)
        if under_way is not None:
            return under_way.sent_ms + self.request_timeout_ms
        return self._backoff_ends.get(node_id, now_ms)

    def next_ready_ms(self, node_ids: Sequence[NodeId], now_ms: int) -> int | None:
        """From when on a request may be sent to one of these, nothing being under way to them; None for nobody."""
        ends = self._backoff_ends
        soonest_ms: int | None = None
        for node_identifier in node_ids:
            end_ms = ends.get(node_identifier)
            if end_ms is None:
                return now_ms
            if soonest_ms is None or end_ms < soonest_ms:
                soonest_ms = end_ms
        return soonest_ms

    def is_backing_off(self, node_id: NodeId, now_ms: int) -> bool:
        """Whether the last request failed a moment ago."""
        return self._backoff_ends.get(node_id, now_ms) > now_ms

    def has_timed_out(self, node_id: NodeId, now_ms: int) -> bool:
        """Whether the request under way has waited too long for its answer."""
        under_way = self._in_flight.get(node_id)
        return under_way is not None and now_ms >= under_way.sent_ms + self.request_timeout_ms

    def requests_under_way(self, now_ms: int) -> tuple[Request, ...]:
        """Requests whose answers are waited for, in the order they were sent."""
        sent_after_ms = now_ms - self.request_timeout_ms
        return tuple([exchange.request for exchange in self._in_flight.values() if exchange.sent_ms > sent_after_ms])

    @property
    def unanswered_count(self) -> int:
        """How many requests have not been answered, those counted whose answer is not waited for any more."""
        return len(self._in_flight)

    def is_busy(self, now_ms: int) -> bool:
        """Whether any request is under way to anybody."""
        sent_after_ms = now_ms - self.request_timeout_ms
        for exchange in self._in_flight.values():  # noqa: SIM110 - asked several times for each event
            if exchange.sent_ms > sent_after_ms:
                return True
        return False

    def busy_end_ms(self, now_ms: int) -> int | None:
        """When the last of the requests under way is given up; None when there is none."""
        if not self._in_flight:
            return None
        last_ms = now_ms - self.request_timeout_ms
        for exchange in self._in_flight.values():
            last_ms = max(last_ms, exchange.sent_ms)
        end_ms = last_ms + self.request_timeout_ms
        return end_ms if end_ms > now_ms else None

    def choose(self, destinations: Sequence[Destination], now_ms: int, rng: Random) -> Destination | None:
        """A destination that is ready, from a random one on (CONN-05)."""
        if not destinations:
            return None
        start = rng.randrange(len(destinations))
        for index in range(start - len(destinations), start):
            destination = destinations[index]
            if self.is_ready(destination.node_id, now_ms):
                return destination
        return None

    def on_sent(self, node_id: NodeId, request: Request, now_ms: int) -> int:
        """Note a request; return its correlation id."""
        self._backoff_ends.pop(node_id, None)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        self._in_flight[node_id] = _InFlight(correlation_id, request, now_ms)
        return correlation_id

    def request_under_way(self, node_id: NodeId, correlation_id: int, now_ms: int) -> Request | None:
        """The request an answer is for; None when no such answer is waited for (CONN-03)."""
        under_way = self._in_flight.get(node_id)
        if under_way is None or under_way.correlation_id != correlation_id:
            return None
        return under_way.request if now_ms < under_way.sent_ms + self.request_timeout_ms else None

    def on_answered(self, node_id: NodeId, correlation_id: int, now_ms: int, *, is_success: bool) -> None:
        """Note that the answer came; after a failure the destination is left alone for a while."""
        under_way = self._in_flight.get(node_id)
        if under_way is None or under_way.correlation_id != correlation_id:
            return
        del self._in_flight[node_id]
        if not is_success:
            self._backoff_ends[node_id] = now_ms + self.retry_backoff_ms
