"""EndTxn, time-outs and completion on the sans-IO shard."""

from __future__ import annotations

import pytest

from kraftlog.coordinator.transaction.transaction import IllegalTransitionError, Transaction
from kraftlog.errors import ErrorCode
from transaction_fixture import T0, T1, Harness, S

MAPPING = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1)
FENCED = (ErrorCode.PRODUCER_FENCED, -1, -1)
CONCURRENT = (ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)
INVALID_STATE = (ErrorCode.INVALID_TXN_STATE, -1, -1)
DONE_V1 = (0, -1, -1)


@pytest.mark.parametrize(
    ("state", "producer", "commit", "expected"),
    [
        (S.ONGOING, (6, 3), True, MAPPING),  # TXNC-61
        (S.ONGOING, (5, 2), True, FENCED),
        (S.ONGOING, (5, 4), True, FENCED),
        (S.ONGOING, (5, 3), True, DONE_V1),  # TXNC-62
        (S.ONGOING, (5, 3), False, DONE_V1),
        (S.COMPLETE_COMMIT, (5, 3), True, DONE_V1),  # TXNC-63
        (S.COMPLETE_ABORT, (5, 3), False, DONE_V1),
        (S.COMPLETE_COMMIT, (5, 3), False, INVALID_STATE),  # TXNC-64
        (S.COMPLETE_ABORT, (5, 3), True, INVALID_STATE),
        (S.EMPTY, (5, 3), True, INVALID_STATE),
        (S.EMPTY, (5, 3), False, INVALID_STATE),
        (S.PREPARE_COMMIT, (5, 3), True, CONCURRENT),  # TXNC-65
        (S.PREPARE_ABORT, (5, 3), False, CONCURRENT),
        (S.PREPARE_COMMIT, (5, 3), False, INVALID_STATE),
        (S.PREPARE_ABORT, (5, 3), True, INVALID_STATE),
    ],
)
def test_version_1(state: S, producer: tuple[int, int], commit: bool, expected: tuple[int, int, int]) -> None:
    harness = Harness().put(state, client_version=0)
    assert harness.end(producer, commit=commit, v=0) == expected


@pytest.mark.parametrize(
    ("state", "producer", "commit", "expected"),
    [
        (S.ONGOING, (5, 3), True, (0, 5, 4)),  # TXNC-67
        (S.ONGOING, (5, 3), False, (0, 5, 4)),
        (S.ONGOING, (6, 3), True, MAPPING),
        (S.ONGOING, (5, 2), True, FENCED),
        (S.PREPARE_COMMIT, (5, 2), True, CONCURRENT),  # TXNC-68
        (S.PREPARE_ABORT, (5, 2), False, CONCURRENT),
        (S.COMPLETE_COMMIT, (5, 2), True, (0, 5, 3)),
        (S.COMPLETE_ABORT, (5, 2), False, (0, 5, 3)),
        (S.COMPLETE_COMMIT, (5, 3), True, INVALID_STATE),  # TXNC-69
        (S.COMPLETE_COMMIT, (5, 3), False, (0, 5, 4)),
        (S.COMPLETE_ABORT, (5, 3), False, (0, 5, 4)),  # TXNC-70
        (S.COMPLETE_ABORT, (5, 2), True, INVALID_STATE),
        (S.COMPLETE_ABORT, (5, 3), True, INVALID_STATE),
        (S.COMPLETE_COMMIT, (5, 2), False, INVALID_STATE),  # TXNC-71
        (S.EMPTY, (5, 3), False, (0, 5, 4)),  # TXNC-72
        (S.EMPTY, (5, 3), True, INVALID_STATE),
        (S.EMPTY, (5, 2), False, FENCED),
        (S.COMPLETE_COMMIT, (5, 1), True, FENCED),  # TXNC-73
    ],
)
def test_version_2(state: S, producer: tuple[int, int], commit: bool, expected: tuple[int, int, int]) -> None:
    assert Harness().put(state).end(producer, commit=commit) == expected


@pytest.mark.parametrize("v", [0, 2])
def test_unknown_or_empty_id(v: int) -> None:
    """TXNC-61, TXNC-66, TXNC-99."""
    assert Harness().end((5, 3), v=v) == MAPPING
    assert Harness().end((5, 3), v=v, key="") == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_change_that_is_being_written_comes_first_in_version_2() -> None:
    """TXNC-76: version 1 looks at producer id and epoch first."""
    harness = Harness().put(S.ONGOING)
    harness.held = []
    assert harness.add((5, 3), T1) is None
    assert [harness.end(producer, v=2) for producer in ((9, 9), (5, 3))] == [CONCURRENT, CONCURRENT]
    assert [harness.end(producer, v=0) for producer in ((9, 9), (5, 9), (5, 3))] == [MAPPING, FENCED, CONCURRENT]


