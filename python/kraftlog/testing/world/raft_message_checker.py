"""Messages between replicas of a quorum show only what is on the sender's disk (INV-02, 03, 13), and pre-votes (25)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.role import same_voter
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.frame_stream import REQUEST_HEADER, Exchanges
from kraftlog.testing.world.node_machine import NodeMachine
from kraftlog.types import NodeId, ReplicaKey
from kraftlog.wire.frame import decode_request, decode_response
from kraftlog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlog.wire.messages.vote import VoteRequest, VoteResponse

if TYPE_CHECKING:
    from kraftlog.testing.world.network import SimulatedSocket
    from kraftlog.testing.world.quorum_checker import QuorumChecker, QuorumLife
    from kraftlog.testing.world.story import Story
    from kraftlog.types import ElectionState

__all__ = ["RaftMessageChecker"]

_APIS: Final = frozenset(
    message.API_KEY
    for message in (VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest)
)

# A node that is not paused has handled a message by then.
_HANDLED_NS: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class _Arrival:
    """When a message reached a node, and how long the node had been paused by then, nanoseconds."""

    at_ns: int
    paused_ns: int

    def is_apart_from(self, last: _Arrival | None) -> bool:
        """Whether the node has handled by now what reached it before."""
        return last is None or (self.at_ns - last.at_ns > _HANDLED_NS and self.paused_ns == last.paused_ns)


@dataclass(frozen=True, slots=True)
class _Electing:
    """What a pre-vote may not change, as it is when one arrives and when it is answered.

    Args:
        life: The process.
        state: What is on its disk.
        last_arrival: Of a message of another replica.
        is_moving: Whether the next epoch may come without a message, or by one that came before.
    """

    life: QuorumLife
    state: ElectionState
    last_arrival: _Arrival
    is_moving: bool

    @classmethod
    def of(cls, life: QuorumLife, last_arrival: _Arrival) -> _Electing:
        """Of a process, now."""
        core = life.core
        may_begin = isinstance(core.role, (Candidate, Resigned)) or len(core.voters) == 1
        is_moving = may_begin or life.driver.is_waiting
        return cls(life, life.driver.stored_state, last_arrival, is_moving)


class RaftMessageChecker:
    """Follows the bytes between replicas, and reads a message while its sender's disk is behind, or if it is a vote.

    Args:
        port: That replicas listen on.
        quorum: Knows the replica of each process.
        story: What is shown with a broken rule.

    Attributes:
        looked: How often each rule had something to look at.
    """

    def __init__(self, port: int, quorum: QuorumChecker, story: Story) -> None:
        self._port = port
        self._quorum = quorum
        self._story = story
        self._exchanges = Exchanges(_APIS)
        self._arrivals: dict[int, _Arrival] = {}
        self._granted: dict[tuple[int, int, int], ReplicaKey] = {}
        self.looked: Counter[str] = Counter()

    def arrived(self, sock: SimulatedSocket, data: bytes) -> None:
        """Bytes have reached a socket."""
        machine = sock.machine
        if not isinstance(machine, NodeMachine):
            return
        arrival = _Arrival(machine.world.now_ns, machine.paused_ns)
        last = self._arrivals.get(machine.node_id)
        if sock.getsockname()[1] != self._port:
            self._arrivals[machine.node_id] = arrival
            return
        frames = self._exchanges.arrived(sock, data)
        if frames:
            self._arrivals[machine.node_id] = arrival
        for frame in frames:
            api_key, _, correlation_id = REQUEST_HEADER.unpack_from(frame)
            is_alone = len(frames) == 1 and not machine.is_paused and arrival.is_apart_from(last)
            if api_key == VoteRequest.API_KEY and is_alone:
                life = self._quorum.life(machine)
                before = None if life is None else _Electing.of(life, arrival)
                self._exchanges.of(sock).before[correlation_id] = before

    def sent(self, sock: SimulatedSocket, data: bytes) -> None:
        """A machine has handed bytes to a socket.

        Raises:
            InvariantViolationError: They show what is not on its disk.
        """
        is_server = sock.getsockname()[1] == self._port
        if not is_server and sock.getpeername()[1] != self._port:
            return
        machine = sock.machine
        life = self._quorum.life(machine) if isinstance(machine, NodeMachine) else None
        exchange = self._exchanges.of(sock)
        for frame in exchange.outgoing.feed(data):
            if life is None:
                continue
            if is_server:
                before = exchange.noted_for(frame) if exchange.before else None
                self._check_response(machine, life, frame, exchange.asked_by(frame), before)
            else:
                self._check_request(machine, life, frame)

    def _check_request(self, machine: Any, life: QuorumLife, frame: bytes) -> None:
        api_key = REQUEST_HEADER.unpack_from(frame)[0]
        if api_key not in _APIS or not (_is_behind(life) or api_key == VoteRequest.API_KEY):
            return
        message: Any = decode_request(frame)[1]
        stored, flushed = life.driver.stored_state, life.driver.flushed_end_offset
        # A message may have waited for its connection while the log was cut: it speaks of what was there before.
        ever_flushed = max(flushed, life.highest_flushed)
        for partition in _partitions(message.topics):
            match message:
                case VoteRequest():
                    epoch = partition.replica_epoch
                    self.looked["INV-13"] += 1
                    if partition.last_offset > ever_flushed:
                        reason = f"asks for a vote with log end {partition.last_offset}, durable is {ever_flushed}"
                        self._fail("INV-13", machine, reason)
                    # A request may leave late, when the replica leads: its vote is not stored any more.
                    has_voted = stored.voted_key is not None or stored.leader_id == machine.node_id
                    if not partition.pre_vote and stored.epoch == epoch and not has_voted:
                        self._fail("INV-03", machine, f"asks for votes without its own on disk: {stored}")
                case BeginQuorumEpochRequest():
                    epoch = partition.leader_epoch
                    if stored.epoch == epoch and stored.leader_id != machine.node_id:
                        self._fail("INV-03", machine, f"tells that it leads epoch {epoch}, on disk is {stored}")
                case FetchRequest():
                    epoch = partition.current_leader_epoch
                    self.looked["INV-13"] += 1
                    is_now = partition.last_fetched_epoch == life.core.log.last_epoch
                    durable = flushed if is_now else ever_flushed
                    if life.core.is_voter and partition.fetch_offset > durable:
                        reason = f"acknowledges offset {partition.fetch_offset}, durable is {durable}"
                        self._fail("INV-13", machine, reason)
                case FetchSnapshotRequest():
                    epoch = partition.current_leader_epoch
                case _:
                    epoch = partition.leader_epoch
            self._check_epoch(machine, life, epoch)

    def _check_response(
        self, machine: Any, life: QuorumLife, frame: bytes, request: bytes | None, before: _Electing | None
    ) -> None:
        if request is None:
            return
        api_key, version, _ = REQUEST_HEADER.unpack_from(request)
        if not (_is_behind(life) or api_key == VoteRequest.API_KEY):
            return
        message: Any = decode_response(api_key, version, frame)[1]
        topics = message.responses if isinstance(message, FetchResponse) else message.topics
        for partition in _partitions(topics):
            match message:
                case FetchResponse() | FetchSnapshotResponse():
                    epoch = partition.current_leader.leader_epoch
                case VoteResponse():
                    epoch = partition.leader_epoch
                    if partition.vote_granted:
                        self._check_vote(machine, life, request)
                    if before is not None:
                        self._check_pre_vote(machine, life, request, before)
                case BeginQuorumEpochResponse() | EndQuorumEpochResponse():
                    epoch = partition.leader_epoch
                case _:
                    continue
            self._check_epoch(machine, life, epoch)

    def _check_vote(self, machine: Any, life: QuorumLife, request: bytes) -> None:
        """A granted vote leaves: it is on disk, and the only one of this disk in its epoch."""
        message: Any = decode_request(request)[1]
        for partition in _partitions(message.topics):
            epoch = partition.replica_epoch
            if partition.pre_vote:
                self._quorum.note_pre_vote(machine.node_id, partition.replica_id, epoch)
                continue
            candidate = ReplicaKey(NodeId(partition.replica_id), partition.replica_directory_id)
            stored = life.driver.stored_state
            self.looked["INV-02"] += 1
            if stored.epoch < epoch or (
                stored.epoch == epoch and (stored.voted_key is None or not _is_same(stored.voted_key, candidate))
            ):
                self._fail("INV-03", machine, f"grants a vote to {candidate} in epoch {epoch}, on disk is {stored}")
            place = (machine.node_id, machine.disk_number, epoch)
            if not _is_same(self._granted.setdefault(place, candidate), candidate):
                self._fail("INV-02", machine, f"voted for {self._granted[place]} and {candidate} in epoch {epoch}")

    def _check_pre_vote(self, machine: Any, life: QuorumLife, request: bytes, before: _Electing) -> None:
        """A pre-vote of the voter's own epoch, or of an older one, leaves no trace on its disk.

        Not judged are candidates and leaders that have resigned, whose timers begin the next epoch, and voters that
        another message reached meanwhile, which may have named a later epoch.
        """
        message: Any = decode_request(request)[1]
        now = _Electing.of(life, self._arrivals[machine.node_id])
        if now.life is not before.life or before.is_moving or now.last_arrival is not before.last_arrival:
            return
        for partition in _partitions(message.topics):
            if partition.pre_vote and partition.replica_epoch <= before.state.epoch:
                self.looked["INV-25"] += 1
                if (now.state.epoch, now.state.voted_key) != (before.state.epoch, before.state.voted_key):
                    self._fail("INV-25", machine, f"a pre-vote changed {before.state} into {now.state}")

    def _check_epoch(self, machine: Any, life: QuorumLife, epoch: int) -> None:
        self.looked["INV-03"] += 1
        stored = life.driver.stored_state
        if epoch > stored.epoch:
            self._fail("INV-03", machine, f"shows epoch {epoch}, on disk is {stored}")

    def _fail(self, identifier: str, machine: Any, reason: str) -> None:
        raise InvariantViolationError(identifier, f"{machine.name}: {reason}", self._story.last(40))


def _is_behind(life: QuorumLife) -> bool:
    """Whether the disk of a replica has not everything yet that its core goes by."""
    core, driver = life.core, life.driver
    return bool(core.epoch > driver.stored_state.epoch or core.log.end_offset > driver.flushed_end_offset)


def _is_same(first: ReplicaKey, second: ReplicaKey) -> bool:
    """Whether two keys may be of one replica; a key without a directory id is that of any."""
    return same_voter(first, second) or same_voter(second, first)


def _partitions(topics: Any) -> list[Any]:
    return [partition for topic in topics for partition in topic.partitions]
