"""The records that the log itself acts on."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.raft.voter_set import VoterSet
from kraftlog.types import NodeId

__all__ = ["ControlRecord", "KRaftVersionChange", "LeaderChange", "VotersChange"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """Control record: the first record of an epoch."""

    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting_voters: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionChange:
    """Control record: kraft.version from here on."""

    kraft_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersChange:
    """Control record: the voter set from here on."""

    voters: VoterSet


ControlRecord = LeaderChange | KRaftVersionChange | VotersChange
