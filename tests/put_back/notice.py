"""Whether a bug that was put back is noticed by its test.

Each bug has a process of its own, forked before ``kraftlog`` is imported.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@dataclass(slots=True)
class Notice:
    """What noticed a bug.

    Args:
        by: The test; empty when it did not.
        cpu_s: CPU seconds until then.
    """

    by: str = ""
    cpu_s: float = 0.0


def in_a_process(work: Callable[[], Notice]) -> Notice:
    """Run ``work`` in a fork of this process, without its output.

    Raises:
        RuntimeError: The process did not end with a result.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            os.close(reader)
            silence = os.open(os.devnull, os.O_WRONLY)
            errors = os.dup(2)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            try:
                notice = work()
            except BaseException:
                os.write(errors, traceback.format_exc().encode())
                raise
            os.write(writer, json.dumps(asdict(notice)).encode())
            status = 0
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    if not text:
        msg = "the process ended without a result"
        raise RuntimeError(msg)
    return Notice(**json.loads(text))


def by_test(install: Callable[[], object], test: str) -> Notice:
    """Run one test file, or one test of it, with the bug.

    Raises:
        RuntimeError: The test did not run.
    """
    if not test:
        return Notice()
    install()
    began_s = time.process_time()
    status = pytest.main([str(TESTS / test), "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"])
    if status not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}:
        msg = f"{test}: pytest ended with {status!r}"
        raise RuntimeError(msg)
    return Notice(test if status else "", cpu_s=time.process_time() - began_s)
