"""Records of ``__transaction_state``, and what lists and descriptions show of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog._kraftlog import TopicPattern, encode_batch
from kraftlog.api.handlers import list_transactions
from kraftlog.api.slices import at_once
from kraftlog.coordinator.effects import CoordinatorRecord
from kraftlog.coordinator.transaction.transaction import Transaction
from kraftlog.coordinator.transaction.transaction_filters import TransactionFilter
from kraftlog.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftlog.runtime.coordinator.record_codec import TRANSACTION_RECORDS
from kraftlog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kraftlog.wire.messages.transaction_coordinator_records import TransactionLogKey, TransactionLogValue
from transaction_fixture import T0, T1, Harness, S


def _encoded(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    ((key, value),) = TRANSACTION_RECORDS.encode([record])
    return key, value


def _transaction(state: S, **fields: Any) -> Transaction:
    return Transaction(transactional_id="x", producer_id=5, producer_epoch=3, timeout_ms=9, state=state, **fields)


def test_key_is_a_version_and_the_id() -> None:
    """TXNC-100."""
    assert _encoded(_transaction(S.EMPTY).tombstone()) == (b"\0\0\0\1x", None)


@pytest.mark.parametrize(("version", "expected"), [(0, 0), (1, 1), (2, 1)])
def test_value_version_follows_the_feature(version: int, expected: int) -> None:
    """TXNC-101."""
    transaction = _transaction(
        S.ONGOING, previous_producer_id=4, next_producer_id=6, client_version=2, partitions=frozenset({T1, T0})
    )
    key, value = _encoded(transaction.to_record(version))
    assert value is not None
    assert int.from_bytes(value[:2], "big") == expected
    batch = encode_batch([(1, key, value, ())])
    (record,), _ = TRANSACTION_RECORDS.reader().read(batch)
    assert isinstance(record, CoordinatorRecord)
    loaded = Transaction.from_value("x", record.value)
    assert loaded.partitions == {T0, T1}
    found = loaded.previous_producer_id, loaded.next_producer_id, loaded.client_version
    assert found == ((4, 6, 2) if expected else (-1, -1, 0))


def test_states_have_their_numbers_and_empty_has_no_partitions() -> None:
    """TXNC-102."""
    written = [_transaction(state).to_record(2).value for state in S if state < S.DEAD]
    assert [value.transaction_status for value in written if value is not None] == [0, 1, 2, 3, 4, 5]
    assert [value.transaction_partitions is None for value in written if value is not None] == [True] + [False] * 5


def test_each_change_is_one_record() -> None:
    """TXNC-103: the runtime puts each append into a batch of its own."""
    harness = Harness()
    harness.init()
    harness.add((1000, 0), T0)
    harness.end((1000, 0))
    harness.finish()
    assert [len(append.records) for append in harness.appends] == [1, 1, 1, 1]
    states = [record.value.transaction_status for record in harness.log if record.value is not None]
    assert states == [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT]


def test_unknown_records_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """TXNC-104."""
    known = _encoded(_transaction(S.EMPTY).to_record(2))
    batch = encode_batch([(1, b"\0\7abc", b"\0\0", ()), (1, known[0], b"\0\x63rest", ()), (1, *known, ())])
    records, next_offset = TRANSACTION_RECORDS.reader().read(batch)
    assert (len(records), next_offset) == (1, 3)
    assert "offset 0" in caplog.text
    assert "offset 1" in caplog.text


def test_status_that_is_never_written_is_an_error() -> None:
    record = CoordinatorRecord(TransactionLogKey(transactional_id="x"), TransactionLogValue(transaction_status=6), 1)
    with pytest.raises(RemoteProtocolError, match="status 6"):
        Harness().shard.replay(record, now_ms=0)


def test_newest_value_wins_and_a_tombstone_removes() -> None:
    """TXNC-105."""
    harness = Harness()
    harness.init()
    harness.add((1000, 0), T0)
    loaded = harness.reload()
    assert loaded.transaction.state is S.ONGOING
    assert loaded.transaction.last_producer_epoch == -1
    harness.log.append(harness.transaction.tombstone())
    assert harness.reload().shard.get("x") is None


def _listed(**filters: Any) -> list[str]:
    transactions = [
        Transaction(
            transactional_id=key, producer_id=number, producer_epoch=0, timeout_ms=1, state=state, start_ms=start
        )
        for number, (key, state, start) in enumerate(
            [("a1", S.EMPTY, -1), ("a2", S.ONGOING, 1_000), ("b1", S.COMPLETE_COMMIT, 5_000), ("d", S.DEAD, 0)]
        )
    ]
    request = ListTransactionsRequest(**({"duration_filter": -1} | filters))
    chosen = TransactionFilter(request, 6_000, compile_pattern=partial(TopicPattern, is_text=True))
    return [transaction.transactional_id for transaction in transactions if chosen.passes(transaction)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["a1", "a2", "b1"]),  # TXNC-112
        ({"state_filters": ["Ongoing"]}, ["a2"]),
        ({"state_filters": ["Ongoing", "Empty"], "producer_id_filters": [0, 2]}, ["a1"]),
        ({"state_filters": ["Dead"]}, []),  # TXNC-113
        ({"duration_filter": 1_000}, ["a1", "a2"]),  # TXNC-114
        ({"duration_filter": 0}, ["a1", "a2", "b1"]),
        ({"transactional_id_pattern": "a.*"}, ["a1", "a2"]),  # TXNC-115
        ({"transactional_id_pattern": "a"}, []),
        # Backtracking engines need 2**28 steps for this one; RE2, and so Kafka, does not backtrack.
        ({"transactional_id_pattern": "(a|a?)+" * 28 + "b"}, []),
        ({"transactional_id_pattern": ""}, ["a1", "a2", "b1"]),
        ({"transactional_id_pattern": "é?a."}, ["a1", "a2"]),
    ],
)
def test_list_filters(filters: dict[str, Any], expected: list[str]) -> None:
    assert _listed(**filters) == expected


def _handled(request: ListTransactionsRequest, transactions: Sequence[Transaction]) -> ListTransactionsResponse:
    """The answer of a broker with these transactions."""
    answer = _handle(request, transactions)
    return answer if isinstance(answer, ListTransactionsResponse) else at_once(answer)


def _handle(request: ListTransactionsRequest, transactions: Sequence[Transaction]) -> Any:
    runner = SimpleNamespace(is_loaded=True, shard=transactions)
    services: dict[str, Any] = {
        "transactions": SimpleNamespace(runners=lambda: [runner]),
        "replicas": SimpleNamespace(now_ms=lambda: 0),
    }
    context: Any = None
    return list_transactions.handle(context, request, **services)


@pytest.mark.parametrize(
    ("pattern", "slices"), [(None, 3), ("t.*", 3), ("a?" * 200, 200), ("(?:a?){1000}", 200)], ids=str
)
def test_many_transactions_are_listed_in_slices(pattern: str | None, slices: int) -> None:
    # All were looked at in one turn of the loop, at 10 ms each with the pattern of a hostile client.
    transactions = [
        Transaction(transactional_id=f"t{number}", producer_id=number, producer_epoch=0, timeout_ms=1, state=S.ONGOING)
        for number in range(200)
    ]
    request = ListTransactionsRequest(transactional_id_pattern=pattern, duration_filter=-1)
    left = _handle(request, transactions)
    # The first place was passed before the rest of the generator was returned.
    assert 1 + sum(1 for _ in left) == slices
    answered = _handled(request, transactions).transaction_states
    assert len(answered) == (0 if pattern and pattern != "t.*" else 200)


def test_list_reports_unknown_states_and_bad_patterns() -> None:
    """TXNC-113, TXNC-115."""
    request = ListTransactionsRequest(state_filters=["Ongoing", "Bogus"], duration_filter=-1)
    assert _handled(request, []).unknown_state_filters == ["Bogus"]
    pattern = replace(request, transactional_id_pattern="(")
    assert _handled(pattern, []).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    with pytest.raises(KafkaError) as raised:
        _listed(transactional_id_pattern="(")
    assert raised.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
