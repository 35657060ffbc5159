"""Unclean elections in whole clusters: records are lost, and readers are told (KIP-320)."""

from __future__ import annotations

import pytest

from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.swarm import draw, run

from .loss_workload import View, losses


# Each has readers that were told.
@pytest.mark.spec("CTRN-44", "RINV-30")
@pytest.mark.parametrize("seed", [4, 9, 17])
@pytest.mark.slow
def test_readers_are_told_of_what_is_lost(seed):
    outcome = run(draw(seed), losses)
    assert outcome.error is None, outcome.error
    assert outcome.looked["RINV-29"]
    assert outcome.looked["RINV-30"]
    (end,) = [line for line in outcome.story if "of losses" in line]
    assert "told 0 times" not in end


def test_a_mix_of_two_histories_is_noticed():
    view = View("t-0", "none")
    for offset, value in enumerate((b"a", b"b", b"c")):
        view.read(offset, value)
    view.check([b"a", b"b", b"c"])
    for found in ([b"a", b"b"], [b"a", b"x", b"c"], [b"a", b"b", b"c", b"d"]):
        with pytest.raises(InvariantViolationError, match="RINV-30"):
            view.check(found)
    with pytest.raises(InvariantViolationError, match="RINV-30"):
        view.read(2, b"d")
    view.truncated(1)
    view.read(1, b"x")
    view.check([b"a", b"x"])


def test_a_reader_with_a_reset_policy_is_told_by_the_records():
    view = View("t-0", "latest")
    for offset, value in ((0, b"a"), (1, b"b"), (1, b"x"), (2, b"y")):
        view.read(offset, value)
    view.check([b"a", b"x", b"y"])
    assert view.told_count == 1
    with pytest.raises(InvariantViolationError, match="RINV-30"):
        view.read(4, b"z")
