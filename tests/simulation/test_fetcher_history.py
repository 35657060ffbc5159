"""Drawn histories of a replica fetcher keep every rule, and have what makes them hard."""

from __future__ import annotations

from collections import Counter

from fetcher_history import FetcherHistory

SEEDS = 150
WANTED = {"appended", "cut", "diverging", "elected", "failed", "odd answer", "out of range", "refused"}


def test_drawn_histories_of_a_fetcher_keep_every_rule():
    """RINV-01, RINV-14, RINV-36, RINV-39, RFET-18, RFET-26, RFET-38, RFET-68: at each step, and at the end."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += FetcherHistory(seed).play()
    assert {name for name in WANTED if not counts[name]} == set()
