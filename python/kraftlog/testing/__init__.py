"""Whole clusters in one process from one seed: virtual clock, simulated network and disks, faults, invariants.

    from kraftlog.testing import Simulation, SimulationConfig
    report = Simulation(SimulationConfig(seed=7)).run()

The same seed gives the same run, event for event, in any process. A broken invariant raises
:class:`~kraftlog.testing.invariants.InvariantViolationError` with the rule's id and the last events.
"""

from kraftlog.testing.config import Report, SimulationConfig
from kraftlog.testing.invariants import InvariantViolationError
from kraftlog.testing.machine import ReplicatedMachine
from kraftlog.testing.scenario import Scenario, ScheduledFault
from kraftlog.testing.shrink import Shrunk, shrink
from kraftlog.testing.simulation import Simulation

__all__ = [
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
