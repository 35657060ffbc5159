"""The worlds that run drawn seeds, one run per call: which rule a run broke, and how many events it had."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Run:
    """How the run of a seed went.

    Args:
        by: The rule that was broken, or the exception that ended the run; empty when it passed.
        reason: Its first line.
        events: Of the world.
    """

    by: str
    reason: str
    events: int


Runner: TypeAlias = Callable[[int], Run]


def _run(error: BaseException | None, events: int) -> Run:
    from kraftlog.testing.log_invariants import InvariantViolationError

    if error is None:
        return Run("", "", events)
    by = error.identifier if isinstance(error, InvariantViolationError) else type(error).__name__
    return Run(by, str(error).partition("\n")[0][:200], events)


def core(seed: int) -> Run:
    """The consensus core with the simulator's own shell."""
    from kraftlog.testing import InvariantViolationError, Simulation, SimulationConfig

    simulation = Simulation(SimulationConfig(seed=seed))
    try:
        simulation.run()
    except InvariantViolationError as error:
        return _run(error, simulation.report().event_count)
    except Exception as error:  # noqa: BLE001  a core that raises is noticed too
        return _run(error, simulation.report().event_count)
    return _run(None, simulation.report().event_count)


def _cluster(seed: int, workload: str) -> Run:
    place = str(TESTS / "simulation" / "world")
    if place not in sys.path:
        sys.path.insert(0, place)
    import campaign

    from kraftlog.testing.world.swarm import draw, run

    logging.disable(logging.CRITICAL)
    clients, cluster_type = campaign.WORKLOADS[workload]
    try:
        outcome = run(draw(seed), clients, cluster_type=cluster_type)
    except asyncio.CancelledError as error:  # no exception of the kind that a run catches
        return _run(error, 0)
    return _run(outcome.error, outcome.event_count)


def records(seed: int) -> Run:
    """Whole nodes; clients produce, consume in a group and commit offsets."""
    return _cluster(seed, "records")


def transactions(seed: int) -> Run:
    """Whole nodes; clients commit and abort transactions."""
    return _cluster(seed, "transactions")


def consumers(seed: int) -> Run:
    """Whole nodes; members of a group come and go."""
    return _cluster(seed, "groups")


def pipelines(seed: int) -> Run:
    """Whole nodes; workers of a group read and write in transactions."""
    return _cluster(seed, "pipelines")


def shares(seed: int) -> Run:
    """Whole nodes; members of a share group come and go."""
    return _cluster(seed, "shares")


def tables(seed: int) -> Run:
    """Whole nodes; clients write and read a compacted topic."""
    return _cluster(seed, "tables")


def trims(seed: int) -> Run:
    """Records that are deleted from the beginning of a log on."""
    return _cluster(seed, "trims")


def bursts(seed: int) -> Run:
    """Producers with many records under way, some of which they give up."""
    return _cluster(seed, "bursts")


def losses(seed: int) -> Run:
    """Whole nodes; unclean elections lose records, and consumers detect the truncation."""
    return _cluster(seed, "losses")


def topics(seed: int) -> Run:
    """Whole nodes; topics of one name are made and deleted."""
    return _cluster(seed, "topics")


def commands(seed: int) -> Run:
    """Replicas of a ``kraftlog.Quorum``."""
    return _cluster(seed, "commands")


@dataclass(frozen=True, slots=True)
class History:
    """Drawn histories of a single state machine, without loops and sockets.

    Args:
        module: Which has ``STEPS`` of each history.
        name: Its class, whose ``play`` raises what it finds.
    """

    module: str
    name: str

    def play(self, seed: int) -> None:
        """Run the history of a seed.

        Raises:
            Exception: What it finds.
        """
        getattr(import_module(self.module), self.name)(seed).play()

    @property
    def steps(self) -> int:
        """How many a history has."""
        return int(import_module(self.module).STEPS)

    def __call__(self, seed: int) -> Run:
        """How the history of a seed went."""
        try:
            self.play(seed)
        except Exception as error:  # noqa: BLE001  what was found
            return _run(error, self.steps)
        return _run(None, self.steps)