@pytest.mark.parametrize(("v", "epoch", "version"), [(0, 3, 0), (2, 4, 2)])
def test_answer_comes_before_the_markers(v: int, epoch: int, version: int) -> None:
    """TXNC-62, TXNC-67, TXNC-85: markers of version 1 have the transaction's epoch, those of version 2 the next."""
    harness = Harness().put(S.ONGOING)
    assert harness.end((5, 3), v=v)[0] == 0
    assert harness.transaction.state is S.PREPARE_COMMIT
    (due,) = harness.markers
    assert (due.producer_epoch, due.transaction_version, due.is_commit, due.partitions) == (epoch, version, True, {T0})
    harness.finish()
    found = harness.transaction
    assert (found.state, found.partitions, found.producer_epoch) == (S.COMPLETE_COMMIT, frozenset(), epoch)


def test_last_epoch_rotates_the_producer_id() -> None:
    """TXNC-74, TXNC-75."""
    harness = Harness().put(S.ONGOING, (5, 32766))
    assert harness.end((5, 32766)) == (0, 1000, 0)
    assert (harness.markers[0].producer_id, harness.markers[0].producer_epoch) == (5, 32767)
    assert harness.add((1000, 0)) == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.finish()
    assert harness.end((5, 32766)) == (0, 1000, 0)
    assert harness.reload().end((5, 32766)) == (0, 1000, 0)
    assert harness.add((1000, 0)) == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_timed_out_transaction_is_aborted_with_the_next_epoch(version: int) -> None:
    """TXNC-93."""
    harness = Harness(version=version).put(S.ONGOING, timeout_ms=5_000)
    harness.advance(5_000)
    assert harness.transaction.state is S.ONGOING
    harness.advance(10_000)
    assert (harness.transaction.state, harness.transaction.producer_epoch) == (S.PREPARE_ABORT, 4)
    assert harness.add((5, 3)) == ErrorCode.PRODUCER_FENCED
    harness.finish()
    assert harness.end((5, 3), v=0) == FENCED


