"""The pytest options and fixtures of ``kraftlog.testing.pytest_plugin``, in a pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

TESTS = """
    import asyncio

    def test_minute(kraftlog_cluster, kraftlog_seed):
        cluster = kraftlog_cluster(controllers=1, brokers=1)

        async def wait():
            await asyncio.sleep(60)
            return cluster.bootstrap_servers

        assert cluster.run(wait(), within_ms=70_000) == "10.0.0.2:9092"
        cluster.kill("broker-2")
        assert kraftlog_seed != 8, "seed 8 fails"
"""


def run(folder, *arguments, hash_seed="random"):
    (folder / "conftest.py").write_text('pytest_plugins = ["kraftlog.testing.pytest_plugin"]\n')
    (folder / "test_service.py").write_text(textwrap.dedent(TESTS))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_service.py", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, check=False, env=environment
    )


@pytest.mark.slow
def test_a_failing_seed_prints_its_story_and_the_command_that_replays_it(tmp_path):
    found = run(tmp_path, "--kraftlog-seed", "7", "--kraftlog-runs", "2")
    assert "1 failed, 1 passed" in found.stdout, found.stdout + found.stderr
    assert "\npytest test_service.py::test_minute --kraftlog-seed 8\nA client that depends on" in found.stdout
    assert "broker-2      is killed" in found.stdout
    fixed = run(tmp_path, "--kraftlog-seed", "8", hash_seed="3")
    assert "\nPYTHONHASHSEED=3 pytest test_service.py::test_minute --kraftlog-seed 8\n" in fixed.stdout
    wrong = run(tmp_path, "--kraftlog-seed", "some")
    assert wrong.returncode == 4
    assert "--kraftlog-seed some: give a number, or random" in wrong.stderr
