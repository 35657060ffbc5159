"""Between the raft core's control records, free of versions, and those on the wire."""

from __future__ import annotations

from typing import assert_never

from kraftlog.errors import CorruptRecordError
from kraftlog.raft.messages import ControlRecord, KRaftVersionChange, LeaderChange, VotersChange
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet
from kraftlog.types import NodeId, ReplicaKey
from kraftlog.wire.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from kraftlog.wire.struct import Message

__all__ = ["from_voters_record", "to_control_message", "to_voters_record"]


def to_control_message(record: ControlRecord) -> Message:
    """The wire form; LeaderChange always in version 0, the only one Kafka 4.3.1 reads."""
    match record:
        case LeaderChange():
            return LeaderChangeMessage(
                version=0,
                leader_id=record.leader_id,
                voters=tuple(LeaderChangeMessage.Voter(voter_id=voter) for voter in record.voters),
                granting_voters=tuple(LeaderChangeMessage.Voter(voter_id=voter) for voter in record.granting_voters),
            )
        case KRaftVersionChange():
            return KRaftVersionRecord(version=0, kraft_version=record.kraft_version)
        case VotersChange():
            return to_voters_record(record.voters)
        case _:
            assert_never(record)


def to_voters_record(voters: VoterSet) -> VotersRecord:
    """The record that sets this voter set."""
    return VotersRecord(
        version=0,
        voters=tuple(
            VotersRecord.Voter(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=tuple(
                    VotersRecord.Endpoint(name=point.name, host=point.host, port=point.port)
                    for point in voter.endpoints
                ),
                k_raft_version_feature=VotersRecord.KRaftVersionFeature(
                    min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                ),
            )
            for voter in voters
        ),
    )


def from_voters_record(record: VotersRecord) -> VoterSet:
    """The voter set a record sets.

    Raises:
        CorruptRecordError: A voter, or a listener of a voter, comes twice.
    """
    try:
        return VoterSet(
            Voter(
                ReplicaKey(NodeId(voter.voter_id), voter.voter_directory_id),
                tuple(Endpoint(point.name, point.host, point.port) for point in voter.endpoints),
                voter.k_raft_version_feature.min_supported_version,
                voter.k_raft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )
    except ValueError as error:
        raise CorruptRecordError(f"Voters record: {error}") from error
