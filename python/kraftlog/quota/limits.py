"""Which client quota applies to a request: the most specific one that matches its user and client id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["Match", "QuotaLimits"]

Entity = tuple[tuple[str, str | None], ...]
"""(entity type, name) pairs sorted by type; the name is None for the default of that type."""

_ABSENT: Final = ""  # neither a user nor a client id of a quota is empty

Level = tuple[str | None, str | None]
"""User and client id of a quota: a name, None for the default, or empty where the quota does not name that type."""


class Match(NamedTuple):
    """The quota of a client.

    Attributes:
        sharing: Names those who share the quota: user and client id, each empty if the quota is not split by it.
        limit: Amount per second, above 0.
    """

    sharing: tuple[str, str]
    limit: float


class QuotaLimits:
    """The limits of one key, such as ``producer_byte_rate``, by user and client id.

    From the most specific: user and client id, user with the default client id, user, default user with the client id,
    both defaults, default user, client id, default client id. Each name that a default stands for has a quota of its
    own. A limit that is not above 0 is none: a controller refuses it.

    Source: KIP-55, Kafka's ``ClientQuotaManager.DefaultQuotaCallback``.
    """

    __slots__ = ("_by_level", "_has_clients", "_has_pairs")

    def __init__(self, by_level: Mapping[Level, float]) -> None:
        self._by_level = dict(by_level)
        self._has_pairs = any(_ABSENT not in level for level in by_level)
        self._has_clients = any(user == _ABSENT for user, _ in by_level)

    @classmethod
    def of(cls, key: str, quotas: Mapping[Entity, Mapping[str, float]]) -> QuotaLimits:
        """The limits of ``key`` among the quotas of the metadata."""
        by_level: dict[Level, float] = {}
        for entity, values in quotas.items():
            names = dict(entity)
            limit = values.get(key)
            if limit is not None and limit > 0 and names and names.keys() <= {"user", "client-id"}:
                by_level[names.get("user", _ABSENT), names.get("client-id", _ABSENT)] = limit
        return cls(by_level)

    def __bool__(self) -> bool:
        return bool(self._by_level)

    def find(self, user: str, client_id: str) -> Match | None:
        """The quota of a client, or None.

        Args:
            user: Name of the principal.
            client_id: Empty if the request has none; only the quotas of users apply then.
        """
        pair = (user, client_id)
        for name in (user, None):
            if client_id and self._has_pairs:
                for client in (client_id, None):
                    limit = self._by_level.get((name, client))
                    if limit is not None:
                        return Match(pair, limit)
            limit = self._by_level.get((name, _ABSENT))
            if limit is not None:
                return Match((user, _ABSENT), limit)
        if client_id and self._has_clients:
            for client in (client_id, None):
                limit = self._by_level.get((_ABSENT, client))
                if limit is not None:
                    return Match((_ABSENT, client_id), limit)
        return None
