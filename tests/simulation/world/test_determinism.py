"""A run with clients depends on its seed alone: not on the process, nor on the order of its sets of texts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

RUN = """
import hashlib, logging, sys

sys.path.insert(0, sys.argv[1])
logging.basicConfig(level=logging.CRITICAL + 1)
sys.unraisablehook = lambda _: None
from workloads import records_every

from kraftlog.testing.world.cluster import Cluster

settings = {"num.partitions": "2", "default.replication.factor": "2", "offsets.topic.num.partitions": "1"}
trace = hashlib.sha256()
with Cluster(12, controllers=1, brokers=2, properties=settings) as cluster:
    world = cluster.world
    world.watchers.append(lambda machine: trace.update(f"{world.now_ns} {machine.name}\\n".encode()))
    task = cluster.begin(records_every(cluster, 0.1))
    cluster.run_for(2_000)
    cluster.power_off("broker-2")
    cluster.run_for(2_000)
    cluster.become_quiet()
    cluster.recover()
    cluster.run_until(task.done, within_ms=120_000)
    task.result()
    print(cluster.story)
    print(world.event_count, world.now_ns, trace.hexdigest(), cluster.story.last(1)[0])
"""


# The order of sets of partitions, and member ids from the operating system, gave other runs.
DRAWN_RUN = """
import logging, sys

sys.path.insert(0, sys.argv[1])
logging.basicConfig(level=logging.CRITICAL + 1)
sys.unraisablehook = lambda _: None
from campaign import WORKLOADS
from kraftlog.testing.world.swarm import draw, run

workload, cluster_type = WORKLOADS[{workload!r}]
outcome = run(draw({seed}), workload, cluster_type=cluster_type)
print(outcome.fingerprint, outcome.event_count, outcome.error, *outcome.story, sep="\\n")
"""


def trace_with(hash_seed: str, program: str = RUN) -> str:
    """What the program prints of a run in a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", program, str(HERE)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_with_clients_is_the_same_in_every_process():
    first, second = trace_with("1").splitlines(), trace_with("4242").splitlines()
    assert any("all of them are there" in line for line in first)
    # Line by line: explaining how two texts of thousands of lines differ takes minutes.
    differences = [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]]
    assert not differences[:1], differences[:3]
    assert len(first) == len(second)


@pytest.mark.parametrize(
    ("workload", "seed"),
    [
        ("records", 3500002),
        ("transactions", 702),
        ("groups", 3500018),
        ("pipelines", 3500015),
        ("shares", 702),
        ("tables", 702),
        ("losses", 17),
        ("trims", 20),
        ("bursts", 9),
        ("commands", 701),
    ],
)
@pytest.mark.slow
def test_a_drawn_run_of_each_workload_is_the_same_in_every_process(workload: str, seed: int):
    assert_same(workload, seed, hash_seeds=("1", "4242"))


@pytest.mark.slow
def test_a_drawn_run_with_full_disks_is_the_same_in_every_process():
    """Its replicas end while requests wait, which are refused in the order in which they came, not by addresses."""
    story = assert_same("commands", 75144, hash_seeds=("0", "0"))
    assert sum("No space left on device" in line for line in story) >= 2


def assert_same(workload: str, seed: int, *, hash_seeds: tuple[str, str]) -> list[str]:
    """Run a seed in two processes; returns the story of both."""
    program = DRAWN_RUN.format(workload=workload, seed=seed)
    first, second = (trace_with(hash_seed, program).splitlines() for hash_seed in hash_seeds)
    assert first[2] == "None"
    differences = [pair for pair in zip(first[1:], second[1:], strict=False) if pair[0] != pair[1]]
    assert not differences[:1], differences[:3]
    assert first[0] == second[0]
    return first[3:]
