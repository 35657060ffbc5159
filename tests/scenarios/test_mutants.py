"""Bugs that KRaft once had, put back one at a time: each has to change what some scenario prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from raft_mutants import MUTANTS
from scenarios.raft_scenario import run_scenario

FOLDER = Path(__file__).parent


def prints_something_else(text):
    """Whether the scenario has another outcome now, be it that it cannot be carried on."""
    try:
        return run_scenario(text) != text
    except (LookupError, ArithmeticError, AssertionError, RuntimeError, TypeError, ValueError):
        return True


@pytest.mark.parametrize(("bug", "owner", "name", "mutant", "scenario"), MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_bug_that_is_put_back_changes_what_a_scenario_prints(monkeypatch, bug, owner, name, mutant, scenario):
    text = (FOLDER / f"{scenario}.txt").read_text()
    assert run_scenario(text) == text
    monkeypatch.setattr(owner, name, mutant)
    assert prints_something_else(text), f"{bug} goes unnoticed in {scenario}"


def vote_by_id(voted, candidate):
    return voted.node_id == candidate.node_id


def test_vote_is_for_one_directory(monkeypatch):
    text = (FOLDER / "leader_refuses_and_steps_down.txt").read_text()
    monkeypatch.setattr("kraftlog.raft.roles.unattached.same_voter", vote_by_id)
    assert run_scenario(text) != text
