"""What must always hold of logs, snapshots and what is committed (conformance area 24)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import NoReturn

from kraftlog.raft.control_records import LeaderChange, VotersChange
from kraftlog.raft.effects import AppendControlRecords
from kraftlog.raft.messages import FetchedBatch
from kraftlog.raft.roles.leader import Leader
from kraftlog.raft.roles.role import Role
from kraftlog.raft.voter_set import VoterSet
from kraftlog.testing.disk import SimulatedDisk, StoredSnapshot
from kraftlog.testing.node import SimulatedNode
from kraftlog.types import Epoch, Offset, ReplicaKey, SnapshotId, Uuid

__all__ = ["InvariantViolationError", "LogInvariants", "voter_sets_overlap"]


class InvariantViolationError(AssertionError):
    """A state that must never be was reached.

    Attributes:
        identifier: Which rule was broken, by its id in docs/behaviours, as ``INV-07``.
        recent: The last events before.
    """

    def __init__(self, identifier: str, reason: str, recent: Sequence[str] = ()) -> None:
        super().__init__(f"{identifier} {reason}")
        self.identifier = identifier
        self.recent = tuple(recent)


class LogInvariants:
    """Follows every log of a run and all that was ever committed.

    Attributes:
        committed: Committed batches by base offset.
        committed_end_offset: Exclusive end of them.
        high_watermark: The greatest that was ever shown.
        commit_voters: The voters that were counted for it.
        looked: How often each rule had something to look at.
        history: The last events, for the message of a violation.
    """

    def __init__(self, nodes: Mapping[int, SimulatedNode]) -> None:
        """Nothing has happened yet; ``nodes`` are the replicas by id, as they come and go."""
        self._nodes = nodes
        self.committed: dict[int, FetchedBatch] = {}
        self.committed_end_offset = 0
        self.high_watermark = 0
        self.commit_voters = VoterSet()
        self._commits: list[tuple[Epoch, int]] = []
        self.looked: Counter[str] = Counter()
        self.history: deque[str] = deque(maxlen=200)
        self._committed_ends: dict[int, FetchedBatch] = {}
        self._value_offsets: dict[object, int] = {}
        self._proposed: dict[Epoch, deque[tuple[int, Sequence[object]]]] = {}
        self._lost: dict[ReplicaKey, int] = {}
        self._written: dict[tuple[int, Epoch], tuple[FetchedBatch, Epoch]] = {}
        self._snapshots: dict[SnapshotId, StoredSnapshot] = {}
        self._logs_due: set[int] = set()

    def fail(self, identifier: str, node: SimulatedNode | None, reason: str) -> NoReturn:
        """Stop the run.

        Raises:
            InvariantViolationError: Always.
        """
        who = "cluster" if node is None else f"node {node.node_id}"
        raise InvariantViolationError(identifier, f"{who}: {reason}", tuple(self.history))

    # Logs

    def on_append(self, node: SimulatedNode, batch: FetchedBatch) -> None:
        """A batch is appended to a log, on the leader or on a replica that fetched it."""
        disk = node.disk
        last_epoch = disk.last_epoch
        if batch.epoch < last_epoch:
            self.fail("INV-14", node, f"batch of epoch {batch.epoch} behind one of epoch {last_epoch}")
        known = self._written.setdefault((batch.base_offset, batch.epoch), (batch, last_epoch))
        if known[0] is not batch and known != (batch, last_epoch):
            self.fail("INV-09", node, f"{batch} behind epoch {last_epoch}, elsewhere it is {known}")
        self._logs_due.add(node.node_id)
        if batch.control_records:
            self._check_voters_record(node, batch)

    def _check_voters_record(self, node: SimulatedNode, batch: FetchedBatch) -> None:
        before = node.disk.voters_in_force(node.static_voters)
        for _, record in batch.control_records:
            if isinstance(record, VotersChange):
                self.looked["INV-20"] += 1
                if not voter_sets_overlap(before, record.voters):
                    self.fail("INV-20", node, f"voters {before.ids} are followed by {record.voters.ids}")
                ids = [voter.key.node_id for voter in record.voters]
                if len(ids) != len(set(ids)):
                    self.fail("INV-22", node, f"one id twice in {ids}")
                before = record.voters

    def check_control_append(self, node: SimulatedNode, effect: AppendControlRecords) -> None:
        """A leader is about to append control records: at most one uncommitted change of voters, and none early."""
        if not any(isinstance(record, VotersChange) for record in effect.records):
            return
        if any(isinstance(record, LeaderChange) for record in effect.records):
            return
        self.looked["INV-21"] += 1
        role = node.core.role
        committed = role.high_watermark if isinstance(role, Leader) else None
        if committed is None:
            self.fail("INV-21", node, f"changes the voters in epoch {effect.epoch} before it has committed in it")
        last = next((offset for offset, record in reversed(node.disk.control) if isinstance(record, VotersChange)), -1)
        if last >= committed:
            self.fail("INV-21", node, f"changes the voters, those of offset {last} not being committed")

    def on_truncate(self, node: SimulatedNode, end_offset: int) -> None:
        """A log is about to be cut."""
        self.looked["INV-10"] += 1
        shown = node.shown_high_watermark
        if end_offset < shown:
            self.fail("INV-10", node, f"truncates to {end_offset}, below its high watermark {shown}")
        latest = node.disk.latest_snapshot
        if latest is not None and end_offset < latest.snapshot_id.end_offset:
            self.fail("INV-10", node, f"truncates to {end_offset}, below its snapshot {latest.snapshot_id}")

    def on_truncated(self, node: SimulatedNode) -> None:
        """A log was cut: its epochs are those of a scan, and a majority still holds what is committed."""
        self._logs_due.add(node.node_id)
        self._check_epochs(node)
        if node.disk.log_end_offset < self.high_watermark:
            self._check_held(node)

    def _check_epochs(self, node: SimulatedNode) -> None:
        self.looked["INV-14"] += 1
        end_offset, epoch = node.disk.log_start_offset, Epoch(0)
        for batch in node.disk.batches:
            if batch.base_offset != end_offset or batch.epoch < epoch:
                self.fail("INV-14", node, f"batch {batch.base_offset} of epoch {batch.epoch} behind {end_offset}")
            end_offset, epoch = batch.last_offset + 1, batch.epoch
        if epoch > 0 and node.core.log.last_epoch < epoch:
            self.fail("INV-14", node, f"the log ends in epoch {epoch}, known is {node.core.log.last_epoch}")

    def on_recovered(self, node: SimulatedNode, durable_end_offset: int) -> None:
        """A log was opened after a stop: nothing durable is missing, and nothing in it is torn."""
        disk = node.disk
        self.looked["DISK-30"] += 1
        if disk.log_end_offset < durable_end_offset:
            self.fail("DISK-30", node, f"opened to {disk.log_end_offset}, {durable_end_offset} had been durable")
        for batch in disk.batches:
            if not SimulatedDisk.is_whole(batch):
                self.fail("INV-09", node, f"the torn batch at {batch.base_offset} is taken for whole")

    def on_started(self, node: SimulatedNode) -> None:
        """A core was made of what a disk holds."""
        self._logs_due.add(node.node_id)
        self._check_epochs(node)
        self.on_log_start(node)

    def on_log_start(self, node: SimulatedNode) -> None:
        """The start of a log moved, or was found: it is the end of a snapshot that exists."""
        self._logs_due.add(node.node_id)
        self.looked["INV-15"] += 1
        disk = node.disk
        if disk.log_start_offset and all(
            snapshot_id.end_offset != disk.log_start_offset for snapshot_id in disk.stored
        ):
            self.fail("INV-15", node, f"the log starts at {disk.log_start_offset}, snapshots are {list(disk.stored)}")
        latest = disk.latest_snapshot
        if latest is not None and latest.snapshot_id.end_offset > disk.log_end_offset:
            self.fail("INV-15", node, f"a gap between {latest.snapshot_id} and the log's end {disk.log_end_offset}")

    def check_log(self, node: SimulatedNode) -> None:
        """What the core believes of its log, its voters and its epochs is what the disk has."""
        self._logs_due.discard(node.node_id)
        log, disk = node.core.log, node.disk
        if log.end_offset != disk.log_end_offset or log.last_epoch != disk.last_epoch:
            self.fail(
                "INV-14",
                node,
                f"the log ends at {disk.log_end_offset} in epoch {disk.last_epoch}, known are {log.end_offset} and"
                f" {log.last_epoch}",
            )
        if log.start_offset != disk.log_start_offset:
            self.fail("INV-15", node, f"the log starts at {disk.log_start_offset}, known is {log.start_offset}")
        wanted = disk.voters_in_force(node.static_voters)
        self.looked["INV-19"] += 1
        if node.core.voters != wanted:
            self.fail("INV-19", node, f"goes by voters {node.core.voters}, its log says {wanted}")

    # What is committed

    def on_lost_disk(self, node: SimulatedNode) -> None:
        """A disk is gone for good, by a fault that the run allows; what was on it counted until now."""
        key = node.key
        if node.core.voters.contains(key) or self.commit_voters.contains(key):  # its removal may not be committed yet
            self._lost[key] = max(self._lost.get(key, 0), node.disk.flushed_end_offset)

    def on_high_watermark(self, node: SimulatedNode, role: Role, high_watermark: Offset) -> None:
        """A node shows a high watermark, ``role`` being what it was when the event came."""
        core = node.core
        if isinstance(role, Leader) and high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            if self._commits and self._commits[-1][0] == role.epoch:
                self._commits.pop()
            self._commits.append((role.epoch, high_watermark))
            self.commit_voters = core.voters
            self._check_held(node)
            if core.log.last_epoch != role.epoch or high_watermark <= role.epoch_start_offset:
                self.fail("INV-11", node, f"commits {high_watermark} with nothing of epoch {role.epoch} below it")
        elif high_watermark > self.high_watermark:
            self.fail("INV-05", node, f"shows {high_watermark}, no leader has shown more than {self.high_watermark}")

    def _check_held(self, node: SimulatedNode) -> None:
        """A majority of the voters holds, durably, everything below the greatest high watermark (INV-06)."""
        voters, needed = self.commit_voters, self.high_watermark
        holders = 0
        for voter in voters:
            other = self._nodes.get(voter.key.node_id)
            if other is not None and voter.key.directory_id in (Uuid.ZERO, other.key.directory_id):
                if other.disk.flushed_end_offset >= needed or self._lost.get(other.key, 0) >= needed:
                    holders += 1
            elif self._lost.get(voter.key, 0) >= needed:
                holders += 1
        if holders < voters.majority_size:
            self.fail("INV-06", node, f"{holders} of voters {voters.ids} hold offset {needed} durably")

    def on_applied(self, node: SimulatedNode, batch: FetchedBatch) -> None:
        """A state machine was given a batch (INV-07, INV-08, INV-12)."""
        known = self.committed.get(batch.base_offset)
        if known is None:
            if batch.base_offset != self.committed_end_offset:
                self.fail("INV-08", node, f"{batch} was applied, {self.committed_end_offset} is the next to commit")
            self.committed[batch.base_offset] = batch
            self.committed_end_offset = batch.last_offset + 1
            self._committed_ends[batch.last_offset + 1] = batch
            self._note_values(node, batch)
        elif known is not batch and known != batch:
            self.fail("INV-08", node, f"{batch} was applied, committed is {known}")
        if self._proposed and node.core.is_leader and node.core.epoch == batch.epoch:
            self._acknowledge(node, batch)

    def _note_values(self, node: SimulatedNode, batch: FetchedBatch) -> None:
        if batch.payload is None:
            return
        for index, value in enumerate(batch.payload):  # type: ignore[arg-type, var-annotated]
            if isinstance(value, int) and self._value_offsets.setdefault(value, batch.base_offset + index) != (
                batch.base_offset + index
            ):
                self.fail("INV-12", node, f"{value} is committed twice, at {self._value_offsets[value]} too")

    def on_proposed(self, node: SimulatedNode, last_offset: int, records: Sequence[object]) -> None:
        """A leader took a proposal and named the offsets that it gets."""
        self._proposed.setdefault(node.core.epoch, deque()).append((last_offset - len(records) + 1, records))

    def _acknowledge(self, node: SimulatedNode, batch: FetchedBatch) -> None:
        """The leader that took a proposal sees it committed: at the offsets that it named."""
        waiting = self._proposed.get(batch.epoch)
        while waiting and waiting[0][0] <= batch.last_offset:
            base_offset, records = waiting.popleft()
            self.looked["INV-12"] += 1
            start = base_offset - batch.base_offset
            found = () if batch.payload is None or start < 0 else batch.payload[start : start + len(records)]  # type: ignore[index]
            if tuple(records) != found:
                self.fail("INV-12", node, f"{records} was to get offset {base_offset}, which holds {found}")

    def check_leader_completeness(self, node: SimulatedNode) -> None:
        """A new leader's log has all that was committed in earlier epochs (INV-07).

        Who was elected in a later epoch meanwhile may have committed more: votes that were given may arrive late.
        """
        self.looked["INV-07"] += 1
        disk, own = node.disk, node.core.epoch
        needed = next((end_offset for epoch, end_offset in reversed(self._commits) if epoch < own), 0)
        if disk.log_end_offset < needed:
            self.fail("INV-07", node, f"leads with a log to {disk.log_end_offset}, {needed} is committed")
        for batch in disk.batches:
            if batch.base_offset >= needed:
                break
            known = self.committed.get(batch.base_offset)
            if known is not None and known is not batch and known != batch:
                self.fail("INV-07", node, f"leads with {batch}, committed is {known}")

    # Snapshots

    def on_snapshot(self, node: SimulatedNode, snapshot: StoredSnapshot) -> None:
        """A checkpoint is about to be made."""
        self.looked["INV-16"] += 1
        snapshot_id = snapshot.snapshot_id
        if snapshot_id.end_offset > self.high_watermark:
            self.fail("INV-16", node, f"snapshot {snapshot_id} above the high watermark {self.high_watermark}")
        batch = self._committed_ends.get(snapshot_id.end_offset)
        if batch is None or batch.epoch != snapshot_id.epoch:
            self.fail("INV-16", node, f"snapshot {snapshot_id} does not end with a batch: {batch}")
        known = self._snapshots.setdefault(snapshot_id, snapshot)
        if known.state != snapshot.state:
            self.fail("INV-16", node, f"snapshot {snapshot_id} is {snapshot.state!r}, elsewhere {known.state!r}")
        if (known.kraft_version, known.voters) != (snapshot.kraft_version, snapshot.voters):
            self.fail(
                "INV-16", node, f"snapshot {snapshot_id} names voters {snapshot.voters}, elsewhere {known.voters}"
            )

    def on_install(self, node: SimulatedNode, snapshot: StoredSnapshot) -> None:
        """A fetched checkpoint is about to replace a log."""
        self.looked["INV-17"] += 1
        self._logs_due.add(node.node_id)
        if node.core.is_leader:
            self.fail("INV-17", node, f"the leader loads snapshot {snapshot.snapshot_id}")
        if snapshot.snapshot_id.end_offset > self.high_watermark:
            self.fail("INV-16", node, f"loads {snapshot.snapshot_id}, committed is {self.high_watermark}")


def voter_sets_overlap(before: VoterSet, after: VoterSet) -> bool:
    """Whether at most one voter differs; while directory ids were not known, by node id. The first set is any."""
    if not len(before):
        return True
    if any(voter.key.directory_id == Uuid.ZERO for voter in before):
        mine, theirs = set(before.ids), set(after.ids)
        return len(mine - theirs) <= 1 and len(theirs - mine) <= 1
    return before.has_overlapping_majority(after)
