"""Drawn histories of a shard of the group coordinator keep every rule, and have what makes them hard."""

from __future__ import annotations

from collections import Counter

from group_history import GroupHistory

SEEDS = 60
WANTED = {"assigned", "committed", "earlier epoch", "expired", "generation", "moved", "refused append", "revoking"}


def test_drawn_histories_of_groups_keep_every_rule():
    """NGRP-42, fencing, what is in force is in the log: after each step."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += GroupHistory(seed).play()
    assert {name for name in WANTED if not counts[name]} == set()
