"""Whether drawn seeds notice the bugs that are put back: `.ci/dev put-back-chance`.

    .ci/dev put-back-chance --rows FILE --cap 60 --minutes 30       goes on where the file ends
    .ci/dev put-back-chance --rows FILE --pass 5                    at most so long per bug, a first look at all of them
    .ci/dev put-back-chance --rows FILE --table                     prints the table of the report

A file of JSON lines keeps what is known, so that the work can be done in pieces. Each bug gets runs until one fails or
its CPU time is used up; then the seed of the failure runs without the bug. A failure counts only if that run passes.
Seeds are numbered from ``--seed`` on for every bug: nobody chooses them, and controls are shared.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from put_back.__main__ import BUGS
from put_back.bug import ROOT
from put_back.notice import Notice, in_a_process
from put_back.worlds import WORLDS, worlds_of

_CONTROL_CPU_S = 300.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bug, the module that has it, and what puts it into this process."""

    name: str
    module: str
    install: Callable[[], None]


def candidates() -> list[Candidate]:
    """Every bug in Python code: those of the modules, and the historical ones of the consensus core."""
    found = [Candidate(bug.name, bug.module, bug.install) for bug in BUGS]
    names = in_a_process(_historical_names).by.split("\n")
    return found + [Candidate(name, "raft.", partial(_install_historical, number)) for number, name in enumerate(names)]


def _historical_names() -> Notice:
    from raft_mutants import MUTANTS

    return Notice("\n".join(name for name, *_ in MUTANTS))


def _install_historical(number: int) -> None:
    from raft_mutants import MUTANTS

    _, owner, name, mutant, _ = MUTANTS[number]
    setattr(owner, name, mutant)


def _nothing() -> None:
    """The tree as it is."""


def attempt(
    install: Callable[[], None],
    worlds: tuple[str, ...],
    seeds: dict[str, int],
    budget_cpu_s: float,
    most_runs: int = sys.maxsize,
) -> list[dict[str, Any]]:
    """Run seeds in a fork of this process until one fails or the CPU time is used up.

    Args:
        install: Puts the bug back.
        worlds: The first has half of the time, then the others take turns.
        seeds: The next seed of each world.
        budget_cpu_s: CPU time of the fork, seconds; a run that would go on longer is ended with it.
        most_runs: No more than these.

    Returns:
        One row per run that ended: world, seed, by, reason, events, cpu_s.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.close(reader)
            signal.setitimer(signal.ITIMER_PROF, budget_cpu_s)
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            errors = os.dup(2)
            os.dup2(silence, 2)
            try:
                install()
                _work(worlds, dict(seeds), budget_cpu_s, most_runs, writer)
            except BaseException:
                os.write(errors, traceback.format_exc().encode())
                raise
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        rows = [json.loads(line) for line in stream if line.endswith("\n")]
    os.waitpid(child, 0)
    return rows


def _work(worlds: tuple[str, ...], seeds: dict[str, int], budget_cpu_s: float, most_runs: int, writer: int) -> None:
    spent = dict.fromkeys(worlds, 0.0)
    began_s = time.process_time()
    for _ in range(most_runs):
        total_s = sum(spent.values())
        if total_s >= budget_cpu_s:
            return
        others = worlds[1:] or worlds
        is_first = len(worlds) == 1 or spent[worlds[0]] < budget_cpu_s / 2
        world = worlds[0] if is_first else min(others, key=lambda name: spent[name])
        run = WORLDS[world](seeds[world])
        now_s = time.process_time()
        row = {"world": world, "seed": seeds[world], **asdict(run), "cpu_s": round(now_s - began_s, 2)}
        os.write(writer, (json.dumps(row) + "\n").encode())
        spent[world] += now_s - began_s
        began_s = now_s
        if run.by:
            return
        seeds[world] += 1


class Rows:
    """The file of what is known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            self.rows = [json.loads(line) for line in path.read_text().splitlines()]

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        self.rows.append(row)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def control(self, world: str, seed: int, tree: str) -> dict[str, Any] | None:
        """What the unchanged tree did with a seed; None if that is not known."""
        wanted = ("control", world, seed, tree)
        for row in self.rows:
            if (row["kind"], row["world"], row["seed"], row["tree"]) == wanted:
                return row
        return None

    def noticed(self) -> dict[str, dict[str, Any]]:
        """The row that noticed each bug."""
        return {row["bug"]: row for row in self.rows if row["kind"] == "bug" and row["by"]}

    def spent_cpu_s(self, bug: str) -> float:
        """CPU seconds that a bug has had."""
        return sum(float(row["cpu_s"]) for row in self.rows if row["kind"] == "bug" and row["bug"] == bug)

    def next_seed(self, bug: str, world: str, tree: str, first: int) -> int:
        """The seed after those that a bug has had in a world."""
        seen = [
            row["next_seeds"].get(world, first)
            for row in self.rows
            if row["kind"] == "bug" and row["bug"] == bug and row["tree"] == tree
        ]
        return max([first, *seen])


