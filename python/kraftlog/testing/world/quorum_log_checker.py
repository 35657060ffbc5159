"""Invariants of a quorum's logs and checkpoints on simulated disks (docs/behaviours, area 24)."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kraftlog.errors import CorruptRecordError, PoisonedLogError
from kraftlog.runtime.raft.control_records import from_voters_record
from kraftlog.storage.snapshot_file import read_snapshot
from kraftlog.testing.log_invariants import InvariantViolationError, voter_sets_overlap
from kraftlog.testing.world.followed_log import FollowedLog, LogRules, ScannedBatch, Written
from kraftlog.wire.messages.control_records import LeaderChangeMessage, VotersRecord
from kraftlog.wire.records import decode_control_record

if TYPE_CHECKING:
    from kraftlog.raft.voter_set import VoterSet
    from kraftlog.storage.metadata_log import MetadataLog
    from kraftlog.testing.world.node_machine import NodeMachine
    from kraftlog.types import SnapshotId

__all__ = ["QuorumLogChecker", "QuorumLogLife"]

_RULES: Final = LogRules(order="INV-14", matching="INV-09")
_KEY: Final = "quorum"


class QuorumLogLife:
    """What one process showed of its log.

    Args:
        name: Of its machine.
        files: The log with its checkpoints.

    Attributes:
        followed: What was read; None before the first look.
        voter_sets: Offsets of Voters records, and what they say.
        start_offset: Of the log, as seen last.
        snapshot_id: Of the newest checkpoint, as seen last.
    """

    __slots__ = ("agreed", "epoch", "files", "followed", "name", "snapshot_id", "start_offset", "voter_sets")

    def __init__(self, name: str, files: MetadataLog) -> None:
        self.name = name
        self.files = files
        self.followed: FollowedLog | None = None
        self.voter_sets: list[tuple[int, VoterSet]] = []
        # The core's and the log's, which were compared.
        self.agreed: tuple[VoterSet, VoterSet] | None = None
        self.start_offset = 0
        self.epoch = -1
        self.snapshot_id: SnapshotId | None = None


class QuorumLogChecker:
    """Follows the log of every replica.

    Args:
        looked: Counts how often each rule had something to look at.
    """

    def __init__(self, looked: Counter[str]) -> None:
        self._looked = looked
        self._written: Written = {}
        self._ends: set[tuple[int, int]] = set()
        self._snapshots: dict[SnapshotId, bytes] = {}

    def check(
        self,
        machine: NodeMachine,
        life: QuorumLogLife,
        core: Any,
        *,
        is_settled: bool,
        shown_high_watermark: int,
        committed: int,
    ) -> None:
        """Look at what changed.

        Args:
            machine: Of the replica.
            life: Of its process.
            core: The consensus core.
            is_settled: Whether the log is as the core knows it, if it ends where the core says.
            shown_high_watermark: The greatest that this process has shown; -1 for none.
            committed: The greatest that any replica has shown.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        if machine.has_bad_disk:
            return
        try:
            self._check_log(life, core, shown_high_watermark, committed)
            if is_settled and core.log.end_offset == life.files.log_end_offset:
                self._check_core(life, core)
            self._check_snapshot(life, core, committed)
        except PoisonedLogError:
            return  # a flush failed: nothing is read from this log any more
        except OSError:
            if not machine.is_disk_failing:
                raise

    def _check_log(self, life: QuorumLogLife, core: Any, shown_high_watermark: int, committed: int) -> None:
        files = life.files
        start_offset, end_offset = files.log_start_offset, files.log_end_offset
        followed = life.followed
        if followed is None:
            followed = life.followed = FollowedLog(life.name, _KEY, files, _RULES, self._written)
            followed.begin(start_offset)
        if start_offset > followed.end_offset:
            self._looked["INV-17"] += 1
            if core.is_leader:
                _fail("INV-17", life, f"the leader's log begins anew at {start_offset}")
            if start_offset > committed:
                _fail("INV-16", life, f"the log begins anew at {start_offset}, committed is {committed}")
        elif end_offset < followed.end_offset:
            self._check_truncated(life, end_offset, shown_high_watermark)
        last_epoch = followed.last_epoch
        if core.epoch != life.epoch:
            # It may have been truncated and grown since the last look.
            life.epoch = core.epoch
            followed.cut(max(shown_high_watermark, start_offset))
            last_epoch = -1
        followed.cut(end_offset)
        sets = life.voter_sets
        if sets and not start_offset <= sets[0][0] <= sets[-1][0] < followed.end_offset:
            life.voter_sets = [found for found in sets if start_offset <= found[0] < followed.end_offset]
        for batch in followed.follow(start_offset, end_offset):
            self._ends.add((batch.end_offset, batch.leader_epoch))
            if batch.is_control:
                self._note_control(life, core, batch)
        if followed.last_epoch != last_epoch:
            self._looked["INV-14"] += 1
            followed.check_epochs(files.leader_epochs, start_offset)

    def _check_truncated(self, life: QuorumLogLife, end_offset: int, shown_high_watermark: int) -> None:
        self._looked["INV-10"] += 1
        if end_offset < shown_high_watermark:
            _fail("INV-10", life, f"truncates to {end_offset}, below its high watermark {shown_high_watermark}")
        latest = life.files.latest_snapshot_id
        if latest is not None and end_offset < latest.end_offset:
            _fail("INV-10", life, f"truncates to {end_offset}, below its checkpoint {latest.file_name}")

    def _note_control(self, life: QuorumLogLife, core: Any, batch: ScannedBatch) -> None:
        """A batch of control records appeared: at most one change of voters, of one voter, is not committed."""
        is_first_of_epoch = False
        found: list[tuple[int, VoterSet]] = []
        for records in life.files.batches(batch.base_offset, batch.end_offset):
            for offset, _, key, value, _ in records.records():
                record = decode_control_record(key, value)[1] if key is not None and value is not None else None
                is_first_of_epoch |= isinstance(record, LeaderChangeMessage)
                if isinstance(record, VotersRecord):
                    found.append((offset, _voters(life, offset, record)))
        for offset, voters in found:
            last = life.voter_sets[-1] if life.voter_sets else None
            if last is not None:
                self._looked["INV-20"] += 1
                if not voter_sets_overlap(last[1], voters):
                    _fail("INV-20", life, f"voters {last[1].ids} are followed by {voters.ids} at offset {offset}")
            if core.is_leader and batch.leader_epoch == core.epoch and not is_first_of_epoch:
                self._check_change(life, core, offset, last)
            life.voter_sets.append((offset, voters))

    def _check_change(self, life: QuorumLogLife, core: Any, offset: int, last: tuple[int, VoterSet] | None) -> None:
        self._looked["INV-21"] += 1
        committed = core.high_watermark
        if committed is None:
            _fail("INV-21", life, f"changes the voters at {offset} before it has committed in epoch {core.epoch}")
        elif last is not None and last[0] >= committed:
            _fail("INV-21", life, f"changes the voters at {offset}, those of offset {last[0]} not being committed")

    def _check_core(self, life: QuorumLogLife, core: Any) -> None:
        """What the core believes of its log and its voters is what the log has."""
        followed = life.followed
        assert followed is not None
        if followed.last_epoch >= 0 and core.log.last_epoch != followed.last_epoch:
            _fail("INV-14", life, f"the log ends in epoch {followed.last_epoch}, known is {core.log.last_epoch}")
        if life.voter_sets:
            self._looked["INV-19"] += 1
            offset, voters = life.voter_sets[-1]
            # After a start it is the end of the checkpoint, which holds the same voters.
            is_older = core.voters_offset is None or core.voters_offset < offset
            found, agreed = core.voters, life.agreed
            is_known = agreed is not None and agreed[0] is found and agreed[1] is voters
            if is_older or not (is_known or found == voters):
                known = f"{found.ids} of offset {core.voters_offset}"
                _fail("INV-19", life, f"goes by voters {known}, its log says {voters.ids} at offset {offset}")
            life.agreed = (found, voters)

    def _check_snapshot(self, life: QuorumLogLife, core: Any, committed: int) -> None:
        files = life.files
        latest, start_offset = files.latest_snapshot_id, files.log_start_offset
        if start_offset != life.start_offset:
            life.start_offset = start_offset
            self._looked["INV-15"] += 1
            ends = [snapshot_id.end_offset for snapshot_id, _ in files.snapshots]
            if start_offset and start_offset not in ends:
                _fail("INV-15", life, f"the log starts at {start_offset}, checkpoints end at {ends}")
        if latest is None or latest == life.snapshot_id:
            return
        self._looked["INV-15"] += 1
        if latest.end_offset > files.log_end_offset:
            _fail("INV-15", life, f"a gap between {latest.file_name} and the log's end {files.log_end_offset}")
        self._looked["INV-16"] += 1
        if latest.end_offset > committed:
            _fail("INV-16", life, f"{latest.file_name} is above the high watermark {committed}")
        if (latest.end_offset, latest.epoch) not in self._ends:
            _fail("INV-16", life, f"{latest.file_name} does not end with a batch")
        try:
            snapshot = read_snapshot(files.directory / latest.file_name)
        except (CorruptRecordError, FileNotFoundError):
            return  # a newer one is there by now, or the disk is bad
        life.snapshot_id = latest
        # The order of values is that of a replica's own tables.
        state = repr((snapshot.kraft_version, snapshot.voters, sorted(snapshot.values)))
        digest = hashlib.blake2b(state.encode(), digest_size=8).digest()
        if self._snapshots.setdefault(latest, digest) != digest:
            _fail("INV-16", life, f"{latest.file_name} has another state than that of another replica")


def _voters(life: QuorumLogLife, offset: int, record: VotersRecord) -> VoterSet:
    try:
        return from_voters_record(record)
    except ValueError as error:
        raise InvariantViolationError("INV-22", f"{life.name}: voters at offset {offset}: {error}") from error


def _fail(identifier: str, life: QuorumLogLife, reason: str) -> None:
    raise InvariantViolationError(identifier, f"{life.name}: {reason}")
