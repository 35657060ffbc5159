"""What a replica is told about itself and its timers."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.raft.voter_set import Endpoint
from kraftlog.types import ReplicaKey

__all__ = ["RaftConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """What a replica is told about itself. The timers have the names and defaults of ``controller.quorum.*``.

    Args:
        cluster_id: Requests that name another one are refused; None accepts all.
        local_key: Node id and directory id of this replica; node id -1 for a tool that only reads.
        can_become_voter: It flushes before it fetches, and may join on its own.
        listener_name: The first controller listener: endpoints of this name are used between replicas (ENDP-08).
        local_endpoints: Where this replica listens.
        bootstrap_servers: Whom to ask for the leader.
        min_kraft_version: Lowest level of kraft.version this replica runs.
        max_kraft_version: Highest level.
        election_timeout_ms: An election timer runs this long at least and less than twice as long.
        fetch_timeout_ms: A voter that fetched nothing for so long stands for election.
        election_backoff_max_ms: Spreads those that a resigning leader names.
        request_timeout_ms: An answer that takes longer is not waited for.
        retry_backoff_ms: Pause after a failed request, for each destination.
        append_linger_ms: How long records may wait for others while a flush is under way.
        fetch_max_wait_ms: How long a leader may hold this replica's fetch.
        fetch_max_bytes: Most bytes of records in an answer.
        fetch_snapshot_max_bytes: Most bytes of a piece of a snapshot.
        max_batch_bytes: Largest batch of records.
        auto_join: An observer that can become a voter makes itself one (KIP-853).
    """

    cluster_id: str | None
    local_key: ReplicaKey
    can_become_voter: bool = True
    listener_name: str = "CONTROLLER"
    local_endpoints: tuple[Endpoint, ...] = ()
    bootstrap_servers: tuple[Endpoint, ...] = ()
    min_kraft_version: int = 0
    max_kraft_version: int = 1
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    append_linger_ms: int = 0
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    max_batch_bytes: int = 8 << 20
    auto_join: bool = False

    @property
    def check_quorum_ms(self) -> int:
        """A leader that no majority fetches from for so long resigns (KAFKA-15489)."""
        return self.fetch_timeout_ms + self.fetch_timeout_ms // 2