@pytest.mark.parametrize("state", [S.EMPTY, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_only_open_transactions_time_out(state: S) -> None:
    """TXNC-94."""
    harness = Harness().put(state, timeout_ms=1)
    harness.advance(100_000)
    assert harness.transaction.state is state


def test_pending_change_keeps_a_transaction_from_timing_out() -> None:
    """TXNC-94."""
    harness = Harness().put(S.ONGOING, timeout_ms=1)
    harness.held = []
    harness.add((5, 3), T1)
    harness.advance(100_000)
    assert len(harness.held) == 1
    harness.release()
    assert harness.transaction.state is S.ONGOING


@pytest.mark.parametrize("version", [1, 2])
def test_failed_abort_is_tried_again_with_the_same_epoch(version: int) -> None:
    """TXNC-95."""
    harness = Harness(version=version).put(S.ONGOING, timeout_ms=1)
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.advance(20_000)
    harness.advance(20_000)
    assert harness.transaction.producer_epoch == 3
    harness.append_error = 0
    harness.advance(20_000)
    assert harness.transaction.producer_epoch == 4


def test_time_out_at_the_last_epoch() -> None:
    """TXNC-96."""
    harness = Harness().put(S.ONGOING, (5, 32766), timeout_ms=1)
    harness.advance(20_000)
    assert harness.markers[0].producer_epoch == 32767
    harness.finish()
    assert harness.end((5, 32766), commit=False) == (0, 1000, 0)
    assert harness.init(given=(5, 32766)) == (0, 1000, 0)


@pytest.mark.parametrize(
    ("state", "forgotten"),
    [
        (S.EMPTY, True),
        (S.COMPLETE_COMMIT, True),
        (S.COMPLETE_ABORT, True),
        (S.ONGOING, False),
        (S.PREPARE_COMMIT, False),
        (S.PREPARE_ABORT, False),
    ],
)
def test_idle_ids_expire(state: S, forgotten: bool) -> None:
    """TXNC-97."""
    harness = Harness(expiration_ms=1_000, expiration_check_interval_ms=1_000).put(state, timeout_ms=2**31 - 1)
    harness.advance(1_000)
    assert (harness.shard.get("x") is None) is forgotten
    assert [record.value for record in harness.log] == ([None] if forgotten else [])


def test_idle_id_is_kept_until_it_has_been_idle_for_so_long() -> None:
    harness = Harness(expiration_ms=2_000, expiration_check_interval_ms=1_000).put(S.EMPTY, timeout_ms=2**31 - 1)
    harness.advance(1_000)
    assert harness.shard.get("x") is not None
    harness.advance(1_000)
    assert harness.shard.get("x") is None


def test_failed_tombstone_keeps_the_id_and_many_share_an_append() -> None:
    """TXNC-98."""
    harness = Harness(expiration_ms=1_000, expiration_check_interval_ms=1_000)
    for number in range(1_500):
        harness.init(f"x{number}")
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.advance(1_000)
    assert len(list(harness.shard)) == 1_500
    harness.append_error, harness.appends = 0, []
    harness.advance(1_000)
    assert list(harness.shard) == []
    assert [len(append.records) for append in harness.appends] == [1_000, 500]


@pytest.mark.parametrize(
    ("code", "tried_again"),
    [(ErrorCode.COORDINATOR_NOT_AVAILABLE, True), (ErrorCode.NOT_COORDINATOR, False)],
)
def test_failed_completion(code: int, tried_again: bool) -> None:
    """TXNC-84."""
    harness = Harness().put(S.PREPARE_COMMIT)
    harness.shard.finish_loading(harness.now_ms)
    harness.run()
    harness.append_error = code
    harness.finish()
    harness.append_error = 0
    harness.advance(1_000)
    assert (harness.transaction.state is S.COMPLETE_COMMIT) is tried_again


@pytest.mark.parametrize(("state", "is_commit"), [(S.PREPARE_COMMIT, True), (S.PREPARE_ABORT, False)])
def test_loaded_decision_is_carried_out(state: S, is_commit: bool) -> None:
    """TXNC-106, TXNC-86."""
    harness = Harness().put(state)
    harness.shard.finish_loading(harness.now_ms)
    harness.run()
    assert [due.is_commit for due in harness.markers] == [is_commit]
    harness.finish()
    assert harness.transaction.state is (S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT)


def test_markers_of_an_older_transaction_complete_nothing() -> None:
    harness = Harness().put(S.ONGOING)
    harness.end((5, 3))
    (due,) = harness.markers
    harness.finish()
    harness.add((5, 4))
    harness.end((5, 4))
    harness.shard.on_markers_written(due, harness.now_ms)
    harness.run()
    assert harness.transaction.state is S.PREPARE_COMMIT


def completed_by_a_second_report() -> Harness:
    """The record that completes a transaction failed, and another report of its markers completed it."""
    harness = Harness().put(S.ONGOING)
    harness.end((5, 3))
    (due,) = harness.markers
    harness.append_error = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    harness.finish()
    harness.append_error = 0
    assert harness.shard.unfinished_count == 1
    harness.shard.on_markers_written(due, harness.now_ms)
    harness.run()
    assert harness.transaction.state is S.COMPLETE_COMMIT
    return harness


@pytest.mark.parametrize("begins_another", [False, True])
def test_completion_that_failed_is_not_tried_again_once_another_report_completed_it(begins_another: bool) -> None:
    """Fails before the fix: the second try was another change of the id, from a state that it does not follow."""
    harness = completed_by_a_second_report()
    if begins_another:
        harness.add((5, 4))
    harness.advance(1_000)
    assert harness.transaction.state is (S.ONGOING if begins_another else S.COMPLETE_COMMIT)
    assert harness.shard.unfinished_count == 0


def test_completion_that_failed_completes_no_later_transaction_without_its_markers() -> None:
    """Fails before the fix (histories, coordinator 7623335)."""
    harness = completed_by_a_second_report()
    harness.add((5, 4))
    harness.end((5, 4))
    harness.advance(1_000)
    assert harness.transaction.state is S.PREPARE_COMMIT
    harness.finish()
    assert harness.transaction.state is S.COMPLETE_COMMIT


_ALLOWED = {
    S.EMPTY: {S.EMPTY, S.ONGOING, S.PREPARE_ABORT},
    S.ONGOING: {S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT},
    S.PREPARE_COMMIT: {S.COMPLETE_COMMIT},
    S.PREPARE_ABORT: {S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.EMPTY, S.ONGOING, S.PREPARE_ABORT},
    S.COMPLETE_ABORT: {S.EMPTY, S.ONGOING, S.PREPARE_ABORT},
}


@pytest.mark.parametrize("state", list(_ALLOWED))
def test_moves_between_states(state: S) -> None:
    """TXNC-110."""
    current = Transaction(transactional_id="x", producer_id=5, producer_epoch=3, timeout_ms=1, state=state)
    moves = {
        S.EMPTY: lambda: current.to_empty(epoch=4, last_epoch=3, timeout_ms=1, now_ms=1),
        S.ONGOING: lambda: current.to_ongoing(frozenset({T0}), client_version=2, now_ms=1),
        S.PREPARE_COMMIT: lambda: current.to_prepared(
            S.PREPARE_COMMIT, client_version=2, next_producer_id=-1, now_ms=1
        ),
        S.PREPARE_ABORT: lambda: current.to_prepared(S.PREPARE_ABORT, client_version=2, next_producer_id=-1, now_ms=1),
        S.COMPLETE_COMMIT: lambda: current.to_complete(now_ms=1),
    }
    reached = set()
    for move in moves.values():
        try:
            reached.add(move().state)
        except IllegalTransitionError:
            continue
    assert reached == _ALLOWED[state]
