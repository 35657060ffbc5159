"""Drawn histories of the active controller keep every rule, and have what makes them hard."""

from __future__ import annotations

from collections import Counter

from controller_history import ControllerHistory

SEEDS = 60
WANTED = {"registered", "fenced", "shut down", "lost directory", "altered", "reassigned", "elected", "unclean"}


def test_drawn_histories_of_the_controller_keep_every_rule():
    """RINV-22, RINV-23, RINV-26, RINV-27, RINV-28, RINV-29, RINV-34: in each answer and after each change."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += ControllerHistory(seed).play()
    assert {name for name in WANTED if not counts[name]} == set()