HISTORIES = {
    "coordinator": History("transaction_history", "TransactionHistory"),
    "controller": History("controller_history", "ControllerHistory"),
    "fetcher": History("fetcher_history", "FetcherHistory"),
    "proposals": History("proposal_history", "ProposalHistory"),
    "members": History("group_history", "GroupHistory"),
    "changes": History("change_history", "ChangeHistory"),
    "watch": History("watch_history", "WatchHistory"),
    "sessions": History("session_history", "SessionHistory"),
    "peers": History("peer_history", "PeerHistory"),
    "disk": History("storage_history", "StorageHistory"),
    "replication": History("replication_history", "ReplicationHistory"),
}


class _Failures:
    """Gathers the tests of a run of pytest, and the first one that fails."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self.reason = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.count += report.when == "call"
        if report.failed and not self.first:
            self.first = report.nodeid.rpartition("::")[2]
            crash = getattr(report.longrepr, "reprcrash", None)
            self.reason = (crash.message if crash is not None else str(report.longrepr)).partition("\n")[0][:200]


def _properties(seed: int, files: tuple[str, ...]) -> Run:
    """Property tests with examples and sequences of steps drawn anew; each seed has the next file."""
    import pytest

    failures = _Failures()
    file = files[seed % len(files)]
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", f"--hypothesis-seed={seed}"]
    status = pytest.main([str(TESTS / "property" / file), *arguments], plugins=[failures])
    if status not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        return Run(f"pytest {status!r}", "", failures.count)
    return Run(failures.first, failures.reason, failures.count)


def groups(seed: int) -> Run:
    """State machines of groups, their offsets and share partitions."""
    files = (
        "test_group_ownership.py",
        "test_group_offsets.py",
        "test_classic_group_moves.py",
        "test_share_partition.py",
    )
    return _properties(seed, files)


def followers(seed: int) -> Run:
    """Rounds of a fetcher, and one partition against a model."""
    return _properties(seed, ("test_replica_fetcher_rounds.py", "test_partition_core.py"))


def files(seed: int) -> Run:
    """Small files on a disk that loses what was not flushed."""
    return _properties(seed, ("test_small_files_crash.py", "test_election_store.py"))


# The fast ones first.
WORLDS: dict[str, Runner] = {
    **HISTORIES,
    "core": core,
    "followers": followers,
    "groups": groups,
    "files": files,
    "commands": commands,
    "transactions": transactions,
    "records": records,
    "consumers": consumers,
    "pipelines": pipelines,
    "shares": shares,
    "tables": tables,
    "topics": topics,
    "losses": losses,
    "trims": trims,
    "bursts": bursts,
}
# By the beginning of a module's name, the worlds that run it: the first has half of the time, the others take turns.
ROOMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("raft.", ("core", "peers")),
    ("quorum.", ("proposals", "commands")),
    ("runtime.raft.replicated_log", ("proposals", "commands", "records")),
    ("runtime.raft.", ("commands", "records")),
    ("storage.", ("disk", "files", "commands", "records")),
    ("coordinator.transaction.", ("coordinator", "transactions")),
    ("coordinator.group.", ("members", "groups", "consumers")),
    ("coordinator.share.", ("groups", "shares")),
    ("coordinator.", ("groups", "records", "transactions")),
    ("client.batch_sender", ("bursts", "pipelines")),
    ("client.async_producer", ("bursts", "pipelines")),
    ("client.state.producer_topics", ("bursts",)),
    ("client.state.", ("losses", "consumers", "pipelines")),
    ("client.", ("consumers", "pipelines")),
    ("api.handlers.fetch", ("losses", "records")),
    ("runtime.share.", ("shares",)),
    ("runtime.steady_clock", ("consumers",)),
    ("runtime.coordinator.", ("transactions", "records")),
    ("controller.", ("controller", "replication", "records")),
    ("partition.replica_fetcher", ("fetcher", "replication", "followers")),
    ("partition.", ("replication", "followers", "records")),
    ("runtime.replica.compactor", ("tables", "pipelines")),
    ("runtime.replica.checkpoint_writer", ("topics", "records")),
    ("runtime.replica.log_remover", ("topics",)),
    ("runtime.replica.isr_changes", ("changes", "replication", "records")),
    ("runtime.replica.directory_assignments", ("changes", "records")),
    ("runtime.replica.fetch_session", ("sessions", "records")),
    ("runtime.metadata.active_controller", ("topics", "records")),
    ("runtime.metadata.broker_watch", ("watch", "records")),
    ("", ("replication", "records", "transactions")),
)


def worlds_of(module: str) -> tuple[str, ...]:
    """The worlds that run a module, those to begin with first."""
    return next(worlds for room, worlds in ROOMS if module.startswith(room))
