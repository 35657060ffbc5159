"""Runs of one replicated partition, step by step, as behaviours of its specification."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest

from kraftlog.controller.isr_control import IsrControl
from kraftlog.controller.partition_change import PartitionChange
from kraftlog.errors import KraftlogError
from kraftlog.testing.step_trace import literals
from model import tlc
from model.partition_run import BROKERS, PartitionRun, RunSettings

RUN_COUNT = int(os.environ.get("KRAFTLOG_PARTITION_RUNS", "6"))
FIRST_SEED = int(os.environ.get("KRAFTLOG_FIRST_SEED", "1"))
STEP_COUNT = 250
BROKEN_STEP_COUNT = 300
BROKEN_SEEDS = (2, 3)
ACTIONS = {
    "AlterPartition", "AppendRecords", "Crash", "Elect", "Fence", "Fetched", "Learn", "ProposeShrink", "Register",
    "SendFetch", "Stop", "TakeAnswer", "TakeFetch", "Truncate", "Unfence",
}  # fmt: skip

CONFIG = """
INIT Init
NEXT Next
VIEW Position
CONSTRAINT IsSafe
ACTION_CONSTRAINT IsSafeStep
CHECK_DEADLOCK FALSE
CONSTANTS
  Nil = Nil
  Nobody = Nil
  Elr = TRUE
  Waits = TRUE
  Sent <- AllFetches
  Publish <- AllVersions
"""


def text(value):
    return "".join(literals(value)).replace("Nil", "Nobody")


def write_traces(folder, runs):
    """Runs as the module PartitionTraces."""
    names = ("leader", "epoch", "change", "isr", "elr", "lastKnown")
    with (folder / "PartitionTraces.tla").open("w") as file:
        file.write("---- MODULE PartitionTraces ----\nEXTENDS Integers\nCONSTANT Nobody\n")
        for number, run in enumerate(runs, 1):
            values = run.seen_meta(run.first)[: len(names)]
            meta = ", ".join(f"{name} |-> {text(value)}" for name, value in zip(names, values, strict=True))
            file.write(f"Trace{number} == [brokers |-> {text(frozenset(BROKERS))}, meta |-> [{meta}], steps |-> <<\n")
            file.write(",\n".join(map(text, run.steps)) + ">>]\n")
        file.write("Traces == <<" + ", ".join(f"Trace{number}" for number in range(1, len(runs) + 1)) + ">>\n====\n")


def refused(folder, runs):
    """Where these runs, all of the same settings, are no behaviours of the specification: steps by run."""
    settings = runs[0].settings
    config = folder / "trace.cfg"
    constants = {"MinIsr": settings.min_isr, "FlushOnAck": settings.flush_on_ack, "Unclean": settings.unclean}
    config.write_text(CONFIG + "".join(f"  {name} = {text(value)}\n" for name, value in constants.items()))
    write_traces(folder, runs)
    outcome = tlc.run_tlc(folder, "PartitionTrace", config, flags=tlc.SHORT)
    assert outcome.is_good, outcome.text[-4000:]
    print(outcome.states, outcome.text.splitlines()[-1])
    reached = Counter()
    for number, place in re.findall(r'<<"reached", (\d+), (\d+)>>', outcome.text):
        reached[runs[int(number) - 1]] = max(reached[runs[int(number) - 1]], int(place))
    return {run: reached[run] for run in runs if reached[run] <= len(run.steps)}


def describe(found):
    """The last steps of each run that was refused, and the one that is none."""
    return "\n".join(
        f"seed {run.seed}: step {place} is none of the specification\n"
        + "\n".join(map(str, run.steps[max(0, place - 10) : place]))
        for run, place in found.items()
    )


def take_run(seed, settings):
    run = PartitionRun(seed, settings)
    try:
        run.take(STEP_COUNT)
    finally:
        run.close()
    return run


def take_broken_runs(settings, kind=PartitionRun):
    """Runs that may come to what never happens, and end there."""
    runs = [kind(seed, settings) for seed in BROKEN_SEEDS]
    for run in runs:
        with suppress(AssertionError, KraftlogError):
            run.take(BROKEN_STEP_COUNT)
        run.close()
    return runs


class AnyEpoch(PartitionRun):
    """Fetches name no leader epoch."""

    def claimed_epoch(self, leader_epoch):
        return -1


class CutAtHighWatermark(PartitionRun):
    """Followers truncate to their high watermark, as before KIP-101."""

    def cut_at(self, broker, offset):
        return min(broker.replica.high_watermark, broker.log.log_end_offset)


class FewerMembers(PartitionRun):
    """Leaders commit with one member."""

    broker_min_isr = 1


class ForgottenJoin(PartitionRun):
    """Leaders forget what they have proposed, and whom to wait for."""

    def propose(self, broker, proposal):
        super().propose(broker, proposal)
        broker.replica.isr_refused(proposal[0])


class EarlyAcknowledgement(PartitionRun):
    """A former leader's first fetch does not wait for its disk."""

    def is_acknowledgeable(self, broker):
        return True


