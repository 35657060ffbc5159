"""The end of a run: no more faults, and within bounds of virtual time everything has to be well again."""

from __future__ import annotations

from collections.abc import Callable

from kraftlog.raft.roles.leader import Leader
from kraftlog.testing.cluster import Cluster
from kraftlog.testing.node import SimulatedNode

__all__ = ["Convergence"]

_LOOK_US = 50_000


class Convergence:
    """Holds a cluster without faults to what it must reach (INV-27, INV-33 to INV-36)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._invariants = cluster.invariants

    def reach(self) -> None:
        """Wait, all faults being taken back.

        Raises:
            InvariantViolationError: The cluster did not recover in time, or not wholly.
        """
        cluster, config = self._cluster, self._cluster.config
        before = self._invariants.high_watermark
        election_ms, fetch_ms = config.election_timeout_ms or 0, config.fetch_timeout_ms or 0
        bound_ms = 10 * election_ms + 2 * fetch_ms + (config.request_timeout_ms or 0)
        if not self._wait(bound_ms, lambda: self._committing_leader(before) is not None):
            if not self.may_make_progress():
                cluster.counters["no_majority_left"] += 1
                return
            self._fail("INV-34", f"no leader has committed {bound_ms} ms after the last fault")
        self._invariants.looked["INV-34"] += 1
        if not self._wait(config.quiet_ms, self._has_settled):
            if not self.may_make_progress():
                cluster.counters["no_majority_left"] += 1
                return
            self._fail("INV-36", f"not all replicas have the same log {config.quiet_ms} ms after the last fault")
        # A message lost in the last moment of the faults is still waited for: that may cost an old peer an election.
        cluster.run_for(2 * max(fetch_ms, config.request_timeout_ms or 0))
        if not self._wait(config.quiet_ms, self._has_settled):
            self._fail("INV-36", f"not all replicas have the same log {config.quiet_ms} ms later")
        self._invariants.looked["INV-36"] += 1
        self._check_machines()
        self._check_changes()
        self._check_stability()
        self._invariants.check_leftovers(list(cluster.nodes.values()))

    def _wait(self, bound_ms: int, is_reached: Callable[[], bool]) -> bool:
        scheduler = self._cluster.scheduler
        end_us = scheduler.now_us + bound_ms * 1000
        while scheduler.now_us < end_us:
            scheduler.run_until(scheduler.now_us + _LOOK_US)
            if is_reached():
                return True
        return False

    def _committing_leader(self, before: int) -> SimulatedNode | None:
        leader = self._cluster.leader()
        if leader is None or not isinstance(leader.core.role, Leader):
            return None
        return leader if (leader.core.role.high_watermark or 0) > before else None

    def _has_settled(self) -> bool:
        """All replicas run and hold, up to what the last moments brought, what the leader holds; no change is open."""
        cluster = self._cluster
        leader = cluster.leader()
        if leader is None or leader.core.is_voter_change_uncommitted:
            return False
        committed = leader.core.high_watermark or 0
        for node in cluster.nodes.values():
            if not node.is_up or (node.core.high_watermark or 0) < committed - 10:
                return False
            if node.core.epoch != leader.core.epoch or node.core.log.last_epoch != leader.core.epoch:
                return False
        return not cluster.config.auto_join or self._has_joined(leader)

    def _has_joined(self, leader: SimulatedNode) -> bool:
        """Where replicas join by themselves they are all voters in the end."""
        if leader.core.kraft_version == 0:
            return True
        return all(leader.core.voters.contains(node.key) for node in self._cluster.nodes.values())

    def _check_machines(self) -> None:
        """Machines that were given the same are in the same state, whether it came from the log or by a snapshot."""
        states: dict[int, tuple[SimulatedNode, object]] = {}
        for node in self._cluster.nodes.values():
            first, state = states.setdefault(node.applied_offset, (node, node.machine.snapshot()))
            mine = node.machine.snapshot()
            if mine != state:
                self._fail(
                    "INV-08", f"below {node.applied_offset} node {node.node_id} is {mine!r}, {first.node_id} {state!r}"
                )

    def _check_changes(self) -> None:
        self._invariants.looked["INV-35"] += 1
        for node in self._cluster.nodes.values():
            role = node.core.role
            if isinstance(role, Leader) and role.voter_change is not None and not self._cluster.config.auto_join:
                self._fail("INV-35", f"{role.voter_change} is still under way")

    def _check_stability(self) -> None:
        """Without faults the leader leads on (INV-27)."""
        cluster = self._cluster
        self._invariants.looked["INV-27"] += 1
        leader = cluster.leader()
        elections = len(self._invariants.leaders)
        cluster.run_for(2 * (cluster.config.fetch_timeout_ms or 0))
        if len(self._invariants.leaders) != elections or cluster.leader() is not leader:
            self._fail("INV-27", "the leader changed without a fault")

    def _fail(self, identifier: str, reason: str) -> None:
        state = "; ".join(self._cluster.describe(node) for node in self._cluster.nodes.values())
        self._invariants.fail(identifier, None, f"{reason}: {state}")

    def may_make_progress(self) -> bool:
        """Whether some replica could win an election by what logs and voter sets say.

        Two cases cannot: the disks of a majority are gone, or a leader that was removing a voter died with the only
        copy of the record that says so, its log being the longest (KIP-853 lets such a replica stand no more).
        """
        nodes = list(self._cluster.nodes.values())
        for candidate in nodes:
            if not candidate.is_up or not candidate.core.is_voter:
                continue
            core = candidate.core
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
