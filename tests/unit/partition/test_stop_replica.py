"""The fencing of StopReplica (KIP-570, KIP-380), with plain values."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.partition.stop_replica import EPOCH_DURING_DELETE, NO_EPOCH, ControllerFence, fenced_error


@pytest.mark.parametrize(
    ("asked", "local", "error_code"),
    [
        (4, 5, ErrorCode.FENCED_LEADER_EPOCH),
        (5, 5, ErrorCode.NONE),
        (6, 5, ErrorCode.NONE),
        (NO_EPOCH, 5, ErrorCode.NONE),
        (EPOCH_DURING_DELETE, 5, ErrorCode.NONE),
        (-3, 5, ErrorCode.FENCED_LEADER_EPOCH),
        (0, -1, ErrorCode.NONE),
    ],
)
def test_leader_epoch_of_a_stop(asked, local, error_code):
    """STOP-03, STOP-04, STOP-05, STOP-06, STOP-07."""
    assert fenced_error(asked, local) == error_code


def test_only_the_newest_controller_and_this_registration_are_obeyed():
    """STOP-01, STOP-02: a refused request is not remembered."""
    fence = ControllerFence()

    def admit(controller_epoch, broker_epoch=7, metadata_epoch=3):
        return fence.admit(
            controller_epoch=controller_epoch,
            metadata_epoch=metadata_epoch,
            request_broker_epoch=broker_epoch,
            broker_epoch=7,
        )

    assert admit(2) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert admit(3) == ErrorCode.NONE
    assert admit(9, broker_epoch=6) == ErrorCode.STALE_BROKER_EPOCH
    assert admit(3) == ErrorCode.NONE, "the epoch of a refused request does not count"
    assert admit(5, broker_epoch=-1) == ErrorCode.NONE, "before version 1"
    assert admit(5, broker_epoch=8) == ErrorCode.NONE
    assert admit(4) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert admit(5, metadata_epoch=6) == ErrorCode.STALE_CONTROLLER_EPOCH
