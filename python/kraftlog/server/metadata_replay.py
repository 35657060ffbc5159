"""Read what the metadata directory holds: voters and kraft.version of the whole log, the image of its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog._kraftlog import RecordBatch
from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.image import MetadataImage
from kraftlog.errors import CorruptRecordError
from kraftlog.raft.voter_set import BOOTSTRAP_OFFSET, LogHistory, VoterSet
from kraftlog.server.raft.records import from_voters_record
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import Snapshot
from kraftlog.types import Offset, SnapshotId
from kraftlog.wire.messages.control_records import KRaftVersionRecord, VotersRecord
from kraftlog.wire.records import decode_control_record, decode_metadata_record

__all__ = ["Replayed", "load_snapshot", "replay_batch", "replay_metadata_log"]

_KNOWN_KRAFT_VERSIONS = (0, 1)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was found.

    Args:
        image: The state of the newest checkpoint; what follows in the log may not be committed.
        applied_end_offset: Where the log goes on behind it.
        voters: Voter sets, from the checkpoints and the log.
        kraft_versions: Levels of kraft.version, likewise.
    """

    image: MetadataImage
    applied_end_offset: Offset
    voters: LogHistory[VoterSet]
    kraft_versions: LogHistory[int]


def replay_metadata_log(log: MetadataLog, static_voters: VoterSet) -> Replayed:
    """Replay the newest checkpoint, and the control records of the log behind it.

    Args:
        log: The opened log.
        static_voters: controller.quorum.voters; in force while no Voters record is found.

    Raises:
        CorruptRecordError: A record does not decode, or cannot follow those before it.
    """
    image = MetadataImage()
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
        load_snapshot(image, snapshot_id, snapshot)
        start_offset = snapshot_id.end_offset
    for batch in log.batches(start_offset):
        if batch.is_control:
            _replay_control(batch, voters, kraft_versions)
    return Replayed(image, Offset(start_offset), voters, kraft_versions)


def load_snapshot(image: MetadataImage, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
    """Replay a checkpoint into an empty image.

    Raises:
        CorruptRecordError: A record does not decode, or cannot follow those before it.
    """
    for value in snapshot.values:
        image.replay(decode_metadata_record(value)[0])
    image.offset, image.epoch = snapshot_id.end_offset - 1, snapshot_id.epoch
    image.timestamp_ms = snapshot.last_contained_log_timestamp


def replay_batch(log: MetadataLog, batch: RecordBatch, image: MetadataImage, delta: MetadataDelta) -> None:
    """Apply a committed batch.

    Raises:
        CorruptRecordError: A record does not decode, or cannot follow those before it.
    """
    if not batch.is_control:
        for offset, _, _, value, _ in batch.records():
            if offset <= image.offset or value is None:
                continue
            try:
                image.replay(decode_metadata_record(value)[0], delta)
            except CorruptRecordError as error:
                raise CorruptRecordError(f"{log.directory}: record {offset}: {error}") from error
    image.offset, image.epoch = batch.last_offset, batch.partition_leader_epoch
    image.timestamp_ms = max(image.timestamp_ms, batch.max_timestamp)


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


def _replay_control(batch: RecordBatch, voters: LogHistory[VoterSet], kraft_versions: LogHistory[int]) -> None:
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
