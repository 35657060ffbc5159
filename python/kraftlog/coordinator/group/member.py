"""A member of a classic group."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Member", "Protocols"]

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Member:
    """One consumer as the coordinator sees it.

    ``join_token`` and ``sync_token`` hold the request that waits for an answer, None when none does;
    ``deadline_ms`` is when the session ends unless the member is heard or waits for an answer.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    deadline_ms: int = 0
    join_token: object | None = None
    join_version: int = 0
    sync_token: object | None = None
    is_new: bool = False
    pending_syncs: bool = field(default=False)

    @property
    def is_static(self) -> bool:
        """Whether the member brought a group.instance.id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_awaited_by_client(self) -> bool:
        """Whether the member waits for an answer, so that its silence says nothing."""
        return self.join_token is not None or self.sync_token is not None

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """What the member offers, without repetitions, in its order."""
        return tuple(dict.fromkeys(name for name, _ in self.protocols))

    def restore(self, before: Member) -> None:
        """Take back what the last join changed, but for the protocols, which the group counts."""
        self.rebalance_timeout_ms = before.rebalance_timeout_ms
        self.session_timeout_ms = before.session_timeout_ms
        self.client_id = before.client_id
        self.client_host = before.client_host
        self.join_version = before.join_version

    def metadata_for(self, protocol: str) -> bytes:
        """The subscription bytes the member gave for ``protocol``, empty when it gave none."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def supports(self, protocol: str) -> bool:
        """Whether ``protocol`` is among the member's."""
        return any(name == protocol for name, _ in self.protocols)

    def vote(self, candidates: frozenset[str]) -> str:
        """The member's most wanted protocol among ``candidates``, which it supports."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        msg = f"member {self.member_id} supports none of {sorted(candidates)}"
        raise AssertionError(msg)
