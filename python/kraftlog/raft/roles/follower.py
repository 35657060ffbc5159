"""Follower: takes the records of a leader it knows."""

from __future__ import annotations

from kraftlog.raft.roles.role import Role
from kraftlog.raft.voter_set import Endpoint
from kraftlog.types import Epoch, NodeId, Offset, ReplicaKey, SnapshotId

__all__ = ["Download", "Follower"]


class Download:
    """A snapshot on its way here."""

    __slots__ = ("is_complete", "position", "snapshot_id")

    def __init__(self, snapshot_id: SnapshotId) -> None:
        """Begin with nothing."""
        self.snapshot_id = snapshot_id
        self.position = 0
        self.is_complete = False


class Follower(Role):
    """Fetches from the leader; as a voter it stands for election when no fetch succeeds for the fetch timeout.

    Attributes:
        leader_endpoints: Where the leader listens, never empty.
        fetch_deadline_ms: End of the fetch timer; voters act on it, observers do not.
        update_voter_deadline_ms: When to look again whether the voter set is right about this replica.
        has_fetched: The leader answered since it is followed in this epoch (PREV-17), and an observer within the
            fetch timeout.
        has_updated_leader: It took this replica's UpdateRaftVoter in this epoch (RCFG-55).
        download: A snapshot under way.
        refusals: How often the leader's address refused a connection since the leader last answered.
    """

    __slots__ = (
        "_leader_id",
        "_voted_key",
        "download",
        "fetch_deadline_ms",
        "has_fetched",
        "has_updated_leader",
        "leader_endpoints",
        "refusals",
        "update_voter_deadline_ms",
    )

    name = "follower"

    def __init__(
        self,
        epoch: Epoch,
        *,
        leader_id: NodeId,
        leader_endpoints: tuple[Endpoint, ...],
        fetch_deadline_ms: int,
        voted_key: ReplicaKey | None = None,
    ) -> None:
        """Enter the role.

        Raises:
            ValueError: No endpoint of the leader is known (ELEC-33).
        """
        super().__init__(epoch)
        if not leader_endpoints:
            msg = f"Cannot follow {leader_id} in epoch {epoch} without knowing where it listens"
            raise ValueError(msg)
        self._leader_id = leader_id
        self._voted_key = voted_key
        self.leader_endpoints = leader_endpoints
        self.fetch_deadline_ms = fetch_deadline_ms
        self.update_voter_deadline_ms = fetch_deadline_ms
        self.has_fetched = False
        self.has_updated_leader = False
        self.download: Download | None = None
        self.refusals = 0

    @property
    def leader_id(self) -> NodeId:
        """The leader it follows."""
        return self._leader_id

    @property
    def voted_key(self) -> ReplicaKey | None:
        """The vote given in this epoch, if any."""
        return self._voted_key

    @property
    def deadline_ms(self) -> int | None:
        """End of the fetch timer."""
        return self.fetch_deadline_ms

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, pre_vote: bool) -> bool:
        """A pre-vote to an up-to-date log until the leader has been heard; never a vote (VOTE-08, PREV-16)."""
        del candidate
        return pre_vote and is_log_up_to_date and not self.has_fetched

    def on_fetched(self, now_ms: int, fetch_timeout_ms: int) -> None:
        """The leader answered: the fetch timer starts anew."""
        self.fetch_deadline_ms = now_ms + fetch_timeout_ms
        self.has_fetched = True
        self.refusals = 0

    def known_high_watermark(self, current: Offset | None, told: Offset, log_end_offset: Offset) -> Offset | None:
        """The high watermark after the leader told its own: never falling, never past this replica's log (HWM-14)."""
        if told < 0:
            return current
        reached = min(told, log_end_offset)
        return reached if current is None or reached > current else current
