"""Builds the record that takes a partition from one in-sync set and leader to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kraftlog.controller.topic_image import NO_LEADER, NO_LEADER_CHANGE, RECOVERING, PartitionImage
from kraftlog.features import MetadataVersion
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import PartitionChangeRecord

__all__ = ["PartitionChange"]


@dataclass(slots=True, kw_only=True)
class PartitionChange:
    """A wanted change of one partition.

    Args:
        topic_id: Its topic.
        index: Of the partition.
        partition: The partition as it is.
        is_acceptable_leader: Whether a broker may lead after the change.
        metadata_version: Decides the record's version.
        min_isr: Effective min.insync.replicas of the topic.
        is_elr_enabled: Whether eligible leader replicas are kept (KIP-966).
        target_isr: In-sync replicas to have.
        unclean_replicas: Replicas that may have lost data; they leave the eligible leader replicas.
        is_unclean_election_allowed: Whether any live replica may lead when no safe one can.

    Source: KIP-966; Kafka's PartitionChangeBuilder.
    """

    topic_id: Uuid
    index: int
    partition: PartitionImage
    is_acceptable_leader: Callable[[int], bool]
    metadata_version: MetadataVersion
    min_isr: int
    is_elr_enabled: bool
    target_isr: tuple[int, ...]
    unclean_replicas: frozenset[int] = frozenset()
    is_unclean_election_allowed: bool = False

    def build(self) -> PartitionChangeRecord | None:
        """The record, or None when nothing changes."""
        partition = self.partition
        isr = self.target_isr
        elr = self._eligible_leader_replicas(isr)
        leader, is_unclean, from_elr = self._elect(isr, elr)
        recovery_state = partition.leader_recovery_state
        if is_unclean or from_elr:
            isr = (leader,)
            elr = tuple(replica for replica in elr if replica != leader)
            if is_unclean:
                recovery_state = RECOVERING
        if not isr and not self.is_elr_enabled:
            isr = partition.isr
        isr_changes = isr != partition.isr
        new_leader = NO_LEADER_CHANGE if leader == partition.leader else leader
        if (
            new_leader == NO_LEADER_CHANGE
            and self.metadata_version.is_leader_epoch_bump_required_on_isr_shrink
            and not set(partition.isr) <= set(isr)
        ):
            new_leader = partition.leader
        record = PartitionChangeRecord(
            partition_id=self.index,
            topic_id=self.topic_id,
            isr=isr if isr_changes else None,
            leader=new_leader,
            leader_recovery_state=recovery_state if recovery_state != partition.leader_recovery_state else -1,
            eligible_leader_replicas=elr if elr != partition.elr else None,
            last_known_elr=self._last_known_leader(isr if isr_changes else None, new_leader),
        )
        nothing = PartitionChangeRecord(partition_id=self.index, topic_id=self.topic_id)
        return None if record == nothing else record

    def _eligible_leader_replicas(self, isr: Iterable[int]) -> tuple[int, ...]:
        """Replicas outside the in-sync set that hold everything committed, while that set is below its minimum."""
        partition = self.partition
        if not self.is_elr_enabled:
            return partition.elr
        target = set(isr)
        if len(target) >= min(self.min_isr, len(partition.replicas)):
            return ()
        candidates = dict.fromkeys((*partition.elr, *partition.isr))
        return tuple(
            replica for replica in candidates if replica not in target and replica not in self.unclean_replicas
        )

    def _elect(self, isr: tuple[int, ...], elr: tuple[int, ...]) -> tuple[int, bool, bool]:
        """The leader to have, whether it may lack data, whether it comes from the eligible leader replicas."""
        partition = self.partition

        def is_safe(replica: int) -> bool:
            eligible = replica in isr or (self.is_elr_enabled and not isr and replica in elr)
            return eligible and self.is_acceptable_leader(replica)

        if partition.has_leader and is_safe(partition.leader):
            return partition.leader, False, partition.leader not in isr
        for replica in partition.replicas:
            if is_safe(replica):
                return replica, False, replica not in isr
        if self.is_elr_enabled and not isr and not elr and len(partition.last_known_elr) == 1:
            last = partition.last_known_elr[0]
            if self.is_acceptable_leader(last):
                return last, True, False
        if self.is_unclean_election_allowed:
            for replica in partition.replicas:
                if self.is_acceptable_leader(replica):
                    return replica, True, False
        return NO_LEADER, False, False

    def _last_known_leader(self, new_isr: tuple[int, ...] | None, new_leader: int) -> tuple[int, ...] | None:
        """Remember who led when the in-sync set became empty; forget it once somebody leads again."""
        partition = self.partition
        if not self.is_elr_enabled:
            return None
        if new_isr == () and partition.last_known_elr != (partition.leader,):
            return (partition.leader,)
        has_leader = new_leader >= 0 or (partition.has_leader and new_leader != NO_LEADER)
        return () if has_leader and partition.last_known_elr else None
