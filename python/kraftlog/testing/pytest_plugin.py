"""pytest: clusters in virtual time, and a seed that replays a failing test.

Put this line into ``conftest.py``::

    pytest_plugins = ["kraftlog.testing.pytest_plugin"]

``--kraftlog-seed N`` gives every test that seed, ``--kraftlog-seed random`` a new one per run. ``--kraftlog-runs N``
runs each test with N seeds, one after the other. A test that fails reports the command that replays it, and the story
of its cluster.
"""

from __future__ import annotations

import os  # noqa: TID251  what the shell set before this process began
import shlex
from collections.abc import Callable, Generator, Iterator
from random import SystemRandom
from typing import Any

import pytest

from kraftlog.testing.world.cluster import Cluster

__all__ = ["kraftlog_cluster"]

_FIXTURE = "kraftlog_seed"
_CLUSTERS = pytest.StashKey[list[Cluster]]()
_SEEDS = pytest.StashKey[range]()
_LAST_LINES = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("kraftlog", "clusters in virtual time")
    group.addoption("--kraftlog-seed", default="0", metavar="N", help="seed of simulated clusters, or random (0)")
    group.addoption(
        "--kraftlog-runs", default=1, type=int, metavar="N", help="seeds per test, from the first one on (1)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Decide about the seeds.

    Raises:
        pytest.UsageError: A seed is no number, or fewer than one run is wanted.
    """
    text, runs = config.getoption("--kraftlog-seed"), config.getoption("--kraftlog-runs")
    if text != "random" and not text.isdecimal():
        msg = f"--kraftlog-seed {text}: give a number, or random"
        raise pytest.UsageError(msg)
    if runs < 1:
        msg = f"--kraftlog-runs {runs}: give 1 or more"
        raise pytest.UsageError(msg)
    first = SystemRandom().randrange(2**31) if text == "random" else int(text)
    config.stash[_SEEDS] = range(first, first + runs)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that has a seed once per seed."""
    seeds = metafunc.config.stash[_SEEDS]
    if _FIXTURE in metafunc.fixturenames:
        metafunc.parametrize(_FIXTURE, seeds, ids=[f"seed{seed}" for seed in seeds])


@pytest.fixture
def kraftlog_cluster(kraftlog_seed: int, request: pytest.FixtureRequest) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters of the test's seed, started; they end with the test.

    The arguments are those of ``kraftlog.testing.Cluster``: ``kraftlog_cluster(controllers=1, brokers=3)``.
    """
    clusters: list[Cluster] = []
    request.node.stash[_CLUSTERS] = clusters

    def make(**options: Any) -> Cluster:
        cluster = Cluster(**{"seed": kraftlog_seed, **options})
        clusters.append(cluster)
        return cluster.__enter__()

    yield make
    for cluster in clusters:
        cluster.close()


def _with_hash_seed(command: str) -> str:
    """The nodes do not depend on the order of sets of strings; clients of other libraries may."""
    hash_seed = os.environ.get("PYTHONHASHSEED", "random")
    if hash_seed != "random":
        return f"PYTHONHASHSEED={hash_seed} {command}"
    return f"{command}\nA client that depends on the order of sets replays only if PYTHONHASHSEED was set before."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add the command and the story to the report of a test that failed."""
    report = yield
    seed = getattr(item, "callspec", None) and item.callspec.params.get(_FIXTURE)  # type: ignore[attr-defined]
    if report.when == "call" and report.failed and seed is not None:
        name = item.nodeid.partition("[")[0]
        words = ["pytest", name, "--kraftlog-seed", str(seed)]
        report.sections.append(("kraftlog: replay", _with_hash_seed(shlex.join(words))))
        for cluster in item.stash.get(_CLUSTERS, []):
            report.sections.append(
                (f"kraftlog: story of seed {cluster.seed}", "\n".join(cluster.story.last(_LAST_LINES)))
            )
    return report
