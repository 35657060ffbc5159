"""Machines whose process is a node: a broker, a controller or both, formatted and started as the CLI does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraftlog.node.config import NodeConfig
from kraftlog.node.node import Node
from kraftlog.storage.dynamic_voter import DynamicVoter
from kraftlog.storage.formatter import Formatter
from kraftlog.storage.meta_properties import random_uuid
from kraftlog.testing.world.machine import Machine
from kraftlog.types import NodeId

if TYPE_CHECKING:
    from kraftlog.testing.world.world import World

__all__ = ["ClusterShape", "NodeMachine", "make_cluster"]

CONTROLLER_PORT = 9093
BROKER_PORT = 9092


class NodeMachine(Machine):
    """One node of a cluster. Its process is started by ``start_node``, and again after ``stop``.

    Args:
        world: It is part of.
        name: Unique.
        node_id: node.id.
        roles: process.roles.

    Attributes:
        properties: Of the configuration; what is changed holds from the next start on.
        node: The node that runs, or that ran last.
        start_task: Of the last start.
    """

    def __init__(self, world: World, name: str, *, node_id: int, roles: Sequence[str]) -> None:
        super().__init__(world, name)
        self.node_id = node_id
        self.roles = tuple(roles)
        self.properties: dict[str, str] = {}
        self.node: Node | None = None
        self.start_task: Any = None

    @property
    def data_path(self) -> Any:
        """The one log directory."""
        return self.path / "data"

    def format(self, cluster_id: str, voters: Sequence[DynamicVoter]) -> None:
        """Format the log directory, durably, as ``kraftlog storage format --initial-controllers`` does."""

        async def work() -> None:
            Formatter(
                directories=[self.data_path],
                metadata_directory=self.data_path,
                cluster_id=cluster_id,
                node_id=NodeId(self.node_id),
                initial_voters=tuple(voters) if "controller" in self.roles else None,
                has_dynamic_quorum=True,
                report=lambda _: None,
            ).run()

        self.world.run(self, work())

    def start_node(self) -> None:
        """Begin to start the node; ``start_task`` says when it serves."""
        loop = self.loop if self.node is None else self.start()
        node = self.node = Node(NodeConfig(self.properties))
        self.start_task = loop.create_task(node.start())

    @property
    def is_serving(self) -> bool:
        """Whether the node has started and runs."""
        return (
            self.is_running
            and self.start_task is not None
            and self.start_task.done()
            and self.start_task.exception() is None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """How many nodes there are, and what they have in common.

    Attributes:
        controllers: Nodes 1 to this number are voters.
        brokers: Those behind them are brokers.
        properties: Settings of every node.
    """

    controllers: int = 3
    brokers: int = 3
    properties: Mapping[str, str] | None = None


def make_cluster(world: World, shape: ClusterShape) -> list[NodeMachine]:
    """Format the machines of a cluster; their nodes are not started."""
    machines = [
        NodeMachine(world, f"controller-{number}", node_id=number, roles=["controller"])
        for number in range(1, shape.controllers + 1)
    ]
    machines += [
        NodeMachine(world, f"broker-{number}", node_id=number, roles=["broker"])
        for number in range(shape.controllers + 1, shape.controllers + shape.brokers + 1)
    ]

    async def draw() -> tuple[str, list[DynamicVoter]]:
        voters = [
            DynamicVoter(
                node_id=NodeId(machine.node_id),
                host=machine.address,
                port=CONTROLLER_PORT,
                directory_id=random_uuid(),
            )
            for machine in machines
            if "controller" in machine.roles
        ]
        return str(random_uuid()), voters

    cluster_id, voters = world.run(machines[0], draw())
    bootstrap = ",".join(f"{voter.host}:{voter.port}" for voter in voters)
    for machine in machines:
        listeners = [
            f"{name}://{machine.address}:{port}"
            for role, name, port in (
                ("broker", "PLAINTEXT", BROKER_PORT),
                ("controller", "CONTROLLER", CONTROLLER_PORT),
            )
            if role in machine.roles
        ]
        machine.properties = {
            "process.roles": ",".join(machine.roles),
            "node.id": str(machine.node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": bootstrap,
            "log.dirs": str(machine.data_path),
            "log.flush.on.ack": "true",
            # One thread has one order of events.
            "kraftlog.data.path": "python",
            "log.cleaner.enable": "false",
            # Compiled clients stamp records by the clock of the process, which is ahead of the world.
            "log.message.timestamp.after.max.ms": str(2**63 - 1),
            "offsets.topic.num.partitions": "3",
            **(shape.properties or {}),
        }
        machine.format(cluster_id, voters)
    return machines
