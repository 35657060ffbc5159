"""Which brokers have been heard of lately: known to the active controller alone, and in memory only (KIP-631)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BrokerSessions"]


@dataclass(slots=True)
class _Session:
    """One registration of a broker, and when it was last heard of (monotonic ms)."""

    broker_epoch: int
    heard_ms: int


class BrokerSessions:
    """A broker that registered or sent a heartbeat has a session until it has been silent for the timeout.

    Args:
        timeout_ms: broker.session.timeout.ms.

    Attributes:
        look_interval_ms: How often ``has_expired`` wants to be asked.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.look_interval_ms = max(10, timeout_ms // 9)
        self._looked_ms: int | None = None
        self._sessions: dict[int, _Session] = {}

    def touch(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A broker was heard of."""
        self._sessions[broker_id] = _Session(broker_epoch, now_ms)

    def forget(self, broker_id: int) -> None:
        """A broker left, and said so: the next one with its id need not wait."""
        self._sessions.pop(broker_id, None)

    def is_valid(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether this registration of the broker has been heard of within the timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and session.broker_epoch == broker_epoch and not self._is_over(session, now_ms)

    def has_expired(self, now_ms: int) -> bool:
        """Whether ``take_expired`` has somebody to name; to be asked every ``look_interval_ms``.

        Where nobody asked for much longer this process stood still, and heard nobody: that time counts for no broker.
        """
        if self._looked_ms is not None:
            stood_still_ms = now_ms - self._looked_ms - 2 * self.look_interval_ms
            if stood_still_ms > 0:
                for session in self._sessions.values():
                    session.heard_ms = min(now_ms, session.heard_ms + stood_still_ms)
        self._looked_ms = now_ms
        return any(self._is_over(session, now_ms) for session in self._sessions.values())

    def take_expired(self, now_ms: int) -> tuple[int, int] | None:
        """Id and epoch of the broker that has been silent longest, if that is too long; it has no session any more."""
        found = min(self._sessions.items(), key=lambda one: one[1].heard_ms, default=None)
        if found is None or not self._is_over(found[1], now_ms):
            return None
        del self._sessions[found[0]]
        return found[0], found[1].broker_epoch

    def _is_over(self, session: _Session, now_ms: int) -> bool:
        return now_ms - session.heard_ms >= self._timeout_ms
