"""Errors and records of Fetch, resets and lookups: area 18 of the behaviours, from CTRN-31 to CTRN-43."""

from __future__ import annotations

import pytest

from consumer_fixture import T0, T1, Scene, epoch_end, fetch_answer, fetched, fetching, listed, metadata
from kraftlog.client.state.position import OffsetAndEpoch
from kraftlog.client.state.request import RequestKind
from kraftlog.client.state.subscription import FetchState
from kraftlog.errors import CorruptRecordError, ErrorCode, KafkaError, LogTruncationError, OffsetOutOfRangeError
from kraftlog.wire.messages.fetch import FetchResponse

FETCH = RequestKind.FETCH


def refused(code, **options):
    scene = fetching(**options)
    scene.turn()
    scene.answer(scene.only(FETCH), fetch_answer(fetched(error_code=code)))
    return scene


@pytest.mark.spec("CTRN-31", "CTRN-33")
@pytest.mark.parametrize(
    "name",
    """NOT_LEADER_OR_FOLLOWER REPLICA_NOT_AVAILABLE KAFKA_STORAGE_ERROR FENCED_LEADER_EPOCH OFFSET_NOT_AVAILABLE
    UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID""".split(),
)
def test_stale_metadata_is_asked_for_anew_and_the_fetch_sent_again(name):
    scene = refused(getattr(ErrorCode, name))
    assert scene.core.take_fetched() is None
    assert [request.kind for request in scene.turn(50)] == []
    kinds = [request.kind for request in scene.turn(60)]
    assert sorted(kinds, key=str) == [FETCH, RequestKind.METADATA]
    assert scene.position == OffsetAndEpoch(10, 3)
    assert not scene.core.errors


@pytest.mark.spec("CTRN-32", "CTRN-46")
def test_unknown_leader_epoch_is_tried_again_without_new_metadata():
    scene = refused(ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert [request.kind for request in scene.turn(110)] == [FETCH]
    assert scene.position == OffsetAndEpoch(10, 3)


@pytest.mark.spec("CTRN-47")
def test_fenced_leader_epoch_leads_to_metadata_validation_and_the_new_leader():
    scene = refused(ErrorCode.FENCED_LEADER_EPOCH)
    scene.turn(110)
    scene.core.handle_failure(scene.only(FETCH), KafkaError(ErrorCode.BROKER_NOT_AVAILABLE), scene.now_ms)
    scene.answer(scene.only(RequestKind.METADATA), metadata((2, 4)))
    scene.turn()
    validation = scene.only(RequestKind.VALIDATION)
    assert validation.message.topics[0].partitions[0].current_leader_epoch == 4
    scene.answer(validation, epoch_end((0, 0, 3, 50)))
    scene.turn(110)
    assert scene.only(FETCH).node_id == 2
    assert scene.only(FETCH).targets[T0].leader_epoch == 4


@pytest.mark.spec("CTRN-34")
def test_out_of_range_on_a_follower_goes_back_to_the_leader():
    scene = fetching(reset=None)
    scene.turn()
    scene.answer(scene.only(FETCH), fetch_answer(fetched(preferred_read_replica=3)))
    scene.turn()
    request = scene.only(FETCH)
    assert request.node_id == 3
    scene.answer(request, fetch_answer(fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)))
    assert not scene.core.errors
    scene.turn()
    assert scene.only(FETCH).node_id == 1


@pytest.mark.spec("CTRN-35")
def test_out_of_range_on_the_leader_resets_or_raises():
    scene = refused(ErrorCode.OFFSET_OUT_OF_RANGE, reset="earliest")
    assert scene.state.state is FetchState.AWAIT_RESET
    scene.turn()
    scene.only(RequestKind.RESET)
    strict = refused(ErrorCode.OFFSET_OUT_OF_RANGE, reset=None)
    (error,) = strict.core.errors
    assert type(error) is OffsetOutOfRangeError
    assert strict.position == OffsetAndEpoch(10, 3)


@pytest.mark.spec("CTRN-35", "CTRN-39")
@pytest.mark.parametrize("answer", [fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE), fetched(records=b"x")])
def test_answer_for_an_old_position_is_dropped(answer):
    scene = fetching(reset=None)
    scene.turn()
    request = scene.only(FETCH)
    scene.core.seek(T0, 50, None)
    scene.answer(request, fetch_answer(answer))
    assert not scene.core.errors
    assert scene.core.take_fetched() is None
    assert scene.position == OffsetAndEpoch(50, None)


@pytest.mark.spec("CTRN-39")
@pytest.mark.parametrize("is_validated_before", [False, True])
def test_records_of_an_old_leader_are_dropped_when_validation_begins(is_validated_before):
    scene = fetching()
    scene.turn()
    request = scene.only(FETCH)
    scene.answer(request, fetch_answer(fetched(records=b"x")))
    scene.update((2, 4))
    scene.turn()
    if is_validated_before:
        scene.answer(scene.only(RequestKind.VALIDATION), epoch_end((0, 0, 3, 50)))
        assert scene.state.state is FetchState.FETCHING
    assert scene.core.take_fetched() is None


