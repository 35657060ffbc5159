"""Your own state machine, as you give it to ``kraftlog.Quorum``, in a simulated cluster under faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from kraftlog.quorum.state_machine import CommittedBatch, StateMachine
from kraftlog.testing.config import Report, SimulationConfig
from kraftlog.testing.invariants import InvariantViolationError
from kraftlog.testing.scenario import Scenario
from kraftlog.testing.shrink import shrink
from kraftlog.testing.simulation import Simulation
from kraftlog.types import Epoch, NodeId, Offset

__all__ = ["SimulationFailedError", "replay", "simulate"]

Check = Callable[[StateMachine], None]


class SimulationFailedError(AssertionError):
    """A state machine did not come through.

    Attributes:
        seed: Of the run.
        scenario: The shortest run found that fails alike; ``replay`` takes its text.
    """

    def __init__(self, seed: int, reason: str, scenario: Scenario) -> None:
        super().__init__(f"seed {seed}: {reason}\n\n{scenario}")
        self.seed = seed
        self.scenario = scenario


class _UserMachine:
    """Gives a ``StateMachine`` what a simulated replica commits, and looks at it afterwards."""

    def __init__(self, machine: StateMachine, check: Check | None) -> None:
        self._machine = machine
        self._check = check

    def apply(self, base_offset: Offset, epoch: Epoch, records: Sequence[object]) -> None:
        commands = [record for record in records if isinstance(record, bytes)]
        self._machine.apply(
            CommittedBatch(
                base_offset=base_offset,
                epoch=epoch,
                timestamp_ms=base_offset,
                size_bytes=sum(map(len, commands)),
                commands=commands,
            )
        )
        self._look()

    def snapshot(self) -> object:
        state = self._machine.snapshot()
        if callable(state):
            state = state()
        return None if state is None else tuple(state)

    def restore(self, state: object) -> None:
        if isinstance(state, tuple):
            self._machine.restore(list(state))
            self._look()

    def on_leader_changed(self, leader_id: NodeId | None, epoch: Epoch, *, is_local: bool) -> None:
        del is_local
        self._machine.on_leader_change(leader_id, epoch)

    def _look(self) -> None:
        if self._check is not None:
            try:
                self._check(self._machine)
            except AssertionError as error:
                raise InvariantViolationError("CHECK", f"{type(self._machine).__name__}: {error}") from error


def _config(
    seed: int,
    machine: Callable[[], StateMachine],
    commands: Callable[[Random], bytes],
    check: Check | None,
    options: dict[str, Any],
) -> SimulationConfig:
    return SimulationConfig(seed=seed, machine=lambda: _UserMachine(machine(), check), commands=commands, **options)


def simulate(
    machine: Callable[[], StateMachine],
    commands: Callable[[Random], bytes],
    *,
    seeds: Iterable[int],
    check: Check | None = None,
    **options: Any,
) -> list[Report]:
    """Run clusters of a state machine under faults, one for each seed.

    Everywhere and at the end, machines that were given the same commands have to be in the same state, whether these
    came from the log or by a snapshot.

    Args:
        machine: Makes a fresh machine, for each start of each replica.
        commands: Makes a command by the chance it is given, and no other.
        seeds: Which runs.
        check: Looks at a machine after each batch and each restore; an ``AssertionError`` fails the run.
        options: Further arguments of ``SimulationConfig``, as ``fault_count=30``.

    Returns:
        What happened, for each seed. ``timestamp_ms`` of a batch is its base offset: a simulation has no calendar.

    Raises:
        SimulationFailedError: A run failed; it has been shrunk.
    """
    reports: list[Report] = []
    for seed in seeds:
        simulation = Simulation(_config(seed, machine, commands, check, options))
        try:
            reports.append(simulation.run())
        except InvariantViolationError as error:
            shrunk = shrink(simulation.scenario, budget=120)
            raise SimulationFailedError(seed, str(error), shrunk.scenario) from error
    return reports


def replay(
    text: str,
    machine: Callable[[], StateMachine],
    commands: Callable[[Random], bytes],
    *,
    check: Check | None = None,
) -> Report:
    """Run a text scenario once more, as ``SimulationFailedError`` prints it.

    Raises:
        InvariantViolationError: It still fails.
    """
    scenario = Scenario.parse(text, machine=lambda: _UserMachine(machine(), check), commands=commands)
    return Simulation(scenario.config, scenario.faults).run(end_ms=scenario.end_ms)
