"""The state of one share group as its records give it (KIP-932).

Source: ``org.apache.kafka.coordinator.group.modern.share.ShareGroup``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftlog.coordinator.group.assignors import Assignment
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid

__all__ = ["ShareGroup", "ShareMember", "StatePartitions"]

StatePartitions = dict[Uuid, tuple[str, frozenset[int]]]
"""Name and partitions by topic id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """A member; ``assigned`` are its partitions by topic id."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = field(default_factory=dict)


class ShareGroup:
    """Members, epochs and targets of one group, and the share partitions whose state it has set up.

    Attributes:
        epoch: Rises with every change of membership, subscriptions or topics; a new group begins with 1.
        metadata_hash: Over the subscribed topics when ``epoch`` rose last.
        target_epoch: The group epoch for which ``targets`` was computed.
        target_timestamp_ms: When that was.
        is_stored: Whether a record with the epoch exists.
        initializing: Share partitions whose state is being set up at the share coordinator.
        initialized: Share partitions that may be assigned.
        deleting: Topics whose state is being deleted, name by topic id.
        checked_version: Version of the topics at the last comparison of ``metadata_hash``.
    """

    __slots__ = (
        "checked_version",
        "deleting",
        "epoch",
        "group_id",
        "initialized",
        "initializing",
        "is_stored",
        "members",
        "metadata_hash",
        "target_epoch",
        "target_timestamp_ms",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_timestamp_ms = 0
        self.is_stored = False
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.initializing: StatePartitions = {}
        self.initialized: StatePartitions = {}
        self.deleting: dict[Uuid, str] = {}
        self.checked_version = -1

    @property
    def state(self) -> str:
        """As ShareGroupDescribe and ListGroups print it."""
        return "Stable" if self.members else "Empty"

    def member(self, member_id: str) -> ShareMember:
        """A member by id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID.
        """
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def subscribed_names(self) -> frozenset[str]:
        """Every topic that a member names."""
        return frozenset(name for member in self.members.values() for name in member.topics)

    def is_homogeneous(self) -> bool:
        """Whether all members name the same topics."""
        return len({member.topics for member in self.members.values()}) <= 1

    def assigned_targets(self) -> set[tuple[Uuid, int]]:
        """Every partition that the target gives to somebody."""
        return {
            (topic_id, index)
            for target in self.targets.values()
            for topic_id, indexes in target.items()
            for index in indexes
        }
