"""The state of one replica and the only places where it changes role.

    unattached  -- election timer -->  prospective  -- majority of pre-votes -->  candidate
    candidate   -- majority of votes -->  leader  -- resign -->  resigned  -- election timer -->  unattached (epoch + 1)
    follower    -- fetch timer -->  prospective;  candidate  -- election timer -->  prospective
    prospective -- election lost -->  follower of the leader it knew, or unattached
    any         -- a leader of the epoch or of a higher one is learned -->  follower
    any         -- a higher epoch is seen -->  unattached

Only voters go where an election timer leads; observers are unattached or followers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import assert_never

from kraftlog.errors import ErrorCode
from kraftlog.raft.config import RaftConfig
from kraftlog.raft.connections import Connections, Destination, bootstrap_destinations
from kraftlog.raft.control_records import ControlRecord, KRaftVersionChange, LeaderChange, VotersChange
from kraftlog.raft.effects import (
    AbandonSnapshot,
    AppendControlRecords,
    AppendRecords,
    Durability,
    Effect,
    Fault,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    Notice,
    PersistElectionState,
    SendRequest,
    SendResponse,
)
from kraftlog.raft.log import LogState
from kraftlog.raft.messages import AddVoterResponse, FetchResponse, RemoveVoterResponse, Request, Response
from kraftlog.raft.refusals import Refusals
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader, VoterChange
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.role import Role, RoleWatcher
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.raft.voter_set import BOOTSTRAP_OFFSET, Endpoint, LogHistory, Voter, VoterSet
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, ReplicaKey, SnapshotId, Uuid

__all__ = ["ReplicaState"]

_NOTHING = Durability()


class ReplicaState:
    """What one replica is, shared by the parts of the core that decide what it does.

    Attributes:
        role: The role, with its epoch.
        log: The log as it will be once all effects are carried out.
        voters: Voter sets along the log.
        kraft_versions: Levels of kraft.version along the log.
        connections: Requests under way.
        high_watermark: Exclusive end of what is known to be committed; a new leader does not know it (HWM-02).
        committed_end_offset: The largest high watermark of this process: nobody may cut off what is below.
        is_shutting_down: No election is begun any more.
        is_halted: A fatal fault was met; nothing is done any more.
        on_leader_high_watermark: Called when the leader's high watermark moved by a change of the voter set.
        role_watchers: Called with the role before and the role after each change; they decide nothing.
    """

    def __init__(
        self,
        config: RaftConfig,
        log: LogState,
        *,
        voters: LogHistory[VoterSet],
        kraft_versions: LogHistory[int],
        rng: Random,
    ) -> None:
        self.config = config
        self.local_key = config.local_key
        self.log = log
        self.voters = voters
        self.kraft_versions = kraft_versions
        self.rng = rng
        self.connections = Connections(
            request_timeout_ms=config.request_timeout_ms, retry_backoff_ms=config.retry_backoff_ms
        )
        self.bootstrap = bootstrap_destinations(config.bootstrap_servers)
        self.effects: list[Effect] = []
        self.high_watermark: Offset | None = None
        self.committed_end_offset = Offset(0)
        self.is_shutting_down = False
        self.is_halted = False
        self.has_run = False
        self.role: Role = Unattached(Epoch(0), deadline_ms=None)
        self._asked_voters: VoterSet | None = None
        self._is_voter = False
        self._durability = _NOTHING
        self._refusals = Refusals(self.role, ())
        self._announced: tuple[Epoch, NodeId | None] = (Epoch(0), None)
        self.on_leader_high_watermark: Callable[[], None] = lambda: None
        self.role_watchers: list[RoleWatcher] = []

    # What it is

    @property
    def epoch(self) -> Epoch:
        """The current epoch."""
        return self.role.epoch

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of the epoch, as far as known; a resigned leader is none."""
        role = self.role
        return None if isinstance(role, Resigned) else role.leader_id

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the leader listens; empty when it is not known."""
        match self.role:
            case Follower() as role:
                return role.leader_endpoints
            case Prospective() as role:
                return role.leader_endpoints
            case Leader():
                return self.config.local_endpoints
            case _:
                return ()

    @property
    def named_leader_id(self) -> NodeId | None:
        """The leader as answers name it: one that resigned still names itself (``QuorumState.leaderAndEpoch``)."""
        return self.role.leader_id

    @property
    def named_leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the leader that answers name listens."""
        return self.config.local_endpoints if isinstance(self.role, Resigned) else self.leader_endpoints

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set in force."""
        voters = self.voters.latest
        if voters is not self._asked_voters:
            self._asked_voters, self._is_voter = voters, voters.contains(self.local_key)
        return self._is_voter

    @property
    def may_stand(self) -> bool:
        """Whether this replica may begin an election; others have no election timer."""
        return not self.is_shutting_down and self.is_voter

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version in force."""
        return self.kraft_versions.latest

    def is_log_up_to_date(self, last_epoch: Epoch, end_offset: Offset) -> bool:
        """Whether a log that ends so holds at least what this one does (VOTE-22)."""
        return (last_epoch, end_offset) >= (self.log.last_epoch, self.log.end_offset)

    def is_local(self, key: ReplicaKey | None) -> bool:
        """Whether a voter key means this replica; none, and one without directory id, do (RPC-14)."""
        if key is None:
            return True
        local = self.local_key
        return key.node_id == local.node_id and key.directory_id in (Uuid.ZERO, local.directory_id)

    def is_other_cluster(self, cluster_id: str | None) -> bool:
        """Whether a request was meant for another cluster (RPC-05)."""
        return cluster_id is not None and self.config.cluster_id not in (None, cluster_id)

    def election_timeout_ms(self) -> int:
        """A fresh random election timeout."""
        timeout_ms = self.config.election_timeout_ms
        return timeout_ms + self.rng.randrange(timeout_ms) if timeout_ms > 0 else 0

    # Effects

    @property
    def durability(self) -> Durability:
        """The election state that every message relies on: the last one that was to be persisted."""
        return self._durability

    def respond(self, source: object, response: Response) -> None:
        """Answer a request."""
        self.effects.append(SendResponse(source=source, response=response, waits_for=self._durability))

    @property
    def refusals(self) -> Refusals:
        """Answers that only tell an error and who leads."""
        if not self._refusals.is_of(self.role):
            self._refusals = Refusals(self.role, self.named_leader_endpoints)
        return self._refusals

    def send(self, destination: Destination, request: Request, now_ms: int, *, flushed_to: Offset | None = None) -> int:
        """Ask a peer; return the correlation id.

        Args:
            destination: Whom.
            request: What.
            now_ms: Monotonic clock.
            flushed_to: The log has to be durable up to here (exclusive) first.
        """
        correlation_id = self.connections.on_sent(destination.node_id, request, now_ms)
        waits_for = self._durability
        if flushed_to is not None and flushed_to > self.log.flushed_end_offset:
            self.effects.append(FlushLog(log_end_offset=flushed_to))
            waits_for = Durability(election_state=waits_for.election_state, log_end_offset=flushed_to)
        self.effects.append(
            SendRequest(destination=destination, correlation_id=correlation_id, request=request, waits_for=waits_for)
        )
        return correlation_id

    def fault(self, reason: str, *, is_fatal: bool) -> None:
        """Report what cannot be; after a fatal fault nothing is done any more."""
        self.effects.append(Fault(reason=reason, is_fatal=is_fatal))
        self.is_halted = self.is_halted or is_fatal

    def note(self, text: str) -> None:
        """Have something written to the log of the process."""
        self.effects.append(Notice(text=text))

    def append(self, records: Sequence[object]) -> None:
        """Append a batch of data records as leader."""
        base_offset = self.log.end_offset
        self.effects.append(
            AppendRecords(base_offset=base_offset, epoch=self.epoch, records=records, waits_for=self._durability)
        )
        self._note_append(len(records))

    def append_control(self, records: Sequence[ControlRecord]) -> Offset:
        """Append a control batch as leader and go by what it says; return the offset of its last record."""
        base_offset = self.log.end_offset
        self.effects.append(
            AppendControlRecords(
                base_offset=base_offset, epoch=self.epoch, records=tuple(records), waits_for=self._durability
            )
        )
        self._note_append(len(records))
        for index, record in enumerate(records):
            self.apply_control(Offset(base_offset + index), record)
        return Offset(base_offset + len(records) - 1)

    def apply_control(self, offset: Offset, record: ControlRecord) -> None:
        """Go by a control record that is in the log now, committed or not (RCFG-11, KVER-14)."""
        match record:
            case KRaftVersionChange():
                if not self.config.min_kraft_version <= record.kraft_version <= self.config.max_kraft_version:
                    self.fault(f"kraft.version {record.kraft_version} at offset {offset} is unknown", is_fatal=True)
                self.kraft_versions.add(offset, record.kraft_version)
            case VotersChange():
                before, before_offset = self.voters.latest, self.voters.latest_offset
                if before_offset not in {None, BOOTSTRAP_OFFSET} and not before.has_overlapping_majority(record.voters):
                    # The leader does not do this; a log that says so is followed all the same (RCFG-08).
                    self.fault(f"{record.voters} at {offset} and {before} have no common majority", is_fatal=False)
                self.voters.add(offset, record.voters)
                if isinstance(self.role, Leader) and self.role.set_voters(record.voters):
                    self.on_leader_high_watermark()
            case LeaderChange():
                pass
            case _:
                assert_never(record)

    def _note_append(self, record_count: int) -> None:
        self.log.append(self.epoch, record_count)
        self.effects.append(FlushLog(log_end_offset=self.log.end_offset))

    # Entering roles

    def start(self, stored: ElectionState, now_ms: int) -> None:
        """Take up the role that the stored state leaves (ELEC-01 to ELEC-11).

        Raises:
            ValueError: The directory id is the zero uuid (ELEC-13), a replica without id has voted (ELEC-09), or
                the log has an unknown kraft.version (KVER-18).
        """
        local = self.local_key
        if local.directory_id == Uuid.ZERO:
            msg = "The directory id of a replica cannot be the zero uuid"
            raise ValueError(msg)
        if local.node_id < 0 and stored.voted_key is not None:
            msg = f"A replica without id cannot have voted for {stored.voted_key}"
            raise ValueError(msg)
        if not self.config.min_kraft_version <= self.kraft_version <= self.config.max_kraft_version:
            msg = f"kraft.version {self.kraft_version} of the log is not known (KVER-18)"
            raise ValueError(msg)
        self._durability = Durability(election_state=stored)
        alone = self.voters.latest.is_only_voter(local)
        deadline_ms = (now_ms if alone else now_ms + self.election_timeout_ms()) if self.is_voter else None
        self.role = self._role_to_start_in(stored, now_ms, deadline_ms)
        if self.role.epoch != stored.epoch:
            self.persist()
        latest = self.log.latest_snapshot_id
        if latest is not None and latest.end_offset > 0:
            self.high_watermark = self.committed_end_offset = latest.end_offset
        if self.leader_id is not None:
            self._announce()

    def _role_to_start_in(self, stored: ElectionState, now_ms: int, deadline_ms: int | None) -> Role:
        local = self.local_key
        if stored.epoch < self.log.last_epoch:
            return Unattached(self.log.last_epoch, deadline_ms=deadline_ms)
        leader_id, voted = stored.leader_id, stored.voted_key
        if leader_id == local.node_id and leader_id is not None:
            others = (voter.key.node_id for voter in self.voters.latest)
            deadline_ms = now_ms + self.election_timeout_ms() if deadline_ms is None else deadline_ms
            return Resigned(stored.epoch, local_id=local.node_id, deadline_ms=deadline_ms, voters=others)
        if voted is not None and self.is_voter and self.is_local(voted) and leader_id is None:
            return Candidate(
                stored.epoch, local_key=local, voters=self.voters.latest, deadline_ms=deadline_ms or now_ms
            )
        voter = None if leader_id is None else self.voters.latest.get(leader_id)
        if leader_id is not None and voter is not None and voter.endpoints:
            alone = self.voters.latest.is_only_voter(local)
            return Follower(
                stored.epoch,
                leader_id=leader_id,
                leader_endpoints=voter.endpoints,
                fetch_deadline_ms=now_ms if alone else now_ms + self.config.fetch_timeout_ms,
                voted_key=voted,
            )
        return Unattached(stored.epoch, deadline_ms=deadline_ms, leader_id=leader_id, voted_key=voted)

    def become_prospective(self, now_ms: int) -> None:
        """Ask whether an election would be won (ELEC-14, ELEC-15, ELEC-20); nothing is written.

        Raises:
            RuntimeError: It leads, or is no voter (ELEC-37, ELEC-40).
        """
        role = self.role
        if isinstance(role, Leader) or not self.is_voter:
            msg = f"Replica is {role.name} and cannot become prospective"
            raise RuntimeError(msg)
        prospective = Prospective(
            role.epoch,
            local_id=self.local_key.node_id,
            voters=self.voters.latest,
            deadline_ms=now_ms + self.election_timeout_ms(),
            leader_id=None if isinstance(role, Candidate | Resigned) else role.leader_id,
            leader_endpoints=self.leader_endpoints,
            voted_key=role.voted_key,
        )
        self._enter(prospective, is_durable=False)
        if prospective.election.is_granted:
            self.become_candidate(now_ms)

    def become_candidate(self, now_ms: int) -> None:
        """Stand for election in the next epoch, with its own vote durable first (ELEC-17).

        Raises:
            RuntimeError: Not prospective (ELEC-16).
        """
        if not isinstance(self.role, Prospective):
            msg = f"Replica is {self.role.name} and cannot become a candidate"
            raise RuntimeError(msg)  # noqa: TRY004 - a state, not an argument
        candidate = Candidate(
            Epoch(self.epoch + 1),
            local_key=self.local_key,
            voters=self.voters.latest,
            deadline_ms=now_ms + self.election_timeout_ms(),
        )
        self._enter(candidate)
        if candidate.election.is_granted:
            self.become_leader(now_ms)

    def become_leader(self, now_ms: int) -> None:
        """Lead the epoch that was won, beginning with its LeaderChange record (ELEC-42, RCFG-59)."""
        candidate = self.role
        if not isinstance(candidate, Candidate) or not candidate.election.is_granted:
            msg = f"Replica is {candidate.name} without a majority and cannot become leader"
            raise RuntimeError(msg)
        voters = self.voters.latest
        leader = Leader(
            candidate.epoch,
            local_key=self.local_key,
            voters=voters,
            epoch_start_offset=self.log.end_offset,
            now_ms=now_ms,
            check_quorum_ms=self.config.check_quorum_ms,
        )
        self._enter(leader)
        self.high_watermark = None
        records: list[ControlRecord] = [
            LeaderChange(
                leader_id=self.local_key.node_id,
                voters=voters.ids,
                granting_voters=candidate.election.granting_voters,
            )
        ]
        if self.kraft_version > 0:
            updated = self._with_local_voter(voters)
            if updated != voters or self.voters.latest_offset == BOOTSTRAP_OFFSET:
                # What is known from the 0-0 checkpoint alone has to reach the log before anything else (KIP-853).
                records += [KRaftVersionChange(kraft_version=self.kraft_version), VotersChange(voters=updated)]
        self.append_control(records)
        leader.voters_offset_at_start = self.voters.latest_offset
        self._announce()

    def _with_local_voter(self, voters: VoterSet) -> VoterSet:
        """The set with this replica's own entry as it is now."""
        if not self.config.local_endpoints:
            return voters
        return voters.with_updated(self.local_voter) or voters

    @property
    def local_voter(self) -> Voter:
        """This replica's entry in a voter set."""
        config = self.config
        return Voter(self.local_key, config.local_endpoints, config.min_kraft_version, config.max_kraft_version)

    def become_resigned(self, now_ms: int) -> None:
        """Give up leadership; in memory only (VOTE-28)."""
        leader = self.role
        if not isinstance(leader, Leader):
            msg = f"Replica is {leader.name} and cannot resign"
            raise RuntimeError(msg)  # noqa: TRY004 - a state, not an argument
        voters = leader.voters
        deadline_ms = None if self.is_shutting_down else now_ms + self.election_timeout_ms()
        self._enter(
            Resigned(
                self.epoch,
                local_id=self.local_key.node_id,
                deadline_ms=deadline_ms,
                voters=voters.ids,
                preferred_candidates=leader.preferred_candidates(),
            ),
            is_durable=False,
        )
        self._announce()

    def become_unattached(
        self,
        epoch: Epoch,
        now_ms: int,
        *,
        leader_id: NodeId | None = None,
        deadline_ms: int | None = None,
    ) -> None:
        """Wait in ``epoch`` without a leader to follow; the vote of a lower epoch is forgotten.

        Args:
            epoch: A higher epoch; the same one only after a lost pre-vote, or to note the leader's id.
            now_ms: Monotonic clock.
            leader_id: A leader whose endpoint is not known.
            deadline_ms: End of the election timer; chosen here when None.

        Raises:
            RuntimeError: The epoch is below the current one (ELEC-29), or the same in a role with a leader (ELEC-28).
        """
        role = self.role
        if epoch < role.epoch:
            msg = f"Epoch {epoch} is below the current epoch {role.epoch}"
            raise RuntimeError(msg)
        if epoch == role.epoch and not isinstance(role, Unattached | Prospective | Candidate):
            msg = f"Replica is {role.name} and cannot become unattached in its epoch {epoch}"
            raise RuntimeError(msg)
        if deadline_ms is None and self.may_stand:
            # The rest of a running election timer is kept, or a stream of higher epochs would postpone it for ever.
            keeps = isinstance(role, Unattached | Candidate) or (
                isinstance(role, Prospective) and not role.election.is_rejected
            )
            deadline_ms = role.deadline_ms if keeps else None
            if deadline_ms is None:
                deadline_ms = now_ms + self.election_timeout_ms()
        voted = role.voted_key if epoch == role.epoch else None
        self._enter(Unattached(epoch, deadline_ms=deadline_ms, leader_id=leader_id, voted_key=voted))
        self._announce()

    def become_follower(
        self, epoch: Epoch, leader_id: NodeId, leader_endpoints: tuple[Endpoint, ...], now_ms: int
    ) -> None:
        """Follow a leader; the vote of this epoch is kept, that of a lower one forgotten (VOTE-21).

        Raises:
            RuntimeError: A lower epoch (ELEC-29), itself (ELEC-32), the same leader with no more endpoints (ELEC-30).
        """
        role = self.role
        if epoch < role.epoch or leader_id == self.local_key.node_id:
            msg = f"Replica {self.local_key.node_id} in epoch {role.epoch} cannot follow {leader_id} in {epoch}"
            raise RuntimeError(msg)
        if epoch == role.epoch and isinstance(role, Follower | Leader):
            more = isinstance(role, Follower) and len(leader_endpoints) > len(role.leader_endpoints)
            if not more or role.leader_id != leader_id:
                msg = f"Replica is {role.name} of {role.leader_id} in epoch {epoch} and cannot follow {leader_id}"
                raise RuntimeError(msg)
        self._enter(
            Follower(
                epoch,
                leader_id=leader_id,
                leader_endpoints=leader_endpoints,
                fetch_deadline_ms=now_ms + self.config.fetch_timeout_ms,
                voted_key=role.voted_key if epoch == role.epoch else None,
            )
        )
        self._announce()

    def add_vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Give the vote of this epoch, durably, and begin a new election timer (VOTE-01, VOTE-13).

        Raises:
            RuntimeError: For itself (VOTE-20), or in a role that has no vote to give.
        """
        role = self.role
        if candidate.node_id == self.local_key.node_id or role.voted_key is not None:
            msg = f"Replica {self.local_key.node_id} cannot vote for {candidate} as {role.name}"
            raise RuntimeError(msg)
        deadline_ms = now_ms + self.election_timeout_ms() if self.may_stand else None
        match role:
            case Prospective():
                self._enter(
                    Prospective(
                        role.epoch,
                        local_id=self.local_key.node_id,
                        voters=self.voters.latest,
                        deadline_ms=now_ms + self.election_timeout_ms(),
                        voted_key=candidate,
                    )
                )
            case Unattached():
                self._enter(Unattached(role.epoch, deadline_ms=deadline_ms, voted_key=candidate))
            case _:
                msg = f"Replica is {role.name} and has no vote to give"
                raise RuntimeError(msg)

    def persist(self) -> None:
        """Have the role's election state on disk before anything that follows."""
        state = self.role.election_state
        self._durability = Durability(election_state=state)
        self.effects.append(PersistElectionState(state=state, kraft_version=self.kraft_versions.latest))

    def _enter(self, role: Role, *, is_durable: bool = True) -> None:
        """Change the role; where it has to be durable, it is before anything that is said from now on."""
        old = self.role
        self.role = role
        for watch in self.role_watchers:
            watch(old, role)
        self.has_run = True
        self.connections.reset()
        if is_durable:
            self.persist()
        match old:
            case Leader():
                self._close(old)
            case Follower(download=download) if download is not None and not download.is_complete:
                self.abandon_snapshot(download.snapshot_id)

    def abandon_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Throw away what was fetched of a snapshot."""
        self.effects.append(AbandonSnapshot(snapshot_id=snapshot_id))

    def _close(self, leader: Leader) -> None:
        """Answer everybody who waited for this leader (ELEC-36, CQ-11, RCFG-33)."""
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for fetch in leader.deferred:
            self.respond(
                fetch.source,
                FetchResponse(
                    error_code=code,
                    leader_id=self.named_leader_id,
                    leader_epoch=self.epoch,
                    leader_endpoints=self.named_leader_endpoints,
                    log_start_offset=self.log.start_offset,
                ),
            )
        leader.deferred.clear()
        if leader.voter_change is not None:
            self.answer_voter_change(leader.voter_change, code)
            leader.voter_change = None

    def answer_voter_change(self, change: VoterChange, error_code: int, message: str | None = None) -> None:
        """Answer the AddRaftVoter or RemoveRaftVoter, once."""
        if change.is_answered:
            return
        change.is_answered = True
        response: Response = (
            AddVoterResponse(top_level_error_code=error_code, error_message=message)
            if change.addition is not None
            else RemoveVoterResponse(top_level_error_code=error_code, error_message=message)
        )
        self.respond(change.source, response)

    def _announce(self) -> None:
        """Tell the state machine who leads, when that changed (LSTN-11)."""
        now = (self.epoch, self.leader_id)
        if now != self._announced:
            self._announced = now
            self.effects.append(LeaderChanged(leader_id=now[1], epoch=now[0], waits_for=self._durability))

    def advance_high_watermark(self, high_watermark: Offset) -> None:
        """Everything below ``high_watermark`` is committed."""
        self.high_watermark = high_watermark
        if high_watermark >= self.committed_end_offset:
            self.committed_end_offset = high_watermark
            self.effects.append(HighWatermarkAdvanced(high_watermark=high_watermark))
