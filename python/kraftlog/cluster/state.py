"""The state of a cluster as one of its brokers describes it, and what changed between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.vocabulary import CLUSTER_METADATA_TOPIC
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlog.wire.messages.metadata import MetadataRequest

__all__ = ["ClusterState", "PartitionState", "read_state"]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition.

    Attributes:
        leader: Node id; -1 without a leader.
        leader_epoch: Of that leader.
        replicas: Node ids, the preferred leader first.
        isr: Node ids of the in-sync replicas.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What a broker knows of the cluster.

    Attributes:
        controller_id: Node id of the active controller; -1 while there is none.
        controller_epoch: Epoch of the metadata quorum.
        brokers: Node ids of the brokers that are not fenced.
        partitions: By topic and index.
    """

    controller_id: int = -1
    controller_epoch: int = -1
    brokers: tuple[int, ...] = ()
    partitions: Mapping[tuple[str, int], PartitionState] = field(default_factory=dict)

    def changes_since(self, before: ClusterState) -> Iterator[str]:
        """One line per difference, for people."""
        if (self.controller_id, self.controller_epoch) != (before.controller_id, before.controller_epoch):
            yield f"controller {_node(self.controller_id)}, epoch {self.controller_epoch}"
        for broker_id in sorted(set(self.brokers) - set(before.brokers)):
            yield f"broker {broker_id} is in service"
        for broker_id in sorted(set(before.brokers) - set(self.brokers)):
            yield f"broker {broker_id} is fenced or gone"
        for topic in sorted({topic for topic, _ in before.partitions} - {topic for topic, _ in self.partitions}):
            yield f"{topic} was deleted"
        for (topic, index), now in sorted(self.partitions.items()):
            old = before.partitions.get((topic, index))
            if old == now:
                continue
            name = f"{topic}-{index}"
            if old is None:
                yield f"{name}: leader {_node(now.leader)}, ISR {_nodes(now.isr)}, replicas {_nodes(now.replicas)}"
                continue
            parts = []
            if (old.leader, old.leader_epoch) != (now.leader, now.leader_epoch):
                parts.append(f"leader {_node(old.leader)} -> {_node(now.leader)} (epoch {now.leader_epoch})")
            if old.isr != now.isr:
                parts.append(f"ISR {_nodes(old.isr)} -> {_nodes(now.isr)}")
            if old.replicas != now.replicas:
                parts.append(f"replicas {_nodes(old.replicas)} -> {_nodes(now.replicas)}")
            yield f"{name}: {', '.join(parts)}"


def _node(node_id: int) -> str:
    return "none" if node_id < 0 else str(node_id)


def _nodes(node_ids: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, node_ids)) + "]"


async def read_state(connection: RpcConnection) -> ClusterState:
    """Ask a broker.

    Raises:
        KafkaError: The connection ended.
    """
    metadata: Any = await connection.request(MetadataRequest(topics=None))
    quorum: Any = await connection.request(
        DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequest.TopicData(
                    topic_name=CLUSTER_METADATA_TOPIC,
                    partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
                )
            ]
        )
    )
    controller_id, controller_epoch = -1, -1
    for topic in quorum.topics:
        for partition in topic.partitions:
            controller_id, controller_epoch = partition.leader_id, partition.leader_epoch
    # Asyncio's other callbacks wait while a large answer is converted; ten thousand partitions take some milliseconds.
    await asyncio.sleep(0)
    return ClusterState(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        brokers=tuple(sorted(broker.node_id for broker in metadata.brokers)),
        partitions={
            (topic.name, partition.partition_index): PartitionState(
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replica_nodes),
                isr=tuple(sorted(partition.isr_nodes)),
            )
            for topic in metadata.topics
            for partition in topic.partitions
        },
    )
