"""Drawn histories of single state machines, with seeds that nobody chose: `.ci/dev histories`.

    python -m put_back.histories --cpu-minutes 10              each kind of history in turns, figures at the end
    python -m put_back.histories --first 7400000 --only peers  those of one kind, from this seed on
    python -m put_back.histories --only peers --seed 7200886   one seed, with the whole error

Exit code 1 when a history failed; the command that runs it again is printed. A history has one part of the product
alone, and takes a hundredth to a thousandth of the time that a run of a whole cluster does (`.ci/dev world`).
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from random import SystemRandom

from put_back.worlds import HISTORIES


def play(name: str, seed: int, totals: Counter[str]) -> float:
    """Run a seed and add it up; returns its CPU seconds."""
    began_s = time.process_time()
    run = HISTORIES[name](seed)
    spent_s = time.process_time() - began_s
    totals.update(runs=1, events=run.events, failed=int(bool(run.by)))
    if run.by:
        print(f"{name} {seed} failed: {run.by}: {run.reason}")
        print(f"    .ci/dev histories --only {name} --seed {seed}", flush=True)
    return spent_s


def campaign(names: tuple[str, ...], first: int, cpu_minutes: float) -> int:
    """Run seeds from ``first`` on of each kind, which have equal CPU time; returns how many failed."""
    totals = {name: Counter[str]() for name in names}
    spent_s = dict.fromkeys(names, 0.0)
    try:
        while sum(spent_s.values()) < cpu_minutes * 60:
            name = min(spent_s, key=spent_s.__getitem__)
            spent_s[name] += play(name, first + totals[name]["runs"], totals[name])
    finally:  # figures of a campaign that was broken off, too
        for name, found in totals.items():
            print(f"{name}: {_figures(first, found, spent_s[name])}")
        every = sum(totals.values(), Counter())
        print(f"all: {every['runs']} runs, {every['failed']} failed, {every['events']} steps", flush=True)
    return sum(found["failed"] for found in totals.values())


def _figures(first: int, found: Counter[str], spent_s: float) -> str:
    last = first + found["runs"] - 1
    return f"seeds {first} to {last}, {found['failed']} failed, {found['events']} steps in {spent_s:.0f} CPU-s"


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu-minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=SystemRandom().randrange(2**31), help="the first seed")
    parser.add_argument("--only", choices=tuple(HISTORIES), help="this kind alone")
    parser.add_argument("--seed", type=int, help="run this seed of --only, and raise what it finds")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        if arguments.only is None:
            parser.error("--seed needs --only")
        HISTORIES[arguments.only].play(arguments.seed)
        print("passed")
        return 0
    logging.disable(logging.CRITICAL)
    names = tuple(HISTORIES) if arguments.only is None else (arguments.only,)
    return int(campaign(names, arguments.first, arguments.cpu_minutes) > 0)


if __name__ == "__main__":
    sys.exit(main())
