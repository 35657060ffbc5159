"""Tests marked as slow take turns in CI: each commit runs one part of them, and the commits together run them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["not_in_turn"]


def not_in_turn(items: Sequence[pytest.Item], setting: str) -> list[pytest.Item]:
    """Of the items, the slow ones whose turn it is not.

    The setting is "TURN/TURNS", such as "0/3", "1/3" and "2/3". Neighbours by name take different turns, so that the
    cases of one test do not run all at once. Items that are not slow have no turn.

    Raises:
        ValueError: the setting is none.
    """
    turn, turns = (int(number) for number in setting.split("/"))
    if not 0 <= turn < turns:
        raise ValueError(f"KRAFTLOG_SLOW_TURN={setting} is not TURN/TURNS, such as 0/3, 1/3 or 2/3")
    slow = sorted((item for item in items if item.get_closest_marker("slow")), key=lambda item: item.nodeid)
    return [item for place, item in enumerate(slow) if place % turns != turn]
