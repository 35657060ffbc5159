"""Positions, validations and their answers: area 18 of the behaviours, from CTRN-01 to CTRN-22."""

from __future__ import annotations

import pytest

from consumer_fixture import T0, T1, Scene, epoch_end, fetch_answer, fetched, fetching, listed, metadata
from kraftlog.client.state.position import OffsetAndEpoch
from kraftlog.client.state.request import RequestKind
from kraftlog.client.state.subscription import FetchState
from kraftlog.errors import ErrorCode, KafkaError, LogTruncationError, OffsetOutOfRangeError
from kraftlog.types import EpochEndOffset

VALIDATION = RequestKind.VALIDATION
FETCH = RequestKind.FETCH


@pytest.mark.spec("CTRN-01")
def test_partition_without_position_is_not_fetched_before_a_reset():
    scene = Scene()
    scene.core.assign([T0])
    assert scene.state.state is FetchState.INITIALIZING
    assert not scene.state.is_fetchable
    scene.update((1, 3))
    scene.turn()
    assert not scene.of_kind(FETCH)
    reset = scene.only(RequestKind.RESET)
    assert reset.node_id == 1
    scene.answer(reset, listed(offset=7))
    scene.turn()
    assert scene.only(FETCH).targets[T0].fetch_offset == 7


@pytest.mark.spec("CTRN-02")
@pytest.mark.parametrize("leader", [(2, 4), (1, 4), (2, 3)])
def test_change_of_the_leader_asks_for_validation(leader):
    scene = fetching()
    scene.update(leader)
    scene.turn()
    assert scene.state.state is FetchState.AWAIT_VALIDATION
    assert not scene.of_kind(FETCH)
    assert scene.position == OffsetAndEpoch(10, 3)
    assert scene.only(VALIDATION).node_id == leader[0]


@pytest.mark.spec("CTRN-03")
@pytest.mark.parametrize(("epoch", "leader"), [(None, (2, 4)), (3, (2, -1))])
def test_change_of_the_leader_without_an_epoch_goes_on_fetching(epoch, leader):
    scene = fetching(epoch=epoch)
    scene.update(leader)
    scene.turn()
    assert scene.state.state is FetchState.FETCHING
    assert scene.only(FETCH).node_id == 2


@pytest.mark.spec("CTRN-04")
@pytest.mark.parametrize("version", [-1, 2])
def test_broker_without_offset_for_leader_epoch_3_is_not_asked(version):
    scene = fetching()
    scene.versions = version
    scene.update((2, 4))
    scene.turn()
    assert scene.state.state is FetchState.FETCHING
    assert not scene.of_kind(VALIDATION)
    assert scene.only(FETCH).node_id == 2


@pytest.mark.spec("CTRN-05")
def test_validation_waits_for_the_versions_of_a_node_and_connects_to_it():
    scene = fetching()
    scene.versions = None
    scene.update((2, 4))
    scene.turn()
    connect = scene.only(RequestKind.CONNECT)
    assert (connect.node_id, connect.message) == (2, None)
    assert not scene.of_kind(VALIDATION)
    scene.versions = 4
    scene.answer(connect, None)
    scene.turn()
    assert scene.only(VALIDATION).node_id == 2


@pytest.mark.spec("CTRN-05")
def test_validation_is_given_up_when_the_connected_node_turns_out_to_be_old():
    scene = fetching()
    scene.versions = None
    scene.update((2, 4))
    scene.turn()
    scene.versions = 2
    scene.answer(scene.only(RequestKind.CONNECT), None)
    scene.turn()
    assert not scene.of_kind(VALIDATION)
    assert scene.state.state is FetchState.FETCHING


@pytest.mark.spec("CTRN-06")
def test_change_of_the_leader_does_not_end_a_reset():
    scene = fetching()
    scene.state.request_reset("earliest")
    scene.update((2, 4))
    scene.turn()
    assert scene.state.state is FetchState.AWAIT_RESET
    assert not scene.of_kind(VALIDATION)


@pytest.mark.spec("CTRN-07")
def test_validation_waits_while_no_leader_is_known():
    scene = fetching()
    scene.update((2, 4))
    scene.update((-1, 5))
    scene.turn()
    assert not scene.of_kind(VALIDATION)
    assert scene.position == OffsetAndEpoch(10, 3)
    assert scene.core.metadata.is_update_wanted


