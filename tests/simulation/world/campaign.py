"""Drawn runs of whole clusters for some minutes: `.ci/dev world`, and `.ci/dev world --seed N` for one of them.

    python tests/simulation/world/campaign.py --minutes 30            random seeds, figures at the end
    python tests/simulation/world/campaign.py --seed 1234             one seed, with its story; shrunk when it fails
    python tests/simulation/world/campaign.py --scenario FILE.txt     a scenario that was written down

Exit code 1 when a run failed; its shortest scenario is printed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom

sys.path.insert(0, str(Path(__file__).parent))

from workloads import records

from kraftlog.testing.world.swarm import ClusterScenario, Outcome, draw, run, shrink


def figures(totals, spent_s):
    """The figures of a campaign in a line."""
    hours = totals["simulated_ms"] / 3_600_000
    return (
        f"{totals['runs']} runs, {totals['failed']} failed, {totals['faults']} faults, {totals['elections']} elections,"
        f" {totals['leaders']} leaders of partitions, {hours:.2f} cluster-hours, {totals['events']} events in"
        f" {spent_s:.0f} CPU-s: {hours * 60 / max(spent_s, 1e-9):.2f} cluster-hours per CPU-minute"
    )


def report(outcome: Outcome, *, with_story: bool) -> None:
    """Print how a run went."""
    print(outcome.scenario)
    if with_story or outcome.error is not None:
        print("\n".join(outcome.story[-80:]))
    print(f"\n{outcome.error!r}" if outcome.error is not None else "\npassed", flush=True)


def campaign(minutes: float) -> int:
    """Run random seeds; returns how many failed."""
    totals: Counter[str] = Counter()
    end_s, began_s = time.monotonic() + minutes * 60, time.process_time()
    while time.monotonic() < end_s:
        seed = SystemRandom().randrange(2**31)
        outcome = run(draw(seed), records)
        totals.update(runs=1, failed=outcome.error is not None, faults=outcome.fault_count)
        totals.update(elections=outcome.election_count, leaders=outcome.leader_changes)
        totals.update(simulated_ms=int(outcome.simulated_ms), events=outcome.event_count)
        if outcome.error is not None:
            print(f"seed {seed} failed: .ci/dev world --seed {seed}")
            report(outcome, with_story=True)
    print(figures(totals, time.process_time() - began_s))
    return totals["failed"]


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--scenario", type=Path)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL + 1)
    if arguments.seed is None and arguments.scenario is None:
        return int(campaign(arguments.minutes) > 0)
    scenario = (
        draw(arguments.seed) if arguments.scenario is None else ClusterScenario.parse(arguments.scenario.read_text())
    )
    outcome = run(scenario, records)
    if outcome.error is not None:
        outcome = shrink(outcome, records)
    report(outcome, with_story=True)
    return int(outcome.error is not None)


if __name__ == "__main__":
    sys.exit(main())
