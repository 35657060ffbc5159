"""KRaft: the consensus core, sans-IO. Input is an event and ``now_ms``, output is a list of effects."""

from __future__ import annotations

from kraftlog.raft.core import RaftConfig, RaftCore
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet

__all__ = ["Endpoint", "RaftConfig", "RaftCore", "Voter", "VoterSet"]
