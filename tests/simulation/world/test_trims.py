"""A topic whose beginning is deleted, in whole clusters: nothing else goes, and nothing comes back."""

from __future__ import annotations

import pytest

from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.swarm import draw, run

from .trim_workload import Trims, trims


# 3 and 13: a log start that only the epochs remembered; 19: some deleted segments came back after a power failure;
# 6000024: a replica that was moved away and comes back begins anew, which the checker took for a log start that fell.
@pytest.mark.spec("RINV-19", "RINV-01")
@pytest.mark.parametrize("seed", [3, 13, 19, 6000024])
@pytest.mark.slow
def test_what_was_deleted_stays_deleted(seed):
    outcome = run(draw(seed), trims)
    assert outcome.error is None, outcome.error
    (end,) = [line for line in outcome.story if "were acknowledged" in line]
    assert ", 0 deleted" not in end


def trims_of(*, start=4):
    found = Trims("t-0", lambda: start)
    found.acked.update({number: b"%d" % number for number in range(8)})
    return found


def records(first, end):
    class Record:
        def __init__(self, offset):
            self.offset, self.value = offset, b"%d" % offset

    return [Record(offset) for offset in range(first, end)]


def test_only_what_was_deleted_is_missing():
    trims_of().check(records(4, 8))
    trims_of().check(records(2, 8))
    trims_of().check_step(1, 4)
    for rule, read in (
        ("RINV-11", records(5, 8)),
        ("RINV-01", records(4, 7)),
        ("RINV-01", [*records(4, 5), *records(6, 8)]),
    ):
        with pytest.raises(InvariantViolationError, match=rule):
            trims_of().check(read)
    with pytest.raises(InvariantViolationError, match="RINV-11"):
        trims_of().check_step(1, 5)
    with pytest.raises(InvariantViolationError, match="RINV-11"):
        trims_of().check_step(3, 2)
    with pytest.raises(InvariantViolationError, match="RINV-01"):
        trims_of().check_value(5, b"6")
    with pytest.raises(InvariantViolationError, match="RINV-19"):
        trims_of().deleted(4, 3)
