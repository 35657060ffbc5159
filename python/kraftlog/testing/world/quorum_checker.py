"""Invariants of a quorum's replicas: consensus core, election state, and what is durable (docs/behaviours, area 24)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kraftlog.raft.messages import FetchRequest, FetchSnapshotRequest
from kraftlog.raft.roles.candidate import Candidate
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.prospective import Prospective
from kraftlog.raft.roles.resigned import Resigned
from kraftlog.raft.roles.role import same_voter
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.acknowledgement_checker import AcknowledgementChecker, PendingAnswers
from kraftlog.testing.world.quorum_log_checker import QuorumLogChecker, QuorumLogLife
from kraftlog.types import NodeId, ReplicaKey, Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kraftlog.raft.voter_set import VoterSet
    from kraftlog.testing.world.node_machine import NodeMachine
    from kraftlog.testing.world.story import Story

__all__ = ["QuorumChecker", "QuorumLife"]

# Between two looks at whether a leader hears a majority.
_CONTACT_NS: Final = 500_000_000
# A leader counts in rounds of one and a half fetch time-outs, of which two may pass.
_CONTACT_TIMEOUTS: Final = 3


class QuorumLife:
    """What one process is looked at for, and what it showed last.

    Attributes:
        number: Of the process on its machine.
        answers: Of operations that wait for what was proposed here.
        core: The consensus core.
        driver: Runs it.
        told_count: How many events it had handled at the last look.
        log: What was read of the log and the checkpoints.
        epoch, high_watermark: As shown last; a high watermark that is not known is -1.
        highest_flushed: The greatest durable end of the log, before it was cut, perhaps.
        was_leader: Whether it led.
    """

    __slots__ = (
        "answers",
        "contact_look_ns",
        "core",
        "counting",
        "counting_since_ms",
        "driver",
        "epoch",
        "high_watermark",
        "highest_flushed",
        "is_overdue",
        "log",
        "number",
        "shown",
        "told_count",
        "was_leader",
    )

    def __init__(self, number: int, replicated_log: Any, name: str) -> None:
        self.number = number
        self.core = replicated_log.raft
        self.driver = replicated_log.driver
        self.log = QuorumLogLife(name, replicated_log.log)
        self.answers = PendingAnswers(replicated_log)
        # A role is another object in each epoch.
        self.shown: tuple[Any, ...] | None = None
        self.told_count = -1
        self.epoch = self.high_watermark = -1
        self.highest_flushed = 0
        self.was_leader = False
        self.contact_look_ns = 0
        # Since when this leadership counts on these voters.
        self.counting: tuple[Leader, VoterSet] | None = None
        self.counting_since_ms = 0
        self.is_overdue = False


class QuorumChecker:
    """Looks at the replica of a metadata log, or of a ``Quorum``, after each turn of its loop.

    Args:
        nodes: Of the cluster, by node id.
        story: Gets elections.

    Attributes:
        looked: How often each rule had something to look at.
        election_count: Epochs that had a leader.
    """

    def __init__(self, nodes: Mapping[int, NodeMachine], story: Story) -> None:
        self._nodes = nodes
        self._story = story
        self._lives: dict[int, QuorumLife] = {}
        self._leaders: dict[int, int] = {}
        # The greatest epoch, and the end of the log, that each disk was made to keep.
        self._epochs: dict[tuple[int, int], int] = {}
        self._durable: dict[tuple[int, int], int] = {}
        # The greatest high watermark that the last process on each disk showed.
        self._shown: dict[tuple[int, int], int] = {}
        self._votes: dict[tuple[int, int, int], Any] = {}
        # Who would have voted for a node, by the node and its epoch.
        self._pre_votes: dict[tuple[int, int], set[int]] = {}
        self._high_watermark = 0
        self.looked: Counter[str] = Counter()
        self._logs = QuorumLogChecker(self.looked)
        self._acknowledgements = AcknowledgementChecker(self.looked)
        self.election_count = 0

    def life(self, machine: NodeMachine) -> QuorumLife | None:
        """The process that runs; None before it has a consensus core."""
        life = self._lives.get(machine.node_id)
        return life if life is not None and life.number == machine.start_count else None

    def after_turn(self, machine: NodeMachine) -> None:
        """Check what changed on a node.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        life = self._lives.get(machine.node_id)
        if life is None or life.number != machine.start_count:
            replicated_log = machine.replicated_log
            if replicated_log is None or not hasattr(replicated_log, "raft"):
                return
            life = self._lives[machine.node_id] = QuorumLife(machine.start_count, replicated_log, machine.name)
            self._check_kept(machine, life)
            # The event that ended the process before may have told its callers; what it committed was not seen.
            machine.acknowledged = []
        try:
            # Where nothing was told, nothing can have changed; only the time has gone on.
            if life.driver.told_count != life.told_count or (
                life.was_leader and machine.world.now_ns >= life.contact_look_ns
            ):
                self._check_process(machine, life)
            if life.answers.proposals.pending or life.answers.waiting:
                self._acknowledgements.check(machine, life.answers, committed=self._high_watermark)
            if machine.acknowledged:
                self._acknowledgements.check_callers(machine, life.log.files, committed=self._high_watermark)
        except InvariantViolationError as error:
            raise InvariantViolationError(
                error.identifier, str(error).partition(" ")[2], self._story.last(40)
            ) from error

    def _check_process(self, machine: NodeMachine, life: QuorumLife) -> None:
        core, driver = life.core, life.driver
        if driver.told_count == life.told_count:
            # Nothing can have changed; only the time has gone on.
            if life.was_leader and machine.world.now_ns >= life.contact_look_ns:
                self._check_contact(machine, life, core.role)
            return
        life.told_count = driver.told_count
        role, log = core.role, core.log
        shown = (
            role,
            role.epoch,
            core.high_watermark,
            log.end_offset,
            log.last_epoch,
            driver.stored_state,
            driver.flushed_end_offset,
        )
        if shown != life.shown:
            before, life.shown = life.shown, shown
            self._check_resigned(machine, before, shown)
            self._check(machine, life)
        elif life.was_leader and machine.world.now_ns >= life.contact_look_ns:
            self._check_contact(machine, life, role)

    def note_pre_vote(self, voter_id: int, candidate_id: int, epoch: int) -> None:
        """A node has told another one, which is in this epoch, that it would vote for it."""
        self._pre_votes.setdefault((candidate_id, epoch), set()).add(voter_id)

    def check_voter_change(self, machine: NodeMachine, *, is_voter: bool) -> None:
        """An operator was told that a change of the voters is done: it is committed.

        If nobody leads in the highest epoch, nobody knows it yet.

        Raises:
            InvariantViolationError: It is not.
        """
        lives = [self.life(node) for node in self._nodes.values() if node.is_running]
        cores = [life.core for life in lives if life is not None]
        epoch = max((core.epoch for core in cores), default=0)
        core = next((core for core in cores if core.epoch == epoch and core.is_leader), None)
        if core is None or core.high_watermark is None:
            return
        self.looked["INV-24"] += 1
        key = ReplicaKey(NodeId(machine.node_id), machine.directory_id)
        if core.voters.contains(key) is not is_voter:
            self._fail(
                "INV-24", machine, f"is a voter or is none, as was asked: {is_voter}; voters are {core.voters.ids}"
            )
        if core.voters_offset is not None and core.voters_offset >= core.high_watermark:
            reason = f"a change of voters succeeded, its offset {core.voters_offset} is not below {core.high_watermark}"
            self._fail("INV-24", machine, reason)

    def _check_kept(self, machine: NodeMachine, life: QuorumLife) -> None:
        """A process begins with all that was durable on its disk."""
        if machine.has_bad_disk:
            return
        self.looked["INV-06"] += 1
        durable = self._durable.get((machine.node_id, machine.disk_number), 0)
        if machine.has_ended_within_event:
            # It may have truncated its log then, down to its high watermark.
            durable = min(durable, self._shown.get((machine.node_id, machine.disk_number), 0))
        if life.core.log.end_offset < durable:
            found = life.core.log.end_offset
            self._fail("INV-06", machine, f"begins with log end {found}, {durable} had been durable")

    def _check(self, machine: NodeMachine, life: QuorumLife) -> None:
        core, driver = life.core, life.driver
        role, stored = core.role, driver.stored_state
        place = (machine.node_id, machine.disk_number)
        self._check_epoch(machine, life, role, stored)
        self._durable[place] = driver.flushed_end_offset
        life.highest_flushed = max(life.highest_flushed, driver.flushed_end_offset)
        if isinstance(role, Candidate | Leader) and role.epoch == life.epoch + 1 > 0:
            self._check_standing(machine, core.voters, life.epoch)
        if isinstance(role, Prospective | Candidate) and not core.is_voter and role.epoch != life.epoch:
            self._fail("INV-29", machine, f"is {role.name} without being a voter")
        is_leader = core.is_leader
        if is_leader:
            self._check_leader(machine, life, role)
        elif life.was_leader:
            self._story.tell(machine.name, f"is not the active controller any more, epoch {role.epoch}")
        high_watermark = -1 if core.high_watermark is None else core.high_watermark
        if high_watermark > core.log_end_offset:
            self._fail("INV-05", machine, f"high watermark {high_watermark}, log end {core.log_end_offset}")
        if high_watermark >= 0 and high_watermark < life.high_watermark:
            self._fail("INV-05", machine, f"the high watermark fell from {life.high_watermark} to {high_watermark}")
        if high_watermark > self._high_watermark:
            if not (is_leader or life.was_leader):
                self._fail("INV-05", machine, f"high watermark {high_watermark}, which no leader has shown")
            self._high_watermark = high_watermark
            self._check_held(machine, core.voters, high_watermark)
        if core.unanswered_count > 1:
            self._check_under_way(machine, core)
        # A new leader does not know it until a majority has fetched.
        life.high_watermark = self._shown[place] = max(life.high_watermark, high_watermark)
        # Effects on the log wait until the epoch is on disk.
        self._logs.check(
            machine,
            life.log,
            core,
            is_settled=stored.epoch == role.epoch,
            shown_high_watermark=life.high_watermark,
            committed=self._high_watermark,
        )
        life.epoch, life.was_leader = role.epoch, is_leader

    def _check_epoch(self, machine: NodeMachine, life: QuorumLife, role: Any, stored: Any) -> None:
        place = (machine.node_id, machine.disk_number)
        self.looked["INV-04"] += 1
        highest = max(self._epochs.get(place, 0), life.epoch)
        if role.epoch < highest:
            self._fail("INV-04", machine, f"the epoch fell from {highest} to {role.epoch}")
        # An epoch that is not stored yet may be forgotten by the next process: nothing was promised with it.
        self._epochs[place] = max(self._epochs.get(place, 0), stored.epoch)
        if stored.voted_key is not None:
            self.looked["INV-02"] += 1
            vote = self._votes.setdefault((*place, stored.epoch), stored.voted_key)
            if not (same_voter(vote, stored.voted_key) or same_voter(stored.voted_key, vote)):
                self._fail(
                    "INV-02", machine, f"votes for {stored.voted_key} in epoch {stored.epoch}, before for {vote}"
                )

    def _check_resigned(self, machine: NodeMachine, before: tuple[Any, ...] | None, shown: tuple[Any, ...]) -> None:
        """A leader that has resigned appends nothing in its epoch."""
        if before is None or not isinstance(before[0], Resigned) or shown[1] != before[1]:
            return
        self.looked["INV-18"] += 1
        if shown[3] > before[3]:
            reason = f"has resigned in epoch {shown[1]}, and its log grows from {before[3]} to {shown[3]}"
            self._fail("INV-18", machine, reason)

    def _check_standing(self, machine: NodeMachine, voters: VoterSet, epoch: int) -> None:
        """A node raises the epoch: a majority has told it that they would vote for it (KIP-996)."""
        self.looked["INV-26"] += 1
        granted = self._pre_votes.get((machine.node_id, epoch), set()) | {machine.node_id}
        if sum(voter in granted for voter in voters.ids) < voters.majority_size:
            reason = f"raised epoch {epoch} with pre-votes of {sorted(granted)} among {voters.ids}"
            self._fail("INV-26", machine, reason)

    def _check_leader(self, machine: NodeMachine, life: QuorumLife, role: Leader) -> None:
        core, epoch = life.core, role.epoch
        self.looked["INV-01"] += 1
        leader = self._leaders.setdefault(epoch, machine.node_id)
        if leader != machine.node_id:
            self._fail("INV-01", machine, f"leads in epoch {epoch}, in which node {leader} led")
        if not life.was_leader or life.epoch != epoch:
            self.election_count += 1
            self._story.tell(machine.name, f"is the active controller in epoch {epoch}")
            self.looked["INV-07"] += 1
            if core.log_end_offset < self._high_watermark:
                reason = f"leads with log end {core.log_end_offset}, {self._high_watermark} was committed"
                self._fail("INV-07", machine, reason)
            self._acknowledgements.check_leader(machine, life.log.files)
        if not core.is_voter and not core.is_own_voter_change_uncommitted:
            self._fail("INV-29", machine, "leads and is no voter")
        high_watermark = role.high_watermark
        if high_watermark is None:
            return
        self.looked["INV-11"] += 1
        if high_watermark <= role.epoch_start_offset:
            reason = f"shows high watermark {high_watermark}, its epoch begins at {role.epoch_start_offset}"
            self._fail("INV-11", machine, reason)
        if not role.is_voter:
            self.looked["INV-23"] += 1
            offset = core.voters_offset
            if offset is not None and offset < high_watermark:
                reason = f"still leads, its removal at {offset} is below the high watermark {high_watermark}"
                self._fail("INV-23", machine, reason)

    def _check_held(self, machine: NodeMachine, voters: VoterSet, high_watermark: int) -> None:
        """A majority of the voters holds, durably, everything below a new high watermark."""
        self.looked["INV-06"] += 1
        holders = []
        for voter in voters:
            other = self._nodes.get(voter.key.node_id)
            if other is None or voter.key.directory_id not in (Uuid.ZERO, other.directory_id):
                continue
            if self._durable.get((other.node_id, other.disk_number), 0) >= high_watermark:
                holders.append(other.node_id)
        if len(holders) < voters.majority_size:
            reason = f"commits up to {high_watermark}, which {holders} of voters {voters.ids} hold durably"
            self._fail("INV-06", machine, reason)

    def _check_under_way(self, machine: NodeMachine, core: Any) -> None:
        self.looked["INV-30"] += 1
        under_way = core.requests_under_way(machine.clock_ms())
        count = sum(isinstance(request, FetchRequest | FetchSnapshotRequest) for request in under_way)
        if count > 1:
            self._fail("INV-30", machine, f"{count} fetches under way")

    def _check_contact(self, machine: NodeMachine, life: QuorumLife, role: Any) -> None:
        """A leader that hears no majority resigns, by its own clock."""
        life.contact_look_ns = machine.world.now_ns + _CONTACT_NS
        if not isinstance(role, Leader):
            return
        now_ms = machine.clock_ms()
        if life.counting is None or life.counting[0] is not role or life.counting[1] is not role.voters:
            life.counting, life.counting_since_ms, life.is_overdue = (role, role.voters), now_ms, False
        needed = role.voters.majority_size - role.is_voter
        if needed <= 0:
            return
        self.looked["INV-28"] += 1
        heard_ms = sorted(
            (
                progress.last_fetch_ms or 0
                for progress in role.progress(now_ms)
                if progress.key.node_id != machine.node_id
            ),
            reverse=True,
        )
        last_ms = max(life.counting_since_ms, heard_ms[needed - 1] if needed <= len(heard_ms) else 0)
        silent_ms = now_ms - last_ms
        if silent_ms <= _CONTACT_TIMEOUTS * life.core.config.fetch_timeout_ms:
            life.is_overdue = False
        elif life.is_overdue:
            self._fail("INV-28", machine, f"leads without a majority for {silent_ms} ms")
        else:
            # It was paused, perhaps: its timers are looked at next.
            life.is_overdue = True

    def _fail(self, identifier: str, machine: NodeMachine, reason: str) -> None:
        raise InvariantViolationError(identifier, f"{machine.name}: {reason}", self._story.last(40))
