"""A cluster, its workload and its misfortunes, all from one seed."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from random import Random

from kraftlog.errors import ErrorCode
from kraftlog.raft.config import RaftConfig
from kraftlog.raft.core import RaftCore
from kraftlog.raft.effects import Fault, SendRequest
from kraftlog.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    Request,
    Response,
    VoteRequest,
)
from kraftlog.raft.roles.role import Role
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet
from kraftlog.testing.disk import SimulatedDisk
from kraftlog.testing.faults import FAULTS, Faults
from kraftlog.testing.invariants import Invariants, InvariantViolationError
from kraftlog.testing.network import SimulatedNetwork
from kraftlog.testing.node import SimulatedNode
from kraftlog.testing.scheduler import Scheduler
from kraftlog.types import NodeId, ReplicaKey, Uuid

__all__ = ["Report", "Simulation", "SimulationConfig"]

_CLIENT = -1
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """What is simulated.

    Args:
        seed: Decides everything.
        voter_count: Voters at the start; drawn from 1 to 5 when None.
        observer_count: Replicas that only follow at the start; drawn from 0 to 2 when None.
        is_dynamic: kraft.version 1 from a formatted checkpoint; drawn when None.
        fault_count: So many faults, one after the other.
        fault_kinds: Names of faults to choose from; a random subset of all when None.
        fault_interval_ms: Mean time between faults.
        proposals_per_second: Load.
        quiet_ms: Time without faults at the end, in which everything has to recover.
        auto_join: Replicas that are no voters make themselves voters.
        keeps_trace: Keep the whole trace, not only its hash.
    """

    seed: int
    voter_count: int | None = None
    observer_count: int | None = None
    is_dynamic: bool | None = None
    fault_count: int = 100
    fault_kinds: tuple[str, ...] | None = None
    fault_interval_ms: int = 700
    proposals_per_second: int = 10
    quiet_ms: int = 40_000
    auto_join: bool = False
    keeps_trace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What happened in a run.

    Args:
        seed: The seed.
        event_count: Events carried out.
        simulated_ms: Virtual time.
        election_count: Epochs that had a leader.
        committed_count: Records committed.
        counters: Faults, role changes and messages by name.
        trace_hash: Equal for equal runs.
        trace: The trace when it was kept.
    """

    seed: int
    event_count: int
    simulated_ms: int
    election_count: int
    committed_count: int
    counters: Counter[str]
    trace_hash: str
    trace: tuple[str, ...] = field(default=(), repr=False)


