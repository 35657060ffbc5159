"""Whole clusters in one process from one seed: virtual clock, simulated network and disks, faults, invariants.

    from kraftlog.testing import Simulation, SimulationConfig
    report = Simulation(SimulationConfig(seed=7)).run()

The same seed gives the same run, event for event, in any process. A broken invariant raises
:class:`~kraftlog.testing.invariants.InvariantViolationError` with the last events and the seed.
"""

from kraftlog.testing.invariants import InvariantViolationError
from kraftlog.testing.simulation import Report, Simulation, SimulationConfig

__all__ = ["InvariantViolationError", "Report", "Simulation", "SimulationConfig"]