@pytest.mark.spec("CTRN-08", "CTRN-10")
def test_seek_without_epoch_leaves_validation():
    scene = fetching()
    scene.update((2, 4))
    scene.turn()
    assert scene.state.state is FetchState.AWAIT_VALIDATION
    scene.core.seek(T0, 4, None)
    assert scene.state.state is FetchState.FETCHING
    assert scene.position == OffsetAndEpoch(4, None)


@pytest.mark.spec("CTRN-09")
def test_seek_with_epoch_is_validated_and_a_newer_epoch_asks_for_metadata():
    scene = fetching()
    scene.core.seek(T0, 20, 3)
    assert scene.state.state is FetchState.AWAIT_VALIDATION
    scene.turn()
    assert not scene.of_kind(FETCH)
    scene.only(VALIDATION)
    scene.core.seek(T0, 20, 5)
    scene.turn(200)
    assert scene.only(RequestKind.METADATA)
    assert not scene.of_kind(VALIDATION)
    scene.answer(scene.only(RequestKind.METADATA), metadata((2, 5)))
    scene.turn(60_000)
    assert scene.only(VALIDATION).message.topics[0].partitions[0].leader_epoch == 5


@pytest.mark.spec("CTRN-11")
@pytest.mark.parametrize("epoch", [4, None])
def test_position_has_the_epoch_of_the_last_batch_read(epoch):
    scene = fetching()
    scene.turn()
    scene.answer(scene.only(FETCH), fetch_answer(fetched(records=b"x")))
    taken = scene.core.take_fetched()
    scene.core.advance(taken, 12, epoch)
    assert scene.position == OffsetAndEpoch(12, epoch)


@pytest.mark.spec("CTRN-13")
def test_validation_carries_epochs_and_is_grouped_by_leader_with_one_in_flight():
    scene = Scene()
    scene.core.assign([T0, T1])
    scene.update((1, 3), (2, 6))
    for name in (T0, T1):
        scene.core.seek(name, 10, 2)
    scene.turn()
    first, second = sorted(scene.of_kind(VALIDATION), key=lambda request: request.node_id)
    assert (first.node_id, second.node_id) == (1, 2)
    assert first.message.replica_id == -1
    partition = second.message.topics[0].partitions[0]
    assert (partition.partition, partition.current_leader_epoch, partition.leader_epoch) == (1, 6, 2)
    scene.core.seek(T0, 11, 2)
    assert not [request for request in scene.turn() if request.kind is VALIDATION]
    scene.answer(first, epoch_end((0, 0, 2, 100)))
    assert [request.node_id for request in scene.turn() if request.kind is VALIDATION] == [1]


def validating(**options):
    scene = fetching(**options)
    scene.update((2, 4))
    scene.turn()
    return scene, scene.only(VALIDATION)


@pytest.mark.spec("CTRN-14")
@pytest.mark.parametrize("end_offset", [10, 11])
def test_end_offset_at_or_after_the_position_confirms_it(end_offset):
    scene, request = validating(reset=None)
    scene.answer(request, epoch_end((0, 0, 3, end_offset)))
    assert scene.state.state is FetchState.FETCHING
    assert scene.position == OffsetAndEpoch(10, 3)
    assert not scene.core.errors
    scene.turn()
    assert scene.only(FETCH).targets[T0].leader_epoch == 4


@pytest.mark.spec("CTRN-15", "CTRN-45")
def test_truncation_with_a_reset_policy_moves_the_position_and_reports_it():
    scene, request = validating(reset="latest")
    scene.answer(request, epoch_end((0, 0, 2, 6)))
    assert scene.state.state is FetchState.FETCHING
    assert scene.position == OffsetAndEpoch(6, 2)
    assert not scene.core.errors
    assert "offset 6" in scene.core.warnings[0]
    scene.turn()
    assert not scene.of_kind(RequestKind.RESET)
    assert scene.only(FETCH).targets[T0].fetch_offset == 6


@pytest.mark.spec("CTRN-16", "CTRN-44")
def test_truncation_without_a_reset_policy_is_an_error_and_the_position_stays():
    scene, request = validating(reset=None)
    scene.answer(request, epoch_end((0, 0, 2, 6)))
    error = scene.core.errors.popleft()
    assert isinstance(error, LogTruncationError)
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.partition, error.position, error.position_epoch) == (T0, 10, 3)
    assert error.diverging_offset == EpochEndOffset(2, 6)
    assert scene.position == OffsetAndEpoch(10, 3)
    scene.turn(1000)
    assert not scene.of_kind(FETCH), "records of the new history must not follow those of the old one"
    assert scene.of_kind(VALIDATION), "the next poll raises it again"


