"""What a run is told, and what it tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

from kraftlog.testing.machine import DigestMachine, ReplicatedMachine

__all__ = ["Report", "SimulationConfig"]

_TIMERS = (
    # election, fetch, request and retry; the first row is Kafka's defaults
    (1000, 2000, 2000, 20),
    (1000, 2000, 2000, 50),
    (1000, 2000, 1000, 100),
    (600, 1200, 1000, 100),
    (400, 1000, 800, 50),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """What is simulated. What is None is drawn from the seed.

    Args:
        seed: Decides everything.
        voter_count: Voters at the start, 1 to 5 when drawn.
        observer_count: Replicas that only follow at the start, 0 to 2 when drawn.
        is_dynamic: kraft.version 1 from a formatted checkpoint.
        fault_count: So many faults are drawn, one after the other; of the default more than 100 can happen in most
            runs, the others not, as there is no leader, no spare replica or too few disks just then.
        fault_kinds: Names of faults to choose from; a random subset of all, with random weights, when None.
        fault_interval_ms: Mean time between faults.
        proposals_per_second: Load; 0 for none.
        quiet_ms: Time without faults at the end, in which everything has to recover.
        auto_join: Replicas that are no voters make themselves voters.
        refuses_connections: Followers learn that a leader that is down refuses connections, as a machine does whose
            process ended, and elect early; drawn when None. By default they learn only that no answer comes.
        election_timeout_ms: Of every replica, and likewise the next three.
        fetch_timeout_ms: See ``RaftConfig``.
        request_timeout_ms: See ``RaftConfig``.
        retry_backoff_ms: See ``RaftConfig``.
        keeps_trace: Keep the whole trace, not only its hash.
        machine: Makes what each replica applies committed records to.
        commands: Makes a record to propose; numbers that rise by one when None.
    """

    seed: int
    voter_count: int | None = None
    observer_count: int | None = None
    is_dynamic: bool | None = None
    fault_count: int = 150
    fault_kinds: tuple[str, ...] | None = None
    fault_interval_ms: int = 800
    proposals_per_second: int | None = None
    quiet_ms: int = 20_000
    auto_join: bool | None = None
    refuses_connections: bool | None = False
    election_timeout_ms: int | None = None
    fetch_timeout_ms: int | None = None
    request_timeout_ms: int | None = None
    retry_backoff_ms: int | None = None
    keeps_trace: bool = False
    machine: Callable[[], ReplicatedMachine] = DigestMachine
    commands: Callable[[Random], object] | None = None

    def resolved(self) -> SimulationConfig:
        """The same with everything drawn that was None, but the kinds of fault."""
        rng = Random(f"{self.seed}/config")
        election, fetch, request, retry = rng.choice(_TIMERS)
        drawn: dict[str, Any] = {
            "voter_count": rng.choice((1, 2, 3, 3, 3, 4, 5, 5)),
            "observer_count": rng.choice((0, 0, 1, 2)),
            "is_dynamic": rng.random() < 0.8,
            "proposals_per_second": rng.choice((1, 1, 2, 5)),
            "auto_join": rng.random() < 0.25,
            "election_timeout_ms": election,
            "fetch_timeout_ms": fetch,
            "request_timeout_ms": request,
            "retry_backoff_ms": retry,
            "refuses_connections": rng.random() < 0.5,
        }
        return replace(self, **{name: value for name, value in drawn.items() if getattr(self, name) is None})

    def settings(self) -> Mapping[str, int]:
        """Every number of a resolved config by its name, as a text scenario has them."""
        left_out = {"fault_kinds", "fault_count", "fault_interval_ms", "keeps_trace", "machine", "commands"}
        return {field.name: int(getattr(self, field.name)) for field in fields(self) if field.name not in left_out}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What happened in a run.

    Args:
        seed: The seed.
        event_count: Events carried out.
        simulated_ms: Virtual time.
        election_count: Epochs that had a leader.
        committed_count: Records committed.
        counters: Faults, role changes and messages by name.
        looked: How often each rule had something to look at, where that is not every event.
        trace_hash: Equal for equal runs.
        trace: The trace when it was kept.
    """

    seed: int
    event_count: int
    simulated_ms: int
    election_count: int
    committed_count: int
    counters: Counter[str]
    looked: Counter[str]
    trace_hash: str
    trace: tuple[str, ...] = field(default=(), repr=False)
