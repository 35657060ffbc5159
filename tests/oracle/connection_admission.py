"""Which connections a node takes: counts by address and listener, and two rates."""

from __future__ import annotations

from collections import Counter

from oracle.connection_rate import ConnectionRate

__all__ = ["ConnectionAdmission"]


class ConnectionAdmission:
    """Has the face of ``kraftlog._kraftlog.Admission``."""

    def __init__(self) -> None:
        self._open: list[tuple[str, str]] = []
        self._rate = ConnectionRate()
        self._rates: dict[str, ConnectionRate] = {}
        self._default_rate: int | None = None
        self._rate_by_address: dict[str, int] = {}
        self._of_address: dict[str, ConnectionRate] = {}

    def publish(
        self,
        *,
        max_connections: int,
        max_connections_per_ip: int,
        per_ip_overrides: dict[str, int],
        creation_rate: int,
        max_connections_by_listener: dict[str, int],
        creation_rate_by_listener: dict[str, int],
        unlimited_listener: str | None,
    ) -> None:
        """Replace the limits."""
        self._max_connections = max_connections
        self._max_connections_per_ip = max_connections_per_ip
        self._per_ip_overrides = per_ip_overrides
        self._creation_rate = creation_rate
        self._max_connections_by_listener = max_connections_by_listener
        self._creation_rate_by_listener = creation_rate_by_listener
        self._unlimited_listener = unlimited_listener

    def arrived(self, listener: str, now_s: float) -> float:
        """How long a connection that was just accepted has to wait."""
        rate = self._rates.setdefault(listener, ConnectionRate())
        delay_s = rate.add(self._creation_rate_by_listener.get(listener.lower(), 2**31 - 1), now_s)
        if listener == self._unlimited_listener:
            return delay_s
        return max(delay_s, self._rate.add(self._creation_rate, now_s))

    def has_slot(self, listener: str) -> bool:
        """Whether the listener may have one more."""
        most = self._max_connections_by_listener.get(listener.lower())
        return most is None or sum(name == listener for name, _ in self._open) < most

    def publish_address_rates(self, default: int | None, by_address: dict[str, int]) -> None:
        """Replace the quotas of addresses."""
        self._default_rate = default
        self._rate_by_address = by_address

    def held_for(self, host: str, now_s: float) -> float:
        """How long a connection is held before it is closed; 0 if it is not."""
        limit = self._rate_by_address.get(host, self._default_rate)
        if limit is None:
            return 0.0
        rate = self._of_address.setdefault(host, ConnectionRate())
        held_s = rate.add(limit, now_s)
        if held_s:
            rate.take_back()
        return held_s

    def admit(self, listener: str, host: str) -> str | None:
        """Why a connection is refused, or None."""
        if len(self._open) >= self._max_connections:
            return f"max.connections={self._max_connections} reached"
        most = self._per_ip_overrides.get(host, self._max_connections_per_ip)
        if Counter(host for _, host in self._open)[host] >= most:
            return f"max.connections.per.ip={most} reached"
        self._open.append((listener, host))
        return None

    def ended(self, listener: str, host: str) -> None:
        """An admitted connection is closed."""
        self._open.remove((listener, host))

    @property
    def open(self) -> int:
        """How many are."""
        return len(self._open)
