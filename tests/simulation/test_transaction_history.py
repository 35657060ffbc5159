"""Drawn histories of the transaction coordinator keep every rule, and have what makes them hard."""

from __future__ import annotations

from collections import Counter

from transaction_history import TransactionHistory

SEEDS = 60
WANTED = {"initialized", "written", "committed", "aborted", "completed", "refused", "expired"}


def test_drawn_histories_of_transactions_keep_every_rule():
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += TransactionHistory(seed).play()
    assert {name for name in WANTED if not counts[name]} == set()
