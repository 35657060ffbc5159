"""What a cluster without faults has to come to within a stated time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.testing.world.node_machine import NodeMachine

__all__ = ["NO_CLEAN_LEADER", "LastDiskLost", "missing_leader", "missing_recovery"]

NO_CLEAN_LEADER = "no clean leader"
"""Broken by no rule: a partition waits for an unclean election, which only an operator can ask for."""

LastDiskLost: TypeAlias = Callable[[Any, int, Any, Mapping[str, int]], bool]
"""See :meth:`PartitionChecker.has_lost_last_disk`."""


def missing_recovery(machines: Collection[NodeMachine], has_lost_last_disk: LastDiskLost) -> tuple[str, str] | None:
    """What a cluster has not come to yet: a rule of ``docs/behaviours`` and what breaks it; None when it has recovered.

    Args:
        machines: Every node of the cluster.
        has_lost_last_disk: Says of a partition what its checker knows.
    """
    nodes: dict[int, Node] = {}
    for machine in machines:
        if not machine.is_serving or machine.node is None:
            return "INV-34", f"{machine.name} does not serve"
        nodes[machine.node_id] = machine.node
    restarted = {machine.node_id for machine in machines if machine.start_count > 1}
    return (
        _missing_metadata(nodes)
        or _missing_partitions(nodes, restarted, has_lost_last_disk)
        or next(filter(None, map(_missing_move, machines)), None)
    )


def missing_leader(
    name: str, partition: Any, restarted: Collection[int], *, is_last_disk_lost: bool = False
) -> tuple[str, str]:
    """The rule that a partition without a leader breaks, and the reason.

    RINV-34 promises a leader as long as an active broker is in the in-sync set or, if that is empty, among the eligible
    replicas. Both are empty once every replica has registered again after an unclean end and so may have lost
    committed records: two disks and the power of all, for example. Then neither kraftlog nor Apache Kafka elects a
    leader without an operator. If a replica never ended, something else emptied the sets, and the rule is broken.

    The last replica in sync may lose its disk. If its broker is unfenced before the directory on the new disk is
    assigned, neither event elects it, in sync (level 0 of eligible leader replicas) or as the last known leader: both
    judge it by the directory that it had before.

    Args:
        name: Of the partition.
        partition: Its metadata, without a leader.
        restarted: The brokers whose process has ended at least once.
        is_last_disk_lost: See :meth:`PartitionChecker.has_lost_last_disk`.

    Source: ``ReplicationControlManager.handleAssignReplicasToDirs`` of Kafka 4.3.1 and its ``LeaderAcceptor``.
    """
    if is_last_disk_lost:
        return NO_CLEAN_LEADER, f"{name}: the disk of the last replica in sync was replaced: {partition}"
    if not partition.isr and not partition.elr and set(partition.replicas) <= set(restarted):
        return NO_CLEAN_LEADER, f"{name}: every replica may have lost committed records: {partition}"
    return "RINV-34", f"{name} has no leader: {partition}"


def _missing_metadata(nodes: dict[int, Node]) -> tuple[str, str] | None:
    leaders = [node_id for node_id, node in nodes.items() if node.metadata.is_leader]
    if len(leaders) != 1:
        return "INV-34", f"active controllers: {leaders}"
    offsets = {node_id: int(node.metadata.image.offset) for node_id, node in nodes.items()}
    ends = {node_id: int(node.metadata.replica.raft.log_end_offset) for node_id, node in nodes.items()}
    if len(set(offsets.values())) > 1 or len(set(ends.values())) > 1:
        return "INV-36", f"applied metadata: {offsets}, log ends: {ends}"
    fenced = [
        broker_id for broker_id, broker in nodes[leaders[0]].metadata.image.cluster.brokers.items() if broker.fenced
    ]
    return ("RINV-34", f"fenced brokers: {fenced}") if fenced else None


def _missing_move(machine: NodeMachine) -> tuple[str, str] | None:
    """Of a broker with several log directories: a copy that has not taken its log's place, or a wrong assignment."""
    if len(machine.data_paths) == 1 or machine.node is None:
        return None
    copies = [path.name for data in machine.data_paths for path in data.iterdir() if path.name.endswith("-future")]
    if copies:
        return "RINV-88", f"{machine.name} still moves {', '.join(copies)}"
    image = machine.node.metadata.image
    for found in machine.node.partitions:
        topic = image.topics.by_id(found.topic_id)
        known = None if topic is None else topic.partitions.get(found.index)
        if known is not None and machine.node_id in known.replicas:
            assigned = known.directories[list(known.replicas).index(machine.node_id)]
            if assigned != found.log_dir.directory_id:
                what = f"{found.topic}-{found.index} is in {found.log_dir.path}, the metadata has {assigned}"
                return "RINV-88", f"{machine.name}: {what}"
    return None


def _missing_partitions(
    nodes: dict[int, Node], restarted: Collection[int], has_lost_last_disk: LastDiskLost
) -> tuple[str, str] | None:
    image = next(iter(nodes.values())).metadata.image
    for topic in image.topics:
        for index, partition in topic.partitions.items():
            name = f"{topic.name}-{index}"
            if not partition.has_leader:
                is_lost = has_lost_last_disk(topic.topic_id, index, partition, image.features)
                return missing_leader(name, partition, restarted, is_last_disk_lost=is_lost)
            if set(partition.isr) != set(partition.replicas):
                return "RINV-35", f"{name}: not every replica is in sync: {partition}"
            ends: dict[int, tuple[int, int]] = {}
            for replica_id in partition.replicas:
                found = nodes[replica_id].partitions.get(topic.topic_id, index)
                if found is None or found.leader_epoch != partition.leader_epoch:
                    return "RINV-35", f"{name}: node {replica_id} has not opened it in epoch {partition.leader_epoch}"
                ends[replica_id] = (found.replica.log_end_offset, found.high_watermark)
            if len(set(ends.values())) > 1 or any(end != high_watermark for end, high_watermark in ends.values()):
                return "RINV-36", f"{name}: log ends and high watermarks: {ends}"
    return None
