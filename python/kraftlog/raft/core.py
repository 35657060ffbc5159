"""The consensus core of one replica.

Tell it what happened by one of the ``handle_`` methods or ``propose``, then call ``take_effects`` and carry them out in
order; tell ``on_flushed`` when the log is durable. ``next_timeout_ms`` may change after any of these calls. Calling
``handle_timeout`` early or twice does nothing. :mod:`kraftlog.raft.replica_state` has the picture of the roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import assert_never

from kraftlog.errors import ErrorCode
from kraftlog.raft.config import RaftConfig
from kraftlog.raft.effects import Effect
from kraftlog.raft.elections import Elections
from kraftlog.raft.followership import Followership
from kraftlog.raft.leadership import Leadership
from kraftlog.raft.log import Log, LogState
from kraftlog.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    ReplicaProgress,
    Request,
    Response,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kraftlog.raft.reconfiguration import Reconfiguration
from kraftlog.raft.replica_state import ReplicaState
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.role import Role, RoleWatcher
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.raft.voter_set import Endpoint, LogHistory, Voter, VoterSet, find_endpoint
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, SnapshotId

__all__ = ["RaftConfig", "RaftCore"]

_MAX_STEPS = 8


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
        """Take up the role that the stored state leaves; nothing is asked before ``handle_timeout``.

        Args:
            config: Identity and timers.
            election_state: What was stored, None on a fresh replica.
            log: The local log, as it was found.
            voters: Voter sets, from the checkpoint and the log.
            kraft_versions: Levels of kraft.version, likewise.
            rng: Source of the election timers.
            now_ms: Monotonic clock.

        Raises:
            ValueError: The local directory id is the zero uuid (ELEC-13).
        """
        self.config = config
        replica = ReplicaState(config, LogState(log), voters=voters, kraft_versions=kraft_versions, rng=rng)
        self._replica = replica
        self._elections = Elections(replica)
        self._leadership = Leadership(replica)
        self._followership = Followership(replica, self._elections)
        self._reconfiguration = Reconfiguration(replica, self._leadership)
        self._now_ms = now_ms
        replica.on_leader_high_watermark = lambda: self._leadership.on_high_watermark(self._now_ms)
        replica.start(election_state or ElectionState(), now_ms)

    # What the replica is

    @property
    def role(self) -> Role:
        """The role, with its epoch."""
        return self._replica.role

    @property
    def epoch(self) -> Epoch:
        """The current epoch."""
        return self._replica.epoch

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of the epoch, as far as known; a resigned leader is none."""
        return self._replica.leader_id

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the leader listens, as far as known."""
        return self._replica.leader_endpoints

    @property
    def is_leader(self) -> bool:
        """Whether ``propose`` is allowed."""
        return isinstance(self._replica.role, Leader) and not self._replica.is_halted

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set in force."""
        return self._replica.is_voter

    @property
    def is_halted(self) -> bool:
        """Whether a fatal fault ended this replica."""
        return self._replica.is_halted

    @property
    def log_end_offset(self) -> Offset:
        """Offset the next proposed record gets, appends not yet carried out included."""
        return Offset(self._replica.log.end_offset + self._leadership.open_record_count)

    @property
    def log(self) -> LogState:
        """The log as it will be once all effects are carried out; to be read only."""
        return self._replica.log

    @property
    def high_watermark(self) -> Offset | None:
        """Exclusive end of what is known to be committed."""
        return self._replica.high_watermark

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self._replica.voters.latest

    @property
    def voters_offset(self) -> Offset | None:
        """Offset of the record that set the voters in force; None when no record did."""
        return self._replica.voters.latest_offset

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version in force."""
        return self._replica.kraft_version

    @property
    def is_voter_change_uncommitted(self) -> bool:
        """On the leader: whether the voter set in force is not committed yet."""
        return self._reconfiguration.is_change_uncommitted()

    @property
    def is_own_voter_change_uncommitted(self) -> bool:
        """On the leader: whether it changed the voter set in this epoch and that is not committed yet (METR-08)."""
        role = self._replica.role
        return (
            isinstance(role, Leader)
            and role.voters_offset_at_start != self.voters_offset
            and self._reconfiguration.is_change_uncommitted()
        )

    def voters_before(self, end_offset: Offset) -> VoterSet | None:
        """The voter set that a snapshot at ``end_offset`` has to hold; None when no record below set one (SNAP-09).

        Raises:
            ValueError: The log does not reach there yet (SNAP-18).
        """
        self._require_history(end_offset)
        return self._replica.voters.value_before(end_offset)

    def kraft_version_before(self, end_offset: Offset) -> int:
        """The kraft.version that a snapshot at ``end_offset`` has to hold.

        Raises:
            ValueError: The log does not reach there yet (SNAP-18).
        """
        self._require_history(end_offset)
        return self._replica.kraft_versions.value_before(end_offset) or 0

    def _require_history(self, end_offset: Offset) -> None:
        if end_offset > self._replica.log.end_offset:
            msg = f"The log ends at {self._replica.log.end_offset}: what holds at {end_offset} is unknown"
            raise ValueError(msg)

    def progress(self, now_ms: int) -> tuple[ReplicaProgress, ...]:
        """How far each voter is, as the leader knows; empty on other replicas."""
        role = self._replica.role
        return role.progress(now_ms) if isinstance(role, Leader) else ()

    def observer_progress(self, now_ms: int) -> tuple[ReplicaProgress, ...]:
        """How far each observer is, as the leader knows; empty on other replicas."""
        role = self._replica.role
        return role.observer_progress(now_ms) if isinstance(role, Leader) else ()

    def watch_roles(self, watcher: RoleWatcher) -> None:
        """Call ``watcher`` with the role before and after each change, also those that last for a part of one call.

        The watcher is called before any effect of the change is added to ``pending_effects``. It must not change
        anything.
        """
        self._replica.role_watchers.append(watcher)

    @property
    def pending_effects(self) -> Sequence[Effect]:
        """The effects since the last ``take_effects``; to be read only."""
        return self._replica.effects

    @property
    def unanswered_count(self) -> int:
        """How many requests are under way, those whose time is over included."""
        return self._replica.connections.unanswered_count

    def is_expected(self, node_id: NodeId, correlation_id: int) -> bool:
        """Whether an answer to this request would still be looked at; a request held back need not be sent if not."""
        return self._replica.connections.request_under_way(node_id, correlation_id, self._now_ms) is not None

    def requests_under_way(self, now_ms: int) -> tuple[Request, ...]:
        """Requests whose answers are waited for."""
        return self._replica.connections.requests_under_way(now_ms)

    # Input

    def next_timeout_ms(self) -> int | None:
        """When ``handle_timeout`` is wanted, on the clock of ``now_ms``; None for never."""
        replica = self._replica
        if replica.is_halted:
            return None
        role = replica.role
        match role:
            case Leader():
                return self._leadership.next_deadline_ms(role, self._now_ms)
            case Follower() | Unattached():
                return self._followership.next_deadline_ms(self._now_ms)
            case Prospective() | Candidate():
                return self._next_of(role, () if role.election.is_rejected else role.election.unanswered)
            case Resigned():
                voters = replica.voters.latest
                known = [voters.get(voter_id) for voter_id in role.unacknowledged]
                return self._next_of(role, [voter for voter in known if voter is not None])
            case _:
                return role.deadline_ms

    def _next_of(self, role: Role, asked: Sequence[Voter]) -> int | None:
        """The end of the role's timer, or when one of those that have not answered may be asked again."""
        replica = self._replica
        now_ms, ready_ms, name = self._now_ms, replica.connections.ready_ms, self.config.listener_name
        soonest_ms = None if replica.is_shutting_down else role.deadline_ms
        for voter in asked:
            end_ms = ready_ms(voter.key.node_id, now_ms)
            if end_ms <= now_ms:
                end_ms = now_ms + 1
            is_sooner = soonest_ms is None or end_ms < soonest_ms
            if is_sooner and find_endpoint(voter.endpoints, name) is not None:
                soonest_ms = end_ms
        return soonest_ms

    def handle_timeout(self, now_ms: int) -> None:
        """Act on timers that have expired; harmless otherwise. A sole voter goes all the way to leader in one call."""
        self._poll(now_ms)

    def _poll(self, now_ms: int) -> None:
        """Do what the role does by itself; where that leads to another role, what that one does too."""
        self._now_ms = now_ms
        replica = self._replica
        for _ in range(_MAX_STEPS):
            if replica.is_halted:
                return
            role = replica.role
            match role:
                case Leader():
                    if self._leadership.poll(role, now_ms):
                        self._elections.poll_leader(role, now_ms)
                case Follower():
                    self._followership.poll_follower(role, now_ms)
                case Unattached():
                    self._followership.poll_unattached(role, now_ms)
                case Prospective():
                    self._elections.poll_prospective(role, now_ms)
                case Candidate():
                    self._elections.poll_candidate(role, now_ms)
                case Resigned():
                    self._elections.poll_resigned(role, now_ms)
            if replica.role is role:
                return

    def propose(
        self, records: Sequence[object], now_ms: int, *, size_bytes: int = 0, epoch: Epoch | None = None
    ) -> Offset:
        """Append records, all of them in one batch of this epoch.

        Args:
            records: Opaque to the core; at least one.
            now_ms: Monotonic clock.
            size_bytes: Their encoded size.
            epoch: Refuse unless this is the current epoch.

        Returns:
            The last offset they get (inclusive). They are committed once ``HighWatermarkAdvanced`` passes it.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, or MESSAGE_TOO_LARGE above the largest batch; nothing was appended.
            ValueError: No records (DISK-14), or an epoch above the current one.
        """
        self._now_ms = now_ms
        role = self._replica.role
        if isinstance(role, Leader):
            # A leader that was paused must not append before it has looked at its timers (CONN-16).
            self._leadership.poll(role, now_ms)
        return self._leadership.propose(records, size_bytes, epoch, now_ms)

    def confirm_leadership(self, now_ms: int) -> int:
        """Ask a majority whether this replica still leads: what reads that have to be linearizable wait for.

        The voters are asked by BeginQuorumEpoch, sent after this call: one that answers in this epoch had voted for
        nobody of a later one by then. Neither clocks nor the log take part.

        Returns:
            The number of the round: ``LeadershipConfirmed`` with it, or a higher one, follows unless leadership ends.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        self._poll(now_ms)  # a leader that was paused must not act as one before it has looked at its timers (CONN-16)
        number = self._leadership.confirm()
        self._poll(now_ms)
        return number

    def on_flushed(self, log_end_offset: int, now_ms: int | None = None) -> None:
        """The log is durable up to ``log_end_offset`` (exclusive).

        Raises:
            ValueError: A leader's durable end went backwards (HWM-12).
        """
        if now_ms is not None:
            self._now_ms = now_ms
        log = self._replica.log
        flushed_end_offset = min(Offset(log_end_offset), log.end_offset)
        if flushed_end_offset < log.flushed_end_offset and self.is_leader:
            msg = f"The durable end went from {log.flushed_end_offset} back to {flushed_end_offset}"
            raise ValueError(msg)
        log.flushed_end_offset = max(log.flushed_end_offset, flushed_end_offset)
        self._leadership.on_flushed(self._now_ms)

    def resign(self, now_ms: int, *, epoch: Epoch | None = None, successor: NodeId | None = None) -> None:
        """Give up leadership of ``epoch``, or of the current one; harmless on other replicas (CQ-17).

        Args:
            now_ms: Monotonic clock.
            epoch: The epoch to give up.
            successor: The voter that is to stand first. It is elected only if its log is as long as a majority's.

        Raises:
            ValueError: An epoch above the current one, or the current one without leading it.
        """
        self._now_ms = now_ms
        if epoch is not None:
            if epoch < self.epoch:
                return
            if epoch > self.epoch or not isinstance(self._replica.role, Leader | Resigned):
                msg = f"Cannot resign from epoch {epoch}: replica is {self.role.name} in epoch {self.epoch}"
                raise ValueError(msg)
        if isinstance(self._replica.role, Leader):
            self._replica.role.successor = successor
            self._replica.become_resigned(now_ms)
            self._poll(now_ms)

    def shut_down(self, now_ms: int) -> None:
        """Give up leadership and begin no further election; the answers of the others are waited for by the shell."""
        self._replica.is_shutting_down = True
        self.resign(now_ms)

    @property
    def is_shut_down(self) -> bool:
        """Whether nothing is left to do before stopping: somebody else leads, or nobody else could (CQ-19, CQ-20)."""
        replica = self._replica
        if isinstance(replica.role, Follower) or not replica.is_voter or replica.is_halted:
            return True
        if replica.voters.latest.is_only_voter(replica.local_key):
            return True
        return isinstance(replica.role, Unattached) and replica.leader_id is not None

    def handle_request(self, source: object, request: Request, now_ms: int) -> None:
        """Answer a peer; the answer is an effect that waits for what it promises. ``source`` comes back with it."""
        self._now_ms = now_ms
        if self._replica.is_halted:
            return
        if isinstance(self._replica.role, Leader):
            # A leader that was paused must not answer as one before it has looked at its timers (CONN-16).
            self._poll(now_ms)
        match request:
            case FetchRequest():
                self._leadership.force_drain_if_leader()
                self._leadership.handle_fetch(source, request, now_ms)
            case FetchSnapshotRequest():
                self._leadership.handle_fetch_snapshot(source, request, now_ms)
            case VoteRequest():
                self._elections.handle_vote(source, request, now_ms)
            case BeginQuorumEpochRequest():
                self._elections.handle_begin_quorum_epoch(source, request, now_ms)
            case EndQuorumEpochRequest():
                self._elections.handle_end_quorum_epoch(source, request, now_ms)
            case AddVoterRequest():
                self._reconfiguration.handle_add_voter(source, request, now_ms)
            case RemoveVoterRequest():
                self._reconfiguration.handle_remove_voter(source, request, now_ms)
            case UpdateVoterRequest():
                self._reconfiguration.handle_update_voter(source, request, now_ms)
            case ApiVersionsRequest():
                config = self.config
                self._replica.respond(
                    source,
                    ApiVersionsResponse(
                        min_kraft_version=config.min_kraft_version, max_kraft_version=config.max_kraft_version
                    ),
                )
            case _:
                assert_never(request)
        if not isinstance(request, FetchRequest):
            self._poll(now_ms)

    def handle_response(self, node_id: NodeId, correlation_id: int, response: Response, now_ms: int) -> None:
        """Take the answer to the ``SendRequest`` with this correlation id; ignored when it is no longer waited for."""
        self._now_ms = now_ms
        connections = self._replica.connections
        request = connections.request_under_way(node_id, correlation_id, now_ms)
        if request is None or self._replica.is_halted:
            return
        is_success = self._take_answer(node_id, request, response, now_ms)
        connections.on_answered(node_id, correlation_id, now_ms, is_success=is_success)
        self._poll(now_ms)

    def handle_no_response(
        self, node_id: NodeId, correlation_id: int, now_ms: int, *, error_code: int = ErrorCode.BROKER_NOT_AVAILABLE
    ) -> None:
        """No answer will come: not connected, disconnected, or (UNSUPPORTED_VERSION) it cannot be asked that way."""
        self._now_ms = now_ms
        connections = self._replica.connections
        request = connections.request_under_way(node_id, correlation_id, now_ms)
        if request is None or self._replica.is_halted:
            return
        is_success = False
        match request:
            case VoteRequest() if error_code == ErrorCode.UNSUPPORTED_VERSION:
                self._elections.handle_pre_vote_unsupported(request, now_ms)
            case ApiVersionsRequest():
                self._reconfiguration.handle_no_api_versions(correlation_id, error_code)
            case UpdateVoterRequest() if error_code == ErrorCode.UNSUPPORTED_VERSION:
                is_success = self._followership.handle_update_voter_response(
                    UpdateVoterResponse(top_level_error_code=error_code), now_ms
                )
        connections.on_answered(node_id, correlation_id, now_ms, is_success=is_success)
        self._poll(now_ms)

    def handle_refused_connection(self, node_id: NodeId, now_ms: int) -> None:
        """Nobody listens where a replica should; told once per attempt, before ``handle_no_response`` of its requests.

        A follower whose leader refuses twice stands for election before its fetch timer ends.
        """
        self._now_ms = now_ms
        if self._replica.is_halted:
            return
        self._followership.on_refused_connection(node_id, now_ms)
        self._poll(now_ms)

    def _take_answer(self, node_id: NodeId, request: Request, response: Response, now_ms: int) -> bool:
        """Go by an answer; return False when the peer should be left alone for a moment."""
        following = self._followership
        match response:
            case FetchResponse():
                pass  # the one that comes most often
            case AddVoterResponse() | RemoveVoterResponse():
                return following.handle_voter_change_response(response, now_ms)
            case ApiVersionsResponse():
                return self._reconfiguration.handle_api_versions_response(node_id, response, now_ms)
            case _:
                pass
        if response.top_level_error_code and not isinstance(response, UpdateVoterResponse):
            return self._take_top_level_error(node_id, request, response.top_level_error_code, now_ms)
        decided = self._elections.learn_from(node_id, response, now_ms)
        if decided is not None:
            return decided
        if isinstance(request, FetchRequest) and isinstance(response, FetchResponse):
            return following.handle_fetch_response(request, response, now_ms)
        match request, response:
            case FetchSnapshotRequest(), FetchSnapshotResponse():
                return following.handle_fetch_snapshot_response(request, response, now_ms)
            case VoteRequest(), VoteResponse():
                return self._elections.handle_vote_response(node_id, request, response, now_ms)
            case BeginQuorumEpochRequest(), BeginQuorumEpochResponse():
                if isinstance(self._replica.role, Leader):
                    self._leadership.on_begin_epoch_answered(self._replica.role, node_id, response)
                return True
            case EndQuorumEpochRequest(), EndQuorumEpochResponse():
                if isinstance(self._replica.role, Resigned):
                    self._replica.role.acknowledge(node_id)
                return True
            case UpdateVoterRequest(), UpdateVoterResponse():
                return following.handle_update_voter_response(response, now_ms)
            case _:
                self._replica.fault(
                    f"{node_id} answered a {type(request).__name__} with a {type(response).__name__}", is_fatal=False
                )
                return False

    def _take_top_level_error(self, node_id: NodeId, request: Request, error_code: int, now_ms: int) -> bool:
        name = type(request).__name__
        if error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._replica.fault(f"{name} is not authorised", is_fatal=True)
            return False
        if isinstance(request, VoteRequest) and error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._elections.handle_pre_vote_unsupported(request, now_ms)
        elif error_code != ErrorCode.BROKER_NOT_AVAILABLE:
            self._replica.note(f"{node_id} refuses a {name} with {ErrorCode.name_of(error_code)}")
            if isinstance(request, FetchSnapshotRequest):
                self._followership.abandon_download()
        return False

    # The log, changed by others than the core

    def on_snapshot_installed(
        self, snapshot_id: SnapshotId, size_bytes: int, *, kraft_version: int, voters: VoterSet | None, now_ms: int
    ) -> None:
        """``InstallSnapshot`` was carried out: the log is empty and starts at the snapshot's end.

        Args:
            snapshot_id: Which.
            size_bytes: Size of its file.
            kraft_version: Level its records give, 0 for none.
            voters: Voter set its records give, None for none.
            now_ms: Monotonic clock.
        """
        self._followership.on_snapshot_installed(snapshot_id, size_bytes, kraft_version, voters)
        self._poll(now_ms)

    def on_snapshot_created(self, snapshot_id: SnapshotId, size_bytes: int) -> None:
        """A checkpoint of what is committed was made and is durable (SNAP-16)."""
        self._replica.log.add_snapshot(snapshot_id, size_bytes)
        last_offset = Offset(snapshot_id.end_offset - 1)
        self._replica.voters.trim_to(last_offset)
        self._replica.kraft_versions.trim_to(last_offset)

    def on_snapshot_lost(self, snapshot_id: SnapshotId) -> None:
        """The file of a checkpoint is gone: nobody is sent to it any more (SNAP-26)."""
        self._replica.log.forget_snapshot(snapshot_id)

    def on_log_start_advanced(self, snapshot_id: SnapshotId) -> None:
        """Checkpoints before this one were dropped, and the log starts at its end."""
        self._replica.log.remove_before(snapshot_id)

    def update_kraft_version(
        self, level: int, now_ms: int, *, epoch: Epoch | None = None, is_dry_run: bool = False
    ) -> Offset | None:
        """Raise kraft.version to ``level`` (KIP-853); see ``Reconfiguration.update_kraft_version``."""
        self._now_ms = now_ms
        wanted = self.epoch if epoch is None else epoch
        return self._reconfiguration.update_kraft_version(level, wanted, is_dry_run=is_dry_run)

    def take_effects(self) -> list[Effect]:
        """Hand over what is to be done, in order; the list is empty afterwards."""
        leadership, replica = self._leadership, self._replica
        if leadership.open_records:
            leadership.drain(self._now_ms)
        if not replica.effects:
            return []
        effects, replica.effects = replica.effects, []
        return effects
