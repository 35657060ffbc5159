"""What a transactional producer may do in which state: a table of calls over the tracker."""

from __future__ import annotations

import pytest

from kraftlog.client.state.transaction_state import TransactionState, TransactionTracker
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition

S = TransactionState
CALLS = {
    "initialize": lambda tracker: tracker.check_can_initialize(),
    "begin": lambda tracker: tracker.begin(),
    "send": lambda tracker: tracker.check_can_send(),
    "commit": lambda tracker: tracker.end(is_commit=True),
    "abort": lambda tracker: tracker.end(is_commit=False),
}
ALLOWED = {
    S.UNINITIALIZED: {"initialize"},
    S.READY: {"begin"},
    S.OPEN: {"send", "commit", "abort"},
    S.ENDING: set(),
    S.ABORTABLE: {"abort"},
    S.FATAL: set(),
}


def tracker_in(state):
    tracker = TransactionTracker("x")
    if state is S.UNINITIALIZED:
        return tracker
    tracker.initialized(is_version_2=True)
    if state is S.READY:
        return tracker
    tracker.begin()
    if state is S.ENDING:
        tracker.end(is_commit=True)
    elif state is S.ABORTABLE:
        tracker.failed(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "m"))
    elif state is S.FATAL:
        tracker.failed(KafkaError(ErrorCode.PRODUCER_FENCED, "f"))
    return tracker


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("call", list(CALLS))
def test_each_call_is_possible_in_its_states_alone(state, call):
    tracker = tracker_in(state)
    assert tracker.state is state
    if call in ALLOWED[state]:
        CALLS[call](tracker)
        return
    with pytest.raises(KafkaError) as raised:
        CALLS[call](tracker)
    expected = {S.ABORTABLE: ErrorCode.MESSAGE_TOO_LARGE, S.FATAL: ErrorCode.PRODUCER_FENCED}
    assert raised.value.code == expected.get(state, ErrorCode.INVALID_TXN_STATE)
    assert tracker.state is state


def test_the_end_forgets_the_transaction():
    tracker = tracker_in(S.OPEN)
    tracker.partitions.add(TopicPartition("t", 0))
    tracker.has_offsets = True
    assert tracker.has_content
    tracker.failed(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "m"))
    tracker.end(is_commit=False)
    tracker.ended()
    assert (tracker.state, tracker.has_content) == (S.READY, False)


def test_an_end_without_an_answer_can_be_called_again():
    for is_commit in (True, False):
        tracker = tracker_in(S.OPEN)
        tracker.end(is_commit=is_commit)
        tracker.not_ended(is_commit=is_commit)
        tracker.end(is_commit=is_commit)
        assert tracker.state is S.ENDING


def test_the_first_error_is_kept_and_a_fatal_one_ends_the_producer():
    tracker = tracker_in(S.ABORTABLE)
    tracker.failed(KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, "later"))
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        tracker.check_can_send()
    tracker.failed(tracker.fenced(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "old")))
    with pytest.raises(KafkaError, match=r"PRODUCER_FENCED: another producer took over transactional\.id x"):
        tracker.end(is_commit=False)
    assert tracker.failed(KafkaError(ErrorCode.NOT_COORDINATOR)).code == ErrorCode.PRODUCER_FENCED
