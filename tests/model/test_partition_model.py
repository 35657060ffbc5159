"""The specification of partition replication in a small scope, and rules left out of it, by TLC."""

from __future__ import annotations

import os
import re

import pytest

from model import tlc

IS_LARGE = bool(os.environ.get("KRAFTLOG_MODEL_LARGE"))


def scope(
    *,
    brokers="a b",
    min_isr=1,
    flush_on_ack=False,
    elr=True,
    unclean=False,
    epochs=2,
    changes=3,
    end=1,
    lives=2,
    fences=False,
    moves=False,
    shrinks=True,
):
    """Constants and their values."""
    flags = {
        "FlushOnAck": flush_on_ack, "Elr": elr, "Unclean": unclean, "Waits": False, "Fences": fences, "Moves": moves,
        "Shrinks": shrinks,
    }  # fmt: skip
    numbers = {"MinIsr": min_isr, "MaxEpoch": epochs, "MaxChange": changes, "MaxEnd": end, "MaxLife": lives}
    return "\n".join(
        [
            "CHECK_DEADLOCK FALSE",
            "CONSTANTS",
            "Nil = Nil",
            "Sent <- OneFetch",
            "Publish <- Newest",
            *(f"{name} = {name}" for name in brokers.split()),
            f"Node = {{{', '.join(brokers.split())}}}",
            *(f"{name} = {str(value).upper()}" for name, value in flags.items()),
            *(f"{name} = {value}" for name, value in numbers.items()),
            "",
        ]
    )


SEARCH = """
INIT Init
NEXT Next
SYMMETRY Symmetry
VIEW Lasting
CONSTRAINT Small
INVARIANT Safe
PROPERTY StepsAreSafe
"""
WITHOUT_RULES = """
INIT BrokenInit
NEXT BrokenNext
VIEW LastingAndBroken
CONSTRAINT Unnoticed
CONSTANTS
Rules <- TheRules
Order <- TheOrder
MaximalIsr <- Maximal
IsCurrent <- Current
IsEligible <- EligibleMember
Lost <- LostTail
CutAt <- CutHere
IsOfEpoch <- OfEpoch
IsInSync <- InSync
MayCommit <- Commits
IsNew <- New
Renews <- Renew
IsAlone <- Alone
LeftEligible <- LeftOver
"""


def search(folder, text, **options):
    config = folder / "scope.cfg"
    config.write_text(text + SEARCH)
    outcome = tlc.run_tlc(folder, "PartitionModel", config, **options)
    print(outcome.states, outcome.text.splitlines()[-1])
    return outcome


SMALL = {
    "two brokers, one of which may lose its log": scope(fences=True),
    "two brokers, eligible replicas and unclean elections": scope(fences=True, unclean=True),
    # With page-cache acknowledgements a sole member that lost its log would be elected as if it had it (KIP-966).
    "two brokers whose acknowledgements wait for the disk, unclean elections without ELR": scope(
        fences=True, unclean=True, elr=False, flush_on_ack=True
    ),
}
LARGE = {
    "two brokers and leaders that are moved": scope(fences=True, moves=True),
    "two brokers, longer logs": scope(fences=True, moves=True, end=2),
    "two brokers whose acknowledgements wait for the disk, without ELR": scope(
        fences=True, moves=True, end=2, flush_on_ack=True, elr=False
    ),
    "two brokers, unclean elections in three epochs": scope(fences=True, unclean=True, epochs=3, changes=4),
    "two brokers and unclean elections": scope(fences=True, moves=True, end=2, unclean=True, epochs=3),
    "three brokers, few changes, unclean elections": scope(
        brokers="a b c", changes=2, lives=1, fences=True, unclean=True
    ),
    "three brokers, two in sync": scope(brokers="a b c", min_isr=2, fences=True, moves=True),
}


