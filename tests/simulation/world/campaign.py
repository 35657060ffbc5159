"""Drawn runs of whole clusters for some minutes: `.ci/dev world`, and `.ci/dev world --seed N` for one of them.

    python tests/simulation/world/campaign.py --minutes 30            random seeds, figures at the end
    python tests/simulation/world/campaign.py --seeds 100:140         these seeds, figures of each and at the end
    python tests/simulation/world/campaign.py --first 70000 --cpu-minutes 60   all workloads in turns, from this seed on
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

sys.path.insert(0, str(Path(__file__).parent.parent))

from world.burst_workload import bursts
from world.group_workload import groups
from world.loss_workload import losses
from world.pipeline_workload import pipelines
from world.share_workload import shares
from world.table_workload import tables
from world.topic_workload import topics
from world.trim_workload import trims
from world.workloads import records, transactions

from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.quorum_cluster import QuorumCluster, commands
from kraftlog.testing.world.swarm import ClusterScenario, Outcome, draw, run, shrink

WORKLOADS = {
    "records": (records, Cluster),
    "transactions": (transactions, Cluster),
    "groups": (groups, Cluster),
    "pipelines": (pipelines, Cluster),
    "shares": (shares, Cluster),
    "tables": (tables, Cluster),
    "topics": (topics, Cluster),
    "losses": (losses, Cluster),
    "trims": (trims, Cluster),
    "bursts": (bursts, Cluster),
    "commands": (commands, QuorumCluster),
}

_LOOKED = "looked at "  # before the rules among the totals


def figures(totals, spent_s):
    """The figures of a campaign in a line."""
    hours = totals["simulated_ms"] / 3_600_000
    return (
        f"{totals['runs']} runs, {totals['failed']} failed, {totals['limited']} limited, {totals['faults']} faults,"
        f" {totals['elections']} elections,"
        f" {totals['leaders']} leaders of partitions, {hours:.2f} cluster-hours, {totals['events']} events in"
        f" {spent_s:.0f} CPU-s: {hours * 60 / max(spent_s, 1e-9):.2f} cluster-hours per CPU-minute"
    )


def looked_at(totals):
    """How often each rule had something to look at, in a line."""
    rules = sorted(name.removeprefix(_LOOKED) for name in totals if name.startswith(_LOOKED))
    return "looked at: " + ", ".join(f"{rule} {totals[_LOOKED + rule]}" for rule in rules)


def report(outcome: Outcome, *, with_story: bool) -> None:
    """Print how a run went."""
    print(outcome.scenario)
    if with_story or outcome.error is not None:
        print("\n".join(outcome.story[-80:]))
    print(f"\n{outcome.error!r}" if outcome.error is not None else "\npassed", flush=True)


def chosen_seeds(text: str | None, minutes: float):
    """The seeds of ``FIRST:END``, or random ones for so many minutes."""
    if text is not None:
        first, _, end = text.partition(":")
        yield from range(int(first), int(end))
        return
    end_s = time.monotonic() + minutes * 60
    while time.monotonic() < end_s:
        yield SystemRandom().randrange(2**31)


def run_seed(seed: int, workload: str, totals: Counter[str]) -> float:
    """Run a seed, print how it went and add it up; returns its CPU seconds."""
    began_s = time.process_time()
    clients, cluster_type = WORKLOADS[workload]
    outcome = run(draw(seed), clients, cluster_type=cluster_type)
    spent_s = time.process_time() - began_s
    end = "FAILED" if outcome.error is not None else "limited" if outcome.is_limited else "passed"
    what = f"{outcome.event_count} events in {spent_s:.1f} CPU-s, fingerprint {outcome.fingerprint}"
    print(f"{workload} {seed} {end}: {what}", flush=True)
    totals.update(runs=1, failed=int(outcome.error is not None), faults=outcome.fault_count)
    totals["limited"] += outcome.is_limited
    totals.update(elections=outcome.election_count, leaders=outcome.leader_changes)
    totals.update(simulated_ms=int(outcome.simulated_ms), events=outcome.event_count)
    totals.update({f"{_LOOKED}{rule}": count for rule, count in outcome.looked.items()})
    if outcome.error is not None:
        print(f"seed {seed} failed: .ci/dev world --workload {workload} --seed {seed}")
        report(outcome, with_story=True)
    return spent_s


def campaign(seeds, workload: str) -> int:
    """Run the seeds; returns how many failed."""
    totals: Counter[str] = Counter()
    spent_s = sum(run_seed(seed, workload, totals) for seed in seeds)
    print(figures(totals, spent_s))
    print(looked_at(totals))
    return totals["failed"]


def shared_campaign(first: int, cpu_minutes: float) -> int:
    """Run the seeds from ``first`` on with each workload, which have equal CPU time; returns how many failed."""
    totals = {workload: Counter[str]() for workload in WORKLOADS}
    spent_s = dict.fromkeys(WORKLOADS, 0.0)
    try:
        while sum(spent_s.values()) < cpu_minutes * 60:
            workload = min(spent_s, key=spent_s.__getitem__)
            spent_s[workload] += run_seed(first + totals[workload]["runs"], workload, totals[workload])
    finally:  # figures of a campaign that was broken off, too
        for workload, found in totals.items():
            print(f"{workload}: {figures(found, spent_s[workload])}")
        every = sum(totals.values(), Counter())
        print(f"all: {figures(every, sum(spent_s.values()))}")
        print(looked_at(every), flush=True)
    return sum(found["failed"] for found in totals.values())


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", help="FIRST:END")
    parser.add_argument("--first", type=int, help="the first seed of all workloads")
    parser.add_argument("--cpu-minutes", type=float, default=60, help="of a campaign with --first")
    parser.add_argument("--scenario", type=Path)
    parser.add_argument("--workload", choices=WORKLOADS, default="records")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL + 1)
    if arguments.first is not None:
        return int(shared_campaign(arguments.first, arguments.cpu_minutes) > 0)
    workload, cluster_type = WORKLOADS[arguments.workload]
    if arguments.seed is None and arguments.scenario is None:
        return int(campaign(chosen_seeds(arguments.seeds, arguments.minutes), arguments.workload) > 0)
    scenario = (
        draw(arguments.seed) if arguments.scenario is None else ClusterScenario.parse(arguments.scenario.read_text())
    )
    outcome = run(scenario, workload, cluster_type=cluster_type)
    if outcome.error is not None:
        outcome = shrink(outcome, workload, cluster_type=cluster_type)
    report(outcome, with_story=True)
    return int(outcome.error is not None)


if __name__ == "__main__":
    sys.exit(main())