def notice(bug: Candidate, rows: Rows, tree: str, first_seed: int, budget_cpu_s: float) -> dict[str, Any]:
    """Give a bug CPU time, and keep what came of it."""
    worlds = worlds_of(bug.module)
    seeds = {world: rows.next_seed(bug.name, world, tree, first_seed) for world in worlds}
    spent_s, events, run_count, by = 0.0, 0, 0, {"by": "", "reason": "", "world": "", "seed": -1}
    while budget_cpu_s - spent_s > 1 and not by["by"]:
        began_s = _children_cpu_s()
        done = attempt(bug.install, worlds, seeds, budget_cpu_s - spent_s)
        spent_s += _children_cpu_s() - began_s
        events += sum(row["events"] for row in done)
        run_count += len(done)
        for row in done:
            seeds[row["world"]] = row["seed"] + 1
        if not done or not done[-1]["by"]:
            break
        last = done[-1]
        control = rows.control(last["world"], last["seed"], tree)
        if control is None:
            again = attempt(_nothing, (last["world"],), {last["world"]: last["seed"]}, _CONTROL_CPU_S, most_runs=1)
            control = {"kind": "control", "tree": tree, "world": last["world"], "seed": last["seed"]}
            control |= again[0] if again else {"by": "no end", "reason": "", "events": 0, "cpu_s": _CONTROL_CPU_S}
            rows.add(control)
        if not control["by"]:
            by = {name: last[name] for name in ("by", "reason", "world", "seed")}
    row = {"kind": "bug", "bug": bug.name, "tree": tree, **by, "events": events, "runs": run_count}
    row |= {"cpu_s": round(spent_s, 2), "next_seeds": seeds}
    rows.add(row)
    return row


def _children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def wanted(bugs: list[Candidate], rows: Rows, cap_cpu_s: float, pass_cpu_s: float) -> Iterator[tuple[Candidate, float]]:
    """The bugs that nothing has noticed and that have time left, and how much they get now."""
    for bug in bugs:
        left_s = min(cap_cpu_s - rows.spent_cpu_s(bug.name), pass_cpu_s)
        if bug.name not in rows.noticed() and left_s > 1:
            yield bug, left_s


_ID = re.compile(r"\b([A-Z]{3,4}-\d+)\b")
_ANCHOR = re.compile(r'<a id="([a-z]+-\d+)">')


def _pages() -> dict[str, str]:
    """The page of each behaviour, by its id."""
    pages = sorted((ROOT / "docs" / "behaviours").glob("*.md"))
    return {anchor.upper(): page.name for page in pages for anchor in _ANCHOR.findall(page.read_text())}


def print_table(bugs: list[Candidate], rows: Rows, file: TextIO) -> None:
    """The report's table: what noticed each bug, after how many events and how much time."""
    noticed = rows.noticed()
    lines = ["| bug | module | noticed by | world and seed | events | CPU-s |", "|---|---|---|---|---|---|"]
    for bug in bugs:
        own = [row for row in rows.rows if row["kind"] == "bug" and row["bug"] == bug.name]
        events, cpu_s = sum(row["events"] for row in own), sum(row["cpu_s"] for row in own)
        found = noticed.get(bug.name)
        by, seed = ("nothing", "") if found is None else (found["by"], f"{found['world']} {found['seed']}")
        if not own:
            by = "not run"
        module = "`raft`" if bug.module == "raft." else f"`{bug.module}`"
        lines.append(f"| {bug.name} | {module} | {by} | {seed} | {events:,} | {cpu_s:.1f} |".replace(",", " "))
    pages, text = _pages(), "\n".join(lines)
    ids = sorted(
        set(_ID.findall(text)) & pages.keys(), key=lambda found: (found.split("-")[0], int(found.split("-")[1]))
    )
    print(_ID.sub(lambda found: f"[{found[0]}]" if found[0] in pages else found[0], text), end="\n\n", file=file)
    run_count = sum(any(row.get("bug") == bug.name for row in rows.rows) for bug in bugs)
    print(f"{len(noticed)} of {len(bugs)} bugs are noticed, {run_count} have been run.\n", file=file)
    for found_id in ids:
        print(f"[{found_id}]: ../behaviours/{pages[found_id]}#{found_id.lower()}", file=file)


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, required=True, help="the file of JSON lines")
    parser.add_argument(
        "--cap", type=float, default=60, help="most CPU seconds per bug, those of earlier rows included"
    )
    parser.add_argument("--pass", type=float, default=math.inf, dest="pass_cpu_s", help="most CPU seconds per bug now")
    parser.add_argument("--world", choices=WORLDS, action="append", help="only bugs that this world runs first")
    parser.add_argument("--minutes", type=float, default=60, help="when no further bug begins")
    parser.add_argument("--seed", type=int, default=1_000_000, help="the first one of each world")
    parser.add_argument("--only", default="", help="bugs whose names contain this")
    parser.add_argument("--table", action="store_true", help="print the table, run nothing")
    arguments = parser.parse_args()
    bugs, rows = [bug for bug in candidates() if arguments.only in bug.name], Rows(arguments.rows)
    if arguments.table:
        print_table(bugs, rows, sys.stdout)
        return 0
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    tree = os.environ.get("KRAFTLOG_TREE") or subprocess.check_output(command, cwd=ROOT, text=True).strip()
    end_s = time.monotonic() + arguments.minutes * 60
    # Bugs of one module stand together in the list: a piece of the work should have some of each. Fast worlds go first.
    order = random.Random(0).sample(bugs, len(bugs))
    order.sort(key=lambda bug: list(WORLDS).index(worlds_of(bug.module)[0]))
    if arguments.world:
        order = [bug for bug in order if worlds_of(bug.module)[0] in arguments.world]
    for bug, left_s in wanted(order, rows, arguments.cap, arguments.pass_cpu_s):
        if time.monotonic() > end_s:
            break
        row = notice(bug, rows, tree, arguments.seed, left_s)
        print(f"{row['cpu_s']:7.1f} CPU-s  {row['by'] or 'nothing':20} {row['world']:12} {bug.name}", flush=True)
    print(f"{len(rows.noticed())} of {len(bugs)} bugs are noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
