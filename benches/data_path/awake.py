"""Processors that never halt, as on a busy host or on a machine whose idle state is ``poll``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# It checks for its parent some hundred times per second: a bench that was killed leaves no spinning process behind.
SPIN = """
import os, sys
parent, processor = map(int, sys.argv[1:])
os.sched_setaffinity(0, {processor})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print("awake", flush=True)
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""
END_TIMEOUT_S = 10.0


@contextmanager
def processors_awake() -> Iterator[None]:
    """One spinning process per processor that this process may use, until the block ends.

    Their policy is SCHED_IDLE (sched(7)): a thread of any other policy that wakes preempts them at once, and beside one
    that runs they get 3 of 1 027 parts of the processor. Under a small nice value they would get fifteen.

    Raises:
        OSError: A process could not spin; none is left running.
    """
    spinning: list[subprocess.Popen[str]] = []
    try:
        for processor in sorted(os.sched_getaffinity(0)):
            command = [sys.executable, "-c", SPIN, str(os.getpid()), str(processor)]
            spinning.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        for process in spinning:
            assert process.stdout is not None
            if process.stdout.readline() != "awake\n":
                raise OSError("a process that keeps a processor awake ended")
        yield
    finally:
        for process in spinning:
            process.kill()
        for process in spinning:
            process.wait(END_TIMEOUT_S)
            assert process.stdout is not None
            process.stdout.close()
