"""Answers that say no more than an error and who leads: made once for each role that a replica enters."""

from __future__ import annotations

from typing import TypeVar

from kraftlog.raft.messages import (
    BeginQuorumEpochResponse,
    Endpoints,
    EndQuorumEpochResponse,
    FetchResponse,
    VoteResponse,
)
from kraftlog.raft.roles.role import Role
from kraftlog.types import Offset

__all__ = ["Refusals"]

_R = TypeVar("_R", bound=VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse)


class Refusals:
    """The answers of one role. Replicas without a leader ask each other so often that making them again counts."""

    __slots__ = ("_leader_endpoints", "_made", "_of_fetch", "_role")

    def __init__(self, role: Role, leader_endpoints: Endpoints) -> None:
        """Take the role and where the leader listens that it names."""
        self._role = role
        self._leader_endpoints = leader_endpoints
        self._made: dict[tuple[type, int], object] = {}
        self._of_fetch: dict[int, FetchResponse] = {}

    def is_of(self, role: Role) -> bool:
        """Whether these are the answers of this role."""
        return role is self._role

    def of_fetch(self, error_code: int, log_start_offset: Offset) -> FetchResponse:
        """The answer to a fetch with an error of the partition."""
        known = self._of_fetch.get(error_code)
        if known is None or known.log_start_offset != log_start_offset:
            role = self._role
            self._of_fetch[error_code] = known = FetchResponse(
                error_code=error_code,
                leader_id=role.leader_id,
                leader_epoch=role.epoch,
                leader_endpoints=self._leader_endpoints,
                log_start_offset=log_start_offset,
            )
        return known

    def get(self, kind: type[_R], error_code: int) -> _R:
        """The answer with an error of the partition, or 0."""
        known = self._made.get((kind, error_code))
        if isinstance(known, kind):
            return known
        role = self._role
        made = kind(
            error_code=error_code,
            leader_id=role.leader_id,
            leader_epoch=role.epoch,
            leader_endpoints=self._leader_endpoints,
        )
        self._made[kind, error_code] = made
        return made
