"""Whole clusters in one process from one seed: virtual clock, simulated network and disks, faults, invariants.

    from kraftlog.testing import Simulation, SimulationConfig
    report = Simulation(SimulationConfig(seed=7)).run()

The same seed gives the same run, event for event, in any process. A broken invariant raises
:class:`~kraftlog.testing.invariants.InvariantViolationError` with the rule's id and the last events.

:class:`Cluster` runs whole nodes and a test's own asyncio clients in virtual time;
``kraftlog.testing.pytest_plugin`` gives it to tests.
"""

from typing import TYPE_CHECKING, Any

from kraftlog.testing.config import Report, SimulationConfig
from kraftlog.testing.invariants import InvariantViolationError
from kraftlog.testing.machine import ReplicatedMachine
from kraftlog.testing.scenario import Scenario, ScheduledFault
from kraftlog.testing.shrink import Shrunk, shrink
from kraftlog.testing.simulation import Simulation

if TYPE_CHECKING:
    from kraftlog.testing.world.cluster import Cluster

__all__ = [
    "Cluster",
    "InvariantViolationError",
    "ReplicatedMachine",
    "Report",
    "Scenario",
    "ScheduledFault",
    "Shrunk",
    "Simulation",
    "SimulationConfig",
    "shrink",
]


def __getattr__(name: str) -> Any:
    # The simulation of the consensus core needs no node.
    if name == "Cluster":
        from kraftlog.testing.world.cluster import Cluster

        return Cluster
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
