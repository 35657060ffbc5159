"""What an assignor is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kraftlog.types import Uuid

__all__ = ["Assignment", "GroupSpec", "MemberSpec"]

Assignment = Mapping[Uuid, Sequence[int]]
"""Partitions by topic id; no topic has an empty list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """A member as an assignor sees it.

    Attributes:
        topics: Existing topics the member subscribes to, without repetition.
        assigned: The member's part of the previous target assignment.
        instance_id: Of a static member.
    """

    topics: Sequence[Uuid]
    assigned: Assignment = field(default_factory=dict)
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A group as an assignor sees it.

    Attributes:
        members: By member id, in the order in which Kafka's coordinator visits them.
        partition_counts: Of every subscribed topic.
        is_homogeneous: Whether all members have the same subscription.
    """

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[Uuid, int]
    is_homogeneous: bool
