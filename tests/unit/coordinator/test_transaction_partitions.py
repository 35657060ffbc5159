"""Partitions of transactions on the sans-IO shard: added, verified."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode
from transaction_fixture import T0, T1, Harness, S


@pytest.mark.parametrize("v", [0, 2])
@pytest.mark.parametrize(
    ("producer", "key", "code"),
    [
        ((5, 3), "unknown", ErrorCode.INVALID_PRODUCER_ID_MAPPING),  # TXNC-36, TXNC-99
        ((6, 3), "x", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((5, 2), "x", ErrorCode.PRODUCER_FENCED),  # TXNC-37
        ((5, 4), "x", ErrorCode.PRODUCER_FENCED),
        ((5, 3), "", ErrorCode.INVALID_REQUEST),  # TXNC-42
    ],
)
def test_wrong_producer_is_refused(v: int, producer: tuple[int, int], key: str, code: int) -> None:
    harness = Harness().put(S.EMPTY)
    assert harness.add(producer, v=v, key=key) == code
    assert harness.shard.verify_partitions(key, producer, [T0]) == {T0: code}  # TXNC-46
    assert harness.log == []


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_decided_transaction_takes_no_partition(state: S) -> None:
    """TXNC-38, TXNC-46."""
    harness = Harness().put(state)
    assert harness.add((5, 3)) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.shard.verify_partitions("x", (5, 3), [T0]) == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize("v", [0, 2])
def test_first_partition_begins_the_transaction(state: S, v: int) -> None:
    """TXNC-39, TXNC-49: and says which version the client has."""
    harness = Harness().put(state, start_ms=1)
    assert harness.add((5, 3), v=v) == 0
    found = harness.transaction
    assert (found.state, found.start_ms, found.partitions) == (S.ONGOING, harness.now_ms, {T0})
    assert found.client_version == v


def test_known_partitions_are_not_written_again() -> None:
    """TXNC-40."""
    harness = Harness().put(S.ONGOING, start_ms=7)
    assert harness.add((5, 3), T0) == 0
    assert harness.log == []
    assert harness.add((5, 3), T0, T1) == 0
    assert len(harness.log) == 1
    assert (harness.transaction.partitions, harness.transaction.start_ms) == ({T0, T1}, 7)


def test_verify_writes_nothing() -> None:
    """TXNC-47, TXNC-48: what is written decides, not what is being written."""
    harness = Harness().put(S.ONGOING)
    harness.held = []
    assert harness.add((5, 3), T1) is None
    verified = harness.shard.verify_partitions("x", (5, 3), [T0, T1])
    assert verified == {T0: 0, T1: ErrorCode.TRANSACTION_ABORTABLE}
    harness.release()
    assert harness.shard.verify_partitions("x", (5, 3), [T0, T1]) == {T0: 0, T1: 0}


def test_transaction_version_0_has_no_place_for_clients_of_version_2() -> None:
    """TXNC-77: refused without a record, and clients of version 1 go on."""
    harness = Harness(version=0)
    assert harness.init() == (0, 1000, 0)
    written = len(harness.log)
    assert harness.add((1000, 0), v=2) == ErrorCode.UNSUPPORTED_VERSION
    assert harness.add((1000, 0), v=0) == 0
    assert len(harness.log) == written + 1
    assert harness.end((1000, 0), v=2) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    assert harness.end((1000, 0), v=0) == (0, -1, -1)
