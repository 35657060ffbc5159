"""The commands of docs/how-to/read-logs.md do what the page says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from batch_rows import GOLDEN

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "read-logs.md"
COMMANDS = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    kraftlog ")]


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) >= 15


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_page(command: str, tmp_path: Path) -> None:
    places = {
        "DIR": str(GOLDEN / "topics" / "node-1"),
        "METADATA": str(GOLDEN / "kraft" / "logs" / "dynamic" / "10-stopped" / "node-3004"),
        "OUT": str(tmp_path),
    }
    line = command.replace("kraftlog ", f"{shlex.quote(sys.executable)} -m kraftlog ", 1)
    done = subprocess.run(["sh", "-c", line], env={**os.environ, **places}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    written = [path.stat().st_size for path in tmp_path.iterdir()]
    # A check of an index says nothing when it is sound.
    assert done.stdout or written or "--verify-index-only" in command
    assert all(size > 100 for size in written)
