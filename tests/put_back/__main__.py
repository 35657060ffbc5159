"""Puts bugs back, one at a time, and prints what notices each: `.ci/dev put-back`.

python -m put_back                          the test of each bug; exit code 1 if one misses its bug
python -m put_back --native                 those of the native code: the extension is compiled anew for each
python -m put_back --only "minority"        bugs whose names contain this
python -m put_back.chance                   seeds that nobody chose instead of the bug's test
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

from put_back.bug import Bug
from put_back.client_bugs import CLIENT_BUGS
from put_back.consensus_bugs import CONSENSUS_BUGS
from put_back.coordinator_bugs import COORDINATOR_BUGS
from put_back.native import NativeTree
from put_back.native_bugs import NATIVE_BUGS
from put_back.notice import Notice, by_test, in_a_process
from put_back.partition_bugs import PARTITION_BUGS
from put_back.shell_bugs import SHELL_BUGS

BUGS: tuple[Bug, ...] = (*CONSENSUS_BUGS, *SHELL_BUGS, *PARTITION_BUGS, *COORDINATOR_BUGS, *CLIENT_BUGS)


def _row(name: str, notice: Notice) -> str:
    return f"| {name} | {notice.by or 'nothing'} | {notice.cpu_s:.2f} |"


def main() -> int:
    """Put back what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--native", action="store_true", help="the bugs of the native code instead of Python's")
    parser.add_argument("--only", default="", help="bugs whose names contain this")
    arguments = parser.parse_args()
    bugs = [bug for bug in BUGS if arguments.only in bug.name]
    works: list[tuple[str, Callable[[], Notice]]]
    if arguments.native:
        tree = NativeTree()
        bugs, works = [], [(bug.name, partial(tree.notice, bug)) for bug in NATIVE_BUGS if arguments.only in bug.name]
    else:
        works = [(bug.name, partial(by_test, bug.install, bug.test)) for bug in bugs]
    print("| bug | noticed by | CPU-s |\n|---|---|---|", flush=True)
    unnoticed = 0
    known = {bug.name for bug in bugs if not bug.test}
    unexpected = 0
    for name, work in works:
        notice = work() if arguments.native else in_a_process(work)
        unnoticed += not notice.by
        unexpected += not notice.by and name not in known
        print(_row(name, notice), flush=True)
    print(f"\n{len(works) - unnoticed} of {len(works)} bugs are noticed", flush=True)
    return int(unexpected > 0)


if __name__ == "__main__":
    sys.exit(main())
