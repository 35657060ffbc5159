"""The versions from which messages carry leader epochs."""

from __future__ import annotations

import pytest

from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftlog.wire.messages.metadata import MetadataResponse
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_fetch import OffsetFetchResponse
from kraftlog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftlog.wire.messages.produce import ProduceResponse
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kraftlog.wire.registry import API_BY_KEY


@pytest.mark.parametrize(
    ("struct", "field", "since"),
    [
        (MetadataResponse.MetadataResponsePartition, "leaderEpoch", 7),
        (ListOffsetsRequest.ListOffsetsPartition, "currentLeaderEpoch", 4),
        (ListOffsetsResponse.ListOffsetsPartitionResponse, "leaderEpoch", 4),
        (FetchRequest.FetchPartition, "currentLeaderEpoch", 9),
        (FetchRequest.FetchPartition, "lastFetchedEpoch", 12),
        (FetchResponse.PartitionData, "divergingEpoch", 12),
        (OffsetForLeaderEpochRequest.OffsetForLeaderPartition, "currentLeaderEpoch", 2),
        (OffsetCommitRequest.OffsetCommitRequestPartition, "committedLeaderEpoch", 6),
        (TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition, "committedLeaderEpoch", 2),
        (OffsetFetchResponse.OffsetFetchResponsePartition, "committedLeaderEpoch", 5),
        (ProduceResponse.PartitionProduceResponse, "currentLeader", 10),
    ],
)
def test_version_from_which_a_message_has_an_epoch(struct, field, since):
    """LEPO-62."""
    (versions,) = (line.split()[2] for line in struct.SCHEMA.splitlines() if line.startswith(f"{field} "))
    assert int(versions.partition("+")[0].partition("-")[0]) == since


def test_versions_that_are_served():
    """LEPO-27, LEPO-62."""
    served = {key: (API_BY_KEY[key].min_version, API_BY_KEY[key].max_version) for key in (0, 1, 2, 3, 8, 9, 23, 28)}
    assert served == {
        0: (3, 13),
        1: (4, 18),
        2: (1, 11),
        3: (0, 13),
        8: (2, 10),
        9: (1, 10),
        23: (2, 4),
        28: (0, 5),
    }
