"""Builds the record that takes a partition from its replicas, in-sync set and leader to the next ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, TypeVar

from kraftlog.controller.reassignment import complete_reassignment
from kraftlog.controller.topic_image import NO_LEADER, NO_LEADER_CHANGE, RECOVERING, PartitionImage
from kraftlog.features import MetadataVersion
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import PartitionChangeRecord

__all__ = ["Election", "PartitionChange", "PartitionRules"]

T = TypeVar("T")


class Election(Enum):
    """Which replica may become leader when the present one cannot stay.

    Attributes:
        ONLINE: One that is safe.
        PREFERRED: The first replica if it is safe, even if the present leader could stay.
        UNCLEAN: Any live replica when none is safe.
    """

    ONLINE = auto()
    PREFERRED = auto()
    UNCLEAN = auto()


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """What holds for the partitions of one topic.

    Args:
        metadata_version: Determines the record's version and fields.
        min_isr: min.insync.replicas of the topic, at most its replication factor.
        is_elr_enabled: Whether eligible leader replicas are kept (KIP-966).
        is_unclean_election_allowed: unclean.leader.election.enable of the topic.
    """

    metadata_version: MetadataVersion
    min_isr: int
    is_elr_enabled: bool
    is_unclean_election_allowed: bool = False

    @property
    def default_election(self) -> Election:
        """The election of a change that no client asked for."""
        return Election.UNCLEAN if self.is_unclean_election_allowed else Election.ONLINE


class _Elected(NamedTuple):
    """A leader, -1 for none, and whether it may lack committed records."""

    leader: int
    is_unclean: bool = False


@dataclass(slots=True, kw_only=True)
class PartitionChange:
    """A wanted change of one partition; a target that is None stays as it is.

    Args:
        topic_id: Its topic.
        index: Of the partition.
        partition: The partition as it is.
        rules: Of its topic.
        can_lead: Whether a replica may lead after the change: its broker and its directory are online.
        default_directory: Gives the directory of a replica that the partition does not have yet.
        election: Which leader is chosen when the present one cannot stay.
        isr, replicas, removing, adding, recovery_state: What the partition is to have.
        directories: Directories to record, by broker.
        unclean_replicas: Replicas that may have lost data; they leave the eligible leader replicas.

    Source: KIP-455, KIP-704, KIP-966; Kafka's PartitionChangeBuilder.
    """

    topic_id: Uuid
    index: int
    partition: PartitionImage
    rules: PartitionRules
    can_lead: Callable[[PartitionImage, int], bool]
    default_directory: Callable[[int], Uuid]
    election: Election = Election.ONLINE
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    recovery_state: int | None = None
    directories: Mapping[int, Uuid] = field(default_factory=dict)
    unclean_replicas: frozenset[int] = frozenset()

    def build(self) -> PartitionChangeRecord | None:
        """The record, or None when nothing changes."""
        partition, rules = self.partition, self.rules
        isr, replicas, removing, adding = self._targets()
        elr = self._eligible_leader_replicas(isr, replicas)
        elected = self._elect(replicas, isr, elr)
        leader = NO_LEADER_CHANGE
        is_unclean = False
        if elected.leader != partition.leader:
            leader, is_unclean = elected
            if leader in elr:
                isr, elr = (leader,), tuple(replica for replica in elr if replica != leader)
        if leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(replicas):
            # Writing the leader raises its epoch, so that replicas which were dropped are fenced.
            leader = partition.leader
        if is_unclean:
            isr = (elected.leader,)
        if is_unclean or not rules.is_elr_enabled:
            elr = ()
        new_isr = isr if isr != partition.isr or is_unclean else None
        if not isr and not rules.is_elr_enabled:
            new_isr = None  # the last in-sync replica stays
        if leader == NO_LEADER_CHANGE and self._is_epoch_raised_by_shrink(new_isr):
            leader = partition.leader
        record = PartitionChangeRecord(
            partition_id=self.index,
            topic_id=self.topic_id,
            isr=new_isr,
            leader=leader,
            replicas=_changed(replicas, partition.replicas),
            removing_replicas=_changed(removing, partition.removing_replicas),
            adding_replicas=_changed(adding, partition.adding_replicas),
            leader_recovery_state=self._new_recovery_state(is_unclean=is_unclean),
            directories=self._new_directories(replicas),
            eligible_leader_replicas=_changed(elr, partition.elr),
            last_known_elr=self._new_last_known_leader(leader, replicas, is_any_safe=bool(isr or elr)),
        )
        nothing = PartitionChangeRecord(partition_id=self.index, topic_id=self.topic_id)
        return None if record == nothing else record

    def _targets(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """In-sync set, replicas, removing and adding ones; a reassignment ends if the in-sync set is ready for it."""
        partition = self.partition
        isr = partition.isr if self.isr is None else self.isr
        replicas = partition.replicas if self.replicas is None else self.replicas
        removing = partition.removing_replicas if self.removing is None else self.removing
        adding = partition.adding_replicas if self.adding is None else self.adding
        completed = complete_reassignment(replicas=replicas, removing=removing, adding=adding, isr=isr)
        return (isr, replicas, removing, adding) if completed is None else (completed.isr, completed.replicas, (), ())

    def _eligible_leader_replicas(self, isr: tuple[int, ...], replicas: tuple[int, ...]) -> tuple[int, ...]:
        """Replicas outside the in-sync set that hold everything committed, while that set is below its minimum."""
        partition = self.partition
        if not self.rules.is_elr_enabled:
            return partition.elr
        if len(isr) >= self.rules.min_isr:
            return ()
        # A broker that a reassignment took out of the replicas deletes its log: it may never be elected (RINV-26).
        candidates = {*partition.elr, *partition.isr}.intersection(replicas)
        return tuple(sorted(candidates.difference(isr, self.unclean_replicas)))

    def _elect(self, replicas: tuple[int, ...], isr: tuple[int, ...], elr: tuple[int, ...]) -> _Elected:
        partition, election = self.partition, self.election
        safe = isr or elr

        def is_valid(replica: int) -> bool:
            return replica in safe and self.can_lead(partition, replica)

        if election is Election.PREFERRED and is_valid(replicas[0]):
            return _Elected(replicas[0])
        if is_valid(partition.leader):
            return _Elected(partition.leader)
        for replica in replicas:
            if is_valid(replica):
                return _Elected(replica)
        if self.rules.is_elr_enabled and not isr and not elr and len(partition.last_known_elr) == 1:
            last_known = partition.last_known_elr[0]
            if last_known in replicas and self.can_lead(partition, last_known):
                return _Elected(last_known, is_unclean=True)
        if election is Election.UNCLEAN:
            for replica in replicas:
                if self.can_lead(partition, replica):
                    return _Elected(replica, is_unclean=True)
        return _Elected(NO_LEADER)

    def _is_epoch_raised_by_shrink(self, new_isr: tuple[int, ...] | None) -> bool:
        """Brokers before 3.6 need a new leader epoch whenever the in-sync set shrinks (KAFKA-15021)."""
        if new_isr is None or not self.rules.metadata_version.is_leader_epoch_bump_required_on_isr_shrink:
            return False
        return not set(self.partition.isr) <= set(new_isr)

    def _new_recovery_state(self, *, is_unclean: bool) -> int:
        before = self.partition.leader_recovery_state
        if self.recovery_state is not None and self.recovery_state != before:
            return self.recovery_state
        return RECOVERING if is_unclean and before != RECOVERING else -1

    def _new_directories(self, replicas: tuple[int, ...]) -> tuple[Uuid, ...] | None:
        partition = self.partition
        is_same = replicas == partition.replicas and not self.directories
        if is_same or not self.rules.metadata_version.is_directory_assignment_supported:
            return None
        known = dict(zip(partition.replicas, partition.directories, strict=True))
        known.update(self.directories)
        directories = tuple(
            known[replica] if replica in known else self.default_directory(replica) for replica in replicas
        )
        return _changed(directories, partition.directories)

    def _new_last_known_leader(
        self, leader: int, replicas: tuple[int, ...], *, is_any_safe: bool
    ) -> tuple[int, ...] | None:
        """Remember who led when the partition lost its leader, until somebody leads again or it is no replica.

        A broker deletes its log when it is no replica any more: one that is a replica again later may not lead for what
        it had before, which Kafka lets it.

        A partition that lost its leader while eligible leader replicas were disabled has no last known leader, but kept
        its last in-sync replica. If that replica returns after an unclean shutdown once they are enabled, it is the
        last known leader; Kafka forgets it, and then only an unclean election of any replica is left.
        """
        partition = self.partition
        before = partition.last_known_elr
        if not self.rules.is_elr_enabled:
            return None
        if leader >= 0:
            return () if before else None
        if before:
            return None if set(before) <= set(replicas) else ()
        if partition.has_leader:
            return (partition.leader,) if leader == NO_LEADER else None
        safe = {*partition.isr, *partition.elr}.intersection(partition.replicas)
        return tuple(safe) if len(safe) == 1 and not is_any_safe else None


def _changed(target: tuple[T, ...], before: tuple[T, ...]) -> tuple[T, ...] | None:
    """The target if it differs, else None."""
    return None if target == before else target
