"""Drawn histories of parts of a broker's shell keep every rule, and have what makes them hard."""

from __future__ import annotations

from collections import Counter

import pytest

from change_history import ChangeHistory
from session_history import SessionHistory
from watch_history import WatchHistory

HISTORIES = {
    # RINV-64, RINV-65, RINV-68, RINV-69, RINV-75, RINV-88.
    ChangeHistory: (60, {"proposed", "lost", "placed", "decision 0", "decision 74", "decision 95", "decision 107"}),
    # RINV-89.
    SessionHistory: (20, {"fetched", "refused", "evicted"}),
    # Only who is gone is fenced, and who is gone is.
    WatchHistory: (60, {"ALIVE", "GONE", "UNKNOWN", "fenced", "moved"}),
}


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_drawn_histories_of_the_shell_keep_every_rule(history):
    seeds, wanted = HISTORIES[history]
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        counts += history(seed).play()
    assert {name for name in wanted if not counts[name]} == set()