@pytest.mark.spec("CTRN-36")
def test_corrupt_records_are_raised_and_the_position_stays():
    scene = refused(ErrorCode.CORRUPT_MESSAGE)
    (error,) = scene.core.errors
    assert isinstance(error, CorruptRecordError)
    assert scene.position == OffsetAndEpoch(10, 3)


@pytest.mark.spec("CTRN-37")
def test_refused_topic_is_raised():
    scene = refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (error,) = scene.core.errors
    assert error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.spec("CTRN-38")
@pytest.mark.parametrize("reset", ["latest", None])
def test_diverging_epoch_of_a_fetch_is_a_result_of_validation(reset):
    scene = fetching(reset=reset)
    scene.turn()
    diverging = FetchResponse.EpochEndOffset(epoch=2, end_offset=6)
    scene.answer(scene.only(FETCH), fetch_answer(fetched(diverging_epoch=diverging)))
    if reset is None:
        (error,) = scene.core.errors
        assert isinstance(error, LogTruncationError)
        assert scene.position == OffsetAndEpoch(10, 3)
    else:
        assert scene.position == OffsetAndEpoch(6, 2)
        assert scene.core.warnings


@pytest.mark.spec("CTRN-40")
@pytest.mark.parametrize(("epoch", "seen"), [(5, 5), (-1, 3)])
def test_reset_position_has_no_epoch_and_the_answers_epoch_is_noted(epoch, seen):
    scene = Scene()
    scene.core.assign([T0])
    scene.update((1, 3))
    scene.turn()
    scene.answer(scene.only(RequestKind.RESET), listed(offset=7, epoch=epoch))
    assert scene.position == OffsetAndEpoch(7, None)
    assert scene.core.metadata.last_seen_epoch(T0) == seen


@pytest.mark.spec("CTRN-41")
@pytest.mark.parametrize("name", ["FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"])
def test_epoch_errors_of_a_reset_ask_for_metadata_and_are_tried_again(name):
    scene = Scene()
    scene.core.assign([T0])
    scene.update((1, 3))
    scene.turn()
    scene.answer(scene.only(RequestKind.RESET), listed(error_code=getattr(ErrorCode, name)))
    kinds = [request.kind for request in scene.turn(210)]
    assert RequestKind.METADATA in kinds
    assert RequestKind.RESET in kinds


@pytest.mark.spec("CTRN-43")
@pytest.mark.parametrize("change", ["seek", "policy"])
def test_answer_of_a_reset_that_is_no_longer_wanted_is_ignored(change):
    scene = Scene()
    scene.core.assign([T0])
    scene.update((1, 3))
    scene.turn()
    request = scene.only(RequestKind.RESET)
    if change == "seek":
        scene.core.seek(T0, 40, None)
    else:
        scene.state.request_reset("latest")
    scene.answer(request, listed(offset=7))
    assert scene.position == (OffsetAndEpoch(40, None) if change == "seek" else None)


@pytest.mark.spec("CTRN-48")
def test_committed_offset_that_was_truncated_meanwhile_is_detected_at_the_start():
    scene = Scene(reset=None)
    scene.core.has_group = True
    scene.core.assign([T0])
    scene.update((2, 4))
    scene.core.set_committed(T0, OffsetAndEpoch(10, 3))
    scene.turn()
    scene.answer(scene.only(RequestKind.VALIDATION), epoch_end((0, 0, 2, 6)))
    assert isinstance(scene.core.errors[0], LogTruncationError)


def test_fetch_sessions_send_only_what_changed():
    scene = Scene()
    scene.core.assign([T0, T1])
    scene.update((1, 3), (1, 3))
    for name in (T0, T1):
        scene.core.seek(name, 10, None)
    scene.turn()
    first = scene.only(FETCH)
    assert (first.message.session_id, first.message.session_epoch) == (0, 0)
    scene.answer(first, fetch_answer(fetched(0), fetched(1), session_id=5))
    scene.core.seek(T1, 20, None)
    scene.turn()
    second = scene.only(FETCH)
    assert (second.message.session_id, second.message.session_epoch) == (5, 1)
    assert [partition.partition for partition in second.message.topics[0].partitions] == [1]
    scene.core.subscription.get(T0).is_paused = True
    scene.answer(second, fetch_answer(session_id=5))
    scene.turn()
    third = scene.only(FETCH)
    assert third.message.topics == []
    assert third.message.forgotten_topics_data[0].partitions == [0]
    scene.answer(third, fetch_answer(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    scene.turn()
    fourth = scene.only(FETCH).message
    assert (fourth.session_id, fourth.session_epoch) == (0, 0)


def test_no_fetch_is_sent_to_a_node_whose_records_wait():
    scene = Scene()
    scene.core.assign([T0, T1])
    scene.update((1, 3), (1, 3))
    for name in (T0, T1):
        scene.core.seek(name, 10, None)
    scene.turn()
    scene.answer(scene.only(FETCH), fetch_answer(fetched(0, records=b"x"), fetched(1)))
    assert not scene.turn()
    scene.core.release(scene.core.take_fetched())
    scene.turn()
    assert set(scene.only(FETCH).targets) == {T0, T1}
