"""Misfortunes, one class of them a method; a run draws from a random subset."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kraftlog.errors import KafkaError

if TYPE_CHECKING:
    from kraftlog.testing.node import SimulatedNode
    from kraftlog.testing.simulation import Simulation

__all__ = ["FAULTS", "Faults"]


class Faults:
    """Draws faults until there were enough, and takes them back.

    At most a minority of the voters is ever without its data for good: nothing could be promised otherwise.
    """

    def __init__(self, simulation: Simulation, kinds: tuple[str, ...]) -> None:
        self._simulation = simulation
        self._rng = simulation.rng
        self.kinds = kinds
        self._left = simulation.config.fault_count
        self._wiped: set[int] = set()

    @property
    def is_over(self) -> bool:
        """Whether all faults have happened."""
        return self._left <= 0

    def begin(self) -> None:
        """Let things go well for a moment, then begin."""
        if self._left > 0:
            self._simulation.scheduler.after(3_000_000, self._next)

    def _next(self) -> None:
        simulation = self._simulation
        kind = self._rng.choice(self.kinds)
        if FAULTS[kind](self):
            simulation.counters[f"fault_{kind}"] += 1
            simulation.note(None, f"fault {kind}")
        self._left -= 1
        interval_us = simulation.config.fault_interval_ms * 1000
        simulation.scheduler.after(int(self._rng.expovariate(1 / interval_us)) + 1000, self._next_if_wanted)

    def _next_if_wanted(self) -> None:
        if self._left > 0:
            self._next()

    def heal(self) -> None:
        """Take every fault back: the network works, every node runs."""
        simulation = self._simulation
        simulation.network.heal()
        for node in list(simulation.nodes.values()):
            node.clock_rate = 1.0
            node.flush_delay_us = (300, 3_000)
            node.disk.fails_sync = node.disk.is_full = False
            if node.is_paused:
                node.resume()
            if not node.is_up:
                node.start()

    def may_make_progress(self) -> bool:
        """Whether some replica could win an election by what logs and voter sets say.

        Two cases cannot: the disks of a majority are gone, or a leader that was removing a voter died with the only
        copy of the record that says so, its log being the longest (KIP-853 lets such a replica stand no more).
        """
        nodes = list(self._simulation.nodes.values())
        for candidate in nodes:
            core = candidate.core
            if not candidate.is_up or not core.is_voter:
                continue
            mine = (core.log.last_epoch, core.log.end_offset)
            granting = [
                node
                for node in nodes
                if node.is_up
                and core.voters.contains(node.key)
                and mine >= (node.core.log.last_epoch, node.core.log.end_offset)
            ]
            if len(granting) >= core.voters.majority_size:
                return True
        return False

    # Choosing

    def _up(self) -> list[SimulatedNode]:
        return [node for node in self._simulation.nodes.values() if node.is_up and not node.is_paused]

    def _some_node(self) -> SimulatedNode | None:
        up = self._up()
        leader = self._simulation.leader()
        if leader is not None and self._rng.random() < 0.4:
            return leader
        return self._rng.choice(up) if up else None

    def _later(self, low_ms: int, high_ms: int, action: Callable[[], None]) -> None:
        self._simulation.scheduler.after(self._rng.randrange(low_ms, high_ms) * 1000, action)

    # The network

    def lose_messages(self) -> bool:
        """Lose some of all messages for a while."""
        self._simulation.network.loss = self._rng.choice((0.02, 0.1, 0.3))
        self._later(500, 4000, lambda: setattr(self._simulation.network, "loss", 0.0))
        return True

    def duplicate_messages(self) -> bool:
        """Deliver some messages twice."""
        self._simulation.network.duplication = 0.2
        self._later(500, 4000, lambda: setattr(self._simulation.network, "duplication", 0.0))
        return True

    def hold_up_messages(self) -> bool:
        """Hold some messages up, so that later ones overtake them."""
        self._simulation.network.slowness = self._rng.choice((0.05, 0.2))
        self._later(500, 4000, lambda: setattr(self._simulation.network, "slowness", 0.0))
        return True

    def delay_messages(self) -> bool:
        """Make the whole network slow."""
        network = self._simulation.network
        network.delay_us = (5_000, self._rng.choice((50_000, 300_000)))
        self._later(500, 4000, lambda: setattr(network, "delay_us", (200, 2_000)))
        return True

    def isolate_node(self) -> bool:
        """Cut one node off."""
        node = self._some_node()
        if node is None:
            return False
        others = [one for one in self._simulation.nodes if one != node.node_id]
        self._simulation.network.isolate(node.node_id, others)
        self._later(500, 8000, self._simulation.network.blocked.clear)
        return True

    def cut_one_way(self) -> bool:
        """Lose all messages from one node to another."""
        ids = list(self._simulation.nodes)
        if len(ids) < 2:
            return False
        source, target = self._rng.sample(ids, 2)
        self._simulation.network.cut_one_way(source, target)
        self._later(500, 8000, self._simulation.network.blocked.clear)
        return True

    def split_network(self) -> bool:
        """Cut the nodes into two groups."""
        ids = list(self._simulation.nodes)
        self._rng.shuffle(ids)
        cut = self._rng.randint(0, len(ids))
        self._simulation.network.split(ids[:cut], ids[cut:])
        self._later(500, 8000, self._simulation.network.blocked.clear)
        return True

    def bridge_network(self) -> bool:
        """Cut the nodes into two groups with one node between them."""
        ids = list(self._simulation.nodes)
        if len(ids) < 3:
            return False
        self._rng.shuffle(ids)
        middle, cut = ids[0], self._rng.randint(1, len(ids) - 1)
        self._simulation.network.bridge(ids[1 : cut + 1], ids[cut + 1 :], middle)
        self._later(500, 8000, self._simulation.network.blocked.clear)
        return True

    # Nodes

    def crash_node(self) -> bool:
        """Kill a node, and start it again a little later."""
        node = self._some_node()
        if node is None:
            return False
        node.crash()
        self._later(1, 5000, partial(self._restart, node.node_id))
        return True

    def crash_all(self) -> bool:
        """Kill every node."""
        for node in self._up():
            node.crash()
            self._later(1, 3000, partial(self._restart, node.node_id))
        return True

    def _restart(self, node_id: int) -> None:
        node = self._simulation.nodes[node_id]
        if not node.is_up:
            node.start()

    def pause_node(self) -> bool:
        """Stop a node for a while; everything that comes meanwhile waits."""
        node = self._some_node()
        if node is None:
            return False
        node.is_paused = True
        self._later(50, 6000, lambda: node.resume() if node.is_paused and node.is_up else None)
        return True

    def skew_clock(self) -> bool:
        """Let a node's clock run fast or slow."""
        node = self._some_node()
        if node is None:
            return False
        rate = self._rng.choice((0.7, 0.95, 1.05, 1.4))
        before = node.now_ms()
        node.clock_rate = rate
        node.clock_offset_ms += before - node.now_ms()
        return True

    def jump_clock(self) -> bool:
        """Let a node's clock jump forward, as after a suspended machine."""
        node = self._some_node()
        if node is None:
            return False
        node.clock_offset_ms += self._rng.choice((100, 1500, 20_000))
        return True

    def resign_leader(self) -> bool:
        """Let the leader give up."""
        leader = self._simulation.leader()
        if leader is None:
            return False
        leader.tell(lambda: leader.core.resign(leader.now_ms()))
        return True

    # Disks

    def slow_disk(self) -> bool:
        """Make the flushes of a node slow."""
        node = self._some_node()
        if node is None:
            return False
        node.flush_delay_us = (20_000, 500_000)
        self._later(500, 6000, lambda: setattr(node, "flush_delay_us", (300, 3_000)))
        return True

    def fail_sync(self) -> bool:
        """Let the next fsync of a node fail, which ends it."""
        node = self._some_node()
        if node is None:
            return False
        node.disk.fails_sync = True
        self._later(1000, 6000, partial(self._restart_if_down, node.node_id))
        return True

    def fill_disk(self) -> bool:
        """Let a node's disk be full, which ends it at the next write."""
        node = self._some_node()
        if node is None:
            return False
        node.disk.is_full = True
        self._later(1000, 6000, partial(self._restart_if_down, node.node_id))
        return True

    def _restart_if_down(self, node_id: int) -> None:
        node = self._simulation.nodes[node_id]
        node.disk.fails_sync = node.disk.is_full = False
        self._restart(node_id)

    def replace_disk(self) -> bool:
        """Give a node a new disk with a new directory id; the old one is gone for good."""
        simulation = self._simulation
        leader = simulation.leader()
        if not simulation.is_dynamic or leader is None or leader.core.is_voter_change_uncommitted:
            return False
        voters = leader.core.voters
        lost = sum(1 for voter in voters if simulation.nodes[voter.key.node_id].key != voter.key)
        candidates = [node for node in self._up() if node is not leader]
        if not candidates:
            return False
        node = self._rng.choice(candidates)
        if voters.contains(node.key) and (lost + 1) * 2 >= len(voters):
            return False
        node.crash()
        fresh = simulation.replace_disk(node.node_id)
        self._later(1, 3000, lambda: None if fresh.is_up else fresh.start())
        return True

    # The voter set

    def add_voter(self) -> bool:
        """Make an observer a voter, or bring a new replica."""
        simulation = self._simulation
        leader = simulation.leader()
        if leader is None or not simulation.is_dynamic:
            return False
        spare = [node.node_id for node in self._up() if leader.core.voters.get(node.node_id) is None]
        if spare:
            simulation.add_voter(self._rng.choice(spare))
            return True
        if len(simulation.nodes) >= 7:
            return False
        simulation.add_node(max(simulation.nodes) + 1, is_formatted=False).start()
        return True

    def remove_voter(self) -> bool:
        """Make a voter an observer; one whose disk is gone by preference."""
        simulation = self._simulation
        leader = simulation.leader()
        if leader is None or not simulation.is_dynamic or len(leader.core.voters) < 2:
            return False
        keys = [voter.key for voter in leader.core.voters]
        gone = [key for key in keys if simulation.nodes[key.node_id].key != key]
        simulation.remove_voter(self._rng.choice(gone or keys))
        return True

    def upgrade_kraft_version(self) -> bool:
        """Go from static to dynamic voters."""
        leader = self._simulation.leader()
        if leader is None or leader.core.kraft_version > 0:
            return False

        def upgrade() -> None:
            try:
                leader.core.update_kraft_version(1, leader.now_ms())
            except KafkaError:
                return

        leader.tell(upgrade)
        return True

    def age_node(self) -> bool:
        """Let a node speak older versions, without pre-vote, after a restart."""
        node = self._some_node()
        if node is None:
            return False
        node.crash()
        node.supports_pre_vote = not node.supports_pre_vote
        self._later(1, 2000, partial(self._restart, node.node_id))
        return True


FAULTS: dict[str, Callable[[Faults], bool]] = {
    name: getattr(Faults, name)
    for name in (
        "add_voter",
        "age_node",
        "bridge_network",
        "crash_all",
        "crash_node",
        "cut_one_way",
        "delay_messages",
        "duplicate_messages",
        "fail_sync",
        "fill_disk",
        "hold_up_messages",
        "isolate_node",
        "jump_clock",
        "lose_messages",
        "pause_node",
        "remove_voter",
        "replace_disk",
        "resign_leader",
        "skew_clock",
        "slow_disk",
        "split_network",
        "upgrade_kraft_version",
    )
}
