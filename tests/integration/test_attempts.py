"""A second attempt at a test has fixtures of its own, and a timer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
MODULE = """
import time

import pytest

made = []
attempts = {}


@pytest.fixture(scope="session")
def session():
    made.append("session")


@pytest.fixture(scope="module")
def shared(session):
    made.append("made")
    yield set()
    made.append("closed")


def attempt(name):
    attempts[name] = attempts.get(name, 0) + 1
    return attempts[name]


@pytest.mark.flaky(reruns=1)
def test_topic(shared):
    assert "orders" not in shared, "the topic exists"
    shared.add("orders")
    assert attempt("topic") == 2


@pytest.mark.flaky(reruns=1)
@pytest.mark.timeout(2)
def test_hangs_once_behind_a_failure(shared):
    if attempt("hangs") == 2:
        time.sleep(60)
    raise AssertionError


@pytest.mark.flaky(reruns=1)
def test_passes():
    pass


def test_fixtures():
    # Only the first of a session; the module's anew behind each failure.
    assert made == ["session", "made", "closed", "made", "closed", "made", "closed"], made
"""


def run(directory: Path, *arguments: str) -> str:
    (directory / "conftest.py").write_text('pytest_plugins = ["attempts"]\n')
    (directory / "test_module.py").write_text(MODULE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--rootdir", ".", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    ).stdout


def test_second_attempt_after_a_failure_has_new_fixtures_and_a_timer(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert "PASSED test_module.py::test_topic" in said, said
    assert "FAILED test_module.py::test_hangs_once_behind_a_failure - Failed: Timeout" in said, said
    assert "PASSED test_module.py::test_fixtures" in said, said


def test_fail_first_attempts_fails_those_that_would_pass(tmp_path: Path) -> None:
    said = run(tmp_path, "--fail-first-attempts", "-k", "test_passes")
    assert "1 passed, 3 deselected, 1 rerun" in said, said
    assert "PASSED test_module.py::test_passes" in said, said
