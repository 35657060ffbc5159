"""InitProducerId of transactional ids on the sans-IO shard."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlog.errors import ErrorCode
from transaction_fixture import T0, Harness, S

CONCURRENT = (ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)
FENCED = (ErrorCode.PRODUCER_FENCED, -1, -1)


def test_new_id_gets_a_producer_id_with_epoch_0() -> None:
    """TXNC-13, TXNC-14: what the client brings is not compared with anything."""
    assert Harness().init() == (0, 1000, 0)
    assert Harness().init(given=(77, 5)) == (0, 1000, 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),  # TXNC-10
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),  # TXNC-12
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"enable_2pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),  # TXNC-32
        ({"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),  # TXNC-33
    ],
)
def test_bad_requests_leave_no_state(fields: dict[str, Any], code: int) -> None:
    harness = Harness()
    assert harness.init(**fields) == (code, -1, -1)
    assert list(harness.shard) == []


def test_two_phase_commit_ignores_the_timeout() -> None:
    """TXNC-34: the transaction never times out."""
    harness = Harness(two_phase_commit_enable=True)
    assert harness.init(timeout_ms=-5, enable_2pc=True) == (0, 1000, 0)
    assert harness.transaction.timeout_ms == 2**31 - 1
    assert harness.add((1000, 0)) == 0
    harness.advance(2**32)
    assert harness.transaction.state is S.ONGOING


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_idle_id_gets_the_next_epoch(state: S) -> None:
    """TXNC-15."""
    harness = Harness().put(state)
    assert harness.init(timeout_ms=1234) == (0, 5, 4)
    found = harness.transaction
    assert (found.state, found.timeout_ms, found.start_ms, found.partitions) == (S.EMPTY, 1234, -1, frozenset())


def test_given_epoch_is_bumped_once() -> None:
    """TXNC-16: the same request again gets the same answer; TXNC-105: not after a load."""
    harness = Harness().put(S.COMPLETE_COMMIT)
    assert harness.init(given=(5, 3)) == (0, 5, 4)
    assert harness.init(given=(5, 3)) == (0, 5, 4)
    assert harness.reload().init(given=(5, 3)) == FENCED


@pytest.mark.parametrize("given", [(5, 2), (5, 9), (6, 3)])
def test_other_epoch_or_producer_id_is_fenced(given: tuple[int, int]) -> None:
    """TXNC-17, TXNC-18."""
    assert Harness().put(S.EMPTY).init(given=given) == FENCED


def test_another_producer_takes_the_retry_away() -> None:
    harness = Harness().put(S.EMPTY)
    assert harness.init(given=(5, 3)) == (0, 5, 4)
    assert harness.init() == (0, 5, 5)
    assert harness.init(given=(5, 3)) == FENCED


def test_exhausted_epochs_get_a_new_producer_id() -> None:
    """TXNC-19, TXNC-20."""
    harness = Harness().put(S.EMPTY, (5, 32766))
    assert harness.init(given=(5, 32766)) == (0, 1000, 0)
    assert harness.init(given=(5, 32766)) == (0, 1000, 0)
    assert harness.init(given=(5, 32765)) == FENCED
    assert Harness().put(S.EMPTY, (5, 32766)).init() == (0, 1000, 0)
    assert Harness().put(S.EMPTY, (5, 32765)).init() == (0, 5, 32766)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_open_transaction_is_aborted_first(version: int) -> None:
    """TXNC-21, TXNC-22: aborted with the next epoch, and the retry gets the one after."""
    harness = Harness(version=version).put(S.ONGOING)
    assert harness.init() == CONCURRENT
    (due,) = harness.markers
    assert (due.producer_id, due.producer_epoch, due.is_commit) == (5, 4, False)
    assert harness.add((5, 3)) == ErrorCode.PRODUCER_FENCED
    assert harness.init() == CONCURRENT
    harness.finish()
    assert harness.transaction.state is S.COMPLETE_ABORT
    assert harness.init() == (0, 5, 5)


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_decided_transaction_is_waited_for(state: S) -> None:
    """TXNC-23."""
    assert Harness().put(state).init() == CONCURRENT


def test_change_that_is_being_written_is_waited_for() -> None:
    """TXNC-24, TXNC-111: no second change is prepared meanwhile."""
    harness = Harness().put(S.EMPTY)
    harness.held = []
    assert harness.init() is None
    assert harness.init() == CONCURRENT
    assert harness.add((5, 3)) == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.release()
    assert harness.transaction.producer_epoch == 4


@pytest.mark.parametrize("version", [1, 2])
def test_failed_fence_bumps_no_epoch(version: int) -> None:
    """TXNC-25: nothing changed until an append succeeds, and then the epoch rises once."""
    harness = Harness(version=version).put(S.ONGOING)
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for _ in range(3):
        assert harness.init() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    assert harness.transaction.producer_epoch == 3
    harness.append_error = 0
    assert harness.init() == CONCURRENT
    assert harness.transaction.producer_epoch == 4


@pytest.mark.parametrize(("version", "expected"), [(1, (0, 1000, 0)), (2, (0, 1000, 1))])
def test_fence_at_the_last_epoch(version: int, expected: tuple[int, int, int]) -> None:
    """TXNC-26: markers carry 32767, and the next producer has another producer id."""
    harness = Harness(version=version).put(S.ONGOING, (5, 32766))
    assert harness.init() == CONCURRENT
    assert harness.markers[0].producer_epoch == 32767
    harness.finish()
    assert harness.init() == expected


@pytest.mark.parametrize("version", [1, 2])
def test_largest_epoch_does_not_wrap(version: int) -> None:
    """TXNC-27."""
    harness = Harness(version=version).put(S.ONGOING, (5, 32767))
    assert harness.init() == CONCURRENT
    assert harness.markers[0].producer_epoch == 32767


def test_no_producer_id_yet() -> None:
    """TXNC-29."""
    harness = Harness()
    harness.next_producer_id = None
    assert harness.init() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert harness.put(S.EMPTY, (5, 32766)).init() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    harness.next_producer_id = 9
    assert harness.init("y") == (0, 9, 0)


def test_append_error_reaches_the_client() -> None:
    """TXNC-109: as the runtime maps it; the id is free again."""
    harness = Harness()
    harness.append_error = ErrorCode.NOT_COORDINATOR
    assert harness.init() == (ErrorCode.NOT_COORDINATOR, -1, -1)
    harness.append_error = 0
    assert harness.init() == (0, 1000, 0)
    assert harness.add((1000, 0), T0) == 0