@pytest.mark.spec("CTRN-17")
@pytest.mark.parametrize("answer", [(-1, 6), (2, -1), (-1, -1)])
def test_unknown_epoch_with_a_reset_policy_resets(answer):
    scene, request = validating(reset="earliest")
    scene.answer(request, epoch_end((0, 0, *answer)))
    assert scene.state.state is FetchState.AWAIT_RESET
    scene.turn()
    assert scene.only(RequestKind.RESET).message.topics[0].partitions[0].timestamp == -2


@pytest.mark.spec("CTRN-18")
def test_unknown_epoch_without_a_reset_policy_is_a_truncation_at_an_unknown_offset():
    scene, request = validating(reset=None)
    scene.answer(request, epoch_end((0, 0, -1, -1)))
    assert scene.core.errors[0].diverging_offset is None
    assert scene.position == OffsetAndEpoch(10, 3)


@pytest.mark.spec("CTRN-19")
@pytest.mark.parametrize("change", ["seek", "unassign", "reset"])
def test_answer_for_another_position_is_ignored(change):
    scene, request = validating(reset=None)
    if change == "seek":
        scene.core.seek(T0, 20, 3)
    elif change == "unassign":
        scene.core.assign([])
    else:
        scene.state.request_reset("latest")
    scene.answer(request, epoch_end((0, 0, 2, 6)))
    assert not scene.core.errors
    if change == "seek":
        assert scene.position == OffsetAndEpoch(20, 3)
        assert scene.state.state is FetchState.AWAIT_VALIDATION


@pytest.mark.spec("CTRN-20")
@pytest.mark.parametrize(
    "name",
    """NOT_LEADER_OR_FOLLOWER REPLICA_NOT_AVAILABLE KAFKA_STORAGE_ERROR OFFSET_NOT_AVAILABLE LEADER_NOT_AVAILABLE
    FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_SERVER_ERROR""".split(),
)
def test_error_of_a_validation_asks_for_metadata_and_tries_again_after_the_backoff(name):
    scene, request = validating(reset=None)
    scene.answer(request, epoch_end((0, getattr(ErrorCode, name), -1, -1)))
    assert scene.state.state is FetchState.AWAIT_VALIDATION
    assert not [sent for sent in scene.turn(50) if sent.kind is VALIDATION]
    kinds = [sent.kind for sent in scene.turn(60)]
    assert VALIDATION in kinds
    assert RequestKind.METADATA in kinds
    assert not scene.core.errors


@pytest.mark.spec("CTRN-21")
def test_refused_topics_of_a_validation_are_raised_together():
    scene, request = validating()
    scene.answer(request, epoch_end((0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)))
    (error,) = scene.core.errors
    assert isinstance(error, KafkaError)
    assert (error.code, error.message) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")


@pytest.mark.spec("CTRN-22")
def test_partition_missing_from_the_answer_is_asked_about_again():
    scene, request = validating()
    scene.answer(request, epoch_end())
    assert scene.state.state is FetchState.AWAIT_VALIDATION
    assert [sent for sent in scene.turn(101) if sent.kind is VALIDATION]


def read_epochs(scene, *reads):
    """Let the application get records up to these offsets, the last of each with this epoch."""
    for end_offset, epoch in reads:
        scene.turn()
        scene.answer(scene.only(FETCH), fetch_answer(fetched(records=b"x")))
        taken = scene.core.take_fetched()
        scene.core.advance(taken, end_offset, epoch)
        scene.core.release(taken)


def with_a_longer_log(reads, answer, **options):
    """A consumer that has read these epochs asks a leader whose log is longer than its position."""
    scene = fetching(offset=0, epoch=None, leader=(1, 6), **options)
    read_epochs(scene, *reads)
    scene.update((2, 8))
    scene.turn()
    scene.answer(scene.only(VALIDATION), epoch_end((0, 0, *answer)))
    return scene


@pytest.mark.spec("CTRN-44")
def test_a_longer_log_without_the_epoch_of_the_position_is_a_truncation_too():
    """Seed 11 with losses: records of epoch 6 were read, and the next leader had others of epoch 4 at their offsets.

    Kafka's consumer compares the offsets alone and reads on, with a mix of both histories.
    """
    reads = (5, 2), (8, 6), (10, 6)
    scene = with_a_longer_log(reads, (4, 20), reset=None)
    assert scene.core.errors[0].diverging_offset == EpochEndOffset(2, 5)
    scene = with_a_longer_log(reads, (4, 20), reset="latest")
    assert scene.position == OffsetAndEpoch(5, 2)
    assert "offset 5" in scene.core.warnings[0]
    for answer in ((6, 20), (6, 10)):
        assert with_a_longer_log(reads, answer, reset=None).state.state is FetchState.FETCHING
    scene = with_a_longer_log(reads, (1, 4), reset=None)
    assert scene.core.errors[0].diverging_offset == EpochEndOffset(1, 0), "records of epoch 2 may begin there"


