"""What a cluster without faults has to come to within a stated time."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.testing.world.node_machine import NodeMachine

__all__ = ["missing_recovery"]


def missing_recovery(machines: Collection[NodeMachine]) -> tuple[str, str] | None:
    """What a cluster has not come to yet: a rule of ``docs/behaviours`` and what breaks it; None when it has recovered.

    Args:
        machines: Every node of the cluster.
    """
    nodes: dict[int, Node] = {}
    for machine in machines:
        if not machine.is_serving or machine.node is None:
            return "INV-34", f"{machine.name} does not serve"
        nodes[machine.node_id] = machine.node
    return _missing_metadata(nodes) or _missing_partitions(nodes)


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


def _missing_partitions(nodes: dict[int, Node]) -> tuple[str, str] | None:
    image = next(iter(nodes.values())).metadata.image
    for topic in image.topics:
        for index, partition in topic.partitions.items():
            name = f"{topic.name}-{index}"
            if not partition.has_leader:
                return "RINV-34", f"{name} has no leader: {partition}"
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
