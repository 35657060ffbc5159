"""What must hold after every event, whatever the faults (conformance area 24)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kraftlog.raft.effects import (
    AppendControlRecords,
    AppendRecords,
    Effect,
    HighWatermarkAdvanced,
    LeadershipConfirmed,
    PersistElectionState,
    SendRequest,
    SendResponse,
)
from kraftlog.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.role import Role
from kraftlog.raft.voter_set import VoterSet
from kraftlog.testing.log_invariants import InvariantViolationError, LogInvariants
from kraftlog.testing.node import SimulatedNode
from kraftlog.types import Epoch, NodeId, ReplicaKey

__all__ = ["RULES", "InvariantViolationError", "Invariants"]

RULES = {
    "INV-01": "one leader an epoch, over the whole run",
    "INV-02": "one vote an epoch and disk, across restarts",
    "INV-03": "a vote, an epoch or a leadership is on disk before a message shows it",
    "INV-04": "the epoch of a replica never falls",
    "INV-05": "high watermarks never fall and stay within the log",
    "INV-06": "a majority of the voters holds durably what is committed",
    "INV-07": "a new leader has all that was ever committed",
    "INV-08": "all state machines are given the same records",
    "INV-09": "same offset and epoch, same batch and same past",
    "INV-10": "no truncation below the high watermark or the newest snapshot",
    "INV-11": "a leader commits by a record of its own epoch",
    "INV-12": "what a leader called committed is there for ever, once, at the offset it named",
    "INV-13": "only what is on disk counts",
    "INV-14": "offsets without gaps, epochs that never fall, known as a scan finds them",
    "INV-15": "the log starts at the end of a snapshot that exists",
    "INV-16": "same snapshot id, same state; ids end with a batch and are committed",
    "INV-17": "a leader loads no snapshot",
    "INV-18": "a resigned replica appends nothing and grants no vote in its epoch",
    "INV-19": "the voters in force are those of the last record in the log",
    "INV-20": "neighbouring voter sets differ by one voter",
    "INV-21": "one uncommitted change of the voters, and none before the epoch has committed",
    "INV-22": "no id twice in a voter set; only voters by id and directory stand for election",
    "INV-23": "a removed leader leads until the removal is committed and no longer",
    "INV-24": "a change that was answered with success is committed",
    "INV-25": "a pre-vote changes no epoch and no vote",
    "INV-26": "an epoch is raised only with a majority in reach",
    "INV-27": "without faults leadership lasts",
    "INV-28": "a leader without a majority resigns",
    "INV-29": "nobody follows itself, observers never stand for election",
    "INV-30": "one Fetch or FetchSnapshot under way",
    "INV-31": "one answer to each request",
    "INV-32": "no busy loop",
    "INV-33": "nothing is left over at the end",
    "INV-34": "after the faults a leader is elected and commits",
    "INV-35": "a change of the voters ends",
    "INV-36": "in the end all replicas have the same log",
    "READ": "a leadership that is confirmed for a read was not over when the read was asked for",
}
"""The rules that a run looks after, by their ids in docs/behaviours."""

_MOST_IDLE_POLLS = 20
_CONTACT_GRACE_MS = 100


class _Contact:
    """Who of its voters a leader heard when, on its own clock."""

    __slots__ = ("check_ms", "heard", "is_overdue", "since_ms", "voters")

    def __init__(self, voters: VoterSet, now_ms: int) -> None:
        self.voters = voters
        self.since_ms = now_ms
        self.heard: dict[NodeId, int] = {}
        self.check_ms = now_ms
        self.is_overdue = False


class Invariants(LogInvariants):
    """Checks one node after each of its events, against all that was ever seen.

    Attributes:
        leaders: Who led each epoch.
    """

    def __init__(self, nodes: Mapping[int, SimulatedNode]) -> None:
        super().__init__(nodes)
        self.leaders: dict[Epoch, NodeId] = {}
        self._led_from: dict[Epoch, int] = {}
        self._votes: dict[tuple[int, Epoch], ReplicaKey] = {}
        self._epochs: dict[int, Epoch] = {}
        self._roles: dict[int, Role] = {}
        self._contacts: dict[int, _Contact] = {}
        self._pre_votes: dict[tuple[ReplicaKey, Epoch], set[NodeId]] = {}
        self._without_pre_vote: set[tuple[ReplicaKey, Epoch]] = set()
        self._handled: Request | None = None
        self._rounds: dict[tuple[int, Epoch, int], Epoch] = {}

    # After each event

    def check(self, node: SimulatedNode) -> None:
        """Look at a node that has handled an event, all its effects carried out."""
        self._handled = None
        core, disk = node.core, node.disk
        role, log = core.role, core.log
        known = self._roles.get(disk.serial)
        if known is not role:
            self._check_role(node, known, role)
        high_watermark = core.high_watermark
        if high_watermark is not None and high_watermark != node.shown_high_watermark:
            if high_watermark < node.shown_high_watermark:
                self.fail("INV-05", node, f"high watermark fell from {node.shown_high_watermark} to {high_watermark}")
            node.shown_high_watermark = high_watermark
        if node.shown_high_watermark > log.end_offset:
            self.fail("INV-05", node, f"high watermark {high_watermark} above log end {log.end_offset}")
        voters = core.voters
        if (
            voters is not node.checked_voters
            or log.end_offset != disk.log_end_offset
            or log.start_offset != disk.log_start_offset
            or (self._logs_due and node.node_id in self._logs_due)
        ):
            self.check_log(node)
            node.checked_voters = voters
        if type(role) is Leader:
            self._check_leader(node, role)

    def _check_role(self, node: SimulatedNode, known: Role | None, role: Role) -> None:
        """A node has another role, or the same one in another epoch."""
        serial, epoch, core = node.disk.serial, role.epoch, node.core
        self._roles[serial] = role
        highest = self._epochs.get(serial, 0)
        if epoch < highest:
            self.fail("INV-04", node, f"epoch fell from {highest} to {epoch}")
        self._epochs[serial] = epoch
        if isinstance(role, Leader):
            first = self.leaders.setdefault(epoch, node.node_id)
            self._led_from.setdefault(epoch, serial)
            if first != node.node_id:
                self.fail("INV-01", node, f"leads epoch {epoch}, which {first} led")
            self.check_leader_completeness(node)
            self._contacts[node.node_id] = _Contact(role.voters, node.now_ms())
        elif role.leader_id == node.node_id and not isinstance(role, Resigned):
            self.fail("INV-29", node, "follows itself")
        if isinstance(role, Prospective | Candidate) and not core.voters.contains(node.key):
            self.fail("INV-29", node, f"is {role.name} without being a voter (INV-22)")
        if isinstance(role, Candidate | Leader) and known is not None and known.epoch == epoch - 1:
            self._check_standing(node, Epoch(epoch - 1))

    def _check_standing(self, node: SimulatedNode, epoch: Epoch) -> None:
        """A node has raised the epoch: a majority would vote for it, or somebody cannot be asked that."""
        self.looked["INV-26"] += 1
        question = (node.key, epoch)
        if question in self._without_pre_vote:
            return
        granted = self._pre_votes.get(question, set()) | {node.node_id}
        voters = node.core.voters
        if sum(identifier in granted for identifier in voters.ids) < voters.majority_size:
            self.fail("INV-26", node, f"raised epoch {epoch} with pre-votes of {sorted(granted)} among {voters.ids}")

    def _check_leader(self, node: SimulatedNode, role: Leader) -> None:
        high_watermark = role.high_watermark
        if high_watermark is not None:
            if high_watermark <= role.epoch_start_offset:
                self.fail("INV-11", node, f"shows {high_watermark}, its epoch begins at {role.epoch_start_offset}")
            if not role.is_voter:
                self.looked["INV-23"] += 1
                offset = node.core.voters_offset
                if offset is not None and offset < high_watermark:
                    self.fail("INV-23", node, f"still leads, its removal at {offset} is below {high_watermark}")
        contact = self._contacts[node.node_id]
        now_ms = node.now_ms()
        if now_ms >= contact.check_ms or contact.voters is not role.voters:
            self._check_contact(node, role, contact, now_ms)

    def _check_contact(self, node: SimulatedNode, role: Leader, contact: _Contact, now_ms: int) -> None:
        """A leader that hears no majority resigns; it counts in rounds, so that two of them may pass."""
        needed = role.voters.majority_size - (1 if role.is_voter else 0)
        bound_ms = 3 * node.config.fetch_timeout_ms
        if contact.voters is not role.voters or needed <= 0:
            contact.voters, contact.since_ms = role.voters, now_ms
        self.looked["INV-28"] += 1
        heard = sorted(
            (contact.heard.get(identifier, 0) for identifier in role.voters.ids if identifier != node.node_id),
            reverse=True,
        )
        last_ms = max(contact.since_ms, heard[needed - 1] if 0 < needed <= len(heard) else 0)
        if now_ms <= last_ms + bound_ms:
            contact.is_overdue = False
            contact.check_ms = last_ms + bound_ms + 1
        elif contact.is_overdue:
            self.fail("INV-28", node, f"leads without a majority for {now_ms - last_ms} ms")
        else:
            # A clock that jumped: it is noticed when the core looks at its timers next.
            contact.is_overdue = True
            contact.check_ms = now_ms + _CONTACT_GRACE_MS

    def on_idle_poll(self, node: SimulatedNode) -> None:
        """A timer ran out and nothing was wanted: not again and again at the same time (INV-32)."""
        now_ms = node.now_ms()
        node.idle_polls = node.idle_polls + 1 if now_ms == node.last_poll_ms else 0
        node.last_poll_ms = now_ms
        if node.idle_polls > _MOST_IDLE_POLLS:
            self.fail("INV-32", node, f"polled {node.idle_polls} times at {now_ms} ms for nothing")

    # What a node wants done, before it is

    def check_effects(self, node: SimulatedNode, before: Role, effects: Iterable[Effect]) -> None:
        """Look at what a node wants done, ``before`` being its role when the event came."""
        for effect in effects:
            kind = type(effect)
            if kind is SendResponse:
                self._check_response(node, effect)  # type: ignore[arg-type]
            elif kind is SendRequest:
                self._check_request(node, effect)  # type: ignore[arg-type]
            elif kind is AppendRecords or kind is AppendControlRecords:
                if isinstance(before, Resigned):
                    self.looked["INV-18"] += 1
                    if before.epoch == effect.epoch:  # type: ignore[union-attr]
                        self.fail("INV-18", node, f"appends in epoch {before.epoch}, from which it has resigned")
                if kind is AppendControlRecords:
                    self.check_control_append(node, effect)  # type: ignore[arg-type]
            elif kind is HighWatermarkAdvanced:
                self.on_high_watermark(node, before, effect.high_watermark)  # type: ignore[union-attr]
            elif kind is PersistElectionState and self._handled is not None:
                self._check_persist(node, before, effect)  # type: ignore[arg-type]

    def _check_persist(self, node: SimulatedNode, before: Role, effect: PersistElectionState) -> None:
        """A request for a pre-vote of the replica's own epoch or an older one leaves no trace."""
        request = self._handled
        if not isinstance(request, VoteRequest) or not request.pre_vote or request.replica_epoch > before.epoch:
            return
        self.looked["INV-25"] += 1
        stored = node.disk.election_state
        if stored is None or isinstance(before, Resigned) or len(node.core.voters) == 1:
            return
        if (effect.state.epoch, effect.state.voted_key) != (stored.epoch, stored.voted_key):
            self.fail("INV-25", node, f"a pre-vote changed {stored} into {effect.state}")

    def _check_response(self, node: SimulatedNode, effect: SendResponse) -> None:
        response = effect.response
        if type(response) is not VoteResponse or not response.vote_granted:
            return
        asked = node.asked.get(effect.source[-1])  # type: ignore[index]
        if not isinstance(asked, VoteRequest):
            return
        if asked.pre_vote:
            self._pre_votes.setdefault((asked.replica_key, asked.replica_epoch), set()).add(node.node_id)
            return
        if self._led_from.get(response.leader_epoch) == node.disk.serial:
            self.fail("INV-18", node, f"grants a vote in epoch {response.leader_epoch}, which it led")
        state = effect.waits_for.election_state
        if state is None or state.epoch < response.leader_epoch or state.voted_key is None:
            self.fail("INV-03", node, f"grants a vote that need not be durable: {state}")

    def _check_request(self, node: SimulatedNode, effect: SendRequest) -> None:
        request = effect.request
        kind = type(request)
        core = node.core
        if kind is FetchRequest:
            if request.fetch_offset > node.disk.flushed_end_offset and core.is_voter:  # type: ignore[union-attr]
                needed = effect.waits_for.log_end_offset or 0
                if request.fetch_offset > needed:  # type: ignore[union-attr]
                    self.fail("INV-13", node, f"acknowledges {request} without waiting for its flush")
        elif kind is VoteRequest:
            needed = effect.waits_for.log_end_offset or 0
            if request.last_epoch_end_offset > max(node.disk.flushed_end_offset, needed):  # type: ignore[union-attr]
                self.fail("INV-13", node, f"asks for a vote with records that are not durable: {request}")
            return
        elif kind is not FetchSnapshotRequest:
            return
        if core.unanswered_count == 1:
            return
        under_way = core.requests_under_way(node.now_ms())
        count = sum(type(request) is FetchRequest or type(request) is FetchSnapshotRequest for request in under_way)
        if count > 1:
            self.fail("INV-30", node, f"{count} fetches under way")

    def check_sent(self, node: SimulatedNode, effect: SendRequest | SendResponse) -> None:
        """Look at a message that leaves now: what it shows and relies on has to be on disk (INV-03, INV-13)."""
        disk = node.disk
        stored = disk.election_state
        durable_epoch = 0 if stored is None else stored.epoch
        if isinstance(effect, SendRequest):
            request = effect.request
            if type(request) is FetchRequest:
                shown = request.current_leader_epoch
            elif type(request) is VoteRequest:
                shown = request.replica_epoch
                if not request.pre_vote and (stored is None or (stored.epoch == shown and stored.voted_key is None)):
                    self.fail("INV-03", node, f"asks for votes without its own on disk: {stored}")
            elif type(request) is BeginQuorumEpochRequest:
                shown = request.leader_epoch
                if stored is not None and stored.epoch == shown and stored.leader_id != node.node_id:
                    self.fail("INV-03", node, f"tells that it leads, on disk is {stored}")
            else:
                shown = Epoch(0)
        else:
            shown = self._check_answer(node, effect)
        if shown > durable_epoch:
            self.fail("INV-03", node, f"shows epoch {shown}, on disk is {stored}")
        wanted = effect.waits_for.log_end_offset
        if wanted is not None and wanted > disk.flushed_end_offset and disk.log_end_offset >= wanted:
            self.fail("INV-13", node, f"message relies on offset {wanted}, durable is {disk.flushed_end_offset}")

    def _check_answer(self, node: SimulatedNode, effect: SendResponse) -> Epoch:
        """Note the vote in an answer that leaves, if any; return the epoch that it shows."""
        response = effect.response
        if type(response) is VoteResponse and response.vote_granted:
            self._note_vote(node, effect)
        return getattr(response, "leader_epoch", Epoch(0))

    def _note_vote(self, node: SimulatedNode, effect: SendResponse) -> None:
        """A granted vote leaves: the only one of this disk in its epoch."""
        asked = node.asked.get(effect.source[-1])  # type: ignore[index]
        if not isinstance(asked, VoteRequest) or asked.pre_vote:
            return
        self.looked["INV-02"] += 1
        vote = (node.disk.serial, asked.replica_epoch)
        if self._votes.setdefault(vote, asked.replica_key) != asked.replica_key:
            self.fail("INV-02", node, f"voted for {self._votes[vote]} and {asked.replica_key} in {vote[1]}")

    # Requests and answers

    def on_request(self, node: SimulatedNode, request: Request) -> None:
        """A node is about to handle a request."""
        self._handled = request
        if isinstance(request, (FetchRequest, FetchSnapshotRequest)):
            sender = request.replica_key
        elif isinstance(request, UpdateVoterRequest):
            sender = request.voter_key
        else:
            return
        contact = self._contacts.get(node.node_id)
        if contact is not None and sender is not None and request.current_leader_epoch == node.core.epoch:
            contact.heard[sender.node_id] = node.now_ms()

    def on_stopped(self) -> None:
        """A node stopped, perhaps in the middle of an event."""
        self._handled = None

    def on_pre_vote_unsupported(self, node: SimulatedNode, request: VoteRequest) -> None:
        """A peer is too old to be asked for a pre-vote, and the asker is told so."""
        self._without_pre_vote.add((node.key, request.replica_epoch))

    def on_answer(self, node: SimulatedNode, serial: int, response: Response) -> Request:
        """A node answers a request: one that was asked and is not answered yet (INV-31)."""
        request = node.asked.pop(serial, None)
        if request is None:
            self.fail("INV-31", node, f"answers request {serial} again: {response}")
        return request

    def on_voter_change_answered(self, node: SimulatedNode, request: Request, error_code: int) -> None:
        """An administrator's AddRaftVoter or RemoveRaftVoter was answered (INV-24)."""
        if error_code or not isinstance(request, AddVoterRequest | RemoveVoterRequest):
            return
        self.looked["INV-24"] += 1
        core = node.core
        is_in = core.voters.contains(request.voter_key)
        if is_in is not isinstance(request, AddVoterRequest):
            self.fail("INV-24", node, f"{request} succeeded, voters are {core.voters.ids}")
        offset, high_watermark = core.voters_offset, core.high_watermark
        waits = isinstance(request, RemoveVoterRequest) or request.ack_when_committed
        if waits and (offset is None or high_watermark is None or offset >= high_watermark):
            self.fail("INV-24", node, f"{request} succeeded, its offset {offset} is not below {high_watermark}")

    # Reads

    def on_confirmation_wanted(self, node: SimulatedNode, number: int) -> None:
        """A leader asks whether it still leads: remember who had been elected by then."""
        self._rounds[node.node_id, node.core.epoch, number] = max(self.leaders, default=Epoch(0))

    def on_confirmed(self, node: SimulatedNode, effect: LeadershipConfirmed) -> None:
        """A leader is told that nobody of a later epoch had been elected when it asked."""
        self.looked["READ"] += 1
        epoch = node.core.epoch
        elected = self._rounds.get((node.node_id, epoch, effect.round), epoch)
        if elected > epoch:
            self.fail("READ", node, f"is told that it led, {elected} was elected before it asked in epoch {epoch}")

    # At the end

    def check_leftovers(self, nodes: Sequence[SimulatedNode]) -> None:
        """Nothing waits that nobody will ever look at again (INV-33, INV-31)."""
        self.looked["INV-33"] += 1
        peers = len(nodes)
        for node in nodes:
            if not node.is_up:
                continue
            role = node.core.role
            waiting = len(role.deferred) + (role.voter_change is not None) if isinstance(role, Leader) else 0
            if len(node.asked) > waiting + node.held_count:
                self.fail("INV-31", node, f"{len(node.asked)} requests without answer, {waiting} wait: {node.asked}")
            if waiting > 2 * peers + 1 or node.held_count > 2 * peers:
                self.fail("INV-33", node, f"{waiting} requests and {node.held_count} messages wait among {peers}")
            under_way = len(node.core.requests_under_way(node.now_ms()))
            if under_way > peers:
                self.fail("INV-33", node, f"{under_way} requests under way among {peers}")
