"""One step of a member from the partitions it has to those of its target (KIP-848).

A partition is given only after its last owner has reported that it no longer has it, so that two members never own one.

Source: ``org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kraftlog.coordinator.group.assignors import Assignment
from kraftlog.coordinator.group.consumer_member import ConsumerMember, MemberState, PartitionEpochs
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid

__all__ = ["OwnedPartitions", "Reconciliation"]

OwnedPartitions = Mapping[Uuid, frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """What a step depends on, apart from the member.

    Attributes:
        target_epoch: Epoch of the target assignment.
        target: The member's part of it.
        subscribed: Ids of the topics the member subscribes to now.
        is_owned: Whether any member has a partition, assigned or still to be given up.
        owned: What the member says it owns, None when it says nothing.
        has_subscription_changed: Whether this very request changed the subscription.
    """

    target_epoch: int
    target: Assignment
    subscribed: frozenset[Uuid]
    is_owned: Callable[[Uuid, int], bool]
    owned: OwnedPartitions | None
    has_subscription_changed: bool = False

    def step(self, member: ConsumerMember) -> ConsumerMember:
        """The member afterwards; the same object when nothing changes.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH; the member is in a state that a newer version wrote.
        """
        match member.state:
            case MemberState.STABLE:
                if member.epoch != self.target_epoch:
                    return self._towards_target(member, member.epoch)
                return self._without_unsubscribed(member) if self.has_subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS:
                if self._still_owns(member.pending_revocation):
                    return self._without_unsubscribed(member) if self.has_subscription_changed else member
                return self._towards_target(member, member.epoch)
            case MemberState.UNRELEASED_PARTITIONS:
                return self._towards_target(member, member.epoch)
            case MemberState.UNKNOWN:
                if self.owned is None or self.owned:
                    raise KafkaError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The consumer group member is in a unknown state. The member must abandon all its partitions"
                        " and rejoin.",
                    )
                return self._towards_target(member, self.target_epoch)

    def _still_owns(self, partitions: PartitionEpochs) -> bool:
        if self.owned is None:
            return True
        return any(owned & partitions.get(topic_id, {}).keys() for topic_id, owned in self.owned.items())

    def _without_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Take away topics the member no longer subscribes to before a new target says so."""
        gone = [topic_id for topic_id in member.assigned if topic_id not in self.subscribed]
        if not gone:
            return member
        assigned = {topic_id: part for topic_id, part in member.assigned.items() if topic_id in self.subscribed}
        pending = dict(member.pending_revocation)
        for topic_id in gone:
            pending[topic_id] = {**pending.get(topic_id, {}), **member.assigned[topic_id]}
        if self._still_owns(pending):
            return member.at_epoch(member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending)
        return member.at_epoch(member.epoch, member.state, assigned, member.pending_revocation)

    def _towards_target(self, member: ConsumerMember, epoch: int) -> ConsumerMember:
        assigned: dict[Uuid, dict[int, int]] = {}
        revoked: dict[Uuid, dict[int, int]] = {}
        added: dict[Uuid, list[int]] = {}
        has_unreleased = False
        for topic_id in dict.fromkeys((*self.target, *member.assigned)):
            target = frozenset(self.target.get(topic_id, ()) if topic_id in self.subscribed else ())
            current = member.assigned.get(topic_id, {})
            kept = {partition: since for partition, since in current.items() if partition in target}
            given_up = {partition: since for partition, since in current.items() if partition not in target}
            own_revocations = member.pending_revocation.get(topic_id, {})
            free = []
            for partition in self.target.get(topic_id, ()) if target else ():
                if partition in kept:
                    continue
                if self.is_owned(topic_id, partition) and partition not in own_revocations:
                    has_unreleased = True
                else:
                    free.append(partition)
            if kept:
                assigned[topic_id] = kept
            if given_up:
                revoked[topic_id] = given_up
            if free:
                added[topic_id] = free
        if revoked and self._still_owns(revoked):
            return member.at_epoch(epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
        for topic_id, partitions in added.items():
            assigned.setdefault(topic_id, {}).update(dict.fromkeys(partitions, self.target_epoch))
        state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
        return member.at_epoch(self.target_epoch, state, assigned, {})
