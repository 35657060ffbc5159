"""What must hold after every event, whatever the faults (conformance area 24)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from kraftlog.raft.effects import Effect, SendRequest, SendResponse
from kraftlog.raft.messages import FetchRequest, FetchSnapshotRequest, VoteRequest, VoteResponse
from kraftlog.raft.roles.follower import Follower
from kraftlog.raft.roles.leader import Leader
from kraftlog.types import Epoch, NodeId, ReplicaKey

if TYPE_CHECKING:
    from kraftlog.testing.node import SimulatedNode

__all__ = ["InvariantViolationError", "Invariants"]

_ELECTED_ROLES = frozenset({"prospective", "candidate", "leader"})


class InvariantViolationError(AssertionError):
    """A state that must never be was reached."""


class Invariants:
    """Checks one node after each of its events, against all that was ever seen.

    Attributes:
        committed: For each offset that any leader ever showed as committed, the epoch and the record.
        high_watermark: The greatest ever shown.
        leaders: Who led each epoch.
        history: The last events, for the message of a violation.
    """

    def __init__(self) -> None:
        self.committed: list[tuple[Epoch, object]] = []
        self.high_watermark = 0
        self.leaders: dict[Epoch, NodeId] = {}
        self.history: deque[str] = deque(maxlen=200)
        self._votes: dict[tuple[ReplicaKey, Epoch], ReplicaKey] = {}
        self._epochs: dict[ReplicaKey, Epoch] = {}
        self._durable_epochs: dict[ReplicaKey, Epoch] = {}

    def fail(self, identifier: str, node: SimulatedNode, reason: str) -> NoReturn:
        """Stop the run."""
        recent = "\n".join(self.history)
        msg = f"{identifier} node {node.node_id}: {reason}\nlast events:\n{recent}"
        raise InvariantViolationError(msg)

    def check(self, node: SimulatedNode) -> None:
        """Look at a node that has handled an event, all its effects carried out."""
        core = node.core
        role, epoch, key = core.role, core.epoch, node.key
        if epoch < self._epochs.get(key, 0):
            self.fail("INV-04", node, f"epoch fell from {self._epochs[key]} to {epoch}")
        self._epochs[key] = epoch
        if isinstance(role, Leader):
            first = self.leaders.setdefault(epoch, node.node_id)
            if first != node.node_id:
                self.fail("INV-01", node, f"leads epoch {epoch}, which {first} led")
        elif isinstance(role, Follower) and role.leader_id == node.node_id:
            self.fail("INV-29", node, "follows itself")
        if role.name in _ELECTED_ROLES and not core.is_voter and role.name != "leader":
            self.fail("INV-29", node, f"is {role.name} without being a voter")
        high_watermark = core.high_watermark
        if high_watermark is not None:
            if high_watermark > core.log.end_offset:
                self.fail("INV-05", node, f"high watermark {high_watermark} above log end {core.log.end_offset}")
            if not isinstance(role, Leader):
                if high_watermark < node.shown_high_watermark:
                    self.fail("INV-05", node, f"high watermark fell to {high_watermark}")
                node.shown_high_watermark = high_watermark

    def check_effects(self, node: SimulatedNode, effects: Iterable[Effect]) -> None:
        """Look at what a node wants done, before it is."""
        for effect in effects:
            if isinstance(effect, SendResponse):
                self._check_response(node, effect)
            elif isinstance(effect, SendRequest):
                self._check_request(node, effect)

    def _check_response(self, node: SimulatedNode, effect: SendResponse) -> None:
        response, asked = effect.response, node.asked(effect.source)
        if isinstance(response, VoteResponse) and response.vote_granted and isinstance(asked, VoteRequest):
            if asked.pre_vote:
                return
            vote = (node.key, response.leader_epoch)
            if self._votes.setdefault(vote, asked.replica_key) != asked.replica_key:
                self.fail("INV-02", node, f"voted for {self._votes[vote]} and {asked.replica_key} in {vote[1]}")
            state = effect.waits_for.election_state
            if state is None or state.epoch < response.leader_epoch or state.voted_key is None:
                self.fail("INV-03", node, f"grants a vote that need not be durable: {state}")

    def _check_request(self, node: SimulatedNode, effect: SendRequest) -> None:
        request = effect.request
        if isinstance(request, FetchRequest) and node.core.is_voter:
            needed = effect.waits_for.log_end_offset
            if request.fetch_offset > max(node.disk.flushed_end_offset, needed or 0):
                self.fail("INV-13", node, f"acknowledges {request.fetch_offset} without waiting for its flush")
        if isinstance(request, FetchRequest | FetchSnapshotRequest):
            fetches = node.fetches_under_way()
            if fetches > 1:
                self.fail("INV-30", node, f"{fetches} fetches under way")

    def check_sent(self, node: SimulatedNode, effect: SendRequest | SendResponse) -> None:
        """Look at a message that leaves now: what it relies on has to be on disk (INV-03, INV-13)."""
        state = effect.waits_for.election_state
        stored = node.disk.election_state
        if state is not None and state.epoch > 0 and (stored is None or stored.epoch < state.epoch):
            self.fail("INV-03", node, f"message relies on {state}, stored is {stored}")
        wanted = effect.waits_for.log_end_offset
        if wanted is not None and wanted > node.disk.flushed_end_offset and node.disk.log_end_offset >= wanted:
            self.fail("INV-13", node, f"message relies on offset {wanted}, durable is {node.disk.flushed_end_offset}")

    def on_high_watermark(self, node: SimulatedNode, high_watermark: int, nodes: Iterable[SimulatedNode]) -> None:
        """A node shows a high watermark: what is below is the same everywhere, and a majority has it durably."""
        core = node.core
        if isinstance(core.role, Leader) and high_watermark > self.high_watermark:
            voters = [one for one in nodes if core.voters.contains(one.key)]
            holders = sum(one.disk.flushed_end_offset >= high_watermark for one in voters)
            lost = node.simulation.lost_disks
            holders += sum(lost.get(voter.key, 0) >= high_watermark for voter in core.voters)
            if holders < core.voters.majority_size:
                self.fail("INV-06", node, f"{holders} voters hold offset {high_watermark} durably")
            last_epoch = core.log.last_epoch
            if last_epoch != core.epoch:
                self.fail("INV-11", node, f"commits with a log of epoch {last_epoch}")
        self.high_watermark = max(self.high_watermark, high_watermark)

    def on_applied(self, node: SimulatedNode, offset: int, epoch: Epoch, record: object) -> None:
        """A state machine was given a record (INV-07, INV-08, INV-12)."""
        known = self.committed
        if offset < len(known):
            if known[offset] != (epoch, record):
                self.fail("INV-08", node, f"offset {offset} is {(epoch, record)}, was committed as {known[offset]}")
        elif offset == len(known):
            known.append((epoch, record))
        else:
            self.fail("INV-08", node, f"offset {offset} was applied, {len(known)} is the next to be committed")

    def on_truncate(self, node: SimulatedNode, end_offset: int) -> None:
        """A log is cut."""
        if end_offset < node.shown_high_watermark:
            self.fail(
                "INV-10", node, f"truncates to {end_offset}, below its high watermark {node.shown_high_watermark}"
            )
