"""Reassignments of replicas (KIP-455): from the present replicas through both sets to the target, or back.

While a reassignment runs, ``replicas`` of a partition holds the target followed by the replicas to remove.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraftlog.controller.topic_image import PartitionImage

__all__ = ["CompletedReassignment", "Reassignment", "RevertedReassignment", "complete_reassignment"]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas of a partition during a reassignment.

    Args:
        replicas: The target, then the ones that are removed.
        adding: Of the target, those that are new, ascending.
        removing: Those that are not in the target, ascending.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @classmethod
    def of(cls, current: Sequence[int], target: Sequence[int]) -> Reassignment:
        """The reassignment of ``current`` replicas, with those of one that is running, to ``target``."""
        removing = tuple(sorted(set(current) - set(target)))
        adding = tuple(sorted(set(target) - set(current)))
        return cls((*target, *removing), adding, removing)


@dataclass(frozen=True, slots=True)
class CompletedReassignment:
    """What a partition has once its reassignment is done."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def complete_reassignment(
    *, replicas: tuple[int, ...], removing: tuple[int, ...], adding: tuple[int, ...], isr: tuple[int, ...]
) -> CompletedReassignment | None:
    """End a reassignment, if there is one and the in-sync set allows it.

    Every added replica has to be in sync, and at least one replica of the target. If more replicas are removed than
    added, the whole target has to be in sync: else the reassignment would leave fewer in-sync replicas than there
    are now (KAFKA-15665).
    """
    if not adding and not removing:
        return None
    target_isr = tuple(replica for replica in isr if replica not in removing)
    target = tuple(replica for replica in replicas if replica not in removing)
    if removing and (not target_isr or not target):
        return None
    if not set(adding) <= set(target_isr):
        return None
    if len(adding) < len(removing) and not set(target) <= set(target_isr):
        return None
    return CompletedReassignment(target, target_isr)


@dataclass(frozen=True, slots=True)
class RevertedReassignment:
    """What a partition has once its reassignment is cancelled.

    Args:
        replicas: Without the added ones; empty when the partition had no other.
        isr: The same of the in-sync set. The first replica if all that are known to have what is committed are given up
            with the added replicas; nothing if only an eligible leader stays.
        is_unclean: Whether ``isr`` is a replica that may lack committed records.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_unclean: bool

    @classmethod
    def of(cls, partition: PartitionImage, *, is_elr_enabled: bool) -> RevertedReassignment:
        """Revert the reassignment of this partition."""
        replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
        isr = tuple(replica for replica in partition.isr if replica not in partition.adding_replicas)
        # An eligible replica has all that is committed (KIP-966), and the last known leader more than others. Kafka
        # takes the first replica even if one of them stays.
        eligible = partition.elr if is_elr_enabled else ()
        complete = {*partition.isr, *eligible} or {*partition.last_known_elr}
        if not complete or not complete.isdisjoint(replicas):
            return cls(replicas, isr, is_unclean=False)
        return cls(replicas, replicas[:1], is_unclean=True)
