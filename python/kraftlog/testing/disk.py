"""A replica's disk: the log, the election state and the checkpoints, and what of them a crash leaves."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from kraftlog.raft.control_records import ControlRecord, KRaftVersionChange, VotersChange
from kraftlog.raft.messages import FetchedBatch
from kraftlog.raft.voter_set import BOOTSTRAP_OFFSET, LogHistory, VoterSet
from kraftlog.types import ElectionState, Epoch, Offset, SnapshotId

__all__ = ["TORN", "DiskFailedError", "SimulatedDisk", "StoredSnapshot"]

TORN = "torn"
"""What a batch holds of which only a part reached the disk: its checksum is wrong."""


class DiskFailedError(Exception):
    """A write or an fsync failed, or what was read has a wrong checksum; the replica must not go on."""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A checkpoint: the state of the machine below its end, and the quorum as it was there."""

    snapshot_id: SnapshotId
    state: object
    kraft_version: int
    voters: VoterSet | None
    size_bytes: int


class SimulatedDisk:
    """Files of one replica. Fits ``raft.log.Log`` by shape.

    Attributes:
        serial: No other disk of the run has this number.
        election_state: Durable; None when never written.
        batches: The log behind ``log_start_offset``, oldest first.
        control: The KRaftVersion and Voters records in them, with their offsets.
        flushed_end_offset: Exclusive end of what a crash cannot take.
        stored: Checkpoints by id, oldest first.
        fails_sync: Each fsync fails.
        is_full: Each write that needs room fails.
        tears_writes: The next crash leaves unflushed batches in any order, some of them in part.
        rotten: What the medium has spoilt: base offsets of batches, or ``election_state``.
        cut_at_recovery: How many batches recovery threw away since the disk was new.
    """

    __slots__ = (
        "_base_offsets",
        "_bootstrap_voters",
        "batches",
        "control",
        "cut_at_recovery",
        "election_state",
        "fails_sync",
        "flushed_end_offset",
        "is_full",
        "log_end_offset",
        "log_start_offset",
        "rotten",
        "serial",
        "stored",
        "tears_writes",
    )

    def __init__(self, bootstrap_voters: VoterSet | None, *, serial: int = 0) -> None:
        """An empty disk; with ``bootstrap_voters`` it was formatted with a 0-0 checkpoint that names them."""
        self.serial = serial
        self.election_state: ElectionState | None = None
        self.batches: list[FetchedBatch] = []
        self._base_offsets: list[int] = []
        self.control: list[tuple[Offset, ControlRecord]] = []
        self.log_end_offset = 0
        self.flushed_end_offset = 0
        self.log_start_offset = 0
        self.stored: dict[SnapshotId, StoredSnapshot] = {}
        self._bootstrap_voters = bootstrap_voters
        self.fails_sync = False
        self.is_full = False
        self.tears_writes = False
        self.rotten: set[int | str] = set()
        self.cut_at_recovery = 0

    # What the core asks when it starts

    @property
    def leader_epochs(self) -> Sequence[tuple[int, int]]:
        """Each epoch with its first offset."""
        found: list[tuple[int, int]] = []
        for batch in self.batches:
            if not found or batch.epoch > found[-1][0]:
                found.append((batch.epoch, batch.base_offset))
        return found

    @property
    def last_epoch(self) -> Epoch:
        """Epoch of the last batch, or of the newest checkpoint where there is none."""
        if self.batches:
            return self.batches[-1].epoch
        latest = self.latest_snapshot
        return Epoch(0) if latest is None else latest.snapshot_id.epoch

    @property
    def snapshots(self) -> Sequence[tuple[SnapshotId, int]]:
        """Checkpoints with their sizes, oldest first, 0-0 included."""
        bootstrap = [(SnapshotId(Offset(0), Epoch(0)), 100)] if self._bootstrap_voters is not None else []
        return bootstrap + [(snapshot.snapshot_id, snapshot.size_bytes) for snapshot in self.stored.values()]

    @property
    def latest_snapshot(self) -> StoredSnapshot | None:
        """The newest checkpoint but 0-0."""
        return next(reversed(self.stored.values()), None)

    def quorum_history(self, static_voters: VoterSet) -> tuple[LogHistory[VoterSet], LogHistory[int]]:
        """Voter sets and levels of kraft.version as checkpoints and log tell them."""
        voters, kraft_versions = LogHistory(static_voters), LogHistory(0)
        latest = self.latest_snapshot
        if latest is not None:
            last_offset = Offset(latest.snapshot_id.end_offset - 1)
            if latest.kraft_version:
                kraft_versions.add(last_offset, latest.kraft_version)
            if latest.voters is not None:
                voters.add(last_offset, latest.voters)
        elif self._bootstrap_voters is not None:
            kraft_versions.add(BOOTSTRAP_OFFSET, 1)
            voters.add(BOOTSTRAP_OFFSET, self._bootstrap_voters)
        start_offset = 0 if latest is None else latest.snapshot_id.end_offset
        for offset, record in self.control:
            if offset < start_offset:
                continue
            if isinstance(record, KRaftVersionChange):
                kraft_versions.add(offset, record.kraft_version)
            elif isinstance(record, VotersChange):
                voters.add(offset, record.voters)
        return voters, kraft_versions

    def voters_in_force(self, static_voters: VoterSet) -> VoterSet:
        """The voter set of the last record that says so, from the log, a checkpoint or the formatting."""
        for _, record in reversed(self.control):
            if isinstance(record, VotersChange):
                return record.voters
        latest = self.latest_snapshot
        if latest is not None:
            return static_voters if latest.voters is None else latest.voters
        return static_voters if self._bootstrap_voters is None else self._bootstrap_voters

    # Writing

    def _check_space(self) -> None:
        if self.is_full:
            msg = "no space left"
            raise DiskFailedError(msg)

    def _check_sync(self, what: str) -> None:
        if self.fails_sync:
            msg = f"fsync of {what} failed"
            raise DiskFailedError(msg)

    def write_election_state(self, state: ElectionState) -> None:
        """Replace quorum-state, durably."""
        self._check_space()
        self._check_sync("quorum-state")
        self.election_state = state
        self.rotten.discard("election_state")

    def append(self, batch: FetchedBatch) -> None:
        """Append a batch, in the page cache only."""
        if self.is_full:
            self._check_space()
        if batch.base_offset != self.log_end_offset:
            msg = f"the log ends at {self.log_end_offset}, not at {batch.base_offset}"
            raise AssertionError(msg)
        self.batches.append(batch)
        self._base_offsets.append(batch.base_offset)
        self.log_end_offset = batch.last_offset + 1
        if batch.control_records:
            self.control += batch.control_records

    def flush(self, end_offset: int) -> None:
        """Make the log durable up to ``end_offset`` (exclusive), as far as it still reaches."""
        self._check_sync("the log")
        self.flushed_end_offset = max(self.flushed_end_offset, min(end_offset, self.log_end_offset))

    def truncate(self, end_offset: int) -> None:
        """Cut the log, durably."""
        while self.batches and self.batches[-1].last_offset >= end_offset:
            self.batches.pop()
            self.rotten.discard(self._base_offsets.pop())
        self._note_end()

    def _note_end(self) -> None:
        self.log_end_offset = self.batches[-1].last_offset + 1 if self.batches else self.log_start_offset
        while self.control and self.control[-1][0] >= self.log_end_offset:
            self.control.pop()
        self.flushed_end_offset = min(self.flushed_end_offset, self.log_end_offset)

    def store_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Make a checkpoint durable."""
        self._check_space()
        self._check_sync("a checkpoint")
        self.stored[snapshot.snapshot_id] = snapshot
        self.stored = dict(sorted(self.stored.items()))

    def install_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Replace everything by a checkpoint."""
        self.store_snapshot(snapshot)
        self._begin_behind(snapshot)

    def _begin_behind(self, snapshot: StoredSnapshot) -> None:
        self.stored = {snapshot.snapshot_id: snapshot}
        self.batches.clear()
        self._base_offsets.clear()
        self.control.clear()
        self.rotten -= {offset for offset in self.rotten if isinstance(offset, int)}
        self.log_start_offset = self.log_end_offset = self.flushed_end_offset = snapshot.snapshot_id.end_offset
        self._bootstrap_voters = None

    def drop_before(self, snapshot_id: SnapshotId) -> None:
        """Forget older checkpoints and the log below this one."""
        self.stored = {key: stored for key, stored in self.stored.items() if key >= snapshot_id}
        keep = bisect_right(self._base_offsets, snapshot_id.end_offset - 1)
        while keep and self.batches[keep - 1].last_offset >= snapshot_id.end_offset:
            keep -= 1
        self.rotten.difference_update(self._base_offsets[:keep])
        del self.batches[:keep], self._base_offsets[:keep]
        self.control = [entry for entry in self.control if entry[0] >= snapshot_id.end_offset]
        self.log_start_offset = snapshot_id.end_offset
        self._bootstrap_voters = None

    # Reading

    def index_at(self, offset: int) -> int:
        """Index of the batch that holds ``offset``; 0 where the log starts behind it."""
        return max(0, bisect_right(self._base_offsets, offset) - 1)

    def read(self, offset: int, max_bytes: int) -> tuple[FetchedBatch, ...]:
        """Whole batches from the one that holds ``offset`` on, one at least.

        Raises:
            DiskFailedError: The checksum of one of them is wrong.
        """
        found: list[FetchedBatch] = []
        size_bytes = 0
        batches = self.batches
        for index in range(self.index_at(offset), len(batches)):
            batch = batches[index]
            size_bytes += batch.size_bytes
            if found and size_bytes > max_bytes:
                break
            if self.rotten:
                self._check_sum(batch)
            found.append(batch)
        return tuple(found)

    def _check_sum(self, batch: FetchedBatch) -> None:
        if batch.base_offset in self.rotten:
            msg = f"checksum of the batch at {batch.base_offset} is wrong"
            raise DiskFailedError(msg)

    # Faults

    @property
    def is_sound(self) -> bool:
        """Whether nothing that was durable has been spoilt."""
        return not self.rotten

    def rot(self, rng: Random) -> str | None:
        """Flip a bit of something durable; return what it was, None where there was nothing."""
        durable = [batch.base_offset for batch in self.batches if batch.last_offset < self.flushed_end_offset]
        if self.election_state is not None and (not durable or rng.random() < 0.2):
            self.rotten.add("election_state")
            return "election_state"
        if not durable:
            return None
        base_offset = rng.choice(durable)
        self.rotten.add(base_offset)
        return f"batch {base_offset}"

    def crash(self, rng: Random) -> int:
        """Lose what was not flushed, or all but a part of it; return how many batches are not wholly there.

        The page cache is written back in order, unless writes are to be torn: then each batch by itself is there, in
        part or not at all, and recovery has to find the first that is not.
        """
        first = len(self.batches)
        while first and self.batches[first - 1].last_offset >= self.flushed_end_offset:
            first -= 1
        unflushed = self.batches[first:]
        self.fails_sync = self.is_full = False
        if not unflushed:
            self.tears_writes = False
            return 0
        if self.tears_writes:
            self.tears_writes = False
            states = [rng.choice(("there", "there", "torn", "lost")) for _ in unflushed]
            kept = [
                batch if state == "there" else replace(batch, payload=TORN, control_records=())
                for batch, state in zip(unflushed, states, strict=True)
                if state != "lost"
            ]
            whole = states.count("there")
        else:
            whole = rng.randint(0, len(unflushed))
            kept = unflushed[:whole]
        self.batches[first:] = kept
        self._base_offsets[first:] = [batch.base_offset for batch in kept]
        return len(unflushed) - whole

    def recover(self) -> None:
        """Open what is there: cut the log at the first batch that does not continue it or has a wrong checksum.

        Raises:
            DiskFailedError: Something durable is spoilt, which nothing but a new disk mends.
        """
        if self.rotten:
            msg = f"checksum of {min(map(str, self.rotten))} is wrong"
            raise DiskFailedError(msg)
        end_offset = self.log_start_offset
        keep = len(self.batches)
        for index, batch in enumerate(self.batches):
            if batch.base_offset != end_offset or not self.is_whole(batch):
                keep = index
                break
            end_offset = batch.last_offset + 1
        self.cut_at_recovery += len(self.batches) - keep
        del self.batches[keep:], self._base_offsets[keep:]
        self.log_end_offset = end_offset
        self.control = [control_record for batch in self.batches for control_record in batch.control_records]
        self.flushed_end_offset = end_offset
        latest = self.latest_snapshot
        if latest is not None and latest.snapshot_id.end_offset > end_offset:
            # What is committed need not be durable here, a checkpoint of it is: the log goes on behind it (SNAP-24).
            self._begin_behind(latest)

    @staticmethod
    def is_whole(batch: FetchedBatch) -> bool:
        """Whether the checksum of a batch is right."""
        return batch.payload is not TORN
