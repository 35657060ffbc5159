"""What a replica's move to another data directory does next, with plain values."""

from __future__ import annotations

import pytest

from kraftlog.partition.directory_move import DirectoryMove, FutureFate, MoveState, MoveStep, future_fate
from kraftlog.types import Uuid

SOURCE, TARGET = Uuid(b"s" * 16), Uuid(b"t" * 16)


def copied(move: DirectoryMove, future_end: int, log_end: int) -> MoveStep:
    return move.on_copied(future_end_offset=future_end, log_end_offset=log_end)


def test_copy_takes_the_place_only_once_the_controller_has_accepted_and_it_has_caught_up_again() -> None:
    """RFET-84, RINV-88: KAFKA-16297."""
    move = DirectoryMove(TARGET)
    move.on_assigned(SOURCE)
    assert copied(move, 3, 10) is MoveStep.COPY
    assert not move.has_assignment
    assert copied(move, 10, 10) is MoveStep.ASSIGN
    assert (move.state, move.has_assignment) == (MoveState.ASSIGNING, True)
    for _ in range(3):
        assert copied(move, 10, 10) is MoveStep.WAIT, "asked once, and not replaced before the answer"
    assert copied(move, 10, 30) is MoveStep.COPY
    move.on_assigned(TARGET)
    assert move.state is MoveState.ACCEPTED
    assert copied(move, 20, 30) is MoveStep.COPY, "accepted, but behind"
    assert copied(move, 30, 30) is MoveStep.REPLACE
    assert move.on_behind() is MoveStep.COPY
    assert copied(move, 40, 40) is MoveStep.REPLACE
    assert move.state is MoveState.REPLACING
    assert move.on_replaced() is MoveStep.END
    assert (move.state, move.has_assignment) == (MoveState.DONE, False)
    assert copied(move, 50, 50) is MoveStep.END


@pytest.mark.parametrize("ends", ["cancel", "on_failed"])
@pytest.mark.parametrize(("phase", "is_reverted"), [("copying", False), ("assigning", True), ("accepted", True)])
def test_original_directory_is_assigned_again_where_the_controller_was_told_of_the_other(
    phase: str, ends: str, *, is_reverted: bool
) -> None:
    """RFET-85."""
    move = DirectoryMove(TARGET)
    if phase != "copying":
        assert copied(move, 1, 1) is MoveStep.ASSIGN
    if phase == "accepted":
        move.on_assigned(TARGET)
    assert getattr(move, ends)() is is_reverted
    assert not move.has_assignment
    assert copied(move, 1, 1) is MoveStep.END
    assert move.on_behind() is MoveStep.END
    assert getattr(move, ends)() is False, "once"


def test_move_that_is_done_cannot_be_cancelled() -> None:
    move = DirectoryMove(TARGET)
    move.on_assigned(TARGET)
    assert copied(move, 1, 1) is MoveStep.REPLACE
    move.on_replaced()
    assert move.cancel() is False
    assert move.state is MoveState.DONE


def test_move_that_was_accepted_before_a_restart_is_not_asked_for_again() -> None:
    move = DirectoryMove(TARGET)
    move.on_assigned(TARGET)
    assert move.has_assignment
    assert copied(move, 2, 5) is MoveStep.COPY
    assert copied(move, 5, 5) is MoveStep.REPLACE


def test_controller_is_told_again_where_the_directory_was_assigned_to_another_one() -> None:
    move = DirectoryMove(TARGET)
    assert copied(move, 1, 1) is MoveStep.ASSIGN
    move.on_assigned(TARGET)
    move.on_assigned(SOURCE)
    assert move.state is MoveState.COPYING
    assert copied(move, 1, 1) is MoveStep.ASSIGN


def test_nobody_is_asked_where_the_metadata_has_no_directories() -> None:
    move = DirectoryMove(TARGET, needs_assignment=False)
    move.on_assigned(SOURCE)
    assert copied(move, 1, 1) is MoveStep.REPLACE
    assert not move.has_assignment
    assert move.cancel() is False


@pytest.mark.parametrize(
    ("is_placed_here", "is_assigned", "has_current", "fate"),
    [
        (False, False, False, FutureFate.STRAY),
        (False, True, True, FutureFate.STRAY),
        (True, True, False, FutureFate.CURRENT),
        (True, True, True, FutureFate.RESUMED),
        (True, False, True, FutureFate.RESUMED),
        (True, False, False, FutureFate.RESUMED),
    ],
)
def test_fate_of_a_future_replica_at_start(
    fate: FutureFate, *, is_placed_here: bool, is_assigned: bool, has_current: bool
) -> None:
    """RDLT-56: one that the metadata assigns becomes the log; with a current log elsewhere, once it has caught up."""
    found = future_fate(is_placed_here=is_placed_here, is_assigned=is_assigned, has_current=has_current)
    assert found is fate
