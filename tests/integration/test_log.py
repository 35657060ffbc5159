"""The lock of a directory between processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kraftlog._kraftlog import lock_directory
from kraftlog.errors import LogError

LOCKED = """
import sys
from kraftlog import _kraftlog
from kraftlog.errors import LogError
try:
    _kraftlog.lock_directory(sys.argv[1])
except LogError as error:
    print(error)
else:
    print("locked")
"""


def test_directory_lock_excludes_this_and_other_processes(tmp_path: Path) -> None:
    def other() -> str:
        command = [sys.executable, "-c", LOCKED, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    lock = lock_directory(tmp_path)
    assert lock.path == tmp_path.resolve()
    with pytest.raises(LogError, match=r"\.lock: already locked by this process"):
        lock_directory(tmp_path / ".")
    assert "locked by another process" in other()
    lock.release()
    lock.release()
    assert other() == "locked"
    lock_directory(tmp_path).release()
    with pytest.raises(FileNotFoundError):
        lock_directory(tmp_path / "absent")
