"""The lock of a log directory whose holder dies."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kraftlog.errors import LogError
from kraftlog.storage.log_dir import LogDir


@pytest.mark.spec("DISK-38")
def test_lock_is_free_after_its_holder_was_killed(tmp_path):
    program = "from kraftlog.storage.log_dir import LogDir; from pathlib import Path; import sys\n"
    program += f"one = LogDir(Path({str(tmp_path)!r})); print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LogError, match=r"\.lock"):
        LogDir(tmp_path)
    holder.kill()
    holder.wait()
    LogDir(tmp_path).release()
