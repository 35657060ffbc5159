"""``kraftlog.testing.Cluster``: brokers, controllers and a test's own clients in virtual time."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.checkers import Checkers
from kraftlog.testing.world.machine import FLUSH_MS, Machine
from kraftlog.testing.world.node_machine import BROKER_PORT, ClusterShape, NodeMachine, make_cluster
from kraftlog.testing.world.operated_cluster import OperatedCluster
from kraftlog.testing.world.recovery import missing_recovery
from kraftlog.testing.world.story import Story
from kraftlog.testing.world.world import World

if TYPE_CHECKING:
    import asyncio

__all__ = ["LONG_WAITS", "Cluster"]

T = TypeVar("T")

LONG_WAITS: dict[str, str] = {
    "broker.heartbeat.interval.ms": "4000",
    "controller.quorum.fetch.timeout.ms": "15000",
    "controller.quorum.fetch.wait.max.ms": "10000",
    "controller.quorum.request.timeout.ms": "15000",
    "metadata.max.idle.interval.ms": "0",
    "replica.fetch.wait.max.ms": "10000",
}
"""Properties of a cluster whose idle nodes seldom ask: more virtual time per CPU time, and elections begin later.

Fetches wait for 10 s instead of half a second, brokers send a heartbeat every 4 s instead of 2, and the metadata log
gets no records of no effect.
"""

_START_MS = 120_000.0
# More than two fetch time-outs of the quorum, as they are drawn.
_STABLE_MS = 5_000.0
_SECTOR_BYTES = 512


class Cluster(OperatedCluster):
    """A cluster of whole nodes, and machines for clients, in one process and in virtual time.

    Everything follows from the seed. After each turn of a node's loop the invariants of ``docs/behaviours`` (areas 24
    and 29) are checked; a broken one ends the run with ``InvariantViolationError``, whose text has the rule's id.

        with Cluster(seed=7) as cluster:
            cluster.run(produce(cluster.bootstrap_servers))   # a coroutine of the test, for example with aiokafka
            cluster.power_off(cluster.leader_of("orders", 0))
            cluster.run_for(30_000)
            cluster.recover()
            print(cluster.story)

    A name of a node is ``controller-1``, ``broker-4`` or, with both roles, ``node-1``, as in ``nodes``.

    Args:
        seed: Of all chance.
        controllers: Nodes 1 to this number are controllers.
        brokers: The nodes behind them.
        combined: So many of the controllers are brokers, too.
        directories: Log directories of each broker, each on a disk of its own; the first one has the metadata log.
        properties: Settings of every node, with Kafka's keys.
        checks: Whether invariants are checked.
        levels: Features that do not begin with their newest level; with kraft.version 0 the voters are static.

    Attributes:
        world: Time, chance and the network.
        nodes: The machines of the nodes, by name.
        levels: As given.
        story: What happened.
        checkers: What the invariants are checked by.
    """

    has_features: bool = True
    """Whether an operator can upgrade features of it."""

    def __init__(
        self,
        seed: int = 0,
        *,
        controllers: int = 3,
        brokers: int = 3,
        combined: int = 0,
        directories: int = 1,
        properties: Mapping[str, str] | None = None,
        checks: bool = True,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        self.seed = seed
        self.world = World(seed)
        self.story = Story(self.world)
        self.levels = dict(levels or {})
        shape = ClusterShape(
            controllers=controllers,
            brokers=brokers,
            combined=combined,
            directories=directories,
            properties=properties,
            levels=levels,
        )
        try:
            nodes = {machine.name: machine for machine in self._make_machines(shape)}
        except BaseException:
            self.world.close()
            raise
        for machine in nodes.values():
            machine.on_exit = self._on_exit
        by_id = {machine.node_id: machine for machine in nodes.values()}
        super().__init__(nodes, Checkers(by_id, self.story), checks=checks)
        if checks:
            self.world.network.byte_watcher = self.checkers
        self.world.watchers.append(self._after_turn)
        self._clients: dict[str, Machine] = {}
        self._is_quiet = False

    def _make_machines(self, shape: ClusterShape) -> Sequence[NodeMachine]:
        return make_cluster(self.world, shape)

    def what_is_missing(self) -> tuple[str, str] | None:
        """What the cluster has not come to yet: a rule and what breaks it; None when it has recovered."""
        return missing_recovery(self.nodes.values(), self.checkers.partitions.has_lost_last_disk)

    def __enter__(self) -> Self:
        """Start every node; returns when all of them serve."""
        try:
            for name in self.nodes:
                self.start(name)
            self.run_until(self._all_serve, within_ms=_START_MS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """End the world."""
        self.world.close()

    def _all_serve(self) -> bool:
        return all(machine.is_serving for machine in self.nodes.values())

    def _after_turn(self, machine: Machine) -> None:
        if not isinstance(machine, NodeMachine):
            return
        if machine.loop.failures:
            self._fail_callback(machine)
        if self.checks:
            self.checkers.after_turn(machine)

    def _fail_callback(self, machine: NodeMachine) -> None:
        failure = machine.loop.failures[0]
        error = failure.get("exception")
        if machine.may_end and isinstance(error, OSError):
            machine.loop.failures.clear()
            return
        reason = f"{machine.name}: {failure.get('message')}: {error!r}"
        raise InvariantViolationError("callback", reason, self.story.last(40)) from error

    def _on_exit(self, machine: NodeMachine) -> None:
        self.tell(machine.name, f"ends by itself: {machine.exit_error!r}")
        if not machine.may_end:
            reason = f"{machine.name}: the process ended by itself: {machine.exit_error!r}"
            raise InvariantViolationError("exit", reason, self.story.last(40)) from machine.exit_error

    # Time and clients

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, comma separated."""
        return ",".join(
            f"{machine.address}:{BROKER_PORT}" for machine in self.nodes.values() if "broker" in machine.roles
        )

    def client(self, name: str = "client") -> Machine:
        """The machine of a client by its name; it is made when it is first asked for."""
        if name not in self._clients:
            self._clients[name] = Machine(self.world, name)
        return self._clients[name]

    def begin(self, coroutine: Coroutine[Any, Any, T], *, client: str = "client") -> asyncio.Task[T]:
        """Begin a task on the machine of a client; it makes progress while time passes."""
        return self.world.start(self.client(client), coroutine)

    def run(self, coroutine: Coroutine[Any, Any, T], *, client: str = "client", within_ms: float = 600_000) -> T:
        """Run a coroutine on the machine of a client to its end; returns or raises what it does.

        Raises:
            TimeoutError: It is not done after ``within_ms`` of virtual time.
        """
        return self.world.run(self.client(client), coroutine, within_ms=within_ms)

    def run_for(self, duration_ms: float) -> None:
        """Let time pass."""
        self.world.run_for(duration_ms)

    def run_until(self, condition: Callable[[], bool], *, within_ms: float) -> None:
        """Let time pass until a condition holds.

        Raises:
            TimeoutError: It does not hold after ``within_ms`` of virtual time.
        """
        self.world.run_until(condition, within_ms=within_ms)

    @property
    def is_quiet(self) -> bool:
        """Whether no fault happens any more: a client may finish what it does and check it."""
        return self._is_quiet

    def become_quiet(self) -> None:
        """Say that no fault happens any more."""
        self._is_quiet = True
        self.tell("cluster", "no fault happens any more")

    def tell(self, who: str, what: str) -> None:
        """Add a line to the story."""
        self.story.tell(who, what)

    # Which node

    def leader_of(self, topic: str, partition: int) -> str | None:
        """The broker that leads a partition; None for none."""
        leaders = [
            (found.leader_epoch, name)
            for name, machine in self.nodes.items()
            if machine.is_serving and machine.node is not None
            for found in [machine.node.partitions.get_by_name(topic, partition)]
            if found is not None and found.is_leader
        ]
        return max(leaders)[1] if leaders else None

    def led_by(self, name: str) -> list[tuple[str, int]]:
        """The partitions of topics that a broker leads."""
        node = self.nodes[name].node
        if node is None or not self.nodes[name].is_serving:
            return []
        return [(found.topic, found.index) for found in node.partitions if found.is_leader]

    def disk_of(self, name: str, which: int) -> int:
        """The index of a disk of a node by a number that counts them."""
        return which % len(self.nodes[name].disks)

    def may_lose(self, name: str, disk: int = 0) -> bool:
        """Whether a disk may go: it holds no voter's log, and every other broker is sound and has all records."""
        controller = self.controller
        if controller is None or "broker" not in self.nodes[name].roles:
            return False
        if not disk and "controller" in self.nodes[name].roles:
            return False
        node = self.nodes[controller].node
        others = [machine for other, machine in self.nodes.items() if other != name and "broker" in machine.roles]
        is_sound = not any(machine.has_bad_disk or not machine.is_serving for machine in others)
        return (
            node is not None
            and is_sound
            and all(
                len(partition.isr) > 1 and set(partition.isr) == set(partition.replicas)
                for topic in node.metadata.image.topics
                for partition in topic.partitions.values()
            )
        )

    def _address(self, name: str) -> str:
        return self.world.address_of(name)

    # Faults of processes and machines

    def start(self, name: str) -> None:
        """Start a node that does not run."""
        machine = self.nodes[name]
        if machine.node is None or not machine.is_running:
            self.tell(name, "starts")
            machine.start_node()

    def kill(self, name: str) -> None:
        """End the process as SIGKILL does; what it wrote stays with the operating system."""
        if self.nodes[name].is_running:
            self.tell(name, "is killed")
            self.nodes[name].stop()

    def shut_down(self, name: str, *, then: Callable[[], None] = lambda: None) -> None:
        """Ask the process to end, as SIGTERM does: it gives its leaderships away first, and stops cleanly.

        Args:
            name: Of the node; if it is still being started, it is killed, and ``then`` is called at once.
            then: Called once it has ended, unless it is killed or loses its power before.
        """
        machine = self.nodes[name]
        if machine.is_shutting_down and machine.is_running:
            return
        if not machine.is_serving:
            self.kill(name)
            then()
            return

        def ended(kept: list[str]) -> None:
            self.tell(name, "has ended")
            if kept and not machine.is_disk_failing:
                raise InvariantViolationError("INV-33", f"{name} keeps {'; '.join(kept)}", self.story.last(40))
            then()

        self.tell(name, "is asked to end")
        machine.shut_down(ended)

    def power_off(
        self,
        name: str,
        *,
        data: Literal["nothing", "everything", "suffix", "torn", "pages", "contents"] = "torn",
        names: Literal["nothing", "everything", "suffix", "any"] = "suffix",
    ) -> None:
        """End the machine: what was not synced is lost, as ``data`` and ``names`` say.

        Args:
            name: Of the node.
            data: Of unsynced bytes: all, those behind a point, sectors, pages, or nothing.
            names: Likewise, of unsynced entries of directories.
        """
        if self.nodes[name].is_running:
            self.tell(name, f"loses power: of unsynced bytes {data}, of unsynced names {names}")
            self.nodes[name].stop(data=data, names=names)

    def power_off_after(
        self,
        name: str,
        changes: int,
        *,
        data: Literal["nothing", "everything", "suffix", "torn", "pages", "contents"] = "torn",
        names: Literal["nothing", "everything", "suffix", "any"] = "suffix",
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """End the machine right behind one effect on its disk: so many more writes, syncs and changes of names happen.

        Args:
            name: Of the node.
            changes: At least 0.
            data: As ``power_off``.
            names: Likewise.
            then: Called once it has lost its power.
        """
        self.tell(name, f"will lose power after {changes} more changes of its disk")

        def stop() -> None:
            self.power_off(name, data=data, names=names)
            then()

        self.nodes[name].stop_after_changes(changes, stop)

    def pause(self, name: str) -> None:
        """Stop the process as SIGSTOP does."""
        self.tell(name, "is paused")
        self.nodes[name].pause()

    def resume(self, name: str) -> None:
        """Let a paused process go on."""
        self.tell(name, "goes on")
        self.nodes[name].resume()

    def jump_clock(self, name: str, by_ms: int) -> None:
        """Set the wall clock of a node forward or back."""
        self.tell(name, f"has its wall clock set by {by_ms} ms")
        self.nodes[name].wall_offset_ms += by_ms

    def skew_clock(self, name: str, rate: float) -> None:
        """Let the clock of a node run fast or slow, 1 is right."""
        self.tell(name, f"has a clock of rate {rate:g}")
        self.nodes[name].clock_rate = rate

    # Faults of the network

    def cut(self, source: str, target: str, *, both_ways: bool = True) -> None:
        """Let nothing through between two machines, or from one to the other; it is held as TCP holds it."""
        self.tell(
            "network", f"is cut {'between' if both_ways else 'from'} {source} {'and' if both_ways else 'to'} {target}"
        )
        self.world.network.cut(self._address(source), self._address(target))
        if both_ways:
            self.world.network.cut(self._address(target), self._address(source))

    def isolate(self, name: str) -> None:
        """Cut a machine off from every other one."""
        self.tell("network", f"is cut around {name}")
        others = [machine.address for machine in self.world.machines.values()]
        self.world.network.isolate(self._address(name), others)

    def mend_links(self, name: str, *others: str) -> None:
        """Let through what is cut between a machine and others, or all."""
        network = self.world.network
        for other in others or self.world.machines:
            network.heal(self._address(name), self._address(other))
            network.heal(self._address(other), self._address(name))

    def slow_down(self, source: str, target: str, extra_ms: float) -> None:
        """Delay everything from one machine to another by so much more; 0 ends that."""
        self.tell("network", f"delays what {source} sends to {target} by {extra_ms:g} ms")
        self.world.network.slow_down(self._address(source), self._address(target), extra_ms)

    def hold_up(self, share: float, most_ms: float) -> None:
        """Hold up a share of all deliveries for up to ``most_ms``."""
        self.tell("network", f"holds up {share:.0%} of deliveries for up to {most_ms:g} ms")
        self.world.network.spikes = (share, most_ms)

    def reset(self, first: str, second: str) -> None:
        """Reset every connection between two machines."""
        count = self.world.network.reset_between(self._address(first), self._address(second))
        self.tell("network", f"resets {count} connections between {first} and {second}")

    def break_within_frame(self, source: str, target: str) -> None:
        """Deliver only a part of what one machine next sends to another, then reset that connection.

        When a server's answer breaks, the client sends its request again: the duplicate of this network.
        """
        self.tell("network", f"will break what {source} next sends to {target}")
        self.world.network.break_within_frame(self._address(source), self._address(target))

    # Faults of disks

    def fail_disk(
        self,
        name: str,
        operation: Literal["read", "write", "sync", "open", "change"] = "sync",
        *,
        after: int = 0,
        disk: int = 0,
    ) -> None:
        """Let an operation of one disk of a node fail with EIO, after so many that work; the process may end.

        It ends if the disk is the first one, with the metadata log; otherwise the directory on it goes offline.
        """
        self.tell(name, f"has {self._disk(name, disk)} on which {operation} fails after {after} more")
        self.nodes[name].failing_disks.add(disk)
        self.nodes[name].disks[disk].fail(operation, after, errno.EIO)

    def fill_disk(self, name: str, disk: int = 0) -> None:
        """Let a disk of a node be full: writes fail with ENOSPC."""
        self.tell(name, f"has {self._disk(name, disk)} that is full")
        self.nodes[name].failing_disks.add(disk)
        self.nodes[name].disks[disk].set_capacity(0)

    def _disk(self, name: str, index: int) -> str:
        """A disk, as the story names it."""
        return "a disk" if len(self.nodes[name].disks) == 1 else f"a disk ({index + 1})"

    def slow_disk(self, name: str, most_ms: float | None) -> None:
        """Let fsync take up to ``most_ms``; None for what it took."""
        machine = self.nodes[name]
        machine.flush_ms = FLUSH_MS if most_ms is None else (most_ms / 20, most_ms)
        self.tell(name, "has a disk of usual speed" if most_ms is None else f"takes up to {most_ms:g} ms per fsync")

    def mend_disks(self, name: str) -> None:
        """Let the disks of a node work again."""
        for disk in self.nodes[name].disks:
            disk.clear_faults()
            disk.set_capacity(None)

    def restart_mended(self, name: str) -> None:
        """Start a node again with disks that work; one whose contents a fault spoilt is replaced by an empty one."""
        self.kill(name)
        self.mend_disks(name)
        for disk in sorted(self.nodes[name].bad_disks):
            self.replace_disk(name, disk)
        self.nodes[name].failing_disks.clear()
        self.start(name)

    def replace_disk(self, name: str, disk: int = 0) -> None:
        """Kill a broker and put an empty disk, formatted for this cluster, in the place of one."""
        self.kill(name)
        self.tell(name, f"gets {self._disk(name, disk)} that is empty")
        self.nodes[name].replace_disk(disk)

    def spoil(self, name: str, kind: Literal["rot", "misdirected"] = "rot", *, disk: int = 0) -> str | None:
        """Spoil a segment of a broker's log, durably: flip a bit, or write a sector of another place over it.

        The sector is of the same partition. Nothing in a batch says of which partition it is, so that nobody could tell
        one that came from elsewhere and fits by chance.

        Returns:
            The file, or None if there is none to spoil.
        """
        machine, rng = self.nodes[name], self.world.rng
        files = [
            file
            for folder in machine.data_paths[disk].iterdir()
            if folder.is_dir() and not folder.name.startswith("__")
            for file in folder.glob("*.log")
            if file.stat().st_size
        ]
        if not files:
            return None
        file = rng.choice(files)
        size = file.stat().st_size
        machine.bad_disks.add(disk)
        machine.failing_disks.add(disk)
        if kind == "rot":
            machine.disks[disk].flip_bit(file, rng.randrange(size * 8))
        else:
            position = rng.randrange(max(1, size - _SECTOR_BYTES))
            source = rng.choice([other for other in files if other.parent == file.parent])
            sector = source.read_bytes()[:_SECTOR_BYTES]
            handle = machine.disks[disk].open(file, "write")
            handle.write_at(position, sector[: size - position])
            handle.sync()
            handle.close()
        self.tell(name, f"has a spoilt {file.parent.name}/{file.name} ({kind})")
        return str(file)

    # The end of faults

    def heal(self) -> None:
        """Take every fault back and start every node that does not run, with an empty disk where one is spoilt."""
        self.world.network.heal_all()
        for name, machine in self.nodes.items():
            machine.clock_rate = 1.0
            machine.wall_offset_ms = 0
            machine.flush_ms = FLUSH_MS
            machine.stop_after_changes(None, machine.stop)
            if machine.is_disk_failing:
                self.restart_mended(name)
            machine.resume()
            self.start(name)

    def check_stability(self) -> None:
        """Let time pass in a cluster that has recovered: the active controller leads on.

        Raises:
            InvariantViolationError: It does not (INV-27).
        """
        before, elections = self.controller, self.checkers.quorum.election_count
        self.run_for(_STABLE_MS)
        if self.controller != before or self.checkers.quorum.election_count != elections:
            reason = f"the active controller was {before}, and is {self.controller}, without a fault"
            raise InvariantViolationError("INV-27", reason, self.story.last(40))

    def recover(self, *, within_ms: float = 120_000) -> None:
        """Heal everything, then let time pass until the cluster has recovered.

        Every node serves, one controller is active and every node has its metadata, every partition has a leader, all
        replicas are in sync and hold the same committed bytes.

        Raises:
            InvariantViolationError: It has not recovered within this virtual time (INV-34, INV-36, RINV-34, RINV-35,
                RINV-36), replicas differ (RINV-18, RINV-30 after an unclean election), or a compacted one lacks the
                newest record of a key (RINV-01).
        """
        self.heal()
        end_ns = self.world.now_ns + int(within_ms * 1e6)
        missing = self.what_is_missing()
        while missing is not None:
            if self.world.now_ns >= end_ns:
                identifier, reason = missing
                text = f"not recovered within {within_ms:g} ms: {reason}"
                raise InvariantViolationError(identifier, text, self.story.last(40))
            self.run_for(200)
            missing = self.what_is_missing()
        if self.checks:
            self.checkers.partitions.check_kept()
            self.checkers.partitions.check_one_history()
        self.tell("cluster", "has recovered")
