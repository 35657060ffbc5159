"""Misfortunes: each kind draws what it needs beforehand, then happens, and is taken back after a while.

Everything that chance decides about a fault is in its arguments. A run can therefore be written down as a list of
faults, and a fault can be left out without changing the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kraftlog.errors import KafkaError
from kraftlog.testing.cluster import Cluster
from kraftlog.testing.network import DELAY_US, Cut
from kraftlog.testing.node import FLUSH_DELAY_US, SimulatedNode
from kraftlog.testing.scenario import ScheduledFault, Value

__all__ = ["FAULTS", "Faults", "draw_schedule"]

_MOST_NODES = 7
_FIRST_FAULT_MS = 3_000


class Faults:
    """Carries faults out on one cluster, and takes them back.

    At most a minority of the voters is ever without its data for good: nothing could be promised otherwise.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def happen(self, fault: ScheduledFault) -> None:
        """Let one fault happen, if it can now."""
        cluster = self._cluster
        happened = FAULTS[fault.kind].happen(self, **dict(fault.arguments))
        cluster.counters[f"fault_{fault.kind}" if happened else f"impossible_{fault.kind}"] += 1
        cluster.note(None, f"{fault}{'' if happened else ' (impossible)'}")

    def heal(self) -> None:
        """Take every fault back: the network works, every node runs, with a new disk where the old one is spoilt."""
        cluster = self._cluster
        cluster.network.heal()
        for node in list(cluster.nodes.values()):
            node.set_clock_rate(1.0)
            node.flush_delay_us = FLUSH_DELAY_US
            node.disk.fails_sync = node.disk.is_full = node.disk.tears_writes = False
            if node.is_paused:
                node.resume()
            if node.disk.is_sound:
                cluster.restart(node.node_id)
            else:
                node.crash()
                cluster.on_spoilt(node)

    # Choosing

    def _later(self, after_ms: int, action: Callable[..., object], *arguments: object) -> None:
        self._cluster.scheduler.after(after_ms * 1000, action, *arguments)

    def _up(self) -> list[SimulatedNode]:
        return [node for node in self._cluster.nodes.values() if node.is_up and not node.is_paused]

    def node(self, which: Value) -> SimulatedNode | None:
        """The node that a text means: ``leader``, or a number that counts among those that run, followers first."""
        leader = self._cluster.leader()
        if which == "leader":
            return leader
        up = [node for node in self._up() if node is not leader] or self._up()
        return up[int(which) % len(up)] if up else None

    def _mend_later(self, cut: Cut, for_ms: int) -> None:
        self._later(for_ms, self._cluster.network.mend, cut)

    # The network

    def lose_messages(self, *, rate: float, for_ms: int) -> bool:
        """Lose some of all messages for a while."""
        network = self._cluster.network
        network.loss = rate
        self._later(for_ms, setattr, network, "loss", 0.0)
        return True

    def duplicate_messages(self, *, rate: float, for_ms: int) -> bool:
        """Deliver some messages twice."""
        network = self._cluster.network
        network.duplication = rate
        self._later(for_ms, setattr, network, "duplication", 0.0)
        return True

    def reorder_messages(self, *, rate: float, for_ms: int) -> bool:
        """Hold some messages up, so that later ones overtake them."""
        network = self._cluster.network
        network.slowness = rate
        self._later(for_ms, setattr, network, "slowness", 0.0)
        return True

    def delay_messages(self, *, most_ms: int, for_ms: int) -> bool:
        """Make the whole network slow."""
        network = self._cluster.network
        network.delay_us = (5_000, most_ms * 1000)
        self._later(for_ms, setattr, network, "delay_us", DELAY_US)
        return True

    def isolate_node(self, *, node: Value, for_ms: int) -> bool:
        """Cut one node off."""
        found = self.node(node)
        if found is None:
            return False
        network = self._cluster.network
        others = [node for node in self._cluster.nodes if node != found.node_id]
        self._mend_later(network.isolate(found.node_id, others), for_ms)
        return True

    def cut_one_way(self, *, node: Value, to: int, for_ms: int) -> bool:
        """Lose all messages from one node to another."""
        found = self.node(node)
        others = [node for node in self._cluster.nodes if found is not None and node != found.node_id]
        if found is None or not others:
            return False
        cut = self._cluster.network.cut_one_way(found.node_id, others[to % len(others)])
        self._mend_later(cut, for_ms)
        return True

    def split_network(self, *, mask: int, for_ms: int) -> bool:
        """Cut the nodes into two groups."""
        ids = list(self._cluster.nodes)
        left = [identifier for identifier in ids if mask >> identifier & 1]
        cut = self._cluster.network.split(left, [identifier for identifier in ids if identifier not in left])
        self._mend_later(cut, for_ms)
        return bool(cut.links)

    def bridge_network(self, *, node: Value, mask: int, for_ms: int) -> bool:
        """Cut the nodes into two groups with one node between them."""
        middle = self.node(node)
        ids = list(self._cluster.nodes)
        if middle is None or len(ids) < 3:
            return False
        left = [identifier for identifier in ids if mask >> identifier & 1]
        right = [identifier for identifier in ids if identifier not in left]
        cut = self._cluster.network.bridge(left, right, middle.node_id)
        self._mend_later(cut, for_ms)
        return bool(cut.links)

    # Nodes

    def crash_node(self, *, node: Value, for_ms: int) -> bool:
        """Kill a node, and start it again a little later."""
        found = self.node(node)
        if found is None:
            return False
        found.crash()
        self._later(for_ms, self._cluster.restart, found.node_id)
        return True

    def crash_all(self, *, for_ms: int, then_ms: int) -> bool:
        """Kill every node, and start them one by one."""
        for index, node in enumerate(self._up()):
            node.crash()
            self._later(for_ms + index * then_ms, self._cluster.restart, node.node_id)
        return True

    def pause_node(self, *, node: Value, for_ms: int) -> bool:
        """Stop a node for a while; everything that comes meanwhile waits."""
        found = self.node(node)
        if found is None:
            return False
        found.pause()
        run = found.run_count
        self._later(for_ms, lambda: found.resume() if found.is_paused and found.run_count == run else None)
        return True

    def skew_clock(self, *, node: Value, rate: float) -> bool:
        """Let a node's clock run fast or slow, until it is changed again."""
        found = self.node(node)
        if found is None:
            return False
        found.set_clock_rate(rate)
        return True

    def jump_clock(self, *, node: Value, by_ms: int) -> bool:
        """Let a node's clock jump forward, as after a suspended machine."""
        found = self.node(node)
        if found is None:
            return False
        found.jump_clock(by_ms)
        return True

    def resign_leader(self) -> bool:
        """Let the leader give up."""
        leader = self._cluster.leader()
        if leader is None:
            return False
        leader.tell(lambda: leader.core.resign(leader.now_ms()))
        return True

    def age_node(self, *, node: Value, age: int, for_ms: int) -> bool:
        """Let a node speak other versions after a restart: older ones without pre-vote or KIP-1166, or all."""
        found = self.node(node)
        if found is None:
            return False
        found.crash()
        found.age = age
        self._later(for_ms, self._cluster.restart, found.node_id)
        return True

    # Disks

    def slow_disk(self, *, node: Value, most_ms: int, for_ms: int) -> bool:
        """Make the flushes of a node slow."""
        found = self.node(node)
        if found is None:
            return False
        found.flush_delay_us = (most_ms * 50, most_ms * 1000)
        self._later(for_ms, setattr, found, "flush_delay_us", FLUSH_DELAY_US)
        return True

    def fail_sync(self, *, node: Value, for_ms: int) -> bool:
        """Let the next fsync of a node fail, which ends it."""
        found = self.node(node)
        if found is None:
            return False
        found.disk.fails_sync = True
        self._later(for_ms, self._mend_disk, found)
        return True

    def fill_disk(self, *, node: Value, for_ms: int) -> bool:
        """Let a node's disk be full, which ends it at the next write."""
        found = self.node(node)
        if found is None:
            return False
        found.disk.is_full = True
        self._later(for_ms, self._mend_disk, found)
        return True

    def _mend_disk(self, node: SimulatedNode) -> None:
        node.disk.fails_sync = node.disk.is_full = False
        self._cluster.restart(node.node_id)

    def tear_write(self, *, node: Value, for_ms: int) -> bool:
        """Kill a node between two flushes while its pages are written back in any order, some of them in part."""
        found = self.node(node)
        if found is None:
            return False
        found.disk.tears_writes = True
        found.flush_delay_us = (100_000, 300_000)
        self._later(80, self._crash_and_restart, found, for_ms)
        return True

    def _crash_and_restart(self, node: SimulatedNode, for_ms: int) -> None:
        node.flush_delay_us = FLUSH_DELAY_US
        node.crash()
        self._later(for_ms, self._cluster.restart, node.node_id)

    def replace_disk(self, *, node: Value, for_ms: int) -> bool:
        """Give a node a new disk with a new directory id; the old one is gone for good."""
        cluster = self._cluster
        found = self.node(node)
        if found is None or not cluster.is_dynamic or not cluster.may_lose(found):
            return False
        found.crash()
        fresh = cluster.replace_disk(found.node_id)
        self._later(for_ms, cluster.restart, fresh.node_id)
        return True

    def wipe_disk(self, *, node: Value) -> bool:
        """Empty a node's disk; it keeps its directory id, and comes back once the others have gone on without it."""
        cluster = self._cluster
        found = self.node(node)
        if found is None or not cluster.may_lose(found):
            return False
        cluster.wipe_disk(found)
        leader = cluster.leader()
        if leader is not None:
            leader.tell(lambda: leader.core.resign(leader.now_ms()))
        return True

    def rot_disk(self, *, node: Value, part: int, for_ms: int) -> bool:
        """Flip a bit of something durable; the node meets it when it reads that, or at its next start."""
        cluster = self._cluster
        found = self.node(node)
        if found is None or not cluster.may_lose(found):
            return False
        what = found.disk.rot(Random(part))
        if what is None:
            return False
        cluster.note(found, f"{what} is spoilt")
        self._later(for_ms, self._meet_rot, found)
        return True

    def _meet_rot(self, node: SimulatedNode) -> None:
        if self._cluster.nodes.get(node.node_id) is node and not node.disk.is_sound:
            node.crash()
            self._cluster.restart(node.node_id)

    # The voter set

    def add_voter(self, *, node: int) -> bool:
        """Make an observer a voter, or bring a new replica."""
        cluster = self._cluster
        leader = cluster.leader()
        if leader is None or not cluster.is_dynamic:
            return False
        spare = [node.node_id for node in self._up() if leader.core.voters.get(node.node_id) is None]
        if spare:
            cluster.add_voter(spare[node % len(spare)])
            return True
        if len(cluster.nodes) >= _MOST_NODES:
            return False
        cluster.bring_node(max(cluster.nodes) + 1).start()
        return True

    def remove_voter(self, *, voter: int) -> bool:
        """Make a voter an observer; one whose disk is gone by preference."""
        cluster = self._cluster
        leader = cluster.leader()
        if leader is None or not cluster.is_dynamic or len(leader.core.voters) < 2:
            return False
        keys = [voter.key for voter in leader.core.voters]
        gone = [key for key in keys if cluster.nodes[key.node_id].key != key]
        wanted = gone or keys
        cluster.remove_voter(wanted[voter % len(wanted)])
        return True

    def upgrade_kraft_version(self) -> bool:
        """Go from static to dynamic voters."""
        leader = self._cluster.leader()
        if leader is None or leader.core.kraft_version > 0:
            return False
        done: list[bool] = []

        def upgrade() -> None:
            try:
                done.append(leader.core.update_kraft_version(1, leader.now_ms()) is not None)
            except KafkaError:
                done.append(False)

        leader.tell(upgrade)
        return any(done)