def _eligible_after_a_crash(self, isr, replicas, _was=PartitionChange._eligible_leader_replicas):
    self.unclean_replicas = frozenset()
    return _was(self, isr, replicas)


def _any_partition_epoch(self, broker_id, partition, wanted, members, _was=IsrControl._refusal):
    return _was(self, broker_id, partition, replace(wanted, partition_epoch=partition.partition_epoch), members)


BROKEN_RUNS = {
    "fetches of any leader epoch": AnyEpoch,
    "truncation to the high watermark": CutAtHighWatermark,
    "commits with fewer members than min.insync.replicas": FewerMembers,
    "proposals that are forgotten": ForgottenJoin,
}
BROKEN_CONTROLLERS = {
    "eligible although its tail is lost": (PartitionChange, "_eligible_leader_replicas", _eligible_after_a_crash),
    "AlterPartition of any partition epoch": (IsrControl, "_refusal", _any_partition_epoch),
}
DURABLE = RunSettings(flush_on_ack=True, min_isr=1, unclean=True)


@pytest.mark.spec("RINV-01", "RINV-07", "RINV-12", "RINV-14", "RINV-15", "RINV-16", "RINV-21", "RINV-22", "RINV-23")
@pytest.mark.spec("RINV-24", "RINV-26", "RINV-28")
@pytest.mark.slow
def test_runs_of_a_partition_are_behaviours_of_the_specification_and_broken_ones_are_not(tmp_path, monkeypatch):
    """One search for all of them: most of its time is the start of the JVM."""
    runs = [take_run(seed, RunSettings()) for seed in range(FIRST_SEED, FIRST_SEED + RUN_COUNT)]
    actions = Counter(step[1] for run in runs for step in run.steps)
    print(actions)
    assert actions.keys() >= ACTIONS
    broken = {name: take_broken_runs(RunSettings(), kind) for name, kind in BROKEN_RUNS.items()}
    for name, (owner, method, mutant) in BROKEN_CONTROLLERS.items():
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, mutant)
            broken[name] = take_broken_runs(RunSettings())
    found = refused(tmp_path, [*runs, *(run for several in broken.values() for run in several)])
    assert not found.keys() & {*runs}, describe({run: found[run] for run in runs if run in found})
    assert [name for name, several in broken.items() if not found.keys() & {*several}] == []


@pytest.mark.slow
@pytest.mark.spec("RINV-29")
def test_runs_of_a_partition_whose_acknowledgements_wait_for_the_disk_are_behaviours_of_the_specification(tmp_path):
    runs = [take_run(seed, DURABLE) for seed in range(FIRST_SEED, FIRST_SEED + RUN_COUNT // 2)]
    broken = take_broken_runs(DURABLE, EarlyAcknowledgement)
    found = refused(tmp_path, [*runs, *broken])
    assert not found.keys() & {*runs}, describe({run: found[run] for run in runs if run in found})
    assert found.keys() & {*broken}
