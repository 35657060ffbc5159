"""Which positions are committed while the application has rows in hand."""

from __future__ import annotations

import pytest

from kraftlog.client.state.handed_rows import HandedRows
from kraftlog.client.state.position import FetchPosition, OffsetAndMetadata
from kraftlog.client.state.subscription import Subscription
from kraftlog.errors import CommitFailedError, ErrorCode, KafkaError
from kraftlog.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def subscription():
    found = Subscription("latest")
    found.assign([T0, T1])
    for name in (T0, T1):
        found.get(name).seek_validated(FetchPosition(20, 3))
    return found


@pytest.fixture
def handed(subscription):
    rows = HandedRows(subscription)
    rows.hand_over(T0, FetchPosition(10, 2))
    return rows


def positions(handed, *, with_handed=False):
    return {
        name: (found.offset, found.leader_epoch) for name, found in handed.positions(with_handed=with_handed).items()
    }


def test_rows_in_hand_are_left_out_unless_they_count_as_done(handed):
    assert positions(handed) == {T0: (10, 2), T1: (20, 3)}
    assert positions(handed, with_handed=True) == {T0: (20, 3), T1: (20, 3)}


def test_poll_and_seek_of_the_same_partition_take_them_back(handed):
    handed.take_back(T1)
    assert positions(handed)[T0] == (10, 2)
    handed.take_back(T0)
    assert positions(handed)[T0] == (20, 3)
    handed.hand_over(T0, FetchPosition(10, 2))
    handed.take_back()
    assert positions(handed)[T0] == (20, 3)


def test_commit_of_the_application_moves_the_first_row_in_hand(handed):
    handed.note_commit({T1: OffsetAndMetadata(5, 1)})
    assert positions(handed) == {T0: (10, 2), T1: (20, 3)}
    handed.note_commit({T0: OffsetAndMetadata(15, 3)})
    assert positions(handed) == {T0: (15, 3), T1: (20, 3)}


def test_partition_that_was_given_up_and_came_back_has_no_rows_in_hand(handed, subscription):
    subscription.assign([T1])
    assert positions(handed) == {T1: (20, 3)}
    subscription.assign([T0, T1])
    subscription.get(T0).seek_validated(FetchPosition(7, 1))
    assert positions(handed) == {T0: (7, 1), T1: (20, 3)}


def test_partition_without_a_position_is_not_committed(handed, subscription):
    subscription.get(T0).request_reset("latest")
    assert positions(handed) == {T1: (20, 3)}


def test_commit_is_refused_for_what_was_lost_since_the_last_poll(handed):
    handed.note_lost([T1], KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "why"))
    for wanted in (None, [T0, T1]):
        with pytest.raises(CommitFailedError, match=r"t-1: lost since the last poll .*why") as raised:
            handed.check_not_lost(wanted)
        assert raised.value.partitions == (T1,)
        assert raised.value.code == ErrorCode.FENCED_MEMBER_EPOCH
    handed.check_not_lost([T0])
    with handed.polling():
        handed.check_not_lost()


def test_application_hears_of_losses_during_a_poll_from_the_poll(handed):
    with handed.polling():
        handed.note_lost([T1], KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
    handed.check_not_lost()
    handed.note_lost([T1], KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
    handed.forget_lost()
    handed.check_not_lost()
    assert handed.loss_count == 2
