"""What a simulated cluster does, as steps of the protocol's specification (``tests/model/Kraft.tla``).

``TracedSimulation`` runs like any other simulation and notes each change of state of each replica, in the order they
happen: who, which action of the specification with which arguments, and what the replica is afterwards. A trace says
nothing about messages beyond what caused a step: the specification knows what was said.

The specification writes quorum-state in one step with the change that it belongs to. Where a disk is full, or its
fsync fails, that step does not happen: what the core wanted from there on is taken out of the trace, and the replica
stops. An append that fails is one that the crash behind it takes away. A spoilt disk is replaced by one with another
directory id, which is another replica; a disk that was emptied and keeps its id has forgotten its votes, which is none
of the specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kraftlog.errors import ErrorCode
from kraftlog.raft.control_records import LeaderChange, VotersChange
from kraftlog.raft.core import RaftCore
from kraftlog.raft.effects import (
    AppendControlRecords,
    AppendFetched,
    AppendRecords,
    Effect,
    HighWatermarkAdvanced,
    PersistElectionState,
    SendRequest,
    SendResponse,
    TruncateLog,
)
from kraftlog.raft.messages import FetchRequest, Request, Response, VoteRequest, VoteResponse
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.role import Role
from kraftlog.raft.roles.unattached import Unattached
from kraftlog.raft.voter_set import VoterSet
from kraftlog.testing.config import SimulationConfig
from kraftlog.testing.disk import DiskFailedError, SimulatedDisk
from kraftlog.testing.node import SimulatedNode
from kraftlog.testing.simulation import Simulation
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, ReplicaKey, SnapshotId, Uuid

__all__ = ["Observed", "Step", "Trace", "TracedSimulation"]

Argument = int | str | bool | frozenset[str]


@dataclass(frozen=True, slots=True)
class Observed:
    """One replica after a step.

    Args:
        epoch: Its epoch.
        role: Name of its role.
        leader: Who leads the epoch, as far as it knows; itself when it leads or has resigned.
        vote: Who has its vote of the epoch.
        log_end_offset: Exclusive end of its log.
        last_epoch: Epoch of the last record.
        flushed_end_offset: Exclusive end of what it knows to be durable.
        high_watermark: 0 when unknown.
        voters: The voter set in force.
    """

    epoch: int
    role: str
    leader: str | None
    vote: str | None
    log_end_offset: int
    last_epoch: int
    flushed_end_offset: int
    high_watermark: int
    voters: frozenset[str]


@dataclass(frozen=True, slots=True)
class Step:
    """One action of the specification, taken by one replica.

    Args:
        replica: Name of the replica, ``id.disk``.
        action: Name of the action in ``Kraft.tla``.
        arguments: Its arguments, the replica left out.
        observed: What the replica is afterwards; None where one event of the simulation is several steps and more
            are to come.
    """

    replica: str
    action: str
    arguments: tuple[Argument, ...]
    observed: Observed | None


class Trace:
    """The steps of one run.

    Attributes:
        boot: For each replica, the voter set that it knows without a log.
        is_static: kraft.version is 0 in the beginning.
        steps: In the order they happened.
        undone_count: How often a quorum-state could not be written, so that its step did not happen.
    """

    def __init__(self, *, is_static: bool) -> None:
        self.is_static = is_static
        self.boot: dict[str, frozenset[str]] = {}
        self.steps: list[Step] = []
        self.undone_count = 0
        self._names: dict[ReplicaKey, str] = {}
        self._leaders: dict[Epoch, str] = {}
        self._said: set[tuple[Argument, ...]] = set()

    def name(self, key: ReplicaKey) -> str:
        """A replica's name: its id and which of its disks this is; one known by id alone has its first disk."""
        if key.directory_id == Uuid.ZERO:
            return f"{key.node_id}.1"
        if key not in self._names:
            count = sum(known.node_id == key.node_id for known in self._names)
            self._names[key] = f"{key.node_id}.{count + 1}"
        return self._names[key]

    def names(self, voters: VoterSet) -> frozenset[str]:
        """A voter set by names."""
        return frozenset(self.name(voter.key) for voter in voters)

    def leader_name(self, leader_id: NodeId | None, epoch: Epoch) -> str | None:
        """Who leads an epoch: the replica of this id that was elected."""
        if leader_id is None:
            return None
        elected = self._leaders.get(epoch)
        return elected if elected is not None and elected.split(".")[0] == str(leader_id) else f"{leader_id}.1"

    def on_elected(self, key: ReplicaKey, epoch: Epoch) -> None:
        """A replica leads."""
        self._leaders[epoch] = self.name(key)

    def add(self, key: ReplicaKey, action: str, *arguments: Argument, observed: Observed | None = None) -> None:
        """Note a step."""
        self.steps.append(Step(self.name(key), action, arguments, observed))

    def is_new(self, *said: Argument) -> bool:
        """Whether this was never said before: repeating it changes nothing in the specification."""
        if said in self._said:
            return False
        self._said.add(said)
        return True


