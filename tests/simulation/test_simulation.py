"""Clusters under faults, each from one seed. A failing seed becomes a line in ``regressions.txt`` with its reason."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kraftlog.raft.effects import SendRequest
from kraftlog.testing import InvariantViolationError, Simulation, SimulationConfig
from kraftlog.testing.faults import FAULTS
from raft_mutants import MUTANTS

SEED_COUNT = int(os.environ.get("KRAFTLOG_SEEDS", "24"))
FIRST_SEED = int(os.environ.get("KRAFTLOG_FIRST_SEED", "1000"))
REGRESSIONS = Path(__file__).with_name("regressions.txt")
ROLES = ("unattached", "prospective", "candidate", "leader", "follower", "resigned")


def run(seed, **options):
    options.setdefault("fault_count", 60)
    return Simulation(SimulationConfig(seed=seed, **options)).run()


@pytest.mark.spec("INV-01", "INV-02", "INV-03", "INV-04", "INV-05", "INV-06", "INV-08", "INV-10", "INV-11", "INV-13")
@pytest.mark.spec("INV-17", "INV-29", "INV-30", "INV-34", "INV-36", "ELEC-53", "ELEC-54", "ELEC-55", "HWM-19", "HWM-20")
def test_invariants_hold_under_every_kind_of_fault():
    counters = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEED_COUNT):
        counters += run(seed).counters
    print(f"{SEED_COUNT} seeds from {FIRST_SEED}:", dict(sorted(counters.items())))
    never = [name for name in FAULTS if not counters[f"fault_{name}"]]
    never += [role for role in ROLES if not counters[f"became_{role}"]]
    assert not never, f"nothing was tested about {never}"


@pytest.mark.parametrize("line", [line for line in REGRESSIONS.read_text().splitlines() if line.strip()], ids=str.split)
def test_seed_that_failed_once_passes(line):
    run(int(line.split()[0]), fault_count=100)


@pytest.mark.spec("INV-37")
def test_same_seed_is_the_same_run_in_another_process():
    program = (
        "from kraftlog.testing import *; print(Simulation(SimulationConfig(seed=5, fault_count=30)).run().trace_hash)"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(hashes) == 1


def run_twenty():
    for seed in range(20):
        run(seed, voter_count=3)


def _write_nothing(self, state):
    """A quorum-state that is not on disk."""


@pytest.mark.spec("VOTE-30")
def test_replica_that_forgets_its_vote_is_found_out(monkeypatch):
    monkeypatch.setattr("kraftlog.testing.disk.SimulatedDisk.write_election_state", _write_nothing)
    with pytest.raises(InvariantViolationError, match="INV-0"):
        run_twenty()


def _send_without_waiting(self, destination, request, now_ms, *, flushed_to=None):
    correlation_id = self.connections.on_sent(destination.node_id, request, now_ms)
    self.effects.append(SendRequest(destination=destination, correlation_id=correlation_id, request=request))
    return correlation_id


def test_follower_that_acknowledges_before_it_flushed_is_found_out(monkeypatch):
    monkeypatch.setattr("kraftlog.raft.replica.Replica.send", _send_without_waiting)
    with pytest.raises(InvariantViolationError, match="INV-"):
        run_twenty()


NOTICED = ("KAFKA-10527", "KAFKA-16530", "KAFKA-18379")


@pytest.mark.parametrize("bug", NOTICED)
def test_bug_that_kraft_once_had_is_found_out(monkeypatch, bug):
    """The scenarios notice all of them, schedules by chance only some within so few seeds."""
    owner, name, mutant = next(one[1:4] for one in MUTANTS if one[0] == bug)
    monkeypatch.setattr(owner, name, mutant)
    with pytest.raises(InvariantViolationError, match="INV-"):
        run_twenty()
