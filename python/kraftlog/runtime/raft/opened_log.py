"""What a log directory holds when it is opened: the newest checkpoint, voters and kraft.version of the whole log."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog._kraftlog import RecordBatch
from kraftlog.errors import CorruptRecordError
from kraftlog.raft.voter_set import BOOTSTRAP_OFFSET, LogHistory, VoterSet
from kraftlog.runtime.raft.control_records import from_voters_record
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import Snapshot
from kraftlog.types import Offset, SnapshotId
from kraftlog.wire.messages.control_records import KRaftVersionRecord, VotersRecord
from kraftlog.wire.records import decode_control_record

__all__ = ["Opened", "read_opened"]

_KNOWN_KRAFT_VERSIONS = (0, 1)


@dataclass(frozen=True, slots=True)
class Opened:
    """What was found.

    Args:
        snapshot: The newest checkpoint with its id; None when there is none but 0-0.
        start_offset: Where the log goes on behind it; what follows may not be committed.
        voters: Voter sets, from the checkpoints and the log.
        kraft_versions: Levels of kraft.version, likewise.
    """

    snapshot: tuple[SnapshotId, Snapshot] | None
    start_offset: Offset
    voters: LogHistory[VoterSet]
    kraft_versions: LogHistory[int]


def read_opened(log: MetadataLog, static_voters: VoterSet) -> Opened:
    """Read the newest checkpoint, and the control records of the log behind it (LSTN-24).

    Args:
        log: The opened log.
        static_voters: controller.quorum.voters; in force while no Voters record is found.

    Raises:
        CorruptRecordError: A batch is damaged, or has a kraft.version that is unknown.
    """
    voters = LogHistory(static_voters)
    kraft_versions = LogHistory(0)
    start_offset = log.log_start_offset
    bootstrap = log.read_bootstrap_snapshot()
    if bootstrap is not None:
        _note_quorum(bootstrap, BOOTSTRAP_OFFSET, voters, kraft_versions)
    found = log.read_latest_snapshot()
    if found is not None:
        snapshot_id, snapshot = found
        _note_quorum(snapshot, Offset(snapshot_id.end_offset - 1), voters, kraft_versions)
        start_offset = snapshot_id.end_offset
    for batch in log.batches(start_offset):
        if batch.is_control:
            _note_control(batch, voters, kraft_versions)
    return Opened(found, Offset(start_offset), voters, kraft_versions)


def _note_quorum(
    snapshot: Snapshot, offset: Offset, voters: LogHistory[VoterSet], kraft_versions: LogHistory[int]
) -> None:
    if snapshot.kraft_version > 0:
        kraft_versions.add(offset, _checked(snapshot.kraft_version))
    if snapshot.voters is not None:
        voters.add(offset, from_voters_record(snapshot.voters))


def _checked(kraft_version: int) -> int:
    if kraft_version not in _KNOWN_KRAFT_VERSIONS:
        raise CorruptRecordError(f"kraft.version {kraft_version} is unknown; this node can run levels 0 and 1")
    return kraft_version


def _note_control(batch: RecordBatch, voters: LogHistory[VoterSet], kraft_versions: LogHistory[int]) -> None:
    for offset, _, key, value, _ in batch.records():
        if key is None or value is None:
            raise CorruptRecordError(f"control record {offset} of the metadata log has no key or no value")
        match decode_control_record(key, value)[1]:
            case KRaftVersionRecord() as record:
                kraft_versions.add(Offset(offset), _checked(record.kraft_version))
            case VotersRecord() as record:
                voters.add(Offset(offset), from_voters_record(record))
            case _:
                pass
