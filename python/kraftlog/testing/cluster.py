"""A cluster of simulated nodes: their disks, what they send each other, and what is seen of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from random import Random

from kraftlog.errors import ErrorCode
from kraftlog.raft.config import RaftConfig
from kraftlog.raft.core import RaftCore
from kraftlog.raft.effects import Fault, SendRequest
from kraftlog.raft.messages import (
    HIGH_WATERMARK_NOT_SENT,
    AddVoterRequest,
    FetchRequest,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
)
from kraftlog.raft.roles.role import Role
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet
from kraftlog.testing.config import Report, SimulationConfig
from kraftlog.testing.disk import DiskFailedError, SimulatedDisk
from kraftlog.testing.invariants import Invariants
from kraftlog.testing.machine import ReplicatedMachine
from kraftlog.testing.network import SimulatedNetwork
from kraftlog.testing.node import SimulatedNode
from kraftlog.testing.observer import Observer, Source
from kraftlog.testing.scheduler import Scheduler
from kraftlog.types import NodeId, ReplicaKey, Uuid

__all__ = ["Cluster"]

_CLIENT = -1
_SECOND_US = 1_000_000
_BOOTSTRAP_SERVERS = 2
_REFUSED_AFTER_US = 500
_WIPED_LOOK_US = 200_000


class Cluster:
    """Replicas with one scheduler and one network; everything random comes from the seed of ``config``.

    Attributes:
        core_type: What a node makes its core of at each start; a subclass sees all that goes in and out.
        disk_type: What the nodes' disks are.
        config: What is simulated, everything drawn.
        nodes: Every replica there ever was, by id.
        disk_rng: Chance of the disks.
        counters: What happened, by name.
    """

    core_type: type[RaftCore] = RaftCore
    disk_type: type[SimulatedDisk] = SimulatedDisk

    def __init__(self, config: SimulationConfig) -> None:
        self.config = config.resolved()
        self.disk_rng = Random(f"{config.seed}/disk")
        self.scheduler = Scheduler()
        self.network = SimulatedNetwork(self.scheduler, Random(f"{config.seed}/network"))
        self.nodes: dict[int, SimulatedNode] = {}
        self.invariants = Invariants(self.nodes)
        self.observer: Observer[SimulatedNode] = self.invariants
        self.counters: Counter[str] = Counter()
        self.changes_under_way = 0
        self._trace = hashlib.blake2b(digest_size=16)
        self._kept: list[str] = []
        self._value = 0
        self._disk_count = 0
        self._wiped_epochs: dict[int, int] = {}
        self._reborn: set[int] = set()
        self.is_dynamic = bool(self.config.is_dynamic)
        voter_count = self.config.voter_count or 1
        ids = range(1, voter_count + 1)
        self.static_voters = VoterSet(
            Voter(
                self._key(identifier, 1) if self.is_dynamic else ReplicaKey(NodeId(identifier)),
                self._endpoints(identifier),
                0,
                1,
            )
            for identifier in ids
        )
        self._first_ids = tuple(range(1, voter_count + (self.config.observer_count or 0) + 1))
        made = {node_id: self._make_node(node_id, is_formatted=node_id <= voter_count) for node_id in self._first_ids}
        self.nodes.update(made)

    # Nodes

    @staticmethod
    def _key(node_id: int, generation: int) -> ReplicaKey:
        return ReplicaKey(NodeId(node_id), Uuid(bytes(13) + bytes([generation, 0, node_id])))

    @staticmethod
    def _endpoints(node_id: int) -> tuple[Endpoint, ...]:
        return (Endpoint("CONTROLLER", f"node{node_id}", 9000 + node_id),)

    def _bootstrap_servers(self, node_id: int) -> tuple[Endpoint, ...]:
        """Two that a node is configured to ask, voters first: the others may be empty by then."""
        others = [node for node in (self.nodes or self._first_ids) if node != node_id]
        others.sort(key=lambda one: self.invariants.commit_voters.get(NodeId(one)) is None)
        return tuple(self._endpoints(other)[0] for other in others[:_BOOTSTRAP_SERVERS])

    def make_machine(self) -> ReplicatedMachine:
        """A fresh machine for a replica that starts."""
        return self.config.machine()

    def _new_disk(self, bootstrap_voters: VoterSet | None) -> SimulatedDisk:
        self._disk_count += 1
        return self.disk_type(bootstrap_voters, serial=self._disk_count)

    def _make_node(self, node_id: int, *, is_formatted: bool, generation: int = 1) -> SimulatedNode:
        """Make a replica with an empty disk; ``is_formatted`` gives it the 0-0 checkpoint of the first voters."""
        settings = self.config
        config = RaftConfig(
            cluster_id="simulated",
            local_key=self._key(node_id, generation),
            local_endpoints=self._endpoints(node_id),
            bootstrap_servers=self._bootstrap_servers(node_id),
            fetch_max_bytes=400,
            fetch_snapshot_max_bytes=600,
            election_timeout_ms=settings.election_timeout_ms or 0,
            fetch_timeout_ms=settings.fetch_timeout_ms or 0,
            request_timeout_ms=settings.request_timeout_ms or 0,
            retry_backoff_ms=settings.retry_backoff_ms or 0,
            fetch_max_wait_ms=min(500, (settings.fetch_timeout_ms or 0) // 3),
            auto_join=bool(settings.auto_join),
        )
        disk = self._new_disk(self.static_voters if self.is_dynamic and is_formatted else None)
        static = VoterSet() if self.is_dynamic else self.static_voters
        return SimulatedNode(self, config, disk, static)

    def bring_node(self, node_id: int, *, generation: int = 1) -> SimulatedNode:
        """A replica that is not formatted as a voter, in place of any with this id."""
        self.nodes[node_id] = node = self._make_node(node_id, is_formatted=False, generation=generation)
        return node

    def restart(self, node_id: int) -> None:
        """Start a node unless it runs, or must not yet."""
        node = self.nodes[node_id]
        if not node.is_up and not node.is_kept_down:
            node.start()

    def replace_disk(self, node_id: int) -> SimulatedNode:
        """A node comes back with a new, empty disk and a new directory id."""
        old = self.nodes[node_id]
        self.invariants.on_lost_disk(old)
        self.counters["disk_replaced"] += 1
        self._reborn.add(node_id)
        generation = old.key.directory_id[13] + 1
        node = self.bring_node(node_id, generation=generation)
        node.age = old.age
        return node

    def wipe_disk(self, node: SimulatedNode) -> None:
        """Empty the disk of a node that keeps its directory id.

        It has forgotten its vote and what it had acknowledged. It comes back when that cannot matter any more: a later
        leader has committed in its epoch without it, and nobody is left in an earlier epoch, where somebody with an
        older log might still be elected by its vote.
        """
        node.crash()
        self.invariants.on_lost_disk(node)
        self.counters["disk_wiped"] += 1
        self._reborn.add(node.node_id)
        self._wiped_epochs[node.node_id] = 0 if node.disk.election_state is None else node.disk.election_state.epoch
        node.disk = self._new_disk(None)
        node.config = replace(node.config, bootstrap_servers=self._bootstrap_servers(node.node_id))
        node.is_kept_down = True
        self.scheduler.after(_WIPED_LOOK_US, self._start_wiped, node)

    def _start_wiped(self, node: SimulatedNode) -> None:
        if self.nodes[node.node_id] is not node:
            return
        epoch = self._wiped_epochs[node.node_id]
        others = [other for other in self.nodes.values() if other is not node]
        leader = self.leader()
        has_gone_on = leader is not None and leader.core.epoch > epoch and leader.core.role.high_watermark is not None  # type: ignore[attr-defined]
        states = [other.disk.election_state for other in others]
        if (
            leader is not None
            and has_gone_on
            and all(state is None or state.epoch >= leader.core.epoch for state in states)
        ):
            node.is_kept_down = False
            if leader.core.kraft_version_before(leader.core.role.high_watermark) > 0:  # type: ignore[attr-defined]
                node.static_voters = VoterSet()  # the first voters might elect each other in a cluster of their own
            self.counters["wiped_node_came_back"] += 1
            node.start()
            return
        if leader is not None and leader.core.epoch <= epoch:
            leader.tell(self._resign, leader)
        self.scheduler.after(_WIPED_LOOK_US, self._start_wiped, node)

    @staticmethod
    def _resign(leader: SimulatedNode) -> None:
        leader.core.resign(leader.now_ms())

    def may_lose(self, node: SimulatedNode) -> bool:
        """Whether the cluster can do without this node's disk: most voters have their disks, and are agreed."""
        leader = self.leader()
        if leader is None or leader.core.is_voter_change_uncommitted or leader.core.role.high_watermark is None:  # type: ignore[attr-defined]
            return False
        voters = leader.core.voters
        if voters != self.invariants.commit_voters:
            return False
        if not voters.contains(node.key):
            return True
        lost = sum(not self._has_data(voter) for voter in voters)
        return len(voters) - lost - 1 >= voters.majority_size

    def _has_data(self, voter: Voter) -> bool:
        node = self.nodes[voter.key.node_id]
        is_same = voter.key.directory_id in (Uuid.ZERO, node.key.directory_id)
        return is_same and node.disk.is_sound and node.disk.flushed_end_offset >= self.invariants.high_watermark

    # The run

    def run_for(self, duration_ms: int) -> None:
        """Let time pass, for a test that cuts and heals by itself.

        Raises:
            InvariantViolationError: What must never be was seen.
        """
        self.scheduler.run_until(self.scheduler.now_us + duration_ms * 1000)

    def report(self) -> Report:
        """What has happened so far."""
        self._trace.update(f"{self.scheduler.event_count} {self.scheduler.fingerprint}".encode())
        return Report(
            seed=self.config.seed,
            event_count=self.scheduler.event_count,
            simulated_ms=self.scheduler.now_us // 1000,
            election_count=len(self.invariants.leaders),
            committed_count=self.invariants.committed_end_offset,
            counters=self.counters + self.network.counters,
            looked=self.invariants.looked,
            trace_hash=self._trace.hexdigest(),
            trace=tuple(self._kept),
        )

    # Messages

    def send_request(self, node: SimulatedNode, effect: SendRequest) -> None:
        """Carry a request to its destination, and its answer back."""
        destination, request = effect.destination, effect.request
        target_id = destination.endpoint.port - 9000
        target = self.nodes.get(target_id)
        run, node_id, correlation_id = node.run_count, destination.node_id, effect.correlation_id
        if target is None or not target.is_up:
            self.network.send(
                node.node_id, target_id, node.refuse, run, node_id, correlation_id, ErrorCode.BROKER_NOT_AVAILABLE
            )
            return
        if node.age or target.age:
            found = self._as_old_peers_speak(node, target, request)
            if found is None:
                self.scheduler.after(
                    _REFUSED_AFTER_US, node.refuse, run, node_id, correlation_id, ErrorCode.UNSUPPORTED_VERSION
                )
                return
            request = found
        self.network.send(
            node.node_id, target_id, self._deliver, target_id, node.node_id, run, node_id, correlation_id, request
        )

    def lose_request(self, target_id: int, asker: int, run: int, node_id: NodeId, correlation_id: int) -> None:
        """The process that was asked has ended, and with it the connection: the asker learns that no answer comes."""
        if self.config.refuses_connections and asker != _CLIENT:
            refuse = self.nodes[asker].refuse
            self.network.send(target_id, asker, refuse, run, node_id, correlation_id, ErrorCode.NETWORK_EXCEPTION)

    def on_stopped(self, node: SimulatedNode) -> None:
        """A process ended: so do its connections."""
        sources, node.sources = node.sources, {}
        for serial in node.asked:
            if serial in sources:
                self.lose_request(node.node_id, *sources[serial])

    def _as_old_peers_speak(self, node: SimulatedNode, target: SimulatedNode, request: Request) -> Request | None:
        """What of a request the older version has; None where there is no such request."""
        if isinstance(request, VoteRequest) and request.pre_vote:
            self.counters["pre_vote_unsupported"] += 1
            self.invariants.on_pre_vote_unsupported(node, request)
            return None
        if max(node.age, target.age) < 2:
            return request
        if isinstance(request, FetchRequest):
            self.counters["fetch_without_high_watermark"] += 1
            return _without_high_watermark(request)
        if isinstance(request, UpdateVoterRequest) and node.core.kraft_version == 0:
            self.counters["update_voter_unsupported"] += 1
            return None
        return request

    def _deliver(
        self, target_id: int, asker: int, run: int, node_id: NodeId, correlation_id: int, request: Request
    ) -> None:
        self.nodes[target_id].receive(asker, run, node_id, correlation_id, request)

    def send_response(self, node: SimulatedNode, source: Source, response: Response) -> None:
        """Carry an answer back to who asked."""
        asker, run, node_id, correlation_id, serial = source
        node.sources.pop(serial, None)
        request = self.invariants.on_answer(node, serial, response)
        if asker == _CLIENT:
            self.changes_under_way -= 1
            error_code = getattr(response, "top_level_error_code", 0)
            self.invariants.on_voter_change_answered(node, request, error_code)
            if not error_code:
                self.counters["voter_added" if isinstance(request, AddVoterRequest) else "voter_removed"] += 1
            return
        self.network.send(node.node_id, asker, self._deliver_response, asker, run, node_id, correlation_id, response)

    def _deliver_response(self, asker: int, run: int, node_id: NodeId, correlation_id: int, response: Response) -> None:
        self.nodes[asker].receive_response(run, node_id, correlation_id, response)

    # Administration

    def leader(self) -> SimulatedNode | None:
        """The leader of the highest epoch, if it is up."""
        leaders = [
            other for other in self.nodes.values() if other.is_up and not other.is_paused and other.core.is_leader
        ]
        return max(leaders, key=lambda one: one.core.epoch, default=None)

    def add_voter(self, node_id: int) -> None:
        """Ask the leader to make a replica a voter."""
        node = self.nodes[node_id]
        self._administer(AddVoterRequest(voter_key=node.key, endpoints=node.config.local_endpoints))

    def remove_voter(self, key: ReplicaKey) -> None:
        """Ask the leader to make a voter an observer."""
        self._administer(RemoveVoterRequest(voter_key=key))

    def _administer(self, request: Request) -> None:
        leader = self.leader()
        if leader is not None:
            self.changes_under_way += 1
            leader.receive(_CLIENT, 0, NodeId(0), 0, request)

    # What is seen

    def on_started(self, node: SimulatedNode) -> None:
        """A node has made its core of what its disk holds, and told it nothing yet."""
        self.invariants.on_started(node)

    def on_role_changed(self, node: SimulatedNode, before: Role) -> None:
        """A node changed role or epoch."""
        role = node.core.role
        self.counters[f"became_{role.name}"] += 1
        self.counters[f"{before.name}_to_{role.name}"] += 1
        self.note(node, f"{before.name} {before.epoch} -> {role.name} {role.epoch} leader={role.leader_id}")

    def on_fault(self, node: SimulatedNode, fault: Fault) -> None:
        """The core met what cannot be, or what cannot be by what it still knows: a lost disk is no excuse to halt."""
        self.note(node, f"fault: {fault.reason}")
        if not fault.is_fatal and node.node_id in self._reborn:
            self.counters["refused_after_disk_loss"] += 1
            return
        self.invariants.fail("FAULT", node, f"fault: {fault.reason}")

    def on_disk_failed(self, node: SimulatedNode, error: DiskFailedError, *, is_spoilt: bool = False) -> None:
        """A node stops, its disk having failed, or cannot start."""
        self.note(node, f"disk failed: {error}")
        self.counters["disk_failure_stopped_node"] += 1
        if is_spoilt:
            self.on_spoilt(node)
        elif not node.disk.is_sound:
            self.scheduler.after(1000, self.restart, node.node_id)

    def on_spoilt(self, node: SimulatedNode) -> None:
        """What was durable cannot be read: the operator gives the node another disk."""
        self.counters["spoilt_disk_found"] += 1
        if self.is_dynamic:
            self.scheduler.after(_SECOND_US, self.restart, self.replace_disk(node.node_id).node_id)
        elif not node.is_kept_down:
            self.wipe_disk(node)

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


def _without_high_watermark(request: FetchRequest) -> FetchRequest:
    """The request as Fetch below version 18 has it."""
    return FetchRequest(
        cluster_id=request.cluster_id,
        replica_key=request.replica_key,
        current_leader_epoch=request.current_leader_epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        high_watermark=HIGH_WATERMARK_NOT_SENT,
    )
