"""Puts bugs back, one at a time, and prints what notices each: `.ci/dev put-back`.

python -m put_back                          the test of each bug; exit code 1 if one misses its bug
python -m put_back --chance 60              seeds that nobody chose, at most 60 CPU-seconds per bug
python -m put_back --native                 those of the native code: the extension is compiled anew for each
python -m put_back --only "minority"        bugs whose names contain this
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from functools import partial

from put_back.bug import Bug
from put_back.consensus_bugs import CONSENSUS_BUGS
from put_back.coordinator_bugs import COORDINATOR_BUGS
from put_back.native import NativeTree
from put_back.native_bugs import NATIVE_BUGS
from put_back.notice import Notice, by_core_seeds, by_test, by_world_seeds, in_a_process
from put_back.partition_bugs import PARTITION_BUGS
from put_back.shell_bugs import SHELL_BUGS

BUGS: tuple[Bug, ...] = (*CONSENSUS_BUGS, *SHELL_BUGS, *PARTITION_BUGS, *COORDINATOR_BUGS)
# Of the consensus core, whose own simulation runs no shell.
CORE = "raft."
HISTORICAL_COUNT = 28


def _install_historical(number: int) -> None:
    from raft_mutants import MUTANTS

    _, owner, name, mutant, _ = MUTANTS[number]
    setattr(owner, name, mutant)


def _historical_name(number: int) -> Notice:
    from raft_mutants import MUTANTS

    return Notice(MUTANTS[number][0])


def _row(name: str, notice: Notice) -> str:
    place = "" if notice.seed < 0 else f"seed {notice.seed}"
    return f"| {name} | {notice.by or 'nothing'} | {place} | {notice.events or ''} | {notice.cpu_s:.2f} |"


def _chance_work(bug: Bug, first_seed: int, budget_cpu_s: float) -> Callable[[], Notice]:
    seeds = by_core_seeds if bug.module.startswith(CORE) else by_world_seeds
    return partial(seeds, bug.install, first_seed, budget_cpu_s)


def main() -> int:
    """Put back what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chance", type=float, metavar="CPU_SECONDS", help="by drawn seeds instead of the bug's test")
    parser.add_argument("--core", action="store_true", help="with --chance: only the consensus core's bugs")
    parser.add_argument("--seed", type=int, default=None, help="with --chance: the first seed")
    parser.add_argument("--native", action="store_true", help="the bugs of the native code instead of Python's")
    parser.add_argument("--only", default="", help="bugs whose names contain this")
    arguments = parser.parse_args()
    bugs = [bug for bug in BUGS if arguments.only in bug.name]
    works: list[tuple[str, Callable[[], Notice]]]
    if arguments.native:
        tree = NativeTree()
        bugs, works = [], [(bug.name, partial(tree.notice, bug)) for bug in NATIVE_BUGS if arguments.only in bug.name]
    elif arguments.chance is None:
        works = [(bug.name, partial(by_test, bug.install, bug.test)) for bug in bugs]
    else:
        first_seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
        works = [
            (bug.name, _chance_work(bug, first_seed, arguments.chance))
            for bug in bugs
            if not arguments.core or bug.module.startswith(CORE)
        ]
        for number in range(HISTORICAL_COUNT):
            name = in_a_process(partial(_historical_name, number)).by
            if arguments.only in name:
                work = partial(by_core_seeds, partial(_install_historical, number), first_seed, arguments.chance)
                works.append((name, work))
    print("| bug | noticed by | seed | events | CPU-s |\n|---|---|---|---|---|", flush=True)
    unnoticed = 0
    known = {bug.name for bug in bugs if not bug.test}
    unexpected = 0
    for name, work in works:
        notice = work() if arguments.native else in_a_process(work)
        unnoticed += not notice.by
        unexpected += not notice.by and name not in known
        print(_row(name, notice), flush=True)
    print(f"\n{len(works) - unnoticed} of {len(works)} bugs are noticed", flush=True)
    return int(unexpected > 0 and arguments.chance is None)


if __name__ == "__main__":
    sys.exit(main())
