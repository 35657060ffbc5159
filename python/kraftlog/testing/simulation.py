"""A run of a cluster: its workload and its misfortunes, all from one seed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from kraftlog.testing.cluster import Cluster
from kraftlog.testing.config import Report, SimulationConfig
from kraftlog.testing.convergence import Convergence
from kraftlog.testing.faults import Faults, draw_schedule
from kraftlog.testing.scenario import Scenario, ScheduledFault

__all__ = ["Simulation"]

_SECOND_US = 1_000_000
_COLLECT_AFTER = 50_000


class Simulation(Cluster):
    """One run.

    Attributes:
        schedule: The faults, by time.
        faults: Carries them out.
    """

    def __init__(self, config: SimulationConfig, schedule: tuple[ScheduledFault, ...] | None = None) -> None:
        """Make the cluster; ``schedule`` replaces the faults that the seed gives."""
        if schedule is None:
            schedule = draw_schedule(
                config.seed, config.fault_count, interval_ms=config.fault_interval_ms, kinds=config.fault_kinds
            )
        super().__init__(config)
        self.schedule = schedule
        self.faults = Faults(self)
        self._load_rng = Random(f"{config.seed}/load")

    @property
    def scenario(self) -> Scenario:
        """This run, written down."""
        return Scenario(self.config, self.schedule)

    def start(self) -> None:
        """Start the nodes, the load and the faults."""
        rng = self._load_rng
        for node_id in list(self.nodes):
            self.scheduler.after(rng.randrange(50_000), self.restart, node_id)
        if self.config.proposals_per_second:
            self._propose_again()
        self._snapshot_again()
        for fault in self.schedule:
            self.scheduler.after(fault.at_ms * 1000, self.faults.happen, fault)

    def run(self, *, end_ms: int | None = None) -> Report:
        """Everything, from the start of the nodes to a cluster that has recovered from the last fault.

        Args:
            end_ms: Stop at this virtual time, whatever the state of the cluster.

        Raises:
            InvariantViolationError: What must never be was seen, or the cluster did not recover.
        """
        with _rare_collections():
            self.start()
            if end_ms is not None:
                self.scheduler.run_until(end_ms * 1000)
                return self.report()
            last_ms = self.schedule[-1].at_ms if self.schedule else 0
            self.scheduler.run_until(last_ms * 1000 + _SECOND_US)
            self.faults.heal()
            Convergence(self).reach()
            return self.report()

    # Load

    def _propose_again(self) -> None:
        rng = self._load_rng
        for node in [node for node in self.nodes.values() if node.is_up and node.core.is_leader]:
            count = rng.randint(1, 3)
            self._value += count
            commands = self.config.commands
            node.propose([commands(rng) for _ in range(count)] if commands else range(self._value - count, self._value))
            if count == 1:
                node.confirm_leadership()
        gap_us = _SECOND_US // max(1, self.config.proposals_per_second or 1)
        self.scheduler.after(rng.randrange(1, 2 * gap_us), self._propose_again)

    def _snapshot_again(self) -> None:
        rng = self._load_rng
        nodes = list(self.nodes.values())
        nodes[rng.randrange(len(nodes))].take_snapshot()
        self.scheduler.after(rng.randrange(1, 10 * _SECOND_US), self._snapshot_again)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cycles less often: a run makes few, but many values that it keeps, which the collector would go over."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
