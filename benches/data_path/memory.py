"""Free memory that the host has given to this machine, on the machines where that is not a matter of course."""

from __future__ import annotations

import os
import subprocess
import sys

BYTES_MAX = 3 << 30
END_TIMEOUT_S = 60.0

TOUCH = """
import mmap, sys
memory = mmap.mmap(-1, int(sys.argv[1]))
part = bytes(1 << 20)
for start in range(0, len(memory) - len(part) + 1, len(part)):
    memory[start : start + len(part)] = part
"""


def back_free_memory() -> None:
    """Let a process write to so much memory and end: the pages that it leaves are the first to be used again.

    A virtual machine may give free pages back to its host within seconds. The first write to such a page then costs 2
    to 10 us, several times what a server does for the 4 KiB in it, and rows of large batches would show the host. So
    much is :data:`BYTES_MAX`, at most half of what is free.

    Raises:
        subprocess.SubprocessError: The process failed, or took longer than a minute.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    count = min(BYTES_MAX, free // 2)
    subprocess.run([sys.executable, "-c", TOUCH, str(count)], check=True, timeout=END_TIMEOUT_S)
