"""Leader: appends records of its epoch and decides what is committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftlog.raft.messages import AddVoterRequest, FetchRequest, FetchResponse, ReplicaProgress
from kraftlog.raft.roles.role import Role
from kraftlog.raft.voter_set import VoterSet
from kraftlog.types import Epoch, NodeId, Offset, ReplicaKey

__all__ = ["DeferredFetch", "Leader", "VoterChange"]

OBSERVER_SESSION_MS = 300_000
OBSERVER_CHECK_MS = 1_000
CAUGHT_UP_WITHIN_MS = 3_600_000


@dataclass(slots=True)
class _Replica:
    """What the leader knows of one other replica, or of itself."""

    log_end_offset: Offset | None = None
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    silent_since_ms: int | None = None
    leader_end_at_last_fetch: int = 0
    has_acknowledged: bool = False
    asked_round: int = 0
    confirmed_round: int = 0

    def on_fetch(self, fetch_offset: Offset, leader_end_offset: Offset, now_ms: int) -> None:
        """Note a valid fetch (``LeaderState.ReplicaState.updateFollowerState``, KIP-836)."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 < self.leader_end_at_last_fetch <= fetch_offset and self.last_fetch_ms is not None:
            self.last_caught_up_ms = max(self.last_caught_up_ms or 0, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.last_fetch_ms = now_ms if self.last_fetch_ms is None else max(self.last_fetch_ms, now_ms)
        self.leader_end_at_last_fetch = leader_end_offset
        self.has_acknowledged = True


@dataclass(slots=True)
class DeferredFetch:
    """A Fetch that waits for something to say; ``response`` is sent when nothing comes (FTCH-32)."""

    source: object
    request: FetchRequest
    response: FetchResponse
    deadline_ms: int


@dataclass(slots=True)
class VoterChange:
    """An AddRaftVoter or RemoveRaftVoter that is not over.

    Attributes:
        source: Whom to answer; None once answered.
        addition: The request, when it adds a voter.
        deadline_ms: When it is given up.
        last_offset: Offset of the VotersRecord; None while the new voter is still being asked for its versions.
        correlation_id: Of that question.
    """

    source: object | None
    deadline_ms: int
    addition: AddVoterRequest | None = None
    last_offset: Offset | None = None
    correlation_id: int | None = None
    is_answered: bool = field(default=False)


class Leader(Role):
    """The one replica that may append in its epoch.

    Attributes:
        voters: The voter set in force; at kraft.version 0 with what UpdateRaftVoter told of them.
        is_voter: Whether this replica is in it; a leader that is being removed is not (RCFG-41).
        epoch_start_offset: Offset of the epoch's LeaderChange record.
        high_watermark: Exclusive end of what is committed; None until something of this epoch is.
        check_quorum_deadline_ms: When it resigns unless a majority fetches.
        begin_epoch_deadline_ms: When to tell voters that have been silent.
        deferred: Fetches that wait.
        voter_change: The one Add or Remove under way.
        wanted_round: The latest round of confirmation that was asked for.
        announced_round: The latest one that was announced as confirmed.
        successor: The voter that is to stand first once this replica has resigned; None for the one that is furthest.
        voters_offset_at_start: Offset of the voter set that it began with, its own first record included.
    """

    __slots__ = (
        "_check_quorum_ms",
        "_fetched_voters",
        "_local_key",
        "_observer_check_ms",
        "_observers",
        "_replicas",
        "announced_round",
        "begin_epoch_deadline_ms",
        "check_quorum_deadline_ms",
        "deferred",
        "epoch_start_offset",
        "high_watermark",
        "is_voter",
        "successor",
        "updated_voters",
        "voter_change",
        "voters",
        "voters_offset_at_start",
        "wanted_round",
    )

    name = "leader"

    def __init__(
        self,
        epoch: Epoch,
        *,
        local_key: ReplicaKey,
        voters: VoterSet,
        epoch_start_offset: Offset,
        now_ms: int = 0,
        check_quorum_ms: int = 3000,
    ) -> None:
        """Enter the role; the high watermark is unknown until a majority holds a record of this epoch."""
        super().__init__(epoch)
        self._local_key = local_key
        self._check_quorum_ms = check_quorum_ms
        self.voters = voters
        self.is_voter = voters.contains(local_key)
        self.updated_voters: set[NodeId] = {local_key.node_id}
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark: Offset | None = None
        self.successor: NodeId | None = None
        self.check_quorum_deadline_ms = now_ms + check_quorum_ms
        self.begin_epoch_deadline_ms = now_ms
        self.deferred: list[DeferredFetch] = []
        self.voter_change: VoterChange | None = None
        self.wanted_round = 0
        self.announced_round = 0
        self.voters_offset_at_start: Offset | None = None
        self._fetched_voters: set[NodeId] = set()
        self._replicas: dict[NodeId, _Replica] = {voter.key.node_id: _Replica() for voter in voters}
        self._observers: dict[ReplicaKey, _Replica] = {}
        self._observer_check_ms = now_ms
        if local_key.node_id not in self._replicas:
            self._observers[local_key] = _Replica()

    @property
    def leader_id(self) -> NodeId:
        """Itself."""
        return self._local_key.node_id

    @property
    def voted_key(self) -> ReplicaKey | None:
        """None: its own vote is not stored once elected (VOTE-29)."""
        return None

    @property
    def deadline_ms(self) -> int | None:
        """When it has to look after itself; None while it is the only voter: nobody's fetches can go missing."""
        if self.is_voter and len(self._replicas) == 1:
            return None
        return min(self.check_quorum_deadline_ms, self.begin_epoch_deadline_ms)

    def can_grant_vote(self, candidate: ReplicaKey, *, is_log_up_to_date: bool, pre_vote: bool) -> bool:
        """Never (VOTE-10)."""
        del candidate, is_log_up_to_date, pre_vote
        return False

    # The voter set

    def set_voters(self, voters: VoterSet) -> bool:
        """Go by another voter set from now on; return whether the high watermark moved (HWM-07 to HWM-10)."""
        replicas: dict[NodeId, _Replica] = {}
        for voter in voters:
            node_id = voter.key.node_id
            known = self.voters.get(node_id)
            if known is not None and known.key.directory_id in {bytes(16), voter.key.directory_id}:
                replicas[node_id] = self._replicas[node_id]
            else:
                observer = self._observers.pop(voter.key) if voter.key in self._observers else None
                replicas[node_id] = _Replica() if observer is None else observer
        for voter in self.voters:
            if voters.get(voter.key.node_id) is None:
                self._observers[voter.key] = self._replicas[voter.key.node_id]
        self.voters = voters
        self.is_voter = voters.contains(self._local_key)
        self._replicas = replicas
        self._fetched_voters &= replicas.keys()
        return self._update_high_watermark()

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Whether an observer has been at the end of the log and has fetched within the last hour (RCFG-25)."""
        replica = self._observers.get(key)
        return (
            replica is not None
            and replica.last_caught_up_ms is not None
            and replica.last_fetch_ms is not None
            and now_ms - replica.last_fetch_ms < CAUGHT_UP_WITHIN_MS
        )

    # What replicas tell

    def on_fetch(self, key: ReplicaKey, fetch_offset: Offset, leader_end_offset: Offset, now_ms: int) -> bool:
        """Note a valid fetch, which says that the sender's log is durable up to ``fetch_offset`` (exclusive).

        Returns:
            Whether the high watermark moved.
        """
        if not self._is_voter_key(key):
            self._drop_silent_observers(now_ms)
            observer = self._observers.get(key)
            if observer is None:
                self._observers[key] = observer = _Replica()
            observer.on_fetch(fetch_offset, leader_end_offset, now_ms)
            return False
        self._on_voter_heard(key.node_id, now_ms)
        replica = self._replicas[key.node_id]
        has_moved = replica.log_end_offset != fetch_offset
        replica.on_fetch(fetch_offset, leader_end_offset, now_ms)
        return has_moved and self._update_high_watermark()

    def fetched_end_offset(self, key: ReplicaKey) -> Offset | None:
        """Where a replica's last valid fetch began; None when it made none."""
        replica = self._replicas[key.node_id] if self._is_voter_key(key) else self._observers.get(key)
        return None if replica is None else replica.log_end_offset

    def on_heard(self, key: ReplicaKey, now_ms: int) -> None:
        """A request that shows that the sender follows: enough of them keep the leadership (CQ-01 to CQ-05)."""
        if self._is_voter_key(key):
            self._on_voter_heard(key.node_id, now_ms)

    def _on_voter_heard(self, node_id: NodeId, now_ms: int) -> None:
        if node_id == self._local_key.node_id:
            return
        self._fetched_voters.add(node_id)
        needed = self.voters.majority_size - (1 if self.is_voter else 0)
        if len(self._fetched_voters) >= needed:
            self._fetched_voters.clear()
            self.check_quorum_deadline_ms = now_ms + self._check_quorum_ms

    def keep_alone(self, now_ms: int) -> None:
        """While it is the only voter the time without others does not count, should one be added (CQ-04, CQ-06)."""
        if self.is_voter and len(self._replicas) == 1:
            self.check_quorum_deadline_ms = now_ms + self._check_quorum_ms

    def acknowledge(self, voter_id: NodeId) -> None:
        """A voter answered BeginQuorumEpoch."""
        replica = self._replicas.get(voter_id)
        if replica is not None:
            replica.has_acknowledged = True

    # Whether nobody else leads

    @property
    def confirmed_round(self) -> int:
        """The latest round in which a majority of the voters, itself included, was still of this epoch."""
        known = [
            self.wanted_round if node_id == self._local_key.node_id else replica.confirmed_round
            for node_id, replica in self._replicas.items()
        ]
        return sorted(known, reverse=True)[self.voters.majority_size - 1] if known else 0

    def unconfirmed_voters(self) -> tuple[NodeId, ...]:
        """Whom to ask: the voters that have not answered the latest round, unless enough others have."""
        if self.announced_round == self.wanted_round:
            return ()
        return tuple(
            node_id
            for node_id, replica in self._replicas.items()
            if node_id != self._local_key.node_id and replica.confirmed_round < self.wanted_round
        )

    def on_asked(self, voter_id: NodeId) -> None:
        """A BeginQuorumEpoch was sent: its answer counts for the rounds begun before."""
        self._replicas[voter_id].asked_round = self.wanted_round

    def on_confirmed(self, voter_id: NodeId) -> None:
        """The voter answered the BeginQuorumEpoch under way: it was of this epoch after that was sent."""
        replica = self._replicas.get(voter_id)
        if replica is not None:
            replica.confirmed_round = replica.asked_round

    def silent_voters(self, now_ms: int, period_ms: int) -> tuple[NodeId, ...]:
        """Other voters that have not fetched for ``period_ms``, by id (CQ-09)."""
        return tuple(
            node_id
            for node_id, replica in self._replicas.items()
            if node_id != self._local_key.node_id
            and (replica.last_fetch_ms is None or now_ms - replica.last_fetch_ms >= period_ms)
        )

    def update_local_end_offset(self, flushed_end_offset: Offset) -> bool:
        """Note how far the leader's log is durable; return whether the high watermark moved.

        Raises:
            ValueError: The durable end went backwards (HWM-12).
        """
        replica = self._own_replica()
        if replica.log_end_offset is not None and flushed_end_offset < replica.log_end_offset:
            msg = f"The local end offset went from {replica.log_end_offset} back to {flushed_end_offset}"
            raise ValueError(msg)
        replica.log_end_offset = flushed_end_offset
        return self._update_high_watermark()

    def _own_replica(self) -> _Replica:
        if self.is_voter:
            return self._replicas[self._local_key.node_id]
        return self._observers.setdefault(self._local_key, _Replica())

    def _is_voter_key(self, key: ReplicaKey) -> bool:
        return self.voters.contains(key)

    def _drop_silent_observers(self, now_ms: int) -> None:
        silent: list[ReplicaKey] = []
        for key, replica in self._observers.items():
            if replica.last_fetch_ms is None and replica.silent_since_ms is None:
                replica.silent_since_ms = now_ms  # a voter was removed that had never fetched
            last_ms = replica.silent_since_ms if replica.last_fetch_ms is None else replica.last_fetch_ms
            if key != self._local_key and last_ms is not None and now_ms - last_ms >= OBSERVER_SESSION_MS:
                silent.append(key)
        for key in silent:
            del self._observers[key]

    def _update_high_watermark(self) -> bool:
        known = sorted(
            [-1 if replica.log_end_offset is None else replica.log_end_offset for replica in self._replicas.values()],
            reverse=True,
        )
        candidate = Offset(known[len(known) // 2]) if known else Offset(-1)
        if candidate <= self.epoch_start_offset:
            return False
        if self.high_watermark is not None and candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    # What it tells

    def preferred_candidates(self) -> tuple[ReplicaKey, ...]:
        """The other voters: the chosen successor, then those with the longest logs first (CQ-12)."""
        others = [voter.key for voter in self.voters if voter.key.node_id != self._local_key.node_id]
        return tuple(sorted(others, key=lambda key: (key.node_id != self.successor, self._shortest_last(key))))

    def _shortest_last(self, key: ReplicaKey) -> int:
        end_offset = self._replicas[key.node_id].log_end_offset
        return 1 if end_offset is None else -end_offset  # one that never fetched comes after one with nothing

    def progress(self, now_ms: int) -> tuple[ReplicaProgress, ...]:
        """How far each voter is; this replica counts as having fetched just now."""
        return tuple(self._progress_of(voter.key, self._replicas[voter.key.node_id], now_ms) for voter in self.voters)

    def observer_progress(self, now_ms: int) -> tuple[ReplicaProgress, ...]:
        """How far each observer is that fetched within the last five minutes (OBS-07, OBS-08)."""
        self._drop_silent_observers(now_ms)
        return tuple(self._progress_of(key, replica, now_ms) for key, replica in _sorted(self._observers.items()))

    def observer_count(self, now_ms: int) -> int:
        """How many observers there are, itself included while it is being removed; looked over once a second."""
        if now_ms >= self._observer_check_ms:
            self._observer_check_ms = now_ms + OBSERVER_CHECK_MS
            self._drop_silent_observers(now_ms)
        return len(self._observers)

    def _progress_of(self, key: ReplicaKey, replica: _Replica, now_ms: int) -> ReplicaProgress:
        is_local = key.node_id == self._local_key.node_id
        return ReplicaProgress(
            key=key,
            log_end_offset=replica.log_end_offset,
            last_fetch_ms=now_ms if is_local else replica.last_fetch_ms,
            last_caught_up_ms=now_ms if is_local else replica.last_caught_up_ms,
        )


def _sorted(observers: Iterable[tuple[ReplicaKey, _Replica]]) -> list[tuple[ReplicaKey, _Replica]]:
    return sorted(observers, key=lambda one: (one[0].node_id, one[0].directory_id))