class _TracedCore(RaftCore):
    """A core that notes what it does, from ``begin`` on."""

    def begin(self, trace: Trace) -> None:
        """Note the start; nothing was told to the core yet."""
        self.trace = trace
        self._key = self.config.local_key
        self._entered: list[tuple[int, Role, Role]] = []
        self._seen_effects = 0
        self._counted: set[NodeId] = {self._key.node_id}
        self._has_heard = False
        self._is_peer_old = False
        self._is_loading = False
        self._unwritten: list[int] = []
        self.watch_roles(self._on_role)
        name = self.trace.name(self._key)
        if name in self.trace.boot:
            self.trace.add(self._key, "Restart", self.log.end_offset, observed=self._observed())
        else:
            self.trace.boot[name] = self.trace.names(self.voters)

    def _on_role(self, before: Role, after: Role) -> None:
        self._entered.append((len(self.pending_effects), before, after))

    # What goes in and out

    def handle_request(self, source: object, request: Request, now_ms: int) -> None:
        """Note how far a fetch tells its sender to be, and the votes given."""
        role = self.role
        key = request.replica_key if isinstance(request, FetchRequest) else None
        before = None if key is None else _log_end_offset(role, key)
        super().handle_request(source, request, now_ms)
        if isinstance(request, FetchRequest) and key is not None and before != _log_end_offset(role, key):
            fetch = (request.current_leader_epoch, request.fetch_offset, request.last_fetched_epoch)
            self._note("TakeFetch", self.trace.name(key), *fetch)
        self._follow_effects(request if isinstance(request, VoteRequest) else None)

    def handle_response(self, node_id: NodeId, correlation_id: int, response: Response, now_ms: int) -> None:
        """Note what an answer changes."""
        self._is_peer_old = response.top_level_error_code == ErrorCode.UNSUPPORTED_VERSION
        super().handle_response(node_id, correlation_id, response, now_ms)
        self._follow_effects()
        self._is_peer_old = False

    def handle_no_response(
        self, node_id: NodeId, correlation_id: int, now_ms: int, *, error_code: int = ErrorCode.BROKER_NOT_AVAILABLE
    ) -> None:
        """Note what a missing answer changes."""
        self._is_peer_old = error_code == ErrorCode.UNSUPPORTED_VERSION
        super().handle_no_response(node_id, correlation_id, now_ms, error_code=error_code)
        self._follow_effects()
        self._is_peer_old = False

    def on_flushed(self, log_end_offset: int, now_ms: int | None = None) -> None:
        """Note how far the log is durable."""
        role = self.role
        before = self.log.flushed_end_offset, _log_end_offset(role, self._key)
        super().on_flushed(log_end_offset, now_ms)
        if before != (self.log.flushed_end_offset, _log_end_offset(role, self._key)):
            self._note("Flush", self.log.flushed_end_offset)
        self._follow_effects()

    def on_snapshot_installed(
        self, snapshot_id: SnapshotId, size_bytes: int, *, kraft_version: int, voters: VoterSet | None, now_ms: int
    ) -> None:
        """Note that a snapshot took the place of the log."""
        self._is_loading = True
        super().on_snapshot_installed(
            snapshot_id, size_bytes, kraft_version=kraft_version, voters=voters, now_ms=now_ms
        )
        self._has_heard = True
        self._note("LoadSnapshot", snapshot_id.end_offset)
        self._follow_effects()
        self._is_loading = False

    def on_snapshot_created(self, snapshot_id: SnapshotId, size_bytes: int) -> None:
        """Note a checkpoint."""
        super().on_snapshot_created(snapshot_id, size_bytes)
        self._note("TakeSnapshot", snapshot_id.end_offset)
        self._follow_effects()

    def take_effects(self) -> list[Effect]:
        """Note what happened since the last input."""
        effects = super().take_effects()
        self._follow(effects[self._seen_effects :], self._seen_effects, None)
        self._seen_effects = 0
        return effects

    def on_written(self) -> None:
        """The first quorum-state that was to be written is on disk."""
        del self._unwritten[:1]

    def on_disk_failed(self) -> None:
        """Forget the steps whose quorum-state did not reach the disk: they were not shown to anybody."""
        if self._unwritten:
            del self.trace.steps[self._unwritten[0] :]
            self.trace.undone_count += 1

    # From effects to steps

    def _note(self, action: str, *arguments: Argument) -> None:
        self.trace.add(self._key, action, *arguments)

    def _follow_effects(self, request: VoteRequest | None = None) -> None:
        effects = self.pending_effects
        self._follow(effects[self._seen_effects :], self._seen_effects, request)
        self._seen_effects = len(effects)

    def _follow(self, effects: Sequence[Effect], first: int, request: VoteRequest | None) -> None:
        """Turn effects and the roles entered among them into steps; the last one shows what the replica is now."""
        entered, self._entered = self._entered, []
        role = entered[0][1] if entered else self.role
        for position, effect in enumerate(effects, first):
            if isinstance(effect, PersistElectionState):
                self._unwritten.append(len(self.trace.steps))
            while entered and entered[0][0] <= position:
                _, _, role = self._on_entered(entered.pop(0))
            self._on_effect(effect, role, request)
        for change in entered:
            _, _, role = self._on_entered(change)
        self._count(role)
        if isinstance(role, Follower) and role.has_fetched != self._has_heard:
            self._has_heard = role.has_fetched
            self._note("HearLeader" if role.has_fetched else "MissLeader")
        self._show()

    def _show(self) -> None:
        steps = self.trace.steps
        name = self.trace.name(self._key)
        if steps and steps[-1].replica == name and steps[-1].observed is None:
            last = steps.pop()
            self.trace.add(self._key, last.action, *last.arguments, observed=self._observed())

    def _count(self, role: Role) -> None:
        if isinstance(role, Prospective | Candidate):
            for node_id in role.election.granting_voters:
                voter = self.voters.get(node_id)
                if node_id not in self._counted and voter is not None:
                    self._counted.add(node_id)
                    self._note("CountVote", self.trace.name(voter.key))

    def _on_entered(self, entered: tuple[int, Role, Role]) -> tuple[int, Role, Role]:
        _, old, new = entered
        self._count(old)
        self._has_heard = False
        self._counted = {self._key.node_id}
        leader = self.trace.leader_name(new.leader_id, new.epoch)
        match new:
            case Leader():
                self.trace.on_elected(self._key, new.epoch)  # noted with its first records
            case Prospective() if not isinstance(old, Prospective):
                self._note("BecomeProspective")
            case Candidate():
                self._note("BecomeCandidate", self._is_peer_old)
            case Resigned():
                self._note("Resign")
            case Unattached() | Prospective() if old.epoch == new.epoch and old.voted_key != new.voted_key:
                pass  # noted with the answer to the candidate
            case Follower() | Unattached() if leader is not None and (
                isinstance(new, Follower) or old.leader_id is None or old.epoch < new.epoch
            ):
                self._note("LearnLeader", new.epoch, leader, new.name)
            case Unattached() if old.epoch == new.epoch:
                self._note("LosePreVote")
            case Unattached() if isinstance(old, Resigned) and new.epoch == old.epoch + 1:
                self._note("LeaveResigned")
            case _:
                self._note("LearnEpoch", new.epoch)
        return entered

    def _on_effect(self, effect: Effect, role: Role, request: VoteRequest | None) -> None:
        match effect:
            case AppendRecords():
                self._note("AppendRecords", len(effect.records))
            case AppendControlRecords(records=(LeaderChange(), *rest)):
                self._note("BecomeLeader", bool(rest))
            case AppendControlRecords(records=(*others, VotersChange(voters=voters))):
                self._note("ChangeVoters", len(others), self.trace.names(voters))
            case AppendFetched():
                self._has_heard = True
                self._note("Fetched", effect.batches[-1].last_offset + 1, -1)
            case HighWatermarkAdvanced() if isinstance(role, Follower) and not self._is_loading:
                self._has_heard = True
                self._note("Fetched", -1, effect.high_watermark)
            case TruncateLog():
                self._has_heard = True
                self._note("Truncate", effect.end_offset)
            case SendResponse(response=VoteResponse(vote_granted=True)) if request is not None:
                action = "GrantPreVote" if request.pre_vote else "GrantVote"
                asked = (request.replica_epoch, request.last_epoch, request.last_epoch_end_offset)
                self._note(action, self.trace.name(request.replica_key), *asked)
            case _:
                pass

    def _observed(self) -> Observed:
        role, log = self.role, self.log
        return Observed(
            epoch=role.epoch,
            role=role.name,
            leader=self.trace.leader_name(role.leader_id, role.epoch),
            vote=None if role.voted_key is None else self.trace.name(role.voted_key),
            log_end_offset=log.end_offset,
            last_epoch=log.last_epoch,
            flushed_end_offset=log.flushed_end_offset,
            high_watermark=self.high_watermark or 0,
            voters=self.trace.names(self.voters),
        )


