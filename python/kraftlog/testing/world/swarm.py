"""Runs of a cluster in which faults, weights, time-outs and the cluster's shape are drawn; they shrink and replay."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeAlias

from kraftlog.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    LATEST_PRODUCTION,
    default_levels,
    metadata_version,
)
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.scenario import ScheduledFault
from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.cluster_fault import draw_changes, draw_faults, draw_moves, draw_settings, happen
from kraftlog.testing.world.recovery import NO_CLEAN_LEADER

__all__ = ["ClusterFailedError", "ClusterScenario", "Outcome", "Workload", "draw", "run", "shrink", "simulate"]

# What clients do. It ends once ``cluster.is_quiet`` and what it has found is checked; an exception fails the run.
Workload: TypeAlias = Callable[[Cluster], Coroutine[Any, Any, None]]

_FIRST_FAULT_MS = 6_000
_FINISH_MS = 180_000
# Levels of metadata.version that runs with upgrades begin with: 3.9-IV0, 4.0-IV3, 4.2-IV1 and the newest.
_EARLIER_VERSIONS = (21, 25, 29, LATEST_PRODUCTION.feature_level)


@dataclass(frozen=True, slots=True)
class ClusterScenario:
    """A run that can be written down and read again.

        world seed=7 controllers=3 brokers=3
        set min.insync.replicas=2
        level kraft.version=0
        at 8204 kill node=leader3 for_ms=2500
        end 20000
        breaks RINV-23

    Attributes:
        seed: Of all chance but the faults.
        controllers: How many.
        brokers: How many.
        combined: How many of the controllers are brokers, too.
        directories: Log directories of each broker, each on a disk of its own.
        properties: Settings of every node.
        faults: By time, milliseconds since the world began.
        end_ms: When the cluster is healed, milliseconds.
        breaks: What is broken; None where everything holds.
        levels: Features that do not begin with their newest level.
    """

    seed: int
    controllers: int
    brokers: int
    properties: tuple[tuple[str, str], ...] = ()
    faults: tuple[ScheduledFault, ...] = ()
    end_ms: int = 0
    breaks: str | None = None
    levels: tuple[tuple[str, int], ...] = ()
    combined: int = 0
    directories: int = 1

    def __str__(self) -> str:
        lines = [f"world seed={self.seed} controllers={self.controllers} brokers={self.brokers}"]
        if self.combined:
            lines[0] += f" combined={self.combined}"
        if self.directories > 1:
            lines[0] += f" directories={self.directories}"
        lines += [f"set {name}={value}" for name, value in self.properties]
        lines += [f"level {name}={level}" for name, level in self.levels]
        lines += [str(fault) for fault in self.faults]
        lines.append(f"end {self.end_ms}")
        if self.breaks is not None:
            lines.append(f"breaks {self.breaks}")
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, text: str) -> ClusterScenario:
        """Read what ``str`` gave; lines that begin with # are notes.

        Raises:
            ValueError: A line is none of a scenario, or the first one is missing.
        """
        world: dict[str, int] = {}
        properties: list[tuple[str, str]] = []
        faults: list[ScheduledFault] = []
        levels: list[tuple[str, int]] = []
        end_ms, breaks = 0, None
        for line in text.splitlines():
            word, _, rest = line.strip().partition(" ")
            match word:
                case "":
                    continue
                case _ if word.startswith("#"):
                    continue
                case "world":
                    world = {name: int(value) for name, _, value in (pair.partition("=") for pair in rest.split())}
                case "set":
                    name, _, value = rest.partition("=")
                    properties.append((name, value))
                case "level":
                    name, _, value = rest.partition("=")
                    levels.append((name, int(value)))
                case "at":
                    faults.append(ScheduledFault.parse(line))
                case "end":
                    end_ms = int(rest)
                case "breaks":
                    breaks = rest.strip()
                case _:
                    msg = f"not a line of a scenario: {line!r}"
                    raise ValueError(msg)
        if not {"seed", "controllers", "brokers"} <= world.keys():
            msg = "a scenario needs a line: world seed=N controllers=N brokers=N"
            raise ValueError(msg)
        return cls(
            world["seed"],
            world["controllers"],
            world["brokers"],
            tuple(properties),
            tuple(faults),
            end_ms,
            breaks,
            tuple(levels),
            world.get("combined", 0),
            world.get("directories", 1),
        )


@dataclass(slots=True)
class Outcome:
    """How a run went.

    Attributes:
        scenario: What ran; with ``breaks`` if it failed.
        error: What was broken, None if nothing was.
        story: What happened.
        event_count: Events of the world.
        simulated_ms: Virtual time.
        election_count: Epochs of the metadata quorum that had a leader.
        leader_changes: Epochs in which a partition had a leader.
        fault_count: Faults that happened.
        looked: How often each rule had something to look at.
        is_limited: Whether it ended before its time, without a fault of the product: a partition lost every replica
            that may lead without an unclean election.
        fingerprint: Of all that happened: two processes that ran the same have the same one.
    """

    scenario: ClusterScenario
    error: BaseException | None = None
    story: list[str] = field(default_factory=list)
    event_count: int = 0
    simulated_ms: float = 0.0
    election_count: int = 0
    leader_changes: int = 0
    fault_count: int = 0
    looked: dict[str, int] = field(default_factory=dict)
    is_limited: bool = False
    fingerprint: str = ""


class ClusterFailedError(AssertionError):
    """A run broke a rule, or its workload failed.

    Attributes:
        outcome: Of the shortest run that was found.
    """

    def __init__(self, outcome: Outcome) -> None:
        story = "\n".join(outcome.story[-40:])
        super().__init__(f"seed {outcome.scenario.seed}: {outcome.error!r}\n\n{outcome.scenario}\n{story}")
        self.outcome = outcome


def draw(seed: int) -> ClusterScenario:
    """The run of a seed: shape, time-outs and faults."""
    rng = Random(f"{seed}/cluster")
    controllers, brokers = rng.choice(((1, 1), (1, 3), (3, 2), (3, 3), (3, 3), (3, 3), (3, 4), (5, 3)))
    combined = 0
    if not Random(f"{seed}/roles").randrange(4):
        # As embedded nodes mostly are: each is a controller and a broker.
        controllers, brokers = min(controllers, 3), 0
        combined = controllers
    replication = min(3, brokers + combined)
    session_ms = rng.choice((2000, 3000, 6000))
    properties = {
        "broker.heartbeat.interval.ms": session_ms // 6,
        "broker.session.timeout.ms": session_ms,
        "controller.quorum.election.timeout.ms": rng.choice((500, 1000)),
        "controller.quorum.fetch.timeout.ms": rng.choice((1000, 2000)),
        "default.replication.factor": replication,
        "leader.imbalance.check.interval.seconds": rng.choice((5, 300)),
        "metadata.log.max.record.bytes.between.snapshots": rng.choice((2_000, 20_000, 20_971_520)),
        "min.insync.replicas": max(1, replication - 1),
        "num.partitions": rng.choice((1, 2, 4)),
        "offsets.topic.replication.factor": replication,
        # Clocks jump by a day, the default: a producer that is forgotten may write twice.
        "producer.id.expiration.ms": 2_000_000_000,
        "replica.lag.time.max.ms": rng.choice((2000, 5000, 20_000)),
        "share.coordinator.state.topic.min.isr": max(1, replication - 1),
        "share.coordinator.state.topic.num.partitions": 3,
        "share.coordinator.state.topic.replication.factor": replication,
        "transaction.state.log.min.isr": max(1, replication - 1),
        "transaction.state.log.num.partitions": rng.choice((1, 3)),
        "transaction.state.log.replication.factor": replication,
    }
    cleaning = _draw_cleaning(Random(f"{seed}/cleaning"))
    if Random(f"{seed}/racks").randrange(2):
        # Consumers with a rack, and those alone, read from a follower in it (KIP-392).
        cleaning["replica.selector.class"] = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    # Shorter than the fetch timeout even on the slowest clock.
    properties["controller.quorum.fetch.wait.max.ms"] = Random(f"{seed}/polls").choice((100, 300, 500, 600))
    faults = draw_faults(rng, begin_ms=_FIRST_FAULT_MS)
    end_ms = faults[-1].at_ms + rng.choice((500, 5000))
    settings = tuple((name, str(value)) for name, value in {**properties, **cleaning}.items())
    # Drawn apart from the rest: without changes a run is the one it would be if there were none.
    rng = Random(f"{seed}/changes")
    changes = draw_changes(rng, begin_ms=_FIRST_FAULT_MS, end_ms=end_ms)
    levels = _draw_levels(rng) if any(change.kind == "upgrade" for change in changes) else ()
    moves = draw_moves(Random(f"{seed}/moves"), begin_ms=_FIRST_FAULT_MS, end_ms=end_ms)
    altered = draw_settings(Random(f"{seed}/settings"), begin_ms=_FIRST_FAULT_MS, end_ms=end_ms)
    events = tuple(sorted((*faults, *changes, *moves, *altered), key=lambda fault: fault.at_ms))
    return ClusterScenario(
        seed,
        controllers,
        brokers,
        settings,
        events,
        end_ms,
        levels=levels,
        combined=combined,
        directories=Random(f"{seed}/directories").choice((1, 1, 2, 3)),
    )


def _draw_cleaning(rng: Random) -> dict[str, int | float | str]:
    """How soon segments are closed, and logs compacted and cut at their beginning."""
    return {
        "log.cleaner.backoff.ms": rng.choice((200, 2000, 15_000)),
        "log.cleaner.dedupe.buffer.size": 1 << 20,
        # Clocks jump by a day, the default: a replica that lags would miss a tombstone.
        "log.cleaner.delete.retention.ms": 2_000_000_000,
        "log.cleaner.min.cleanable.ratio": rng.choice((0.01, 0.5)),
        "log.roll.ms": rng.choice((300, 3000, 604_800_000)),
        "log.retention.check.interval.ms": rng.choice((500, 5000, 300_000)),
        # Clocks jump by days, and what was acknowledged has to stay.
        "log.retention.ms": -1,
    }


def _draw_levels(rng: Random) -> tuple[tuple[str, int], ...]:
    """Levels below the newest ones, for a run that upgrades."""
    version = metadata_version(rng.choice(_EARLIER_VERSIONS))
    before, newest = default_levels(version), default_levels(LATEST_PRODUCTION)
    levels = {name: level for name, level in before.items() if level != newest[name]}
    # Clients of the runs need the groups of KIP-848.
    levels = {**levels, GROUP_VERSION: newest[GROUP_VERSION], KRAFT_VERSION: newest[KRAFT_VERSION]}
    if rng.randrange(2):
        levels[KRAFT_VERSION] = 0
    if rng.randrange(2):
        levels["transaction.version"] = min(levels.get("transaction.version", 2), rng.randrange(3))
        levels[ELIGIBLE_LEADER_REPLICAS_VERSION] = 0
    return tuple(sorted(levels.items()))


def run(scenario: ClusterScenario, workload: Workload, *, cluster_type: type[Cluster] = Cluster) -> Outcome:
    """Run a scenario: start, faults, recovery, and the end of the workload.

    Args:
        scenario: What happens.
        workload: What clients do.
        cluster_type: What runs.
    """
    outcome = Outcome(scenario)
    cluster = cluster_type(
        scenario.seed,
        controllers=scenario.controllers,
        brokers=scenario.brokers,
        combined=scenario.combined,
        directories=scenario.directories,
        properties=dict(scenario.properties),
        levels=dict(scenario.levels),
    )
    try:
        with cluster:
            _run(cluster, scenario, workload, outcome)
    except Exception as error:  # noqa: BLE001  what was found
        name = error.identifier if isinstance(error, InvariantViolationError) else type(error).__name__
        outcome.is_limited = name == NO_CLEAN_LEADER
        if not outcome.is_limited:
            outcome.error = error
            outcome.scenario = replace(scenario, breaks=name)
    outcome.story = list(cluster.story)
    outcome.event_count = cluster.world.event_count
    outcome.simulated_ms = cluster.world.now_ms
    outcome.election_count = cluster.checkers.quorum.election_count
    outcome.leader_changes = cluster.checkers.partitions.leader_changes
    outcome.looked = dict(cluster.checkers.looked)
    # Whatever happens draws from the world's chance, which ends elsewhere after any difference.
    ended = (cluster.world.now_ns, cluster.world.event_count, cluster.world.rng.getstate(), outcome.story)
    outcome.fingerprint = hashlib.sha256(repr(ended).encode()).hexdigest()[:16]
    return outcome


def _run(cluster: Cluster, scenario: ClusterScenario, workload: Workload, outcome: Outcome) -> None:
    task = cluster.begin(workload(cluster))
    for fault in scenario.faults:
        _pass_time(cluster, fault.at_ms)
        if task.done():
            break
        outcome.fault_count += happen(cluster, fault)
    _pass_time(cluster, scenario.end_ms)
    cluster.become_quiet()
    cluster.recover()
    cluster.run_until(task.done, within_ms=_FINISH_MS)
    task.result()
    cluster.run_until(lambda: not cluster.is_changing, within_ms=_FINISH_MS)
    cluster.recover()
    cluster.check_stability()


def _pass_time(cluster: Cluster, until_ms: float) -> None:
    if until_ms > cluster.world.now_ms:
        cluster.run_for(until_ms - cluster.world.now_ms)


def shrink(outcome: Outcome, workload: Workload, *, budget: int = 60, cluster_type: type[Cluster] = Cluster) -> Outcome:
    """Leave out faults while the same rule is broken: halves first, at last one by one; then heal earlier.

    Args:
        outcome: Of a run that failed.
        workload: As it was.
        budget: Most runs.
        cluster_type: As it was.
    """
    best, run_count = outcome, 0

    def breaks(candidate: ClusterScenario) -> bool:
        nonlocal best, run_count
        if run_count >= budget:
            return False
        run_count += 1
        found = run(replace(candidate, breaks=None), workload, cluster_type=cluster_type)
        if found.error is None or found.scenario.breaks != outcome.scenario.breaks:
            return False
        best = found
        return True

    size = max(1, len(best.scenario.faults) // 2)
    while best.scenario.faults and run_count < budget:
        end, is_shorter = len(best.scenario.faults), False
        while end > 0:
            faults = best.scenario.faults
            start = max(0, end - size)
            is_shorter |= breaks(replace(best.scenario, faults=faults[:start] + faults[end:]))
            end = start
        if size == 1 and not is_shorter:
            break
        size = max(1, size // 2)
    last_ms = max((fault.at_ms for fault in best.scenario.faults), default=_FIRST_FAULT_MS)
    for end_ms in (last_ms + 500, last_ms + 5000):
        if end_ms < best.scenario.end_ms and breaks(replace(best.scenario, end_ms=end_ms)):
            break
    return best


def simulate(workload: Workload, seeds: Iterable[int], *, budget: int = 60) -> list[Outcome]:
    """Run the drawn scenario of each seed.

    Args:
        workload: What clients do.
        seeds: One run each.
        budget: Most runs to shrink a failing one.

    Raises:
        ClusterFailedError: A run failed; it has the shortest one that fails in the same way.
    """
    outcomes = []
    for seed in seeds:
        outcome = run(draw(seed), workload)
        if outcome.error is not None:
            shortest = shrink(outcome, workload, budget=budget)
            raise ClusterFailedError(shortest) from shortest.error
        outcomes.append(outcome)
    return outcomes
