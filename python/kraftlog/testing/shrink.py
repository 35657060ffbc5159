"""Makes a failing run short: what can be left out, so that the same rule is still broken, is left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kraftlog.testing.invariants import InvariantViolationError
from kraftlog.testing.scenario import Scenario, ScheduledFault
from kraftlog.testing.simulation import Simulation

__all__ = ["Shrunk", "shrink"]

_LIVENESS = frozenset({"INV-27", "INV-33", "INV-34", "INV-35", "INV-36"})


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The shortest scenario found.

    Args:
        scenario: It breaks the same rule.
        error: How.
        run_count: How many runs that took.
    """

    scenario: Scenario
    error: InvariantViolationError
    run_count: int


class _Shrinker:
    def __init__(self, identifier: str, budget: int) -> None:
        self.identifier = identifier
        self.run_count = 0
        self._budget = budget
        self.error: InvariantViolationError | None = None
        self.failed_ms = 0

    @property
    def is_spent(self) -> bool:
        return self.run_count >= self._budget

    def breaks(self, scenario: Scenario) -> bool:
        """Whether a scenario breaks the rule that is looked for; never once the budget is spent."""
        if self.is_spent:
            return False
        self.run_count += 1
        found = _run(scenario)
        if found is None or found[0].identifier != self.identifier:
            return False
        self.error, self.failed_ms = found
        return True


def _run(scenario: Scenario) -> tuple[InvariantViolationError, int] | None:
    simulation = Simulation(scenario.config, scenario.faults)
    try:
        simulation.run(end_ms=scenario.end_ms)
    except InvariantViolationError as error:
        return error, simulation.scheduler.now_us // 1000
    return None


def shrink(scenario: Scenario, *, budget: int = 400) -> Shrunk:
    """Leave out faults, then nodes and time, while the same rule is broken (delta debugging).

    Args:
        scenario: A run that fails.
        budget: Most runs to try.

    Raises:
        ValueError: The scenario breaks nothing.
    """
    found = _run(scenario)
    if found is None:
        msg = "the scenario breaks nothing"
        raise ValueError(msg)
    error, failed_ms = found
    shrinker = _Shrinker(error.identifier, budget)
    shrinker.error, shrinker.failed_ms = error, failed_ms
    best = scenario
    if error.identifier not in _LIVENESS:
        cut = replace(scenario, end_ms=failed_ms + 1)
        cut = cut.with_faults(tuple(fault for fault in cut.faults if fault.at_ms <= failed_ms))
        if shrinker.breaks(cut):  # not so where it is noticed only when the cluster has recovered
            best = cut
    best = _without_faults(shrinker, best)
    best = _smaller(shrinker, best)
    best = _without_faults(shrinker, best)
    if best.end_ms is not None and shrinker.failed_ms < best.end_ms:
        best = replace(best, end_ms=shrinker.failed_ms + 1)
    note = "\n".join(filter(None, [best.note, str(shrinker.error)[:400]]))
    best = replace(best, config=best.config.resolved(), breaks=shrinker.identifier, note=note)
    return Shrunk(best, shrinker.error, shrinker.run_count)


def _without_faults(shrinker: _Shrinker, scenario: Scenario) -> Scenario:
    """Drop faults: halves first, then quarters, at last one by one, from the end."""
    faults = list(scenario.faults)
    size = max(1, len(faults) // 2)
    while faults and not shrinker.is_spent:
        index, is_shorter = len(faults), False
        while index > 0:
            start = max(0, index - size)
            candidate: list[ScheduledFault] = faults[:start] + faults[index:]
            if shrinker.breaks(scenario.with_faults(tuple(candidate))):
                faults, is_shorter = candidate, True
            index = start
        if size == 1 and not is_shorter:
            break
        size = max(1, size // 2)
    return scenario.with_faults(tuple(faults))


def _smaller(shrinker: _Shrinker, scenario: Scenario) -> Scenario:
    """Fewer nodes, less load, and the faults that are left earlier."""
    best = scenario
    config = best.config.resolved()
    for change in (
        {"observer_count": 0},
        {"voter_count": 3},
        {"voter_count": 2},
        {"auto_join": False},
        {"proposals_per_second": 1},
    ):
        if getattr(config, next(iter(change))) <= next(iter(change.values())):
            continue
        smaller = replace(best, config=replace(best.config.resolved(), **change))
        if shrinker.breaks(smaller):
            best = smaller
    for divisor in (8, 4, 2):
        earlier = tuple(replace(fault, at_ms=3000 + (fault.at_ms - 3000) // divisor) for fault in best.faults)
        if shrinker.breaks(best.with_faults(earlier)):
            return best.with_faults(earlier)
    return best
