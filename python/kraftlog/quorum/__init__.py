"""``kraftlog.Quorum``: your own state machine, replicated by the consensus of this package."""

from __future__ import annotations

from kraftlog.quorum.async_quorum import AsyncQuorum
from kraftlog.quorum.blocking_quorum import Quorum
from kraftlog.quorum.quorum_host import QuorumHost
from kraftlog.quorum.session_client import AsyncSession, Session
from kraftlog.quorum.session_machine import SessionCommand, SessionMachine, session_command
from kraftlog.quorum.snapshot_info import SnapshotInfo, SnapshotProgress
from kraftlog.quorum.state_machine import CommittedBatch, StateMachine
from kraftlog.runtime.metadata.quorum_info import QuorumInfo, ReplicaInfo

__all__ = [
    "AsyncQuorum",
    "AsyncSession",
    "CommittedBatch",
    "Quorum",
    "QuorumHost",
    "QuorumInfo",
    "ReplicaInfo",
    "Session",
    "SessionCommand",
    "SessionMachine",
    "SnapshotInfo",
    "SnapshotProgress",
    "StateMachine",
    "session_command",
]
