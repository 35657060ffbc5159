"""Read what the metadata directory holds: voters, kraft.version and the image, up to the end of the log."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog._kraftlog import RecordBatch
from kraftlog.controller.image import MetadataImage
from kraftlog.errors import CorruptRecordError
from kraftlog.raft.voter_set import BOOTSTRAP_OFFSET, LogHistory, VoterSet
from kraftlog.server.raft_records import from_voters_record
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import Snapshot
from kraftlog.types import Offset
from kraftlog.wire.messages.control_records import KRaftVersionRecord, VotersRecord
from kraftlog.wire.records import decode_control_record, decode_metadata_record

__all__ = ["Replayed", "replay_metadata_log"]

_KNOWN_KRAFT_VERSIONS = (0, 1)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was found.

    Args:
        image: The state after the last record of the log, committed or not.
        voters: Voter sets, from the checkpoints and the log.
        kraft_versions: Levels of kraft.version, likewise.
        bytes_since_snapshot: Bytes of batches behind the newest checkpoint.
    """

    image: MetadataImage
    voters: LogHistory[VoterSet]
    kraft_versions: LogHistory[int]
    bytes_since_snapshot: int


def replay_metadata_log(log: MetadataLog, static_voters: VoterSet) -> Replayed:
    """Replay the newest checkpoint and the log behind it.

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
        last_offset = Offset(snapshot_id.end_offset - 1)
        _note_quorum(snapshot, last_offset, voters, kraft_versions)
        for value in snapshot.values:
            image.replay(decode_metadata_record(value)[0])
        image.offset, image.epoch = last_offset, snapshot_id.epoch
        image.timestamp_ms = snapshot.last_contained_log_timestamp
        start_offset = snapshot_id.end_offset
    size_bytes = 0
    for batch in log.batches(start_offset):
        size_bytes += batch.size_bytes
        if batch.is_control:
            _replay_control(batch, voters, kraft_versions)
        else:
            _replay_data(log, batch, image, start_offset)
        image.offset, image.epoch = batch.last_offset, batch.partition_leader_epoch
        image.timestamp_ms = batch.max_timestamp
    return Replayed(image, voters, kraft_versions, size_bytes)


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


def _replay_data(log: MetadataLog, batch: RecordBatch, image: MetadataImage, start_offset: int) -> None:
    for offset, _, _, value, _ in batch.records():
        if offset < start_offset or value is None:
            continue
        try:
            image.replay(decode_metadata_record(value)[0])
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{log.directory}: record {offset}: {error}") from error