def _log_end_offset(role: Role, key: ReplicaKey) -> Offset:
    """How far a leader knows a replica to be, 0 when it does not; 0 for other roles."""
    return Offset(0) if not isinstance(role, Leader) else role.fetched_end_offset(key) or Offset(0)


class _TracedDisk(SimulatedDisk):
    """A disk that tells the core that runs on it when a quorum-state was written."""

    __slots__ = ("core",)

    core: _TracedCore

    def write_election_state(self, state: ElectionState) -> None:
        """Replace quorum-state, durably."""
        super().write_election_state(state)
        self.core.on_written()


class TracedSimulation(Simulation):
    """A simulation that keeps its trace.

    Attributes:
        steps: What happened so far.
    """

    core_type = _TracedCore
    disk_type = _TracedDisk

    def __init__(self, config: SimulationConfig) -> None:
        super().__init__(config)
        self.steps = Trace(is_static=not self.is_dynamic)

    def on_started(self, node: SimulatedNode) -> None:
        """Note the start."""
        core, disk = node.core, node.disk
        if isinstance(core, _TracedCore) and isinstance(disk, _TracedDisk):
            core.begin(self.steps)
            disk.core = core
        super().on_started(node)

    def on_disk_failed(self, node: SimulatedNode, error: DiskFailedError, *, is_spoilt: bool = False) -> None:
        """Take back what did not reach the disk."""
        if node.is_up and isinstance(node.core, _TracedCore):
            node.core.on_disk_failed()
        super().on_disk_failed(node, error, is_spoilt=is_spoilt)

    def send_request(self, node: SimulatedNode, effect: SendRequest) -> None:
        """Note what is asked, as it leaves."""
        request = effect.request
        trace = self.steps
        name = trace.name(node.key)
        if isinstance(request, FetchRequest):
            fetch = (request.current_leader_epoch, request.fetch_offset, request.last_fetched_epoch)
            if trace.is_new("fetch", name, *fetch):
                trace.add(node.key, "SendFetch")
        elif isinstance(request, VoteRequest):
            asked = (request.replica_epoch, request.last_epoch, request.last_epoch_end_offset)
            if trace.is_new("vote", name, request.pre_vote, *asked):
                trace.add(node.key, "AskForVotes")
        super().send_request(node, effect)


def literals(value: object) -> Iterator[str]:
    """A value in the syntax of TLA+: strings, numbers, sets, tuples, Nil for None."""
    match value:
        case None:
            yield "Nil"
        case bool():
            yield "TRUE" if value else "FALSE"
        case int():
            yield str(value)
        case str():
            yield f'"{value}"'
        case frozenset():
            yield "{" + ",".join(text for element in sorted(value) for text in literals(element)) + "}"
        case tuple() | list():
            yield "<<"
            for index, element in enumerate(value):
                if index:
                    yield ","
                yield from literals(element)
            yield ">>"
        case _:
            msg = f"{value!r} has no form in TLA+"
            raise TypeError(msg)
