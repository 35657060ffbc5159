"""Machines whose process is a node: a broker, a controller or both, formatted and started as the CLI does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraftlog.features import KRAFT_VERSION
from kraftlog.node.config import NodeConfig
from kraftlog.node.node import Node
from kraftlog.storage.dynamic_voter import DynamicVoter
from kraftlog.storage.formatter import Formatter
from kraftlog.storage.log_dir import CLEAN_SHUTDOWN_NAME
from kraftlog.storage.meta_properties import random_uuid, read_meta_properties
from kraftlog.testing.world.machine import Machine
from kraftlog.types import NodeId, Uuid

if TYPE_CHECKING:
    from kraftlog.runtime.raft.replicated_log import ReplicatedLog
    from kraftlog.testing.world.world import World

__all__ = ["ClusterShape", "NodeMachine", "make_cluster"]

# Between the end of a node and that of its process. What ends by itself within it is not kept.
_REST_S = 2.0

CONTROLLER_PORT = 9093
BROKER_PORT = 9092


class NodeMachine(Machine):
    """One node of a cluster. Its process is started by ``start_node``, and again after ``stop``.

    Args:
        world: It is part of.
        name: Unique.
        node_id: node.id.
        roles: process.roles.
        directories: Log directories, each on a disk of its own; the first one has the metadata log.

    Attributes:
        properties: Of the configuration; what is changed holds from the next start on.
        node: The node that runs, or that ran last.
        start_task: Of the last start.
        start_count: Processes so far.
        disk_number: Disks with the metadata log so far, less one.
        replaced_count: How often any of its disks was replaced.
        disk_since_ms: Time of the world since when it has the newest of its disks.
        data_paths: The log directories.
        directory_id: Of the first one, once it is formatted.
        voter_listener_name: Of the listener by which other voters reach it.
        bad_disks: Those of which a fault spoilt what they hold; nothing is expected of the bytes then.
        failing_disks: Those that fail, or did since the last start.
        is_shutting_down: Whether the process was asked to end and has not ended yet.
        was_ended_cleanly: Whether the process before this one has left its clean-shutdown file.
        on_exit: Called when the process has ended by itself.
        acknowledged: Offsets that callers of a ``Quorum`` were told since the last look.
        exit_error: Why the process ended by itself: the node could not start, or its metadata log failed.
    """

    def __init__(self, world: World, name: str, *, node_id: int, roles: Sequence[str], directories: int = 1) -> None:
        super().__init__(world, name)
        roots = [self.path, *(self.add_disk() for _ in range(directories - 1))]
        self.data_paths: list[Any] = [root / "data" for root in roots]
        self.node_id = node_id
        self.roles = tuple(roles)
        self.properties: dict[str, str] = {}
        self.node: Node | None = None
        self.start_task: Any = None
        self.is_shutting_down = False
        self.was_ended_cleanly = False
        self._follower: asyncio.Task[None] | None = None
        self.exit_error: BaseException | None = None
        self.on_exit: Callable[[NodeMachine], None] | None = None
        self.acknowledged: list[int] = []
        self.start_count = 0
        self.disk_number = 0
        self.replaced_count = 0
        self.disk_since_ms = 0.0
        self.bad_disks: set[int] = set()
        self.failing_disks: set[int] = set()
        self.directory_id = Uuid.ZERO
        self.voter_listener_name = "CONTROLLER"
        self._voters: Sequence[DynamicVoter] | None = ()
        self._levels: Mapping[str, int] = {}
        self._cluster_id = ""

    @property
    def replicated_log(self) -> ReplicatedLog[Any] | None:
        """Of the quorum that the process is a replica of; None before it has opened it."""
        node = self.node
        if node is None or not hasattr(node, "metadata") or not node.metadata.replica.is_opened:
            return None
        return getattr(node.metadata.replica, "log", None)

    @property
    def data_path(self) -> Any:
        """The first log directory."""
        return self.data_paths[0]

    @property
    def has_bad_disk(self) -> bool:
        """Whether one of its disks is bad."""
        return bool(self.bad_disks)

    @property
    def is_disk_failing(self) -> bool:
        """Whether one of its disks fails, or did since the last start."""
        return bool(self.failing_disks)

    @property
    def may_end(self) -> bool:
        """Whether the process may end by itself: the disk of the metadata log fails, which all others depend on."""
        return 0 in self.failing_disks

    def format(
        self, cluster_id: str, voters: Sequence[DynamicVoter] | None, levels: Mapping[str, int] | None = None
    ) -> None:
        """Format the log directories, durably, as ``kraftlog storage format --initial-controllers`` does.

        Args:
            cluster_id: Of the cluster.
            voters: Of the quorum; None if they are static, as controller.quorum.voters says.
            levels: Features that do not begin with the level that the newest metadata.version gives them.
        """
        self._cluster_id, self._voters, self._levels = cluster_id, voters, levels or {}
        self._format()

    def replace_disk(self, index: int = 0) -> None:
        """Put an empty disk, formatted for the same cluster, in the place of one; the process has to be stopped.

        Raises:
            RuntimeError: It runs, or the directory is that of a controller, which is a voter.
        """
        if self.is_running or ("controller" in self.roles and not index):
            msg = f"{self.name} runs" if self.is_running else f"{self.name}: the directory is part of the quorum"
            raise RuntimeError(msg)
        super().replace_disk(index)
        self.replaced_count += 1
        if not index:
            self.disk_number += 1
        self.disk_since_ms = self.world.now_ms
        self.bad_disks.discard(index)
        self.failing_disks.discard(index)
        self._format()

    def _format(self) -> None:
        formatter = Formatter(
            directories=self.data_paths,
            metadata_directory=self.data_path,
            cluster_id=self._cluster_id,
            node_id=NodeId(self.node_id),
            feature_levels=self._levels,
            initial_voters=tuple(self._voters) if self._voters is not None and "controller" in self.roles else None,
            has_dynamic_quorum=self._voters is not None,
            ignore_formatted=self.replaced_count > 0,
            report=lambda _: None,
        )
        self.run_now(formatter.run)
        properties = read_meta_properties(self.data_path)
        self.directory_id = (None if properties is None else properties.directory_id) or Uuid.ZERO

    def start_node(self) -> None:
        """Begin to start the node; ``start_task`` says when it serves."""
        loop = self.loop if self.node is None else self.start()
        self.was_ended_cleanly = (self.data_path / CLEAN_SHUTDOWN_NAME).exists()
        node = self.node = Node(NodeConfig(self.properties))
        self.start_count += 1
        self.exit_error = None
        self.is_shutting_down = False
        self.start_task = loop.create_task(node.start())
        self.start_task.add_done_callback(lambda started: self._started(node, started))

    def _started(self, node: Node, started: asyncio.Task[None]) -> None:
        """What ``node.process.run_node`` does behind the start: the process ends with the node."""
        if started.cancelled() or node is not self.node:
            return
        error = started.exception()
        if error is not None:
            self._exit(error)
        else:
            self._follower = self.loop.create_task(self._follow(node))

    async def _follow(self, node: Node) -> None:
        await node.metadata.failed.wait()
        error = node.metadata.failure
        await node.stop()
        self._exit(error or RuntimeError("the metadata log failed without a reason"))

    def shut_down(self, ended: Callable[[list[str]], None]) -> None:
        """Begin to end the process as SIGTERM does; it may still be killed, or lose its power, before it has ended.

        Args:
            ended: Called once it has ended, with what it had not given back: tasks, timers, sockets and threads.

        Raises:
            RuntimeError: It does not serve, or is being shut down.
        """
        if not self.is_serving or self.is_shutting_down:
            msg = f"{self.name} does not serve"
            raise RuntimeError(msg)
        self.is_shutting_down = True
        if self._follower is not None:
            self._follower.cancel()
        task = self.loop.create_task(self._shut_down(ended))
        task.add_done_callback(self._shut_down_failed)

    def _shut_down_failed(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._exit(error)

    async def _shut_down(self, ended: Callable[[list[str]], None]) -> None:
        await self._close_node()
        changes = self.change_count
        await asyncio.sleep(_REST_S)
        kept = self._kept(asyncio.current_task())
        if self.change_count != changes:
            kept.append("its disks, which it has changed since")

        def end() -> None:
            self.stop()
            ended(kept)

        self.world.at(self.world.now_ns, self._bound(end))

    async def _close_node(self) -> None:
        """End the node as its process does."""
        assert self.node is not None  # it serves
        await self.node.stop()

    def _kept(self, by: asyncio.Task[Any] | None) -> list[str]:
        """What the process has not given back, apart from one task."""
        tasks = [f"task {task.get_coro()!r}" for task in self.pending_tasks() if task is not by]
        timers = [f"timer {timer!r}" for timer in self.pending_timers()]
        sockets = [f"socket {sock!r}" for sock in self.open_sockets()]
        threads = [f"thread {worker!r}" for worker in self.workers if worker.is_alive]
        return [*tasks, *timers, *sockets, *threads]

    def _exit(self, error: BaseException) -> None:
        def end() -> None:
            self.exit_error = error
            self.stop()
            if self.on_exit is not None:
                self.on_exit(self)

        # Not within a callback of the loop that ends.
        self.world.at(self.world.now_ns, self._bound(end))

    @property
    def is_serving(self) -> bool:
        """Whether the node has started and runs."""
        return (
            self.is_running
            and self.start_task is not None
            and self.start_task.done()
            and not self.start_task.cancelled()
            and self.start_task.exception() is None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """How many nodes there are, and what they have in common.

    Attributes:
        controllers: Nodes 1 to this number are voters.
        brokers: Those behind them are brokers.
        combined: So many of the voters, the first ones, are brokers, too.
        directories: Log directories of each broker, each on a disk of its own.
        properties: Settings of every node.
        levels: Features that do not begin with the level that the newest metadata.version gives them; with
            kraft.version 0 the voters are static.
    """

    controllers: int = 3
    brokers: int = 3
    combined: int = 0
    directories: int = 1
    properties: Mapping[str, str] | None = None
    levels: Mapping[str, int] | None = None


def make_cluster(world: World, shape: ClusterShape) -> list[NodeMachine]:
    """Format the machines of a cluster; their nodes are not started."""
    machines = [
        NodeMachine(
            world, f"node-{number}", node_id=number, roles=["broker", "controller"], directories=shape.directories
        )
        for number in range(1, shape.combined + 1)
    ]
    machines += [
        NodeMachine(world, f"controller-{number}", node_id=number, roles=["controller"])
        for number in range(shape.combined + 1, shape.controllers + 1)
    ]
    machines += [
        NodeMachine(world, f"broker-{number}", node_id=number, roles=["broker"], directories=shape.directories)
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
    levels = shape.levels or {}
    is_static = levels.get(KRAFT_VERSION) == 0
    if is_static:
        static = ",".join(f"{voter.node_id}@{voter.host}:{voter.port}" for voter in voters)
        quorum = {"controller.quorum.voters": static}
    else:
        quorum = {"controller.quorum.bootstrap.servers": ",".join(f"{voter.host}:{voter.port}" for voter in voters)}
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
            **quorum,
            "log.dirs": ",".join(map(str, machine.data_paths)),
            # A replica of each partition in each rack, and a rack that clients can name.
            "broker.rack": f"rack-{machine.node_id}",
            "log.flush.on.ack": "true",
            # One thread has one order of events.
            "kraftlog.data.path": "python",
            # Compiled clients stamp records by the clock of the process, which is ahead of the world.
            "log.message.timestamp.after.max.ms": str(2**63 - 1),
            "offsets.topic.num.partitions": "3",
            **(shape.properties or {}),
        }
        machine.format(cluster_id, None if is_static else voters, levels)
    return machines
