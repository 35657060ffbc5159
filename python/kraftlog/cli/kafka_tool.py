"""How commands that stand for tools of Kafka's end: they give the exit codes of those."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from kraftlog.errors import KraftlogError

__all__ = ["run_tool"]


def run_tool(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, run: Callable[[argparse.Namespace], int | None]
) -> int:
    """Read the arguments and run.

    Args:
        parser: What it takes.
        arguments: Without the program's name; those of the process when absent.
        run: Does it; None counts as 0.

    Returns:
        The exit code: 0, or 1 with a reason on stderr. Wrong usage is 1 too, as with Kafka's tools, not argparse's 2.
    """
    try:
        args = parser.parse_args(arguments)
    except SystemExit as stop:
        return 1 if stop.code else 0
    try:
        return run(args) or 0
    except (KraftlogError, ValueError) as error:
        print(error, file=sys.stderr)
    except TimeoutError:
        print("no answer came in time", file=sys.stderr)
    except OSError as error:
        print(f"{error.filename or 'I/O'}: {error.strerror}", file=sys.stderr)
    return 1
