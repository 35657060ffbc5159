"""Unclean elections in whole clusters: records are lost, and readers are told (KIP-320)."""

from __future__ import annotations

import pytest

from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.swarm import draw, run

from .loss_workload import GIVEN_UP_S, HEARD_S, Ends, View, losses


# Each has readers that were told; those of 4600018 only after the last record was written.
@pytest.mark.spec("CTRN-44", "RINV-30")
@pytest.mark.parametrize("seed", [4, 9, 17, 4600018])
@pytest.mark.slow
def test_readers_are_told_of_what_is_lost(seed):
    outcome = run(draw(seed), losses)
    assert outcome.error is None, outcome.error
    assert outcome.looked["RINV-29"]
    assert outcome.looked["RINV-30"]
    (end,) = [line for line in outcome.story if "the readers have" in line]
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


def test_a_reader_has_time_to_hear_of_the_last_election():
    now_s = 100
    ends = Ends({"t-0": 2, "t-1": 0}, lambda: now_s)
    assert not ends.are_read({"t-0": 2})
    now_s += HEARD_S
    assert ends.are_read({"t-0": 2})
    assert not ends.are_read({"t-0": 3}), "it is beyond the end"
    now_s = 100 + GIVEN_UP_S
    assert ends.are_read({"t-0": 3}), "and will be told of it"
