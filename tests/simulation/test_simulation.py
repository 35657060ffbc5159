"""Clusters under faults, each from one seed. A failing seed is shrunk and becomes a file in ``regressions``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kraftlog.testing import InvariantViolationError, Scenario, Simulation, SimulationConfig, shrink
from kraftlog.testing.faults import FAULTS
from kraftlog.testing.invariants import RULES
from raft_mutants import MUTANTS

SEED_COUNT = int(os.environ.get("KRAFTLOG_SEEDS", "200"))
# From here on, 48 seeds are enough for everything that the last test asks for, twice.
FIRST_SEED = int(os.environ.get("KRAFTLOG_FIRST_SEED", "1063"))
PARTS = 8
REGRESSIONS = Path(__file__).with_name("regressions")
ROLES = ("unattached", "prospective", "candidate", "leader", "follower", "resigned")
CHANGES = (
    "unattached_to_prospective",
    "unattached_to_follower",
    "prospective_to_candidate",
    "prospective_to_follower",
    "prospective_to_unattached",
    "candidate_to_leader",
    "candidate_to_prospective",
    "candidate_to_follower",
    "candidate_to_unattached",
    "leader_to_resigned",
    "leader_to_unattached",
    "follower_to_prospective",
    "follower_to_unattached",
    "follower_to_follower",
    "resigned_to_unattached",
    "resigned_to_follower",
)
HAPPENINGS = (
    "message_lost",
    "message_blocked",
    "message_duplicated",
    "message_held_up",
    "unflushed_batches_lost",
    "batches_cut_at_recovery",
    "log_truncated",
    "disk_failure_stopped_node",
    "disk_replaced",
    "disk_wiped",
    "wiped_node_came_back",
    "spoilt_disk_found",
    "snapshot_taken",
    "snapshot_installed",
    "voter_added",
    "voter_removed",
    "pre_vote_unsupported",
    "fetch_without_high_watermark",
)
RARELY = {"INV-01", "INV-03", "INV-04", "INV-05", "INV-06", "INV-08", "INV-09", "INV-11", "INV-13", "INV-22"}
RARELY |= {"INV-29", "INV-30", "INV-31", "INV-32"}  # looked at with every event, and not counted

totals: Counter[str] = Counter()
looked: Counter[str] = Counter()


def run(seed, **options):
    return Simulation(SimulationConfig(seed=seed, **options)).run()


@pytest.mark.spec("INV-01", "INV-02", "INV-03", "INV-04", "INV-05", "INV-06", "INV-07", "INV-08", "INV-09")
@pytest.mark.spec("INV-10", "INV-11", "INV-12", "INV-13", "INV-14", "INV-15", "INV-16", "INV-17", "INV-18")
@pytest.mark.spec("INV-19", "INV-20", "INV-21", "INV-22", "INV-23", "INV-24", "INV-25", "INV-26", "INV-27")
@pytest.mark.spec("INV-28", "INV-29", "INV-30", "INV-31", "INV-32", "INV-33", "INV-34", "INV-35", "INV-36")
@pytest.mark.spec("ELEC-53", "ELEC-54", "ELEC-55", "HWM-19", "HWM-20", "HWM-21", "VOTE-30", "SNAP-51", "RCFG-67")
@pytest.mark.spec("DISK-30", "DISK-36", "DISK-37", "HWM-22", "FTCH-50")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_invariants_hold_under_every_kind_of_fault(part):
    seeds = range(FIRST_SEED + part, FIRST_SEED + SEED_COUNT, PARTS)
    began_s = time.process_time()
    events = elections = simulated_ms = 0
    for seed in seeds:
        simulation = Simulation(SimulationConfig(seed=seed))
        try:
            report = simulation.run()
        except InvariantViolationError as error:
            pytest.fail(f"seed {seed}: {error}\n\n{shrink(simulation.scenario, budget=60).scenario}")
        events, elections = events + report.event_count, elections + report.election_count
        simulated_ms += report.simulated_ms
        totals.update(report.counters)
        looked.update(report.looked)
    spent_s = time.process_time() - began_s
    print(
        f"{len(seeds)} seeds, {events} events, {elections} elections, {simulated_ms / 3_600_000:.2f} hours:"
        f" {events / spent_s:.0f} events and {elections / spent_s:.1f} elections a CPU-second,"
        f" {simulated_ms / 60_000 / spent_s:.2f} hours a CPU-minute"
    )


@pytest.mark.spec("INV-37")
def test_every_fault_and_every_change_of_role_happened():
    """Says something about the seeds above only when they ran here too, which a run of one test alone cannot."""
    if not totals:
        pytest.skip("counts what the clusters above did")
    print(dict(sorted(totals.items())), dict(sorted(looked.items())))
    wanted = [*(f"fault_{name}" for name in FAULTS), *(f"became_{role}" for role in ROLES), *CHANGES, *HAPPENINGS]
    never = [name for name in wanted if not totals[name]]
    never += [rule for rule in RULES if rule not in RARELY and not looked[rule]]
    assert not never, f"nothing was tested about {never}"


@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario_that_failed_once_passes(path):
    scenario = Scenario.parse(path.read_text())
    assert scenario.note, "what it showed stands above it"
    Simulation(scenario.config, scenario.faults).run(end_ms=scenario.end_ms)


@pytest.mark.parametrize(
    "line", [line for line in Path(__file__).with_name("regressions.txt").read_text().splitlines() if line.strip()]
)
def test_seed_that_failed_once_passes(line):
    run(int(line.split()[0]))


@pytest.mark.spec("INV-37")
def test_same_seed_is_the_same_run_in_another_process():
    program = (
        "from kraftlog.testing import *; r = Simulation(SimulationConfig(seed=5, keeps_trace=True)).run();"
        "print(r.trace_hash, r.event_count, *r.trace, sep=chr(10))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 10_000


GUARD = """
import io, os, random, secrets, select, socket, threading, time, uuid
from kraftlog.testing import Simulation, SimulationConfig

