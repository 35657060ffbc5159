"""Which tests CI leaves out for a commit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from slow_turns import not_in_turn


def item(name, *marks):
    return SimpleNamespace(nodeid=name, get_closest_marker=lambda mark: mark in marks or None)


ITEMS = [item("quick"), *(item(name, "slow") for name in ("c", "a", "e", "b", "d"))]


def run_names(setting):
    left_out = not_in_turn(ITEMS, setting)
    return [item.nodeid for item in ITEMS if item not in left_out]


def test_the_turns_together_run_all_tests_and_each_slow_one_once():
    assert run_names("0/3") == ["quick", "a", "d"]
    assert run_names("1/3") == ["quick", "e", "b"]
    assert run_names("2/3") == ["quick", "c"]


@pytest.mark.parametrize("setting", ["3/3", "-1/3", "1", "all"])
def test_a_turn_that_does_not_exist_is_refused_instead_of_running_nothing(setting):
    with pytest.raises(ValueError):
        not_in_turn(ITEMS, setting)
