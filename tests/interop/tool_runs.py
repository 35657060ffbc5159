"""Kafka's command line tools beside those of kraftlog: the same arguments, and what each printed."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interop.harness import Java

# 'Exception in thread "main" CLASS: MESSAGE', the stack trace and those of its causes.
UNCAUGHT = re.compile(
    r'^Exception in thread "main" [\w.$]+(?:: )?(.*(?:\n(?!\tat ).*)*)\n(?:\t.*\n|Caused by: .*\n)+', re.MULTILINE
)


@dataclass(frozen=True)
class Said:
    """The end of a command."""

    code: int
    out: str
    err: str


def run_kafka(java: Java, main: str, runs: Sequence[Sequence[str]]) -> list[Said]:
    """Each run of a tool of Kafka's; of an exception that ended it only the message, not where it was thrown."""
    done = [java.tool(main, *arguments, check=False) for arguments in runs]
    return [Said(completed.returncode, completed.stdout, UNCAUGHT.sub(r"\1\n", completed.stderr)) for completed in done]


def run_ours(main: Callable[[Sequence[str]], int], runs: Sequence[Sequence[str]]) -> list[Said]:
    """Each run of a kraftlog command."""
    said: list[Said] = []
    for arguments in runs:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
        said.append(Said(code, out.getvalue(), err.getvalue()))
    return said
