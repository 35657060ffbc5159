"""Which leaders a client accepts: area 18 of the behaviours, from CTRN-23 to CTRN-30 and CTRN-49."""

from __future__ import annotations

import pytest

from consumer_fixture import OTHER_ID, T0, Scene, fetch_answer, fetched, fetching, metadata
from kraftlog.client.state.cluster_metadata import ClusterMetadata, Node
from kraftlog.client.state.position import LeaderAndEpoch, OffsetAndEpoch
from kraftlog.client.state.request import RequestKind
from kraftlog.client.state.subscription import FetchState
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.fetch import FetchResponse


def known(*answers, version=13):
    found = ClusterMetadata()
    found.is_update_wanted = False
    for answer in answers:
        found.update(answer, version)
    return found


@pytest.mark.spec("CTRN-23")
def test_equal_or_newer_epochs_are_accepted_and_older_ones_keep_what_is_known():
    found = known(metadata((1, 5)), metadata((2, 5)))
    assert found.leader_of(T0) == LeaderAndEpoch(2, 5)
    found.update(metadata((3, 6)), 13)
    assert found.leader_of(T0) == LeaderAndEpoch(3, 6)
    found.update(metadata((1, 4)), 13)
    assert found.leader_of(T0) == LeaderAndEpoch(3, 6)
    assert found.last_seen_epoch(T0) == 6


@pytest.mark.spec("CTRN-49")
def test_a_stale_answer_does_not_bring_the_old_leader_back():
    found = known(metadata((1, 5)), metadata((2, 6)), metadata((1, 5)))
    assert found.leader_of(T0) == LeaderAndEpoch(2, 6)


@pytest.mark.spec("CTRN-24")
def test_another_topic_id_lets_any_epoch_in():
    found = known(metadata((1, 5)), metadata((2, 0), topic_id=OTHER_ID))
    assert found.leader_of(T0) == LeaderAndEpoch(2, 0)
    assert found.last_seen_epoch(T0) == 0
    found.update(metadata((3, 1), topic_id=OTHER_ID), 13)
    assert found.last_seen_epoch(T0) == 1


@pytest.mark.spec("CTRN-25")
@pytest.mark.parametrize(("version", "epoch"), [(8, 5), (13, -1)])
def test_unreliable_or_missing_epochs_are_not_used(version, epoch):
    found = known(metadata((1, 9)))
    found.update(metadata((2, epoch)), version)
    assert found.leader_of(T0) == LeaderAndEpoch(2, None)
    assert found.last_seen_epoch(T0) is None


@pytest.mark.spec("CTRN-26")
def test_an_epoch_seen_elsewhere_asks_for_an_update_only_when_it_is_newer():
    found = known(metadata((1, 5)))
    for epoch in (4, 5):
        assert not found.note_epoch(T0, epoch)
        assert not found.is_update_wanted
    assert found.note_epoch(T0, 6)
    assert found.is_update_wanted
    assert found.leader_of(T0) == LeaderAndEpoch(None, 6)
    unknown = ClusterMetadata()
    assert not unknown.note_epoch(T0, 6)
    assert unknown.last_seen_epoch(T0) is None


@pytest.mark.spec("CTRN-27")
def test_a_topic_created_again_is_not_blocked_by_its_old_epoch():
    found = known(metadata((1, 10)), metadata(topic_error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic_id=Uuid.ZERO))
    assert found.last_seen_epoch(T0) == 10
    assert found.leader_of(T0).leader_id is None
    found.update(metadata((2, 3), topic_id=OTHER_ID), 13)
    assert found.leader_of(T0) == LeaderAndEpoch(2, 3)


@pytest.mark.spec("CTRN-28")
def test_leaders_of_other_answers_are_taken_when_they_are_newer():
    found = known(metadata((1, 5), nodes=(1,)))
    node = Node(9, "new", 99)
    assert found.apply_leaders({T0: (9, 6)}, []) == set(), "its address is not known"
    assert found.apply_leaders({T0: (9, 5)}, [node]) == set()
    assert found.apply_leaders({T0: (9, 6)}, [node]) == {T0}
    assert found.leader_of(T0) == LeaderAndEpoch(9, 6)
    assert found.nodes[9] == node
    assert found.apply_leaders({T0: (1, 5)}, []) == set()


@pytest.mark.spec("CTRN-28")
def test_hints_of_a_fetch_answer_are_used_without_a_metadata_request():
    scene = fetching()
    scene.turn()
    hint = FetchResponse.LeaderIdAndEpoch(leader_id=7, leader_epoch=4)
    endpoint = FetchResponse.NodeEndpoint(node_id=7, host="seven", port=7)
    refused = fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=hint)
    scene.answer(scene.only(RequestKind.FETCH), fetch_answer(refused, endpoints=[endpoint]))
    scene.turn()
    assert not scene.of_kind(RequestKind.METADATA)
    assert scene.only(RequestKind.VALIDATION).node_id == 7


@pytest.mark.spec("CTRN-29")
def test_committed_offset_with_a_newer_epoch_waits_for_metadata():
    scene = Scene()
    scene.core.has_group = True
    scene.core.assign([T0])
    scene.update((1, 3))
    scene.core.set_committed(T0, OffsetAndEpoch(10, 5))
    kinds = [sent.kind for sent in scene.turn(200)]
    assert RequestKind.FETCH not in kinds
    assert RequestKind.VALIDATION not in kinds
    scene.answer(scene.only(RequestKind.METADATA), metadata((2, 5)))
    scene.turn(30_000)
    assert scene.only(RequestKind.VALIDATION).node_id == 2
    assert scene.state.state is FetchState.AWAIT_VALIDATION


@pytest.mark.spec("CTRN-30")
def test_rebootstrap_required_forgets_nodes_and_epochs():
    scene = fetching()
    scene.update((1, 3), error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    assert scene.core.metadata.nodes == {}
    assert scene.core.metadata.last_seen_epoch(T0) is None
    request = next(sent for sent in scene.turn() if sent.kind is RequestKind.METADATA)
    assert request.node_id is None
    scene.answer(request, metadata((2, 0), topic_id=OTHER_ID))
    assert scene.core.metadata.leader_of(T0) == LeaderAndEpoch(2, 0)


@pytest.mark.spec("CTRN-30")
@pytest.mark.parametrize(("after_ms", "is_expected"), [(1000, True), (None, False)])
def test_no_reachable_broker_for_the_trigger_time_starts_again_from_bootstrap(after_ms, is_expected):
    scene = fetching(rebootstrap_after_ms=after_ms)
    scene.core.metadata.is_update_wanted = True
    for _ in range(3):
        scene.turn(600)
        failure = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        for request in scene.of_kind(RequestKind.METADATA):
            scene.core.handle_failure(request, failure, scene.now_ms)
    assert (scene.core.metadata.nodes == {}) is is_expected


def test_topics_wanted_while_metadata_is_asked_for_are_asked_for_next():
    scene = Scene()
    scene.core.subscribe({"other"})
    scene.turn()
    request = scene.only(RequestKind.METADATA)
    scene.core.subscribe({"other", "t"})
    scene.answer(request, metadata())
    scene.turn(200)
    assert {topic.name for topic in scene.only(RequestKind.METADATA).message.topics} == {"other", "t"}


def test_topics_wanted_while_metadata_is_under_way_are_asked_for_at_once():
    scene = Scene()
    scene.turn()
    first = scene.only(RequestKind.METADATA)
    scene.core.assign([T0])
    scene.answer(first, metadata((1, 3)))
    scene.turn()
    assert [topic.name for topic in scene.only(RequestKind.METADATA).message.topics] == ["t"]