def forbid(owner, name):
    def refuse(*arguments, **options):
        raise RuntimeError(f"{owner.__name__}.{name} was called")
    setattr(owner, name, refuse)

for name in "time monotonic perf_counter time_ns monotonic_ns perf_counter_ns process_time sleep".split():
    forbid(time, name)
for name in "random randrange randint choice shuffle sample getrandbits uniform".split():
    forbid(random, name)
for owner, name in ((os, "urandom"), (os, "open"), (uuid, "uuid4"), (secrets, "randbits"), (socket, "socket"),
                    (threading.Thread, "start"), (io, "open"), (select, "select")):
    forbid(owner, name)
import builtins
forbid(builtins, "open")
Simulation(SimulationConfig(seed=9, fault_count=30)).run()
print("only injected")
"""


@pytest.mark.spec("INV-38")
def test_no_clock_chance_thread_file_or_socket_but_those_given():
    done = subprocess.run(
        [sys.executable, "-c", GUARD],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "only injected\n", done.stderr[-2000:]


def _write_nothing(self, state):
    """A quorum-state that is not on disk."""


def first_violation(seeds=range(20)):
    for seed in seeds:
        simulation = Simulation(SimulationConfig(seed=seed, voter_count=3))
        try:
            simulation.run()
        except InvariantViolationError as error:
            return simulation, error
    pytest.fail("nobody noticed")
    return None


@pytest.mark.spec("VOTE-30")
def test_replica_that_forgets_its_vote_is_found_out(monkeypatch):
    monkeypatch.setattr("kraftlog.testing.disk.SimulatedDisk.write_election_state", _write_nothing)
    assert first_violation()[1].identifier in {"INV-01", "INV-02", "INV-03", "INV-04"}


def test_failing_seed_is_shrunk_to_a_short_scenario_that_fails_alike_from_its_text(monkeypatch):
    owner, name, mutant = next(mutant[1:4] for mutant in MUTANTS if mutant[0] == "KAFKA-15489")
    monkeypatch.setattr(owner, name, mutant)
    simulation, error = first_violation()
    again = Simulation(simulation.config)
    with pytest.raises(InvariantViolationError) as found:
        again.run()
    assert str(found.value) == str(error), "a failing seed replays exactly"
    shrunk = shrink(simulation.scenario)
    print(f"{len(simulation.schedule)} faults, {len(shrunk.scenario.faults)} after {shrunk.run_count} runs")
    print(shrunk.scenario)
    assert shrunk.scenario.breaks == error.identifier
    assert len(shrunk.scenario.faults) <= 5
    written = Scenario.parse(str(shrunk.scenario))
    with pytest.raises(InvariantViolationError) as found:
        Simulation(written.config, written.faults).run(end_ms=written.end_ms)
    assert found.value.identifier == written.breaks
    monkeypatch.undo()
    Simulation(written.config, written.faults).run(end_ms=written.end_ms)


def test_shrinking_a_run_that_is_well_is_refused():
    scenario = Simulation(SimulationConfig(seed=1, fault_count=1, fault_kinds=("resign_leader",))).scenario
    with pytest.raises(ValueError, match="breaks nothing"):
        shrink(scenario)


@pytest.mark.parametrize("text", ["at 5 crash_node node=1", "cluster seed=1\nsomething", "cluster seed=1\nat 5"])
def test_text_that_is_no_scenario_is_refused(text):
    with pytest.raises(ValueError, match=r"a scenario|not a"):
        Scenario.parse(text)
