"""The checker in Go, for all histories of this directory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHECKER = Path(__file__).with_name("checker")


@pytest.fixture(scope="session")
def porcupine(tmp_path_factory):
    """The checker in Go; None where there is no Go: the one in Python runs in any case."""
    if shutil.which("go") is None:
        return None
    binary = tmp_path_factory.mktemp("porcupine") / "checker"
    built = subprocess.run(
        ["go", "build", "-o", str(binary), "."], cwd=CHECKER, capture_output=True, text=True, timeout=200, check=False
    )
    if built.returncode:
        print(f"porcupine cannot be built, only the checker in Python is asked: {built.stderr}")
        return None
    return binary
