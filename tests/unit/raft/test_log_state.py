"""What the core knows of its log, against a list of records that tells the same the slow way."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.raft.log import BOOTSTRAP_SNAPSHOT_ID, LogState
from kraftlog.types import Epoch, EpochEndOffset, Offset, SnapshotId


@dataclass
class Opened:
    log_start_offset: int = 0
    log_end_offset: int = 0
    leader_epochs: list = field(default_factory=list)
    snapshots: list = field(default_factory=list)


def log_of(*epochs, start=0, snapshots=()):
    """A log whose records have these epochs, the first at ``start``."""
    entries = []
    for index, epoch in enumerate(epochs):
        if not entries or epoch > entries[-1][0]:
            entries.append((epoch, start + index))
    return LogState(Opened(start, start + len(epochs), entries, [(snapshot, 100) for snapshot in snapshots]))


def at(end_offset, epoch):
    return SnapshotId(Offset(end_offset), Epoch(epoch))


def diverging(epoch, end_offset):
    return EpochEndOffset(Epoch(epoch), Offset(end_offset))


@pytest.mark.spec("FTCH-15")
def test_empty_replica_may_fetch_whatever_epoch_it_names():
    assert log_of(1, 1, 2).check_fetch(0, 7) is None


@pytest.mark.spec("FTCH-16")
def test_fetch_from_zero_is_sent_the_snapshot_even_while_the_log_starts_there():
    assert log_of(1, 1, 2, snapshots=[at(2, 1)]).check_fetch(0, 0) == at(2, 1)


@pytest.mark.spec("FTCH-17")
def test_bootstrap_checkpoint_is_never_sent():
    assert log_of(1, 1, snapshots=[BOOTSTRAP_SNAPSHOT_ID]).check_fetch(0, 0) is None


@pytest.mark.spec("FTCH-18", "FTCH-19", "FTCH-20")
@pytest.mark.parametrize(
    ("offset", "epoch", "answer"),
    [(9, 3, at(14, 4)), (10, 3, None), (10, 2, at(14, 4)), (12, 2, at(14, 4)), (12, 3, None), (16, 4, None)],
)
def test_fetch_around_the_log_start(offset, epoch, answer):
    log = log_of(3, 3, 4, 4, 4, 4, start=10, snapshots=[at(10, 3), at(14, 4)])
    assert log.check_fetch(offset, epoch) == answer


@pytest.mark.spec("FTCH-21", "FTCH-22", "FTCH-23")
@pytest.mark.parametrize(
    ("offset", "epoch", "answer"),
    [
        (3, 3, diverging(2, 4)),  # the leader has no epoch 3
        (4, 1, diverging(1, 2)),  # beyond the end of epoch 1
        (6, 9, diverging(5, 6)),  # an epoch above all
        (9, 5, diverging(5, 6)),  # beyond the end of the log
        (5, 5, None),
    ],
)
def test_fetch_that_left_the_leaders_log_is_told_where(offset, epoch, answer):
    assert log_of(1, 1, 2, 2, 5, 5).check_fetch(offset, epoch) == answer


@pytest.mark.spec("FTCH-24")
def test_epoch_that_ends_at_the_earliest_snapshot_is_answered_with_it():
    log = log_of(4, 4, start=10, snapshots=[at(10, 3)])
    assert log.end_offset_for_epoch(3) == diverging(3, 10)


def test_checkpoints_before_the_log_start_do_not_count():
    log = log_of(3, 3, start=10, snapshots=[BOOTSTRAP_SNAPSHOT_ID, at(10, 3)])
    assert log.earliest_snapshot_id == at(10, 3)
    assert log.check_fetch(10, 3) is None


@pytest.mark.spec("FTCH-37")
@given(
    common=st.lists(st.integers(1, 4), max_size=6),
    mine=st.lists(st.integers(1, 9), max_size=6),
    theirs=st.lists(st.integers(1, 9), max_size=6),
)
def test_truncations_lead_to_the_common_prefix_and_never_below_it(common, mine, theirs):
    """Two logs that Raft can bring about: a record of one epoch at one offset is the same record."""
    common = sorted(common)
    last = common[-1] if common else 0
    mine = sorted(last + 2 * epoch for epoch in mine)  # epochs of my own leaders: even steps
    theirs = sorted(last + 2 * their + 1 for their in theirs)
    follower, leader = log_of(*common, *mine), log_of(*common, *theirs)
    for _ in range(20):
        answer = leader.check_fetch(follower.end_offset, follower.last_epoch)
        if answer is None:
            break
        end_offset = follower.truncation_offset(answer)
        assert end_offset < follower.end_offset
        follower.truncate_to(end_offset)
    assert follower.end_offset == len(common) or (not mine and follower.end_offset == len(common))


@pytest.mark.spec("FTCH-37")
@pytest.mark.parametrize(
    ("answer", "end_offset"),
    [
        (diverging(3, 7), 7),
        (diverging(1, 3), 3),
        (diverging(2, 4), 6),  # 4 may lie within a batch of epoch 1: that is asked for next
        (diverging(2, 7), 6),
        (diverging(0, 2), 2),
    ],
)
def test_truncation_cuts_at_the_leaders_end_only_in_an_epoch_that_both_have(answer, end_offset):
    assert log_of(1, 1, 1, 1, 1, 1, 3, 3).truncation_offset(answer) == end_offset


@given(epochs=st.lists(st.integers(1, 5), max_size=12), cut=st.integers(0, 12), start=st.integers(0, 12))
def test_changes_keep_what_a_scan_of_the_records_gives(epochs, cut, start):
    epochs = sorted(epochs)
    log = log_of()
    for epoch in epochs:
        log.append(Epoch(epoch), 1)
    cut = min(cut, len(epochs))
    log.truncate_to(Offset(cut))
    kept = epochs[:cut]
    assert log.end_offset == len(kept)
    assert log.last_epoch == (kept[-1] if kept else 0)
    for epoch in range(7):
        below = [kept_epoch for kept_epoch in kept if kept_epoch <= epoch]
        if kept and epoch <= kept[-1] and below:
            assert log.end_offset_for_epoch(epoch).end_offset == len(below)
    log.advance_start_offset(Offset(min(start, cut)))
    assert log.last_epoch == (kept[-1] if kept else 0)
