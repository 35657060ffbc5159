"""CONTRIBUTING.md, "Add an API": two files and one line make a node serve an API, as the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
STEM = "get_telemetry_subscriptions"


def blocks():
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add an API")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.mark.slow
def test_newcomer_adds_an_api_by_the_page_alone(tmp_path):
    handler, line, test = blocks()
    shutil.copytree(ROOT / "python", tmp_path / "python", ignore=shutil.ignore_patterns("__pycache__"))
    package = tmp_path / "python" / "kraftlog"
    assert not (package / "api" / "handlers" / f"{STEM}.py").exists(), "the page needs an API that is not served yet"
    (package / "api" / "handlers" / f"{STEM}.py").write_text(handler)
    table = package / "api" / "handler_table.py"
    text = table.read_text()
    following = re.search(r"^( *)Api\(7[2-9],", text, re.MULTILINE)
    assert following is not None
    table.write_text(f"{text[: following.start()]}{following[1]}{line.strip()},\n{text[following.start() :]}")
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / f"test_{STEM}.py").write_text(test)
    shutil.copy(ROOT / "tests" / "raw_client.py", tests)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "python")}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
