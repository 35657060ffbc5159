"""Drawn histories of one consensus core whose peers may answer and ask anything: late, twice, wrongly, or not at all.

The simulator of the core has honest replicas and a network that loses messages. Here one replica is real, and each
message to it is drawn: of any epoch, from any log, for any cluster. What it promises, on its disk and in its own
messages, has to fit what it promised before.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from kraftlog.errors import ErrorCode
from kraftlog.raft import messages as raft
from kraftlog.raft.config import RaftConfig
from kraftlog.raft.control_records import ControlRecord, KRaftVersionChange, VotersChange
from kraftlog.raft.core import RaftCore
from kraftlog.raft.effects import (
    AppendControlRecords,
    AppendFetched,
    AppendRecords,
    FlushLog,
    HighWatermarkAdvanced,
    InstallSnapshot,
    PersistElectionState,
    SendRequest,
    SendResponse,
    TruncateLog,
    WriteSnapshotChunk,
)
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.voter_set import LogHistory, VoterSet
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.types import ElectionState, Epoch, EpochEndOffset, NodeId, Offset, ReplicaKey, SnapshotId
from raft_fixture import endpoints, key, voter_set

STEPS = 250
SELF = 1
FETCH_TIMEOUT_MS = 2_000
_CLUSTER = "c"
_SNAPSHOT_BYTES = 300

Batch = raft.FetchedBatch


def violated(rule: str, reason: str) -> InvariantViolationError:
    return InvariantViolationError(rule, reason, [])


class PeerHistory:
    """One history; ``play`` runs it.

    Args:
        seed: Of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"{seed}/peers")
        self.counts: Counter[str] = Counter()
        self.now_ms = 0
        self.voter_ids = tuple(range(1, rng.choice((3, 3, 5)) + 1))
        self.bootstrap = voter_set(*self.voter_ids)
        # The disk.
        self.state: ElectionState | None = None
        self.batches: list[Batch] = []
        self.snapshot: tuple[SnapshotId, VoterSet] | None = None
        self.flushed = 0
        # What was promised: the epoch, votes by epoch, leaders by epoch, what is committed.
        self.epoch = 0
        self.votes: dict[int, ReplicaKey] = {}
        self.leaders: dict[int, NodeId] = {}
        # Of this process: requests under way, flushes to come, when voters were heard, how often who was asked.
        self.asked: list[SendRequest] = []
        self.flushes: list[int] = []
        self.held: list[SendRequest] = []
        self.heard_ms: dict[int, int] = {}
        self.led_since_ms = 0
        self.in_a_row: Counter[int] = Counter()
        self.handling: Any = None
        self.answers: list[Any] = []
        self.core = self.started()
        names = ("time", "ask", "answer", "answer", "flush", "propose", "silence", "fetch", "restart", "resign")
        self.weights = {name: rng.choice((1, 3, 6)) for name in names}
        self.weights |= {"time": 4, "answer": 10, "restart": 0.3, "resign": 0.3}
        self.oddness = rng.choice((0.02, 0.1, 0.4))
        self.newer = rng.choice((0.005, 0.05, 0.3))

    # -- the disk ----------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return 0 if self.snapshot is None else self.snapshot[0].end_offset

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.log_start_offset

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else 0 if self.snapshot is None else self.snapshot[0].epoch

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        found: dict[int, int] = {}
        for batch in self.batches:
            found.setdefault(batch.epoch, batch.base_offset)
        return tuple(found.items())

    @property
    def snapshots(self) -> tuple[tuple[SnapshotId, int], ...]:
        return () if self.snapshot is None else ((self.snapshot[0], _SNAPSHOT_BYTES),)

    def voters(self) -> VoterSet:
        """Those of the last record in the log, of the snapshot, or of the formatting."""
        for batch in reversed(self.batches):
            for _, record in reversed(batch.control_records):
                if isinstance(record, VotersChange):
                    return record.voters
        return self.bootstrap if self.snapshot is None else self.snapshot[1]

    def started(self) -> RaftCore:
        voters, versions = LogHistory(VoterSet()), LogHistory(0)
        first = Offset(max(self.log_start_offset - 1, 0)) if self.snapshot is not None else Offset(-1)
        voters.add(first, self.bootstrap if self.snapshot is None else self.snapshot[1])
        versions.add(first, 1)
        for batch in self.batches:
            for offset, record in batch.control_records:
                if isinstance(record, VotersChange):
                    voters.add(offset, record.voters)
                elif isinstance(record, KRaftVersionChange):
                    versions.add(offset, record.kraft_version)
        config = RaftConfig(
            cluster_id=_CLUSTER,
            local_key=key(SELF),
            local_endpoints=endpoints(SELF),
            fetch_timeout_ms=FETCH_TIMEOUT_MS,
        )
        self.flushed = self.log_end_offset
        # A process that begins anew does not know what was committed before.
        self.high_watermark = self.log_start_offset
        self.asked, self.flushes, self.held = [], [], []
        self.in_a_row.clear()
        rng = Random(self.rng.getrandbits(32))
        return RaftCore(config, self.state, self, voters=voters, kraft_versions=versions, rng=rng, now_ms=self.now_ms)

    # -- what the core wants -----------------------------------------------------------------------------------------

    def run(self) -> None:
        while effects := self.core.take_effects():
            for effect in effects:
                self.carry_out(effect)
        self.check()

    def carry_out(self, effect: Any) -> None:
        match effect:
            case PersistElectionState():
                self.persist(effect.state)
            case AppendFetched():
                for batch in effect.batches:
                    self.append(batch)
            case AppendRecords() | AppendControlRecords():
                last = Offset(effect.base_offset + len(effect.records) - 1)
                control: tuple[tuple[Offset, ControlRecord], ...] = ()
                if isinstance(effect, AppendControlRecords):
                    control = tuple(
                        (Offset(effect.base_offset + index), record) for index, record in enumerate(effect.records)
                    )
                if isinstance(self.core.role, Resigned) and self.core.epoch == effect.epoch:
                    raise violated("INV-18", f"it has resigned from epoch {effect.epoch}, and appends")
                self.append(
                    Batch(base_offset=effect.base_offset, last_offset=last, epoch=effect.epoch, control_records=control)
                )
                self.flushes.append(last + 1)
            case TruncateLog():
                self.truncate(effect.end_offset)
            case FlushLog():
                self.flushes.append(effect.log_end_offset)
            case WriteSnapshotChunk():
                if effect.payload != (effect.snapshot_id, effect.position):
                    raise violated("INV-16", f"{effect.payload} is written at {effect.position}")
            case InstallSnapshot():
                self.install(effect.snapshot_id)
            case HighWatermarkAdvanced():
                if effect.high_watermark < self.high_watermark:
                    raise violated("INV-05", f"the high watermark falls to {effect.high_watermark}")
                self.high_watermark = effect.high_watermark
            case SendRequest():
                self.send(effect)
            case SendResponse():
                self.respond(effect)

    def persist(self, state: ElectionState) -> None:
        known = self.votes.get(state.epoch)
        if known is not None and known != key(SELF) and state.voted_key != known:
            raise violated("INV-02", f"the vote of epoch {state.epoch} was {known}, {state} is stored")
        if state.voted_key is not None:
            self.votes[state.epoch] = state.voted_key
        self.state = state

    def append(self, batch: Batch) -> None:
        if batch.base_offset != self.log_end_offset:
            raise violated("INV-14", f"the log ends at {self.log_end_offset}, {batch} is appended")
        if not self.last_epoch <= batch.epoch <= self.core.epoch:
            raise violated("INV-14", f"{batch} is appended in epoch {self.core.epoch} behind epoch {self.last_epoch}")
        self.batches.append(batch)
        self.counts["appended"] += 1

    def truncate(self, end_offset: int) -> None:
        if end_offset < self.high_watermark:
            raise violated("INV-10", f"the log is cut at {end_offset}, {self.high_watermark} is committed")
        self.batches = [batch for batch in self.batches if batch.last_offset < end_offset]
        self.flushed = min(self.flushed, end_offset)
        self.flushes = [end for end in self.flushes if end <= end_offset]
        self.counts["truncated"] += 1

    def install(self, snapshot_id: SnapshotId) -> None:
        if snapshot_id.end_offset < self.high_watermark:
            raise violated("INV-10", f"{snapshot_id} takes the place of all, {self.high_watermark} is committed")
        voters = self.voters()
        self.batches, self.snapshot = [], (snapshot_id, voters)
        self.flushed = snapshot_id.end_offset
        self.flushes.clear()
        self.counts["installed"] += 1
        self.core.on_snapshot_installed(
            snapshot_id, _SNAPSHOT_BYTES, kraft_version=1, voters=voters, now_ms=self.now_ms
        )
        self.high_watermark = max(self.high_watermark, snapshot_id.end_offset)
        if (self.core.high_watermark or 0) < snapshot_id.end_offset:
            raise violated("INV-05", f"{snapshot_id} is loaded, the high watermark is {self.core.high_watermark}")

    def send(self, effect: SendRequest) -> None:
        request = effect.request
        wanted = effect.waits_for.log_end_offset or 0
        if isinstance(request, raft.FetchRequest) and request.fetch_offset > max(self.flushed, wanted):
            raise violated("INV-13", f"{request} acknowledges what is not durable")
        if wanted > self.flushed and not any(end >= wanted for end in self.flushes):
            raise violated("no stuck message", f"{request} waits for a flush to {wanted} that nothing asked for")
        target = int(effect.destination.node_id)
        if isinstance(request, raft.FetchRequest) and self.core.leader_id is None:
            self.in_a_row = Counter({target: self.in_a_row[target] + 1})
            if self.in_a_row[target] > 40:
                raise violated("CONN-27", f"{target} alone is asked for the leader, {self.in_a_row[target]} times")
        else:
            self.in_a_row.clear()
        self.asked.append(effect)

    def respond(self, effect: SendResponse) -> None:
        response, request = effect.response, self.handling
        self.answers.append(response)
        if not isinstance(response, raft.VoteResponse) or not response.vote_granted:
            return
        if not isinstance(request, raft.VoteRequest):
            raise violated("INV-31", f"{request} is answered with {response}")
        if request.pre_vote:
            self.counts["pre-vote"] += 1
            return
        self.counts["vote"] += 1
        promised = effect.waits_for.election_state or self.state
        known = self.votes.get(request.replica_epoch)
        if promised is None or promised.voted_key != request.replica_key or known != request.replica_key:
            raise violated("INV-02", f"{request.replica_key} gets a vote, stored is {promised}, voted for was {known}")
        if self.leaders.get(request.replica_epoch) == SELF:
            raise violated("INV-18", f"it led epoch {request.replica_epoch}, and votes in it")

    # -- rules -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        core = self.core
        if core.is_halted:
            self.counts["halted"] += 1
            self.core = self.started()
            return
        if core.epoch < self.epoch:
            raise violated("INV-04", f"the epoch fell from {self.epoch} to {core.epoch}")
        self.epoch = core.epoch
        role = core.role
        if core.leader_id is not None:
            if isinstance(role, Resigned):
                raise violated("INV-18", f"it has resigned from epoch {core.epoch}, and names {core.leader_id}")
            first = self.leaders.setdefault(core.epoch, core.leader_id)
            if first != core.leader_id:
                raise violated("INV-01", f"epoch {core.epoch} was led by {first}, now it follows {core.leader_id}")
        if core.log.end_offset != self.log_end_offset or core.log.last_epoch != self.last_epoch:
            known = (core.log.end_offset, core.log.last_epoch)
            raise violated("INV-14", f"the core's log ends at {known}, there is {self.batches[-1:]}")
        for epoch, start in self.leader_epochs:
            end = core.log.end_offset_for_epoch(Epoch(epoch))
            if end.epoch != epoch or end.end_offset <= start:
                raise violated("INV-14", f"epoch {epoch} begins at {start}, and the core has {end}")
        if core.voters != self.voters():
            raise violated("INV-19", f"the core goes by {core.voters}, the log has {self.voters()}")
        if (core.high_watermark or 0) > self.log_end_offset:
            raise violated("INV-05", f"the high watermark is {core.high_watermark}, the log ends below")
        if isinstance(role, Leader):
            self.check_leader(role)
        else:
            self.led_since_ms = self.now_ms

    def check_leader(self, role: Leader) -> None:
        high_watermark = role.high_watermark
        if high_watermark is not None:
            last = next((batch for batch in self.batches if batch.last_offset >= high_watermark - 1), None)
            if last is not None and last.epoch != role.epoch:
                raise violated("INV-11", f"the leader of {role.epoch} commits up to {high_watermark} by {last}")
        others = sorted(
            (self.heard_ms.get(voter_id, 0) for voter_id in role.voters.ids if voter_id != SELF), reverse=True
        )
        needed = role.voters.majority_size - 1
        last_ms = max(self.led_since_ms, others[needed - 1] if needed else self.now_ms)
        if self.now_ms > last_ms + 3 * FETCH_TIMEOUT_MS:
            raise violated("INV-28", f"it leads {role.epoch} without a majority for {self.now_ms - last_ms} ms")

    # -- events ------------------------------------------------------------------------------------------------------

    def odd(self) -> bool:
        return self.rng.random() < self.oddness

    def time(self) -> None:
        """Time goes on, and the core is told when it wants to be."""
        end_ms = self.now_ms + self.rng.choice((5, 100, 1_000))
        while True:
            due_ms = self.core.next_timeout_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.handling = None
            self.core.handle_timeout(self.now_ms)
            self.run()
            self.lose()
        self.now_ms = end_ms

    def lose(self) -> None:
        """Nobody has time to answer all that is asked while time goes by."""
        while len(self.asked) > 4:
            effect = self.asked.pop(0)
            self.core.handle_no_response(effect.destination.node_id, effect.correlation_id, self.now_ms)
            self.run()

    def flush(self) -> None:
        if self.flushes:
            end = self.flushes.pop(0)
            self.flushed = max(self.flushed, min(end, self.log_end_offset))
            self.core.on_flushed(self.flushed, self.now_ms)
            self.run()

    def propose(self) -> None:
        if self.core.is_leader:
            try:
                self.core.propose([b"x"] * self.rng.randint(1, 3), self.now_ms)
            except Exception as error:
                if getattr(error, "code", 0) != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    raise
            self.run()

    def resign(self) -> None:
        self.core.resign(self.now_ms)
        self.run()

    def restart(self) -> None:
        """The process ends; what was not flushed may be gone, but nothing that is committed."""
        end = self.rng.randint(max(self.flushed, self.log_start_offset), max(self.flushed, self.log_end_offset))
        self.batches = [batch for batch in self.batches if batch.last_offset < end]
        self.core = self.started()
        self.counts["restarted"] += 1
        self.check()

    def silence(self) -> None:
        if self.asked:
            effect = self.asked.pop(self.rng.randrange(len(self.asked)))
            node_id = effect.destination.node_id
            if self.odd():
                self.core.handle_refused_connection(node_id, self.now_ms)
                self.run()
            self.core.handle_no_response(node_id, effect.correlation_id, self.now_ms)
            self.run()

    def an_epoch(self) -> Epoch:
        epoch = self.core.epoch
        if self.rng.random() < self.newer:
            return Epoch(epoch + self.rng.choice((1, 1, 3)))
        return Epoch(max(0, epoch - (self.rng.random() < 0.2)))

    def a_peer(self) -> NodeId:
        return NodeId(self.rng.choice([voter_id for voter_id in self.voter_ids if voter_id != SELF]))

    def ask(self) -> None:
        """A peer asks for something."""
        rng = self.rng
        cluster_id = "other" if self.odd() else rng.choice((_CLUSTER, None))
        epoch, peer = self.an_epoch(), self.a_peer()
        known = self.leaders.get(epoch)
        if known is not None and not self.odd():
            peer = known if known != SELF else peer
        request: Any
        match rng.choice(("vote", "pre-vote", "begin", "end")):
            case "begin":
                request = raft.BeginQuorumEpochRequest(
                    cluster_id=cluster_id,
                    voter_key=key(SELF),
                    leader_id=peer,
                    leader_epoch=epoch,
                    leader_endpoints=endpoints(peer),
                )
            case "end":
                request = raft.EndQuorumEpochRequest(
                    cluster_id=cluster_id, leader_id=peer, leader_epoch=epoch, leader_endpoints=endpoints(peer)
                )
            case name:
                request = raft.VoteRequest(
                    cluster_id=cluster_id,
                    voter_key=key(SELF),
                    replica_key=key(self.a_peer()),
                    replica_epoch=epoch,
                    last_epoch=Epoch(min(int(epoch), max(0, self.last_epoch + rng.choice((0, 0, 1, -1))))),
                    last_epoch_end_offset=Offset(max(0, self.log_end_offset + rng.choice((0, 0, 5, -1)))),
                    pre_vote=name == "pre-vote",
                )
        self.request(peer, request)

    def request(self, peer: NodeId, request: Any) -> None:
        before = (self.core.epoch, self.core.role, self.state)
        wanted = self.must_be_granted(request)
        self.handling, self.answers = request, []
        self.core.handle_request(peer, request, self.now_ms)
        self.run()
        self.handling = None
        if request.cluster_id == "other":
            codes = [answer.top_level_error_code for answer in self.answers]
            is_changed = (self.core.epoch, self.core.role, self.state) != before and not isinstance(before[1], Leader)
            if codes != [ErrorCode.INCONSISTENT_CLUSTER_ID] or is_changed:
                raise violated("RPC-05", f"{request} of another cluster is answered with {self.answers}")
        elif wanted and not any(answer.vote_granted for answer in self.answers):
            raise violated("PREV-16", f"no leader has answered, and {request} is answered with {self.answers}")

    def must_be_granted(self, request: Any) -> bool:
        """A follower that its leader has not answered grants a pre-vote to an up-to-date log (KIP-996)."""
        role = self.core.role
        if not isinstance(request, raft.VoteRequest) or not request.pre_vote or not isinstance(role, Follower):
            return False
        is_up_to_date = (request.last_epoch, request.last_epoch_end_offset) >= (self.last_epoch, self.log_end_offset)
        is_ours = request.cluster_id != "other" and request.replica_epoch == self.core.epoch
        return is_ours and is_up_to_date and not role.has_fetched

    def fetch(self) -> None:
        """A voter fetches from this replica, from a place in its log."""
        peer = self.a_peer()
        bases = [batch.base_offset for batch in self.batches] + [self.log_end_offset]
        offset = self.rng.choice(bases)
        last = next((batch.epoch for batch in reversed(self.batches) if batch.last_offset < offset), Epoch(0))
        request = raft.FetchRequest(
            cluster_id=_CLUSTER,
            replica_key=key(peer),
            current_leader_epoch=self.core.epoch,
            fetch_offset=Offset(offset),
            last_fetched_epoch=last,
        )
        if isinstance(self.core.role, Leader):
            self.heard_ms[peer] = self.now_ms
        self.handling, self.answers = request, []
        self.core.handle_request(peer, request, self.now_ms)
        self.run()
        self.handling = None

    # -- answers -----------------------------------------------------------------------------------------------------

    def answer(self) -> None:
        """A peer answers one of the requests under way; now and then it answers again later."""
        if not self.asked:
            return
        index = self.rng.randrange(len(self.asked))
        effect = self.asked[index]
        if not self.odd():
            del self.asked[index]
        peer, request = effect.destination.node_id, effect.request
        response = self.response(request, NodeId(int(peer) if int(peer) > 0 else int(self.a_peer())))
        if response is None:
            return
        before_end, before_epoch = self.log_end_offset, self.core.epoch
        batches, mark = list(self.batches), self.core.high_watermark
        is_expected = self.core.is_expected(peer, effect.correlation_id)
        if isinstance(response, raft.BeginQuorumEpochResponse) and isinstance(self.core.role, Leader):
            self.heard_ms[int(peer)] = self.now_ms
        self.handling = None
        self.core.handle_response(peer, effect.correlation_id, response, self.now_ms)
        self.run()
        if not is_expected or response.top_level_error_code:
            return
        learned = getattr(response, "leader_epoch", 0)
        if self.core.epoch < learned and not response.error_code:
            raise violated("INV-04", f"{response} names epoch {learned}, and it stays in {self.core.epoch}")
        if isinstance(request, raft.FetchRequest) and request.fetch_offset != before_end and not response.error_code:
            is_same = self.batches == batches and self.core.high_watermark == mark
            if self.core.epoch == before_epoch and isinstance(self.core.role, Follower) and not is_same:
                raise violated("stale answer", f"the log ended at {before_end}, {response} counts for {request}")

    def response(self, request: Any, peer: NodeId) -> Any:
        rng = self.rng
        epoch = self.an_epoch() if self.odd() else Epoch(max(self.core.epoch, self.epoch))
        leader = self.leaders.get(epoch)
        if leader is None and (self.odd() or isinstance(request, raft.FetchRequest)):
            leader = peer
        if leader == SELF and epoch > self.core.epoch:
            leader = peer
        if self.odd() and leader != SELF:
            leader = self.a_peer()
        named: dict[str, Any] = {"leader_epoch": epoch, "leader_id": leader}
        if leader is not None:
            named["leader_endpoints"] = endpoints(leader)
        if self.odd():
            code = rng.choice((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            named["error_code"] = int(code)
        is_fetch = isinstance(request, raft.FetchRequest | raft.FetchSnapshotRequest)
        if is_fetch and leader != peer:
            # Records and snapshots come from leaders alone.
            named["error_code"] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        match request:
            case raft.VoteRequest():
                return raft.VoteResponse(vote_granted=not named.get("error_code") and rng.random() < 0.6, **named)
            case raft.BeginQuorumEpochRequest():
                return raft.BeginQuorumEpochResponse(**named)
            case raft.EndQuorumEpochRequest():
                return raft.EndQuorumEpochResponse(**named)
            case raft.FetchRequest():
                return self.fetch_response(request, named)
            case raft.FetchSnapshotRequest():
                position = request.position if not self.odd() else rng.choice((0, 100, 200))
                chunk = min(100, _SNAPSHOT_BYTES - position)
                snapshot_id = request.snapshot_id
                return raft.FetchSnapshotResponse(
                    snapshot_id=snapshot_id,
                    size_bytes=_SNAPSHOT_BYTES,
                    position=position,
                    chunk_bytes=chunk,
                    payload=(snapshot_id, position),
                    **named,
                )
            case _:
                return None

    def fetch_response(self, request: raft.FetchRequest, named: dict[str, Any]) -> raft.FetchResponse:
        rng = self.rng
        offset = request.fetch_offset
        named |= {
            "high_watermark": Offset(
                rng.choice((-1, self.high_watermark, max(offset, self.high_watermark) + rng.choice((0, 2))))
            )
        }
        kind = rng.choice(("records", "records", "records", "nothing", "diverging", "snapshot"))
        if kind == "diverging" and self.batches:
            epoch, _ = rng.choice(self.leader_epochs)
            floor = 0 if self.odd() else self.high_watermark
            ends = [base for base in (batch.base_offset for batch in self.batches) if base >= floor]
            if ends:
                end = EpochEndOffset(Epoch(epoch), Offset(rng.choice(ends)))
                return raft.FetchResponse(diverging_epoch=end, **named)
        if kind == "snapshot" and rng.random() < 0.3:
            end = max(offset, self.high_watermark) + rng.randint(1, 5) if not self.odd() else rng.randint(0, offset)
            snapshot_id = SnapshotId(Offset(end), Epoch(max(self.last_epoch, int(named["leader_epoch"]) - 1, 0)))
            return raft.FetchResponse(snapshot_id=snapshot_id, **named)
        if kind != "records":
            return raft.FetchResponse(**named)
        batches = []
        epoch = int(named["leader_epoch"]) if rng.random() < 0.7 else self.last_epoch
        for _ in range(rng.randint(1, 3)):
            base = offset + (rng.choice((1, -1, 5)) if self.odd() else 0)
            epoch_of = max(0, epoch + (rng.choice((-1, -2, 1, 2)) if self.odd() else 0))
            last = base + rng.randrange(3)
            control: tuple[tuple[Offset, ControlRecord], ...] = ()
            if rng.random() < 0.15:
                ids = (*self.voter_ids[:2], rng.choice(self.voter_ids[2:]))
                control = ((Offset(max(base, 0)), VotersChange(voters=voter_set(*ids))),)
            if base >= 0:
                batches.append(
                    Batch(
                        base_offset=Offset(base),
                        last_offset=Offset(last),
                        epoch=Epoch(epoch_of),
                        control_records=control,
                    )
                )
                offset = Offset(last + 1)
        return raft.FetchResponse(batches=tuple(batches), **named)

    def play(self) -> Counter[str]:
        """Run the history.

        Returns:
            How often what happened.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        names, weights = list(self.weights), list(self.weights.values())
        for name in self.rng.choices(names, weights, k=STEPS):
            getattr(self, name)()
            self.counts[self.core.role.name] += 1
        return self.counts
