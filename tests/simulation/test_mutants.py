"""Bugs of files, of the replica layer and of timers, put back one at a time: each is noticed at once."""

from __future__ import annotations

import pytest

from shell_mutants import SHELL_MUTANTS


@pytest.mark.parametrize(
    ("bug", "owner", "name", "mutant", "notices"),
    SHELL_MUTANTS,
    ids=[shell_mutant[0] for shell_mutant in SHELL_MUTANTS],
)
def test_bug_that_is_put_back_is_noticed(monkeypatch, tmp_path, bug, owner, name, mutant, notices):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    notices(first)
    monkeypatch.setattr(owner, name, mutant)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        notices(second)
