"""A replica's disk: the log, the election state and the checkpoints, and what of them a crash leaves."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from kraftlog.raft.control_records import KRaftVersionChange, VotersChange
from kraftlog.raft.messages import FetchedBatch
from kraftlog.raft.voter_set import BOOTSTRAP_OFFSET, LogHistory, VoterSet
from kraftlog.types import ElectionState, Epoch, Offset, SnapshotId

__all__ = ["DiskFailedError", "SimulatedDisk", "StoredSnapshot"]


class DiskFailedError(Exception):
    """A write or an fsync failed; the replica must not go on."""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A checkpoint: what was committed below its end, and the quorum as it was there."""

    snapshot_id: SnapshotId
    state: tuple[object, ...]
    kraft_version: int
    voters: VoterSet | None

    @property
    def size_bytes(self) -> int:
        """A size that takes a few pieces to send."""
        return 100 + 10 * len(self.state)


class SimulatedDisk:
    """Files of one replica. Fits ``raft.log.Log`` by shape.

    Attributes:
        election_state: Durable; None when never written.
        batches: The log behind ``log_start_offset``, oldest first.
        flushed_end_offset: Exclusive end of what a crash cannot take.
        stored: Checkpoints by id, oldest first.
    """

    __slots__ = (
        "_base_offsets",
        "_bootstrap_voters",
        "batches",
        "election_state",
        "fails_sync",
        "flushed_end_offset",
        "is_full",
        "log_start_offset",
        "stored",
    )

    def __init__(self, bootstrap_voters: VoterSet | None) -> None:
        """An empty disk; with ``bootstrap_voters`` it was formatted with a 0-0 checkpoint that names them."""
        self.election_state: ElectionState | None = None
        self.batches: list[FetchedBatch] = []
        self._base_offsets: list[int] = []
        self.flushed_end_offset = 0
        self.log_start_offset = 0
        self.stored: dict[SnapshotId, StoredSnapshot] = {}
        self._bootstrap_voters = bootstrap_voters
        self.fails_sync = False
        self.is_full = False

    # What the core asks when it starts

    @property
    def log_end_offset(self) -> int:
        """Offset the next record gets."""
        return self.batches[-1].last_offset + 1 if self.batches else self.log_start_offset

    @property
    def leader_epochs(self) -> Sequence[tuple[int, int]]:
        """Each epoch with its first offset."""
        found: list[tuple[int, int]] = []
        for batch in self.batches:
            if not found or batch.epoch > found[-1][0]:
                found.append((batch.epoch, batch.base_offset))
        return found

    @property
    def snapshots(self) -> Sequence[tuple[SnapshotId, int]]:
        """Checkpoints with their sizes, oldest first, 0-0 included."""
        bootstrap = [(SnapshotId(Offset(0), Epoch(0)), 100)] if self._bootstrap_voters is not None else []
        return bootstrap + [(one.snapshot_id, one.size_bytes) for one in self.stored.values()]

    def quorum_history(self, static_voters: VoterSet) -> tuple[LogHistory[VoterSet], LogHistory[int]]:
        """Voter sets and levels of kraft.version as checkpoints and log tell them."""
        voters, kraft_versions = LogHistory(static_voters), LogHistory(0)
        latest = next(reversed(self.stored.values()), None)
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
        for batch in self.batches:
            for offset, record in batch.control_records:
                if offset < start_offset:
                    continue
                if isinstance(record, KRaftVersionChange):
                    kraft_versions.add(offset, record.kraft_version)
                elif isinstance(record, VotersChange):
                    voters.add(offset, record.voters)
        return voters, kraft_versions

    # Writing

    def _check_space(self) -> None:
        if self.is_full:
            msg = "no space left"
            raise DiskFailedError(msg)

    def write_election_state(self, state: ElectionState) -> None:
        """Replace quorum-state, durably."""
        self._check_space()
        if self.fails_sync:
            msg = "fsync of quorum-state failed"
            raise DiskFailedError(msg)
        self.election_state = state

    def append(self, batch: FetchedBatch) -> None:
        """Append a batch, in the page cache only."""
        self._check_space()
        if batch.base_offset != self.log_end_offset:
            msg = f"the log ends at {self.log_end_offset}, not at {batch.base_offset}"
            raise AssertionError(msg)
        self.batches.append(batch)
        self._base_offsets.append(batch.base_offset)

    def flush(self, end_offset: int) -> None:
        """Make the log durable up to ``end_offset`` (exclusive), as far as it still reaches."""
        if self.fails_sync:
            msg = "fsync of the log failed"
            raise DiskFailedError(msg)
        self.flushed_end_offset = max(self.flushed_end_offset, min(end_offset, self.log_end_offset))

    def truncate(self, end_offset: int) -> None:
        """Cut the log, durably."""
        while self.batches and self.batches[-1].last_offset >= end_offset:
            self.batches.pop()
            self._base_offsets.pop()
        self.flushed_end_offset = min(self.flushed_end_offset, self.log_end_offset)

    def store_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Make a checkpoint durable."""
        self._check_space()
        if self.fails_sync:
            msg = "fsync of a checkpoint failed"
            raise DiskFailedError(msg)
        self.stored[snapshot.snapshot_id] = snapshot
        self.stored = dict(sorted(self.stored.items()))

    def install_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Replace everything by a checkpoint."""
        self.store_snapshot(snapshot)
        self.stored = {snapshot.snapshot_id: snapshot}
        self.batches.clear()
        self._base_offsets.clear()
        self.log_start_offset = self.flushed_end_offset = snapshot.snapshot_id.end_offset
        self._bootstrap_voters = None

    def drop_before(self, snapshot_id: SnapshotId) -> None:
        """Forget older checkpoints and the log below this one."""
        self.stored = {one: stored for one, stored in self.stored.items() if one >= snapshot_id}
        keep = bisect_right(self._base_offsets, snapshot_id.end_offset - 1)
        while keep and self.batches[keep - 1].last_offset >= snapshot_id.end_offset:
            keep -= 1
        del self.batches[:keep], self._base_offsets[:keep]
        self.log_start_offset = snapshot_id.end_offset
        self._bootstrap_voters = None

    # Reading

    def read(self, offset: int, max_bytes: int) -> tuple[FetchedBatch, ...]:
        """Whole batches from the one that holds ``offset`` on, one at least."""
        index = bisect_right(self._base_offsets, offset) - 1
        found: list[FetchedBatch] = []
        size_bytes = 0
        for batch in self.batches[max(0, index) :]:
            size_bytes += batch.size_bytes
            if found and size_bytes > max_bytes:
                break
            found.append(batch)
        return tuple(found)

    # Faults

    def crash(self, rng: Random) -> int:
        """Lose what was not flushed, or all but a first part of it; return how many batches went."""
        first = len(self.batches)
        while first and self.batches[first - 1].last_offset >= self.flushed_end_offset:
            first -= 1
        unflushed = len(self.batches) - first
        kept = rng.randint(0, unflushed) if unflushed else 0
        del self.batches[first + kept :], self._base_offsets[first + kept :]
        self.flushed_end_offset = self.log_end_offset
        self.fails_sync = self.is_full = False
        latest = next(reversed(self.stored.values()), None)
        if latest is not None and latest.snapshot_id.end_offset > self.log_end_offset:
            # What is committed need not be durable here, a checkpoint of it is: the log goes on behind it (SNAP-24).
            self.install_snapshot(latest)
        return unflushed - kept
