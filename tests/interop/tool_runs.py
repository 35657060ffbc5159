"""Kafka's command line tools beside ours: the same arguments, and what each printed."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from interop.harness import Java

RUNNER = Path(__file__).parent / "java" / "RunTools.java"


@dataclass(frozen=True)
class Said:
    """The end of a command."""

    code: int
    out: str
    err: str


def run_kafka(java: Java, main: str, runs: Sequence[Sequence[str]]) -> list[Said]:
    """Each run of a tool of Kafka's, one after the other in one JVM."""
    lines = "".join("\t".join([main, *arguments]) + "\n" for arguments in runs)
    # A source file as the main class: java compiles it in memory.
    done = java.run(str(RUNNER), text_input=lines)
    said: list[Said] = []
    for line in done.stdout.splitlines():
        code, out, err = line.split(" ")
        texts = [base64.b64decode(one).decode() for one in (out, err)]
        said.append(Said(int(code), *("".join(_without_slf4j(text)) for text in texts)))
    assert len(said) == len(runs), done.stdout + done.stderr
    return said


def _without_slf4j(text: str) -> list[str]:
    return [line for line in text.splitlines(keepends=True) if not line.startswith("SLF4J: ")]


def run_ours(main: Callable[[Sequence[str]], int], runs: Sequence[Sequence[str]]) -> list[Said]:
    """Each run of a command of ours."""
    said: list[Said] = []
    for arguments in runs:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
        said.append(Said(code, out.getvalue(), err.getvalue()))
    return said