@pytest.mark.spec("CTRN-44")
def test_what_lies_before_the_first_epoch_that_was_read_is_asked_of_the_leader():
    scene = with_a_longer_log([(10, 6)], (4, 20), reset=None)
    assert scene.core.errors[0].diverging_offset == EpochEndOffset(4, 0)


@pytest.mark.spec("CTRN-44")
def test_a_longer_log_without_the_epoch_of_a_position_that_was_stored_is_a_truncation_at_an_unknown_offset():
    """Where the log differs, the process has known that stored the offset; nothing is read again, and it is said."""
    scene, request = validating(reset=None)
    scene.answer(request, epoch_end((0, 0, 2, 20)))
    assert scene.core.errors[0].diverging_offset is None
    assert scene.position == OffsetAndEpoch(10, 3)
    scene, request = validating(reset="latest")
    scene.answer(request, epoch_end((0, 0, 2, 20)))
    assert scene.position == OffsetAndEpoch(10, None)
    assert "it is not known where" in scene.core.warnings[0]
    scene.turn()
    assert scene.only(FETCH).targets[T0].fetch_offset == 10


@pytest.mark.spec("CTRN-44")
def test_a_position_that_was_moved_back_is_validated_again():
    """Seed 519 with losses: the leader had fewer records of the epoch before, too, and other ones behind them."""
    scene = with_a_longer_log([(20, 1), (44, 4)], (2, 32), reset="earliest")
    assert (scene.position, scene.state.state) == (OffsetAndEpoch(20, 1), FetchState.AWAIT_VALIDATION)
    scene.turn()
    scene.answer(scene.only(VALIDATION), epoch_end((0, 0, 1, 18)))
    assert scene.position == OffsetAndEpoch(18, 1)
    scene.turn()
    scene.answer(scene.only(VALIDATION), epoch_end((0, 0, 1, 18)))
    assert (scene.position, scene.state.state) == (OffsetAndEpoch(18, 1), FetchState.FETCHING)
    # The end of an epoch that was not read lies among records of an earlier one.
    scene = with_a_longer_log([(30, 1), (44, 4)], (3, 25), reset="earliest")
    assert (scene.position, scene.state.state) == (OffsetAndEpoch(25, 1), FetchState.AWAIT_VALIDATION)


@pytest.mark.spec("CTRN-44")
def test_a_consumer_that_goes_back_keeps_what_it_has_read_before():
    """The new history may be replaced in turn, by one that lacks what was common to the first two."""
    scene = with_a_longer_log([(3, 1), (5, 2), (10, 6)], (4, 20), reset=None)
    scene.core.seek(T0, 5, 2)
    scene.turn()
    scene.answer(scene.only(VALIDATION), epoch_end((0, 0, 1, 20)))
    assert scene.core.errors[-1].diverging_offset == EpochEndOffset(1, 3)
    scene.core.seek(T0, 5, None)
    assert not scene.state.read_epochs


@pytest.mark.spec("CTRN-20")
def test_validations_that_fail_one_after_the_other_do_not_put_the_metadata_off():
    """Seed 20 with losses: two partitions of an old leader failed in turn, each within the back-off of the other.

    The metadata that would have told of the next leader was never asked for.
    """
    scene = Scene(reset=None)
    scene.core.assign([T0, T1])
    scene.update((1, 3), (1, 3))
    waiting, asked = [], 0
    for name in (T0, T1):
        scene.core.seek(name, 10, 2)
        waiting += [request for request in scene.turn() if request.kind is VALIDATION]
    for _ in range(20):
        scene.now_ms += 30
        for request in waiting:
            fenced = [(name.partition, ErrorCode.FENCED_LEADER_EPOCH, -1, -1) for name in request.targets]
            scene.answer(request, epoch_end(*fenced))
        waiting = [request for request in scene.turn(30) if request.kind is VALIDATION]
        asked += len(scene.of_kind(RequestKind.METADATA))
    assert asked == 1, "and no answer of it came"
