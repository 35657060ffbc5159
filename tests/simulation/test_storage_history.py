"""Drawn histories of the files of a metadata quorum keep every rule, and have what makes them hard."""

from __future__ import annotations

from collections import Counter

from storage_history import StorageHistory

SEEDS = 60
WANTED = {"checkpoint", "cut", "cut off", "failed", "installed", "opened", "power failure", "refused"}


def test_drawn_histories_of_a_disk_keep_every_rule():
    """DISK-07, DISK-30, DISK-50, INV-02, INV-15, INV-16: after each power failure, and for files that are cut off."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += StorageHistory(seed).play()
    assert {name for name in WANTED if not counts[name]} == set()
