"""Drawn histories of a replica of a ``kraftlog.Quorum`` keep every rule, and have what makes them hard."""

from __future__ import annotations

from collections import Counter

from proposal_history import ProposalHistory

SEEDS = 100
WANTED = {"applied", "cut", "forwarded", "led", "loaded", "DeadlineError", "NotCommittedError", "OutcomeUnknownError"}


def test_drawn_histories_of_proposals_keep_every_rule():
    """INV-08, INV-12, LSTN-12, CONN-28: what callers are told, what is applied, and when."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += ProposalHistory(seed).play()
    assert {name for name in WANTED if not counts[name]} == set()
