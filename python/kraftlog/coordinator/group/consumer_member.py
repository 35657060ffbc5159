"""A member of a consumer group (KIP-848): what it asked for, and how far it has come towards its target.

Source: ``org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from kraftlog.types import Uuid

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "STATIC_LEAVE_EPOCH",
    "ClassicMetadata",
    "ConsumerMember",
    "MemberState",
    "PartitionEpochs",
]

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

PartitionEpochs = Mapping[Uuid, Mapping[int, int]]
"""By topic id, the epoch at which the member was given each partition."""


class MemberState(IntEnum):
    """How a member stands to its target, with the numbers of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What a member that uses the classic protocol joined with: session timeout (ms) and protocols."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member; a change makes another object.

    Attributes:
        topics: Subscribed names, sorted.
        regex: Subscribed regular expression, "" without one.
        classic: Present while the member uses the classic protocol.
        epoch: Member epoch; -2 while a static member is away.
        previous_epoch: The epoch before, which a repeated request may still carry.
        assigned: Partitions the member owns or may take.
        pending_revocation: Partitions the member has to give up and still owns.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(default_factory=dict)
    pending_revocation: PartitionEpochs = field(default_factory=dict)

    def at_epoch(
        self, epoch: int, state: MemberState, assigned: PartitionEpochs, pending_revocation: PartitionEpochs
    ) -> ConsumerMember:
        """The member after a step of reconciliation."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether nothing is left to do for the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def has_all(self, owned: Mapping[Uuid, frozenset[int]] | None) -> bool:
        """Whether every owned partition is assigned; False when the request named none at all (null)."""
        if owned is None:
            return False
        return all(partitions <= self.assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items())

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Since when the member has a partition, also one that it still has to give up."""
        assigned = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if assigned is None else assigned