@dataclass(frozen=True, slots=True)
class FaultKind:
    """How a fault is drawn and how it happens."""

    draw: Callable[[Random], dict[str, Value]]
    happen: Callable[..., bool]


def _some_node(rng: Random) -> Value:
    return "leader" if rng.random() < 0.5 else rng.randrange(60)


def _for(rng: Random, low_ms: int, high_ms: int) -> int:
    return rng.randrange(low_ms, high_ms)


FAULTS: dict[str, FaultKind] = {
    "add_voter": FaultKind(lambda rng: {"node": rng.randrange(60)}, Faults.add_voter),
    "age_node": FaultKind(
        lambda rng: {"node": _some_node(rng), "age": rng.randrange(3), "for_ms": _for(rng, 1, 2000)}, Faults.age_node
    ),
    "bridge_network": FaultKind(
        lambda rng: {"node": _some_node(rng), "mask": rng.randrange(2, 256), "for_ms": _for(rng, 500, 6000)},
        Faults.bridge_network,
    ),
    "crash_all": FaultKind(
        lambda rng: {"for_ms": _for(rng, 1, 1500), "then_ms": rng.choice((0, 10, 300))}, Faults.crash_all
    ),
    "crash_node": FaultKind(
        lambda rng: {"node": _some_node(rng), "for_ms": rng.choice((1, _for(rng, 1, 5000)))}, Faults.crash_node
    ),
    "cut_one_way": FaultKind(
        lambda rng: {"node": _some_node(rng), "to": rng.randrange(60), "for_ms": _for(rng, 500, 6000)},
        Faults.cut_one_way,
    ),
    "delay_messages": FaultKind(
        lambda rng: {"most_ms": rng.choice((50, 150, 400)), "for_ms": _for(rng, 500, 3000)}, Faults.delay_messages
    ),
    "duplicate_messages": FaultKind(
        lambda rng: {"rate": rng.choice((0.05, 0.2, 0.5)), "for_ms": _for(rng, 500, 4000)}, Faults.duplicate_messages
    ),
    "fail_sync": FaultKind(lambda rng: {"node": _some_node(rng), "for_ms": _for(rng, 1000, 5000)}, Faults.fail_sync),
    "fill_disk": FaultKind(lambda rng: {"node": _some_node(rng), "for_ms": _for(rng, 1000, 5000)}, Faults.fill_disk),
    "isolate_node": FaultKind(
        lambda rng: {"node": _some_node(rng), "for_ms": _for(rng, 500, 6000)}, Faults.isolate_node
    ),
    "jump_clock": FaultKind(
        lambda rng: {"node": _some_node(rng), "by_ms": rng.choice((100, 1500, 20_000))}, Faults.jump_clock
    ),
    "lose_messages": FaultKind(
        lambda rng: {"rate": rng.choice((0.02, 0.1, 0.3)), "for_ms": _for(rng, 500, 4000)}, Faults.lose_messages
    ),
    "pause_node": FaultKind(lambda rng: {"node": _some_node(rng), "for_ms": _for(rng, 50, 5000)}, Faults.pause_node),
    "remove_voter": FaultKind(lambda rng: {"voter": rng.randrange(60)}, Faults.remove_voter),
    "reorder_messages": FaultKind(
        lambda rng: {"rate": rng.choice((0.02, 0.1, 0.3)), "for_ms": _for(rng, 500, 4000)}, Faults.reorder_messages
    ),
    "replace_disk": FaultKind(lambda rng: {"node": _some_node(rng), "for_ms": _for(rng, 1, 3000)}, Faults.replace_disk),
    "resign_leader": FaultKind(lambda _: {}, Faults.resign_leader),
    "rot_disk": FaultKind(
        lambda rng: {"node": _some_node(rng), "part": rng.randrange(1000), "for_ms": _for(rng, 100, 3000)},
        Faults.rot_disk,
    ),
    "skew_clock": FaultKind(
        lambda rng: {"node": _some_node(rng), "rate": rng.choice((0.7, 0.95, 1.05, 1.4))}, Faults.skew_clock
    ),
    "slow_disk": FaultKind(
        lambda rng: {"node": _some_node(rng), "most_ms": rng.choice((20, 100, 500)), "for_ms": _for(rng, 500, 5000)},
        Faults.slow_disk,
    ),
    "split_network": FaultKind(
        lambda rng: {"mask": rng.randrange(2, 256), "for_ms": _for(rng, 500, 6000)}, Faults.split_network
    ),
    "tear_write": FaultKind(lambda rng: {"node": _some_node(rng), "for_ms": _for(rng, 1, 2000)}, Faults.tear_write),
    "upgrade_kraft_version": FaultKind(lambda _: {}, Faults.upgrade_kraft_version),
    "wipe_disk": FaultKind(lambda rng: {"node": _some_node(rng)}, Faults.wipe_disk),
}
"""The kinds of fault by name."""


def draw_schedule(
    seed: int, count: int, *, interval_ms: int, kinds: tuple[str, ...] | None = None
) -> tuple[ScheduledFault, ...]:
    """Draw the faults of a run.

    Args:
        seed: Decides all of it.
        count: How many.
        interval_ms: Mean time between two.
        kinds: Which kinds; a random subset with random weights when None.
    """
    rng = Random(f"{seed}/faults")
    names = sorted(FAULTS) if kinds is None else list(kinds)
    if kinds is None:
        names = [name for name in names if rng.random() < 0.6] or names
    weights = [rng.choice((1, 1, 2, 4)) for _ in names]
    found: list[ScheduledFault] = []
    at_ms = _FIRST_FAULT_MS
    for _ in range(count):
        kind = rng.choices(names, weights)[0]
        found.append(ScheduledFault(at_ms, kind, tuple(FAULTS[kind].draw(rng).items())))
        at_ms += int(rng.expovariate(1 / interval_ms)) + 1
    return tuple(found)
