"""The specification of the protocol in a small scope, and rules left out of it, by TLC."""

from __future__ import annotations

import os

import pytest

from model import tlc

IS_LARGE = bool(os.environ.get("KRAFTLOG_MODEL_LARGE"))


def scope(
    *,
    nodes="a b",
    first="a b",
    epochs=2,
    end=3,
    pre_vote=False,
    appends=True,
    changes=False,
    snapshots=False,
    crashes=False,
    override="",
    invariant="Safe",
    constraint="Small",
):
    """A configuration of TLC."""
    is_mutant = bool(override) or constraint != "Small"
    lines = [
        "INIT Init",
        "NEXT Next",
        "CHECK_DEADLOCK FALSE",
        f"INVARIANT {invariant}",
        f"CONSTRAINT {constraint}",
        "" if is_mutant else "SYMMETRY Symmetry",
        "CONSTANTS",
        "Nil = Nil",
        "IdOf <- Self",
        "FirstRecords <- OneRecord",
        override,
        *(f"{name} = {name}" for name in sorted({*nodes.split(), *(("a", "b") if is_mutant else ())})),
        f"Node = {{{', '.join(nodes.split())}}}",
        f"First = {{{', '.join(first.split())}}}",
        f"MaxEpoch = {epochs}",
        f"MaxEnd = {end}",
    ]
    flags = {"PreVote": pre_vote, "Appends": appends, "Changes": changes, "Snapshots": snapshots, "Crashes": crashes}
    lines += [f"{name} = {str(value).upper()}" for name, value in flags.items()]
    return "\n".join(lines) + "\n"


def check(folder, text, module="KraftModel", **options):
    config = folder / "scope.cfg"
    config.write_text(text)
    outcome = tlc.run_tlc(folder, module, config, **options)
    print(outcome.states, outcome.text.splitlines()[-1])
    return outcome


SMALL = {
    "two voters with Pre-Vote that crash": scope(pre_vote=True, crashes=True, end=1),
    "three voters": scope(nodes="a b c", first="a b c", epochs=1, end=2),
    "a voter joins one and leaves": scope(first="a", changes=True, end=2),
}
LARGE = {
    "two voters with Pre-Vote that crash, longer logs": scope(pre_vote=True, crashes=True, end=2),
    "three voters, longer logs": scope(nodes="a b c", first="a b c", epochs=1),
    "a voter joins one and leaves, longer logs": scope(first="a", changes=True, end=3),
    "three voters with Pre-Vote": scope(nodes="a b c", first="a b c", pre_vote=True, epochs=1, end=2),
    "two voters with Pre-Vote that crash and load snapshots": scope(pre_vote=True, crashes=True, snapshots=True),
    "three voters in two epochs": scope(nodes="a b c", first="a b c", appends=False),
    "three voters that crash": scope(nodes="a b c", first="a b c", crashes=True),
    "a voter joins two": scope(nodes="a b c", first="a b", changes=True),
    "a voter joins one and leaves, with crashes": scope(first="a", changes=True, end=4, crashes=True),
}


@pytest.mark.spec("INV-01", "INV-02", "INV-05", "INV-06", "INV-07", "INV-08", "INV-09", "INV-10", "INV-12", "INV-14")
@pytest.mark.spec("INV-20", "INV-21", "INV-29")
@pytest.mark.parametrize("text", SMALL.values(), ids=SMALL)
@pytest.mark.slow
def test_everything_that_can_happen_in_a_small_scope_is_safe(tmp_path, text):
    outcome = check(tmp_path, text)
    assert outcome.is_good, outcome.text[-4000:]
    assert outcome.states[1] > 1_000


@pytest.mark.skipif(not IS_LARGE, reason="hours of checking: `.ci/dev model`")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_everything_that_can_happen_in_a_larger_scope_is_safe(tmp_path, text):
    outcome = check(tmp_path, text, heap="6g", timeout=None)
    assert outcome.is_good, outcome.text[-4000:]


IN_ORDER = {"nodes": "a b c d", "first": "a b c d", "epochs": 3, "appends": False, "constraint": "InOrder"}
MUTANTS = {
    "majorities that do not overlap": (
        scope(override="IsMajority <- HalfIsEnough", epochs=1, end=2),
        {"Safe"},
    ),
    "votes that are forgotten": (
        scope(nodes="a b c", first="a b c", override="StoredVote <- ForgetVote", epochs=1, end=1, crashes=True),
        {"Safe"},
    ),
    "changes before the epoch has committed": (
        scope(**IN_ORDER, override="MayChangeVoters <- ChangeAnyTime", changes=True),
        {"Safe"},
    ),
}


@pytest.mark.parametrize(("text", "found"), MUTANTS.values(), ids=MUTANTS)
@pytest.mark.slow
def test_rule_left_out_is_noticed(tmp_path, text, found):
    outcome = check(tmp_path, text, module="KraftMutants")
    assert outcome.violated in found, outcome.text[-4000:]
