"""Several nodes of one cluster in this process, each a broker and a controller, on the caller's loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

from free_ports import free_addresses
from kraftlog.node.config import NodeConfig
from kraftlog.node.node import Node
from kraftlog.storage.formatter import Formatter
from kraftlog.storage.meta_properties import random_uuid
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.types import NodeId
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from waiting import until

__all__ = ["ReplicatedCluster", "server_properties"]

QUICK = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.request.timeout.ms": "1000",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.fetch.backoff.ms": "200",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


def server_properties(
    node_id: int, home: Path, controllers: list[str], brokers: list[str], changes: dict[str, str]
) -> dict[str, str]:
    """What ``server.properties`` of one combined node says."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://{brokers[node_id - 1]},CONTROLLER://{controllers[node_id - 1]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{number}@{address}" for number, address in enumerate(controllers, 1)),
        "log.dirs": f"{home / str(node_id)},{home / str(node_id)}-b",
        "broker.rack": f"rack-{node_id}",
        **QUICK,
        **changes,
    }


def format_node(config: NodeConfig, cluster_id: str) -> None:
    """Format the directory of a node with static voters."""
    Formatter(
        directories=list(config.log_dirs),
        metadata_directory=config.metadata_log_dir,
        cluster_id=cluster_id,
        node_id=NodeId(config.node_id),
        ignore_formatted=True,
        report=lambda _: None,
    ).run()


class ReplicatedCluster:
    """Nodes 1 to ``count``."""

    def __init__(self, home: Path, count: int = 3, **changes: str) -> None:
        addresses = free_addresses(2 * count)
        self._controllers, self._brokers = addresses[:count], addresses[count:]
        self._home, self._changes = home, {key.replace("_", "."): value for key, value in changes.items()}
        self._cluster_id = str(random_uuid())
        self.nodes: dict[int, Node] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._brokers)

    def config(self, node_id: int) -> NodeConfig:
        return NodeConfig(server_properties(node_id, self._home, self._controllers, self._brokers, self._changes))

    async def start(self, *node_ids: int) -> None:
        wanted = node_ids or tuple(range(1, len(self._brokers) + 1))
        nodes = []
        for node_id in wanted:
            config = self.config(node_id)
            format_node(config, self._cluster_id)
            nodes.append(Node(config))
        await asyncio.gather(*(node.start() for node in nodes))
        self.nodes.update(zip(wanted, nodes, strict=True))

    async def stop(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.nodes):
            await self.nodes.pop(node_id).stop()

    async def request(self, node_id: int, message):
        host, _, port = self._brokers[node_id - 1].rpartition(":")
        connection = await RpcConnection.open(
            asyncio.get_running_loop(), host, int(port), client_id="test", timeout_s=30
        )
        try:
            return await connection.request(message)
        finally:
            connection.close()

    async def create_topic(self, name: str, partitions: int = 1, replication_factor: int = 3, **configs: str) -> None:
        response = await self.request(
            1 if 1 in self.nodes else next(iter(self.nodes)),
            CreateTopicsRequest(
                topics=[
                    CreateTopicsRequest.CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=replication_factor,
                        configs=[
                            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                            for key, value in configs.items()
                        ],
                    )
                ],
                timeout_ms=10_000,
            ),
        )
        assert [topic.error_code for topic in response.topics] == [0], response
        await until(lambda: all(self.partitions(name, node_id) == partitions for node_id in self.nodes))

    def partitions(self, topic: str, node_id: int) -> int:
        return sum(partition.topic == topic for partition in self.nodes[node_id].partitions)

    def partition(self, node_id: int, topic: str, index: int = 0):
        return self.nodes[node_id].partitions.get_by_name(topic, index)

    def leader_of(self, topic: str, index: int = 0) -> int:
        """The node that leads a partition now and says so itself; 0 while there is none."""
        for node_id, node in self.nodes.items():
            partition = node.partitions.get_by_name(topic, index)
            if partition is not None and partition.is_leader:
                return node_id
        return 0
