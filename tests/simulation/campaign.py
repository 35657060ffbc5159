"""Runs seed after seed on all cores: `.ci/dev sim-nightly`, and `.ci/dev sim SEED` for one of them.

    python tests/simulation/campaign.py                       random seeds without end, figures each minute
    python tests/simulation/campaign.py --seeds 1000:1200     these seeds, figures at the end
    python tests/simulation/campaign.py --replay 1234         one seed, with its trace when it fails, and shrunk
    python tests/simulation/campaign.py --replay FILE.txt     a text scenario

A seed that fails is shrunk and kept as a text scenario in the directory of ``--keep``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from kraftlog.testing import InvariantViolationError, Scenario, Simulation, SimulationConfig, shrink

SHRINKS = "--no-shrink" not in sys.argv
KAFKA = "Kafka's RaftEventSimulationTest: 78000 events and 11.6 elections a CPU-second, 0.65 hours a CPU-minute"


def run_seed(seed):
    """One run: its seed, CPU seconds, totals, and the text scenario when it failed."""
    began_s = time.process_time()
    simulation = Simulation(SimulationConfig(seed=seed, refuses_connections=None))
    failure = None
    try:
        simulation.run()
    except InvariantViolationError as error:
        failure = f"{error}"[:600]
    except Exception as error:  # noqa: BLE001 - a core that raises is a finding too
        failure = f"{type(error).__name__}: {error}"[:600]
    report = simulation.report()
    totals = Counter(report.counters)
    totals.update({f"looked_{name}": count for name, count in report.looked.items()})
    totals.update(runs=1, events=report.event_count, elections=report.election_count, simulated_ms=report.simulated_ms)
    totals.update(commits=report.committed_count)
    spent_s = time.process_time() - began_s
    text = None if failure is None else f"# {failure}\n{simulation.scenario}"
    if failure is not None and SHRINKS:
        with suppress(Exception):  # the shortest form is a comfort, the seed is what counts
            text = str(shrink(simulation.scenario, budget=150).scenario)
    return seed, spent_s, totals, failure, text


def figures(totals, spent_s):
    """The figures of a campaign in a line; all of them are of the same runs."""
    spent_s = max(spent_s, 1e-9)
    hours = totals["simulated_ms"] / 3_600_000
    faults = sum(count for name, count in totals.items() if name.startswith("fault_")) / max(1, totals["runs"])
    return (
        f"{totals['runs']} seeds of {faults:.0f} faults, {totals['events']} events, {totals['elections']} elections,"
        f" {hours:.2f} hours, {totals['commits']} records in {spent_s:.0f} CPU-s:"
        f" {totals['events'] / spent_s:.0f} events and {totals['elections'] / spent_s:.1f} elections a CPU-second,"
        f" {hours * 60 / spent_s:.2f} hours a CPU-minute"
    )


def replay(what, *, shrinks):
    """Run one seed or scenario and say how it went; return whether it passed."""
    if Path(what).is_file():
        scenario = Scenario.parse(Path(what).read_text(), keeps_trace=True)
        simulation = Simulation(scenario.config, scenario.faults)
        end_ms = scenario.end_ms
    else:
        config = SimulationConfig(seed=int(what), keeps_trace=True, refuses_connections=None)
        simulation, end_ms = Simulation(config), None
    try:
        report = simulation.run(end_ms=end_ms)
    except InvariantViolationError as error:
        print(*error.recent[-60:], sep="\n")
        print(f"\n{error}\n")
        if shrinks and end_ms is None:
            print(shrink(simulation.scenario).scenario)
        return False
    print(simulation.scenario)
    print(dict(sorted(report.counters.items())))
    print(f"passes: {report.event_count} events, {report.election_count} elections, trace {report.trace_hash}")
    return True


def campaign(seeds, *, processes, keep, period_s):
    """Run the seeds, print figures each period and at the end; return how many failed."""
    totals, spent_s, failed = Counter(), 0.0, 0
    printed_s = time.monotonic()
    with multiprocessing.Pool(processes) as pool:
        for seed, seconds, counted, failure, text in pool.imap_unordered(run_seed, seeds):
            totals.update(counted)
            spent_s += seconds
            if failure is not None:
                failed += 1
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"seed_{seed}.txt").write_text(text)
                print(f"FAILED seed {seed}: {failure}\n{text}", flush=True)
            if time.monotonic() - printed_s >= period_s:
                printed_s = time.monotonic()
                print(figures(totals, spent_s), f"{failed} failed", flush=True)
    print(figures(totals, spent_s), f"{failed} failed", flush=True)
    print(KAFKA)
    print(dict(sorted(totals.items())))
    return failed


def endless():
    """Seeds nobody has chosen."""
    chance = random.SystemRandom()
    while True:
        yield chance.randrange(1 << 48)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", help="FIRST:END")
    parser.add_argument("--replay", help="a seed or a file")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=Path, default=Path("build/failing-seeds"))
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    if options.replay:
        return 0 if replay(options.replay, shrinks=SHRINKS) else 1
    seeds = range(*map(int, options.seeds.split(":"))) if options.seeds else endless()
    return 1 if campaign(seeds, processes=options.processes, keep=options.keep, period_s=60) else 0


if __name__ == "__main__":
    sys.exit(main())