@pytest.mark.spec("RINV-01", "RINV-07", "RINV-12", "RINV-14", "RINV-15", "RINV-16", "RINV-21", "RINV-22", "RINV-23")
@pytest.mark.spec("RINV-24", "RINV-26", "RINV-27", "RINV-28")
@pytest.mark.parametrize("text", SMALL.values(), ids=SMALL)
@pytest.mark.slow
def test_everything_that_can_happen_to_a_partition_in_a_small_scope_is_safe(tmp_path, text):
    outcome = search(tmp_path, text, flags=tlc.SHORT)
    assert outcome.is_good, outcome.text[-4000:]
    assert outcome.states[1] > 1_000


@pytest.mark.skipif(not IS_LARGE, reason="hours of checking: `.ci/dev model`")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_everything_that_can_happen_to_a_partition_in_a_larger_scope_is_safe(tmp_path, text):
    outcome = search(tmp_path, text, heap="6g", timeout=None)
    assert outcome.is_good, outcome.text[-4000:]


def noticed(folder, rules, text, *, order="", timeout=900):
    """The rules that are found to be missing. One worker: what TLC remembers of a rule is a worker's own."""
    names = ", ".join(f'"{rule}"' for rule in rules)
    brokers = re.findall(r"^(\w) = \1$", text, re.MULTILINE)
    (folder / "LeftOut.tla").write_text(
        f"---- MODULE LeftOut ----\nEXTENDS PartitionMutants\nCONSTANTS {', '.join(brokers)}\n"
        f"TheRules == <<{names}>>\nTheOrder == <<{order}>>\n====\n"
    )
    config = folder / "left_out.cfg"
    config.write_text(text + ("" if order else "SYMMETRY Symmetry\n") + WITHOUT_RULES)
    outcome = tlc.run_tlc(folder, "LeftOut", config, flags=tlc.SHORT, timeout=timeout)
    assert outcome.is_good, outcome.text[-4000:]
    found = re.findall(r'<<"noticed", "(\w+)", "(\w+)", (\d+)>>', outcome.text)
    print(outcome.states, found, outcome.text.splitlines()[-1])
    return {rule for rule, *_ in found}


LEFT_OUT = {
    # A joining replica that is not waited for; members of an earlier registration; a replica that is eligible although
    # it lost its tail; metadata of the same partition epoch that ends a change in flight.
    "one in sync is enough": (("maximal", "life", "eligible", "same"), scope()),
    # The in-sync set, and the eligible replicas, after an unclean election.
    "leaders are elected uncleanly": (("alone", "emptied"), scope(fences=True, unclean=True)),
    # Commits with fewer members than min.insync.replicas; members that do not reach the leader's epoch.
    "two have to be in sync": (("minimum", "start"), scope(min_isr=2)),
}
LEFT_OUT_LARGE = {
    # Truncation to the high watermark.
    "longer logs": (("truncation",), scope(end=2, epochs=3, moves=True), ""),
    # A leader that missed the epoch of another one and keeps what it knew; fetches of another epoch.
    "three brokers that lead in turn": (
        ("renewed", "epoch"),
        scope(brokers="a b c", min_isr=2, epochs=3, lives=1, moves=True, shrinks=False),
        "a, b, a",
    ),
    # AlterPartition without the partition epoch.
    "three brokers, one of which is fenced": (
        ("change",),
        scope(brokers="a b c", epochs=1, changes=4, lives=1, fences=True),
        "",
    ),
}


@pytest.mark.parametrize(("rules", "text"), LEFT_OUT.values(), ids=LEFT_OUT)
@pytest.mark.slow
def test_rule_of_replication_left_out_is_noticed(tmp_path, rules, text):
    assert noticed(tmp_path, rules, text) == {*rules}


@pytest.mark.skipif(not IS_LARGE, reason="minutes of checking: `.ci/dev model`")
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("rules", "text", "order"), LEFT_OUT_LARGE.values(), ids=LEFT_OUT_LARGE)
def test_rule_of_replication_left_out_is_noticed_in_a_larger_scope(tmp_path, rules, text, order):
    assert noticed(tmp_path, rules, text, order=order, timeout=None) == {*rules}
