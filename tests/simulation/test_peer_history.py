"""Drawn histories of a consensus core among peers that say anything keep every rule, and have what makes them hard."""

from __future__ import annotations

from collections import Counter

from peer_history import PeerHistory

SEEDS = 60
WANTED = {"appended", "halted", "installed", "leader", "pre-vote", "resigned", "restarted", "truncated", "vote"}


def test_drawn_histories_among_peers_keep_every_rule():
    """INV-01, INV-02, INV-04, INV-05, INV-10, INV-11, INV-13, INV-14, INV-18, INV-19, INV-28: after each message."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += PeerHistory(seed).play()
    assert {name for name in WANTED if not counts[name]} == set()