class Simulation:
    """One run.

    Attributes:
        core_type: What a node makes its core of at each start; a subclass sees all that goes in and out.
        nodes: Every replica there ever was, by id.
        rng: Chance for everything but election timers and the network.
        lost_disks: How far each disk that was replaced had been durable.
    """

    core_type: type[RaftCore] = RaftCore

    def __init__(self, config: SimulationConfig) -> None:
        self.config = config
        self.rng = Random(f"{config.seed}/simulation")
        self.scheduler = Scheduler()
        self.network = SimulatedNetwork(self.scheduler, Random(f"{config.seed}/network"))
        self.invariants = Invariants()
        self.counters: Counter[str] = Counter()
        self._trace = hashlib.blake2b(digest_size=16)
        self._kept: list[str] = []
        self.is_dynamic = self.rng.random() < 0.8 if config.is_dynamic is None else config.is_dynamic
        voter_count = self.rng.choice((1, 2, 3, 3, 3, 4, 5, 5)) if config.voter_count is None else config.voter_count
        observer_count = self.rng.choice((0, 0, 1, 2)) if config.observer_count is None else config.observer_count
        self._value = 0
        self.lost_disks: dict[ReplicaKey, int] = {}
        ids = range(1, voter_count + 1)
        self.static_voters = VoterSet(
            Voter(self._key(one, 1) if self.is_dynamic else ReplicaKey(NodeId(one)), self._endpoints(one), 0, 1)
            for one in ids
        )
        self.nodes: dict[int, SimulatedNode] = {}
        self._first_ids = tuple(range(1, voter_count + observer_count + 1))
        for node_id in range(1, voter_count + observer_count + 1):
            self.add_node(node_id, is_formatted=node_id <= voter_count)
        self.faults = Faults(self, self._kinds())

    def _kinds(self) -> tuple[str, ...]:
        if self.config.fault_kinds is not None:
            return self.config.fault_kinds
        names = sorted(FAULTS)
        chosen = [name for name in names if self.rng.random() < 0.6]
        return tuple(chosen or names)

    @staticmethod
    def _key(node_id: int, generation: int) -> ReplicaKey:
        return ReplicaKey(NodeId(node_id), Uuid(bytes(13) + bytes([generation, 0, node_id])))

    @staticmethod
    def _endpoints(node_id: int) -> tuple[Endpoint, ...]:
        return (Endpoint("CONTROLLER", f"node{node_id}", 9000 + node_id),)

    def add_node(self, node_id: int, *, is_formatted: bool, generation: int = 1) -> SimulatedNode:
        """Make a replica with an empty disk; ``is_formatted`` gives it the 0-0 checkpoint of the first voters."""
        config = RaftConfig(
            cluster_id="simulated",
            local_key=self._key(node_id, generation),
            local_endpoints=self._endpoints(node_id),
            bootstrap_servers=tuple(self._endpoints(one)[0] for one in self._first_ids if one != node_id),
            fetch_max_bytes=400,
            fetch_snapshot_max_bytes=300,
            auto_join=self.config.auto_join,
        )
        disk = SimulatedDisk(self.static_voters if self.is_dynamic and is_formatted else None)
        static = VoterSet() if self.is_dynamic else self.static_voters
        node = SimulatedNode(self, config, disk, static)
        self.nodes[node_id] = node
        return node

    def replace_disk(self, node_id: int) -> SimulatedNode:
        """A node comes back with a new, empty disk and a new directory id."""
        old = self.nodes[node_id]
        self.lost_disks[old.key] = old.disk.flushed_end_offset
        generation = old.key.directory_id[13] + 1
        node = self.add_node(node_id, is_formatted=False, generation=generation)
        node.supports_pre_vote = old.supports_pre_vote
        return node

    # The run

    def start(self) -> None:
        """Start the nodes and the load."""
        for node in list(self.nodes.values()):
            self.scheduler.after(self.rng.randrange(50_000), node.start)
        self._propose_again()
        self._snapshot_again()

    def run_for(self, duration_ms: int) -> None:
        """Let time pass, for a test that cuts and heals by itself.

        Raises:
            InvariantViolationError: What must never be was seen.
        """
        end_us = self.scheduler.now_us + duration_ms * 1000
        while self.scheduler.now_us < end_us:
            self.scheduler.step()

    def run(self) -> Report:
        """Everything, from the start of the nodes to a cluster that has recovered from the last fault.

        Raises:
            InvariantViolationError: What must never be was seen, or the cluster did not recover.
        """
        self.start()
        self.faults.begin()
        try:
            while not self.faults.is_over:
                self.scheduler.step()
            self._recover()
        except InvariantViolationError as error:
            raise InvariantViolationError(f"seed {self.config.seed}: {error}") from None
        return self._report()

    def _recover(self) -> None:
        """No more faults: within a bound there is one leader, and all replicas hold what it holds (INV-34 to 36)."""
        self.faults.heal()
        committed = self.invariants.high_watermark
        self.run_for(self.config.quiet_ms)
        if not self.faults.may_make_progress():
            self.counters["no_majority_left"] += 1
            return
        leaders = [node for node in self.nodes.values() if node.is_up and node.core.is_leader]
        newest = max((node.core.epoch for node in self.nodes.values() if node.is_up), default=0)
        leader = next((node for node in leaders if node.core.epoch == newest), None)
        if leader is None:
            state = "; ".join(self.describe(node) for node in self.nodes.values())
            raise InvariantViolationError(f"INV-34 no leader {self.config.quiet_ms} ms after the last fault: {state}")
        if self.invariants.high_watermark <= committed:
            state = "; ".join(self.describe(node) for node in self.nodes.values())
            raise InvariantViolationError(f"INV-34 nothing was committed after the last fault: {state}")
        for node in self.nodes.values():
            if node.is_up and (node.core.high_watermark or 0) < self.invariants.high_watermark - 40:
                raise InvariantViolationError(
                    f"INV-36 {self.describe(node)} is behind {self.invariants.high_watermark}; leader"
                    f" {self.describe(leader)}"
                )

    def _report(self) -> Report:
        return Report(
            seed=self.config.seed,
            event_count=self.scheduler.event_count,
            simulated_ms=self.scheduler.now_us // 1000,
            election_count=len(self.invariants.leaders),
            committed_count=len(self.invariants.committed),
            counters=self.counters + self.network.counters,
            trace_hash=self._trace.hexdigest(),
            trace=tuple(self._kept),
        )

    # Load

    def _propose_again(self) -> None:
        leaders = [node for node in self.nodes.values() if node.is_up and node.core.is_leader]
        for node in leaders:
            self._value += 1
            node.propose([f"v{self._value}"] * self.rng.randint(1, 3))
        gap_us = _SECOND_US // max(1, self.config.proposals_per_second)
        self.scheduler.after(self.rng.randrange(1, 2 * gap_us), self._propose_again)

    def _snapshot_again(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        node.take_snapshot()
        self.scheduler.after(self.rng.randrange(1, 10 * _SECOND_US), self._snapshot_again)

    # Messages

    def send_request(self, node: SimulatedNode, effect: SendRequest) -> None:
        """Carry a request to its destination, and its answer back."""
        destination = effect.destination
        target_id = destination.endpoint.port - 9000
        target = self.nodes.get(target_id)
        run = node.run_count
        refuse = partial(node.refuse, run, destination.node_id, effect.correlation_id)
        if target is None:
            self.scheduler.after(500, partial(refuse, ErrorCode.BROKER_NOT_AVAILABLE))
            return
        request = effect.request
        if isinstance(request, VoteRequest) and request.pre_vote and not target.supports_pre_vote:
            self.counters["pre_vote_unsupported"] += 1
            self.scheduler.after(500, partial(refuse, ErrorCode.UNSUPPORTED_VERSION))
            return
        if not target.is_up:
            self.network.send(node.node_id, target_id, partial(refuse, ErrorCode.BROKER_NOT_AVAILABLE))
            return
        answer = (node.node_id, run, destination.node_id, effect.correlation_id, target_id)
        self.network.send(node.node_id, target_id, partial(self._deliver, target_id, answer, request))

    def _deliver(self, target_id: int, source: object, request: Request) -> None:
        self.nodes[target_id].receive(source, request)

    def send_response(self, node: SimulatedNode, source: object, response: Response) -> None:
        """Carry an answer back to who asked."""
        if not isinstance(source, tuple):
            return
        asker, run, node_id, correlation_id, _ = source
        if asker == _CLIENT:
            return
        self.network.send(
            node.node_id, asker, partial(self._deliver_response, asker, run, node_id, correlation_id, response)
        )

    def _deliver_response(self, asker: int, run: int, node_id: NodeId, correlation_id: int, response: Response) -> None:
        self.nodes[asker].receive_response(run, node_id, correlation_id, response)

    # Administration

    def leader(self) -> SimulatedNode | None:
        """The leader of the highest epoch, if it is up."""
        leaders = [one for one in self.nodes.values() if one.is_up and not one.is_paused and one.core.is_leader]
        return max(leaders, key=lambda one: one.core.epoch, default=None)

    def add_voter(self, node_id: int) -> None:
        """Ask the leader to make a replica a voter."""
        node, leader = self.nodes[node_id], self.leader()
        if leader is not None:
            request = AddVoterRequest(voter_key=node.key, endpoints=node.config.local_endpoints)
            leader.receive((_CLIENT, 0, 0, self.scheduler.event_count, leader.node_id), request)

    def remove_voter(self, key: ReplicaKey) -> None:
        """Ask the leader to make a voter an observer."""
        leader = self.leader()
        if leader is not None:
            request = RemoveVoterRequest(voter_key=key)
            leader.receive((_CLIENT, 0, 0, self.scheduler.event_count, leader.node_id), request)

    # What is seen

    def on_role_changed(self, node: SimulatedNode, before: Role) -> None:
        """A node changed role or epoch."""
        role = node.core.role
        self.counters[f"became_{role.name}"] += 1
        self.note(node, f"{before.name} {before.epoch} -> {role.name} {role.epoch} leader={role.leader_id}")

    def on_fault(self, node: SimulatedNode, fault: Fault) -> None:
        """The core met what cannot be."""
        self.note(node, f"fault: {fault.reason}")
        self.counters["core_fault"] += 1
        self.invariants.fail("INV-00", node, f"fault: {fault.reason}")

    def note(self, node: SimulatedNode | None, text: str) -> None:
        """Add a line to the trace."""
        who = "-" if node is None else str(node.node_id)
        line = f"{self.scheduler.now_us} {who} {text}"
        self._trace.update(line.encode())
        self.invariants.history.append(line)
        if self.config.keeps_trace:
            self._kept.append(line)

    @staticmethod
    def describe(node: SimulatedNode) -> str:
        """One node in a line."""
        if not node.is_up:
            return f"{node.node_id} down"
        core = node.core
        return (
            f"{node.node_id} {core.role.name} epoch={core.epoch} leader={core.leader_id} hw={core.high_watermark}"
            f" end={core.log.end_offset} voters={core.voters.ids}@{core.voters_offset}"
        )
