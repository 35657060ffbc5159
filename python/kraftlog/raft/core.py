"""The consensus core of one replica.

Call ``handle_request`` or ``handle_timeout`` with what happened, then ``take_effects`` and carry them out in order;
tell ``on_flushed`` when the log is durable. ``next_timeout_ms`` may change after any of these calls. Calling
``handle_timeout`` early or twice does nothing.

    unattached  -- election timer -->  prospective  -- majority of pre-votes -->  candidate
    candidate   -- majority of votes -->  leader  -- resign -->  resigned  -- election timer -->  unattached (epoch + 1)
    any         -- a higher epoch is seen -->  unattached
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.raft.effects import (
    AppendControlRecords,
    AppendRecords,
    Durability,
    Effect,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    PersistElectionState,
    SendResponse,
)
from kraftlog.raft.log import Log
from kraftlog.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ControlRecord,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    KRaftVersionChange,
    LeaderChange,
    ReplicaProgress,
    Request,
    VoteRequest,
    VoteResponse,
    VotersChange,
)
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.role import Role
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.raft.voter_set import BOOTSTRAP_OFFSET, LogHistory, VoterSet
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, ReplicaKey, Uuid

__all__ = ["RaftConfig", "RaftCore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """What a replica is told about itself.

    Args:
        cluster_id: Requests that name another one are refused; None accepts all.
        local_key: Node id and directory id of this replica.
        election_timeout_ms: An election timer runs this long at least and less than twice as long.
    """

    cluster_id: str | None
    local_key: ReplicaKey
    election_timeout_ms: int = 1000


class RaftCore:
    """One replica of one replicated log."""

    def __init__(
        self,
        config: RaftConfig,
        election_state: ElectionState | None,
        log: Log,
        *,
        voters: LogHistory[VoterSet],
        kraft_versions: LogHistory[int],
        rng: Random,
        now_ms: int,
    ) -> None:
        """Take up the role that the stored state leaves; nothing is promised before ``handle_timeout``.

        Args:
            config: Identity and timeouts.
            election_state: What was stored, None on a fresh replica.
            log: The local log, as it was found.
            voters: Voter sets, from the checkpoint and the log.
            kraft_versions: Levels of kraft.version, likewise.
            rng: Source of the election timers.
            now_ms: Monotonic clock.

        Raises:
            ValueError: The local directory id is the zero uuid (ELEC-13).
        """
        if config.local_key.directory_id == Uuid.ZERO:
            msg = "The directory id of a replica cannot be the zero uuid"
            raise ValueError(msg)
        self._config = config
        self._log = log
        self._voters = voters
        self._kraft_versions = kraft_versions
        self._rng = rng
        self._effects: list[Effect] = []
        self._is_shutting_down = False
        self._log_end_offset = Offset(log.log_end_offset)
        self._last_epoch = Epoch(log.last_fetched_epoch)
        self._high_watermark: Offset | None = None
        self._role = self._initial_role(election_state or ElectionState(), now_ms)

    # What the replica is

    @property
    def role(self) -> Role:
        """The role, with its epoch."""
        return self._role

    @property
    def epoch(self) -> Epoch:
        """The current epoch."""
        return self._role.epoch

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of the epoch, as far as known; a resigned leader is none."""
        return None if isinstance(self._role, Resigned) else self._role.leader_id

    @property
    def is_leader(self) -> bool:
        """Whether ``propose`` is allowed."""
        return isinstance(self._role, Leader)

    @property
    def log_end_offset(self) -> Offset:
        """Offset the next proposed record gets, appends not yet carried out included."""
        return self._log_end_offset

    @property
    def high_watermark(self) -> Offset | None:
        """Exclusive end of what is known to be committed."""
        return self._high_watermark

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self._voters.latest

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version in force."""
        return self._kraft_versions.latest

    def voters_before(self, end_offset: Offset) -> VoterSet:
        """The voter set that a snapshot at ``end_offset`` has to hold."""
        return self._voters.value_before(end_offset)

    def kraft_version_before(self, end_offset: Offset) -> int:
        """The kraft.version that a snapshot at ``end_offset`` has to hold."""
        return self._kraft_versions.value_before(end_offset)

    def progress(self, now_ms: int) -> tuple[ReplicaProgress, ...]:
        """How far each voter is, as the leader knows; empty on other replicas."""
        return self._role.progress(now_ms) if isinstance(self._role, Leader) else ()

    # Input

    def next_timeout_ms(self) -> int | None:
        """When ``handle_timeout`` is wanted, on the clock of ``now_ms``; None for never."""
        return None if self._is_shutting_down else self._role.deadline_ms

    def handle_timeout(self, now_ms: int) -> None:
        """Act on timers that have expired; harmless otherwise.

        A sole voter goes all the way to leader in one call.
        """
        deadline_ms = self.next_timeout_ms()
        if deadline_ms is None or now_ms < deadline_ms:
            return
        match self._role:
            case Resigned() if self._voters.latest.is_only_voter(self._config.local_key) and not self._has_run:
                self._become_prospective(now_ms)
            case Resigned():
                self._become_unattached(Epoch(self._role.epoch + 1), now_ms, deadline_ms=now_ms)
                self.handle_timeout(now_ms)
            case Candidate() if self._role.election.is_granted:
                self._become_leader()
            case _:
                self._become_prospective(now_ms)

    def propose(self, records: Sequence[object], now_ms: int) -> Offset:
        """Append records as one batch of this epoch.

        Args:
            records: Opaque to the core; at least one.
            now_ms: Monotonic clock.

        Returns:
            The last offset they get (inclusive). They are committed once ``HighWatermarkAdvanced`` passes it.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, nothing was appended.
            ValueError: No records (DISK-14).
        """
        del now_ms
        if not isinstance(self._role, Leader):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Replica is {self._role.name} in epoch {self.epoch}")
        if not records:
            msg = "An empty batch cannot be appended"
            raise ValueError(msg)
        effect = AppendRecords(
            base_offset=self._log_end_offset,
            epoch=self.epoch,
            records=records,
            waits_for=Durability(election_state=self._role.election_state),
        )
        self._append(effect, len(records))
        return Offset(self._log_end_offset - 1)

    def on_flushed(self, log_end_offset: int) -> None:
        """The log is durable up to ``log_end_offset`` (exclusive)."""
        role = self._role
        if isinstance(role, Leader) and role.update_local_end_offset(Offset(log_end_offset)):
            self._high_watermark = role.high_watermark
            if role.high_watermark is not None:
                self._effects.append(HighWatermarkAdvanced(high_watermark=role.high_watermark))

    def resign(self, now_ms: int) -> None:
        """Give up leadership of this epoch; harmless on other replicas."""
        if isinstance(self._role, Leader):
            self._become_resigned(now_ms)

    def shut_down(self, now_ms: int) -> None:
        """Give up leadership and start no further election."""
        self._is_shutting_down = True
        self.resign(now_ms)

    def handle_request(self, source: object, request: Request, now_ms: int) -> None:
        """Answer a peer; the answer is an effect that waits for what it promises."""
        match request:
            case VoteRequest():
                self._handle_vote(source, request, now_ms)
            case BeginQuorumEpochRequest():
                error = self._check_leader_request(request.cluster_id, request.leader_id, request.leader_epoch, now_ms)
                if not error and request.voter_key is not None and not self._is_local(request.voter_key):
                    error = ErrorCode.INVALID_VOTER_KEY
                self._respond(
                    source,
                    BeginQuorumEpochResponse(error_code=error, leader_id=self.leader_id, leader_epoch=self.epoch),
                )
            case EndQuorumEpochRequest():
                error = self._check_leader_request(request.cluster_id, request.leader_id, request.leader_epoch, now_ms)
                self._respond(
                    source,
                    EndQuorumEpochResponse(error_code=error, leader_id=self.leader_id, leader_epoch=self.epoch),
                )

    def take_effects(self) -> list[Effect]:
        """Hand over what is to be done, in order; the list is empty afterwards."""
        effects, self._effects = self._effects, []
        return effects

    # Requests

    def _handle_vote(self, source: object, request: VoteRequest, now_ms: int) -> None:
        error = self._check_vote(request)
        if error:
            self._respond_to_vote(source, error, granted=False)
            return
        if request.replica_epoch > self.epoch:
            self._become_unattached(request.replica_epoch, now_ms)
        if request.voter_key is not None and not self._is_local(request.voter_key):
            self._respond_to_vote(source, ErrorCode.INVALID_VOTER_KEY, granted=False)
            return
        up_to_date = (request.last_epoch, request.last_epoch_end_offset) >= (self._last_epoch, self._log_end_offset)
        role = self._role
        granted = role.can_grant_vote(request.replica_key, is_log_up_to_date=up_to_date, pre_vote=request.pre_vote)
        if granted and not request.pre_vote and role.voted_key is None:
            deadline_ms = now_ms + self._election_timeout_ms() if self._may_stand else None
            self._role = Unattached(role.epoch, deadline_ms=deadline_ms, voted_key=request.replica_key)
            self._persist()
        self._respond_to_vote(source, 0, granted=granted)

    def _check_vote(self, request: VoteRequest) -> int:
        if self._is_other_cluster(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if request.replica_epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        highest_last_epoch = request.replica_epoch if request.pre_vote else request.replica_epoch - 1
        if request.last_epoch_end_offset < 0 or not 0 <= request.last_epoch <= highest_last_epoch:
            return ErrorCode.INVALID_REQUEST
        return 0

    def _check_leader_request(self, cluster_id: str | None, leader_id: NodeId, leader_epoch: Epoch, now_ms: int) -> int:
        if self._is_other_cluster(cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if leader_epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        known = self._role.leader_id
        if leader_epoch == self.epoch and known is not None and known != leader_id:
            # Two leaders in one epoch cannot both be right; Kafka's controller halts here, we refuse and stay.
            return ErrorCode.INVALID_REQUEST
        if leader_id == self._config.local_key.node_id:
            return 0 if known == leader_id and leader_epoch == self.epoch else ErrorCode.INVALID_REQUEST
        if leader_epoch > self.epoch or known is None:
            voted = self._role.voted_key if leader_epoch == self.epoch else None
            self._become_unattached(leader_epoch, now_ms, leader_id=leader_id, voted_key=voted)
        return 0

    def _is_other_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and self._config.cluster_id not in (None, cluster_id)

    def _is_local(self, key: ReplicaKey) -> bool:
        local = self._config.local_key
        return key.node_id == local.node_id and key.directory_id in (Uuid.ZERO, local.directory_id)

    def _respond_to_vote(self, source: object, error: int, *, granted: bool) -> None:
        response = VoteResponse(
            error_code=error, leader_id=self.leader_id, leader_epoch=self.epoch, vote_granted=granted
        )
        self._respond(source, response)

    def _respond(
        self, source: object, response: VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse
    ) -> None:
        durable = None if isinstance(self._role, Prospective | Resigned) else self._role.election_state
        self._effects.append(
            SendResponse(source=source, response=response, waits_for=Durability(election_state=durable))
        )

    # Transitions

    def _initial_role(self, stored: ElectionState, now_ms: int) -> Role:
        self._has_run = False
        local = self._config.local_key
        alone = self._voters.latest.is_only_voter(local)
        is_voter = self._voters.latest.contains(local)
        deadline_ms: int | None = now_ms if alone else now_ms + self._election_timeout_ms()
        if stored.epoch < self._last_epoch:
            return Unattached(self._last_epoch, deadline_ms=deadline_ms if is_voter else None)
        if stored.leader_id == local.node_id:
            return Resigned(stored.epoch, local_id=local.node_id, deadline_ms=deadline_ms)
        voted = stored.voted_key
        if voted is not None and is_voter and self._is_local(voted):
            return Candidate(
                stored.epoch, local_key=local, voters=self._voters.latest, deadline_ms=deadline_ms or now_ms
            )
        return Unattached(
            stored.epoch,
            deadline_ms=deadline_ms if is_voter else None,
            leader_id=stored.leader_id,
            voted_key=voted,
        )

    @property
    def _may_stand(self) -> bool:
        """Whether this replica may stand for election; others have no election timer."""
        return not self._is_shutting_down and self._voters.latest.contains(self._config.local_key)

    def _election_timeout_ms(self) -> int:
        timeout_ms = self._config.election_timeout_ms
        return timeout_ms + self._rng.randrange(timeout_ms) if timeout_ms > 0 else 0

    def _become_prospective(self, now_ms: int) -> None:
        voters = self._voters.latest
        local = self._config.local_key
        role = self._role
        voted = role.voted_key
        prospective = Prospective(
            role.epoch,
            local_id=local.node_id,
            voters=voters,
            deadline_ms=now_ms + self._election_timeout_ms(),
            leader_id=None if isinstance(role, Candidate) else role.leader_id,
            voted_key=voted,
        )
        self._role = prospective
        if prospective.election.is_granted:
            self._become_candidate(now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        candidate = Candidate(
            Epoch(self.epoch + 1),
            local_key=self._config.local_key,
            voters=self._voters.latest,
            deadline_ms=now_ms + self._election_timeout_ms(),
        )
        self._role = candidate
        self._persist()
        if candidate.election.is_granted:
            self._become_leader()

    def _become_leader(self) -> None:
        candidate = self._role
        if not isinstance(candidate, Candidate) or not candidate.election.is_granted:
            msg = f"Replica is {candidate.name} without a majority and cannot become leader"
            raise RuntimeError(msg)
        self._has_run = True
        voters = self._voters.latest
        leader = Leader(
            candidate.epoch,
            local_key=self._config.local_key,
            voters=voters,
            epoch_start_offset=self._log_end_offset,
        )
        self._role = leader
        self._high_watermark = None
        self._persist()
        records: list[ControlRecord] = [
            LeaderChange(
                leader_id=self._config.local_key.node_id,
                voters=voters.ids,
                granting_voters=candidate.election.granting_voters,
            )
        ]
        base_offset = self._log_end_offset
        if self.kraft_version > 0 and self._voters.latest_offset == BOOTSTRAP_OFFSET:
            # The set known from the 0-0 checkpoint alone has to reach the log before anything else (KIP-853).
            records += [KRaftVersionChange(kraft_version=self.kraft_version), VotersChange(voters=voters)]
            self._kraft_versions.add(Offset(base_offset + 1), self.kraft_version)
            self._voters.add(Offset(base_offset + 2), voters)
        effect = AppendControlRecords(
            base_offset=base_offset,
            epoch=leader.epoch,
            records=tuple(records),
            waits_for=Durability(election_state=leader.election_state),
        )
        self._append(effect, len(records))
        self._announce_leader(leader.leader_id)

    def _become_resigned(self, now_ms: int) -> None:
        deadline_ms = None if self._is_shutting_down else now_ms + self._election_timeout_ms()
        self._role = Resigned(self.epoch, local_id=self._config.local_key.node_id, deadline_ms=deadline_ms)
        self._effects.append(LeaderChanged(leader_id=None, epoch=self.epoch, waits_for=Durability()))

    def _become_unattached(
        self,
        epoch: Epoch,
        now_ms: int,
        *,
        deadline_ms: int | None = None,
        leader_id: NodeId | None = None,
        voted_key: ReplicaKey | None = None,
    ) -> None:
        role = self._role
        if epoch < role.epoch:
            msg = f"Epoch {epoch} is below the current epoch {role.epoch}"
            raise RuntimeError(msg)
        if deadline_ms is None and self._may_stand:
            # The rest of a running election timer is kept, or a stream of higher epochs would postpone it for ever.
            keeps = isinstance(role, Unattached | Candidate | Prospective)
            deadline_ms = role.deadline_ms if keeps else now_ms + self._election_timeout_ms()
        had_leader = self.leader_id
        self._has_run = True
        self._role = Unattached(epoch, deadline_ms=deadline_ms, leader_id=leader_id, voted_key=voted_key)
        self._persist()
        if had_leader != leader_id:
            self._announce_leader(leader_id)

    def _persist(self) -> None:
        self._effects.append(
            PersistElectionState(state=self._role.election_state, kraft_version=self._kraft_versions.latest)
        )

    def _announce_leader(self, leader_id: NodeId | None) -> None:
        self._effects.append(
            LeaderChanged(
                leader_id=leader_id,
                epoch=self.epoch,
                waits_for=Durability(election_state=self._role.election_state),
            )
        )

    def _append(self, effect: AppendRecords | AppendControlRecords, record_count: int) -> None:
        self._effects.append(effect)
        self._log_end_offset = Offset(self._log_end_offset + record_count)
        self._last_epoch = effect.epoch
        self._effects.append(FlushLog(log_end_offset=self._log_end_offset))
