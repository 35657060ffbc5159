"""Bugs that can be put back fit the source; a sample is put back. `.ci/dev put-back` has all of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from put_back.__main__ import BUGS
from put_back.native_bugs import NATIVE_BUGS

TESTS = Path(__file__).parents[1]


def test_each_bug_changes_a_piece_of_the_source_that_is_there_once():
    for bug in BUGS:
        compile(bug.source(), str(bug.path), "exec")
        assert not bug.test or (TESTS / bug.test.partition("::")[0]).is_file(), bug.name
    for bug in NATIVE_BUGS:
        assert bug.source() != bug.path.read_text()
        assert (TESTS / bug.test.partition("::")[0]).is_file(), bug.name
    names = Counter(bug.name for bug in (*BUGS, *NATIVE_BUGS))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_known_bug_of_replication_can_be_put_back():
    """RINV-41: those of area 29 are RINV-42 to RINV-91."""
    named = {int(number) for bug in (*BUGS, *NATIVE_BUGS) for number in re.findall(r"RINV-(\d+)", bug.name)}
    assert sorted(set(range(42, 92)) - named) == []


def run_module(module, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'python'}{os.pathsep}{TESTS}"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env=environment, cwd=TESTS, timeout=300, check=False, capture_output=True, text=True)


def test_a_bug_that_is_put_back_is_noticed_by_its_test():
    by_test = run_module("put_back", "--only", "two changes of one partition epoch")
    assert by_test.returncode == 0, by_test.stdout + by_test.stderr
    assert "| unit/controller/test_isr_control.py |" in by_test.stdout


def test_bugs_that_are_put_back_are_noticed_by_drawn_seeds_and_stay_noticed(tmp_path):
    rows = tmp_path / "rows.jsonl"
    arguments = ("--rows", str(rows), "--cap", "30", "--seed", "1", "--only", "a minority commits")
    by_chance = run_module("put_back.chance", *arguments)
    assert "1 of 1 bugs are noticed" in by_chance.stdout, by_chance.stdout + by_chance.stderr
    kept = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["kind"] for row in kept] == ["control", "bug"], "the seed ran without the bug, and passed"
    assert kept[1]["by"].startswith("INV-")
    # What is known is not done again.
    again = run_module("put_back.chance", *arguments)
    assert rows.read_text().count("\n") == len(kept), again.stdout + again.stderr
    table = run_module("put_back.chance", *arguments, "--table")
    assert "| a minority commits | `raft.roles.leader` | [INV-" in table.stdout
