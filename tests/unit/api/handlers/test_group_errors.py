"""What group requests answer while their coordinator cannot be asked, with a stand-in for the node."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from classic_fixture import ClassicShard
from kraftlog.api.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
)
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import GROUP_VERSION
from kraftlog.runtime.coordinator.record_codec import GroupRecordCodec
from kraftlog.runtime.coordinator.shard_runner import ShardRunner, ShardShell
from kraftlog.types import Uuid
from kraftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftlog.wire.messages.delete_groups import DeleteGroupsRequest
from kraftlog.wire.messages.describe_groups import DescribeGroupsRequest
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.leave_group import LeaveGroupRequest
from kraftlog.wire.messages.list_groups import ListGroupsRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest
from kraftlog.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from kraftlog.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest

_TOPIC = SimpleNamespace(name="t", topic_id=Uuid(b"\x01" * 16), partitions={0: None})
_COMMITTED = OffsetCommitRequest.OffsetCommitRequestTopic(
    name="t",
    partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
)
_DELETED = OffsetDeleteRequest.OffsetDeleteRequestTopic(
    name="t", partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
)
REQUESTS: dict[str, tuple[Any, Any, int]] = {
    "JoinGroup": (join_group, JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="x"), 9),
    "SyncGroup": (sync_group, SyncGroupRequest(group_id="g", protocol_type="x", protocol_name="y"), 5),
    "LeaveGroup": (leave_group, LeaveGroupRequest(group_id="g"), 5),
    "OffsetCommit": (offset_commit, OffsetCommitRequest(group_id="g", topics=[_COMMITTED]), 9),
    "OffsetFetch": (
        offset_fetch,
        OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]),
        9,
    ),
    "DescribeGroups": (describe_groups, DescribeGroupsRequest(groups=["g"]), 6),
    "DeleteGroups": (delete_groups, DeleteGroupsRequest(groups_names=["g"]), 2),
    "OffsetDelete": (offset_delete, OffsetDeleteRequest(group_id="g", topics=[_DELETED]), 0),
    "ConsumerGroupHeartbeat": (
        consumer_group_heartbeat,
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0),
        1,
    ),
    "ConsumerGroupDescribe": (consumer_group_describe, ConsumerGroupDescribeRequest(group_ids=["g"]), 1),
}


class Unreachable:
    """The groups of a node whose coordinator cannot be asked."""

    def __init__(self, code: int) -> None:
        self.code = code

    def runner(self, _group_id: str) -> Any:
        raise KafkaError(self.code)

    @staticmethod
    def runners() -> list[Any]:
        loaded = SimpleNamespace(shard=SimpleNamespace(list_groups=lambda: iter(())), is_loaded=True)
        return [loaded, SimpleNamespace(is_loaded=False)]


def answer(module: Any, request: Any, version: int, groups: Any, **changes: Any) -> Any:
    """What the handler returns, once it is there."""
    image = SimpleNamespace(
        features={GROUP_VERSION: 1},
        topics=SimpleNamespace(by_name=lambda _name: _TOPIC, by_id=lambda _topic_id: _TOPIC),
    )
    services: dict[str, Any] = {
        "groups": groups,
        "cluster": SimpleNamespace(image=image),
        "settings": SimpleNamespace(group_protocols=("classic", "consumer")),
        "share_admin": None,
        "tasks": None,
    } | changes
    context = SimpleNamespace(api_version=version, client_id="c", client_host="127.0.0.1", listener_name="PLAINTEXT")
    wanted = module.handle.__wrapped__ if hasattr(module.handle, "__wrapped__") else module.handle
    names = wanted.__code__.co_varnames[: wanted.__code__.co_argcount + wanted.__code__.co_kwonlyargcount]
    given = {name: service for name, service in services.items() if name in names}

    async def ask() -> Any:
        found = module.handle(context, request, **given)
        return await found if asyncio.isfuture(found) else found

    return asyncio.run(ask())


def error_of(found: Any) -> int:
    """The one error code of an answer, wherever it is."""
    if getattr(found, "error_code", 0):
        return int(found.error_code)
    for field in ("topics", "partitions", "groups", "results"):
        inner = getattr(found, field, ())
        if inner:
            return error_of(inner[0])
    return 0


def code_of(name: str, code: int) -> int:
    module, request, version = REQUESTS[name]
    try:
        return error_of(answer(module, request, version, Unreachable(code)))
    except KafkaError as error:
        return error.code


@pytest.mark.spec("CGRP-04", "CGRP-05", "NGRP-09")
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_coordinator_that_has_moved_or_is_loading_is_answered_with_its_code(name: str, code: int) -> None:
    assert code_of(name, code) == code


@pytest.mark.spec("CGRP-04", "CGRP-05")
def test_heartbeats_go_on_while_the_coordinator_is_loading() -> None:
    request = HeartbeatRequest(group_id="g", member_id="m")
    loading = Unreachable(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert answer(heartbeat, request, 4, loading).error_code == ErrorCode.NONE
    with pytest.raises(KafkaError) as refused:
        answer(heartbeat, request, 4, Unreachable(ErrorCode.NOT_COORDINATOR))
    assert refused.value.code == ErrorCode.NOT_COORDINATOR


@pytest.mark.spec("CGRP-05", "CGRP-87")
def test_no_group_is_listed_while_a_partition_is_loading() -> None:
    group = SimpleNamespace(group_id="g", group_state="Empty", group_type="classic")
    loaded = SimpleNamespace(shard=SimpleNamespace(list_groups=lambda: iter([group])), is_loaded=True)
    loading = SimpleNamespace(is_loaded=False)
    found = answer(list_groups, ListGroupsRequest(), 5, SimpleNamespace(runners=lambda: [loaded, loading]))
    assert (found.error_code, list(found.groups)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    found = answer(list_groups, ListGroupsRequest(), 5, SimpleNamespace(runners=lambda: [loaded]))
    assert (found.error_code, list(found.groups)) == (0, [group])


@pytest.mark.spec("NGRP-01")
@pytest.mark.parametrize("is_feature", [True, False])
def test_consumer_groups_that_are_switched_off_answer_unsupported_version(is_feature: bool) -> None:
    changes: dict[str, Any] = {"settings": SimpleNamespace(group_protocols=("classic",))}
    if is_feature:
        changes = {"cluster": SimpleNamespace(image=SimpleNamespace(features={GROUP_VERSION: 0}))}
    module, request, version = REQUESTS["ConsumerGroupHeartbeat"]
    found = answer(module, request, version, Unreachable(0), **changes)
    assert (found.error_code, found.member_id, found.member_epoch) == (ErrorCode.UNSUPPORTED_VERSION, None, 0)
    module, request, version = REQUESTS["ConsumerGroupDescribe"]
    assert error_of(answer(module, request, version, Unreachable(0), **changes)) == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.spec("NGRP-102")
def test_streams_groups_are_never_served() -> None:
    beat = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    assert answer(streams_group_heartbeat, beat, 0, Unreachable(0)).error_code == ErrorCode.UNSUPPORTED_VERSION
    found = answer(streams_group_describe, StreamsGroupDescribeRequest(group_ids=["g", "h"]), 0, Unreachable(0))
    assert [(group.group_id, group.error_code) for group in found.groups] == [("g", 35), ("h", 35)]


@pytest.mark.spec("CGRP-11")
def test_before_version_1_the_session_timeout_is_the_rebalance_timeout() -> None:
    asked: list[Any] = []

    def ask(request: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request(SimpleNamespace(join_group=lambda _token, given, _client, _now_ms: asked.append(given)), future, 0)
        future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        return future

    groups = SimpleNamespace(runner=lambda _group_id: SimpleNamespace(ask=ask))
    request = JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="x")
    for version in (0, 1):
        answer(join_group, request, version, groups)
    assert [given.rebalance_timeout_ms for given in asked] == [10_000, -1]


@pytest.mark.spec("CGRP-98")
def test_requests_that_wait_are_answered_when_the_coordinator_moves() -> None:
    async def run() -> int:
        shell = ShardShell(codec=GroupRecordCodec(), compression="none", now_ms=lambda: 0)
        shard: Any = SimpleNamespace(take_effects=list, next_timeout_ms=lambda: None)
        runner: ShardRunner[Any] = ShardRunner(shard, SimpleNamespace(leader_epoch=1), shell)  # type: ignore[arg-type]
        waiting = runner.ask(lambda _shard, _future, _now_ms: None)
        await asyncio.sleep(0)
        assert not waiting.done()
        runner.close()
        with pytest.raises(KafkaError) as moved:
            await waiting
        return moved.value.code

    assert asyncio.run(run()) == ErrorCode.NOT_COORDINATOR


@pytest.mark.spec("CGRP-72")
def test_offsets_that_an_open_transaction_may_change_are_unstable_only_for_who_asks() -> None:
    h = ClassicShard()
    assert h.commit("stored", 5) == 0
    h.commit_in_transaction("t", 9, generation_id=-1)
    h.commit_in_transaction("u", 3, generation_id=-1, partition=1)
    groups = SimpleNamespace(runner=lambda _group_id: SimpleNamespace(shard=h.shard))
    asked = OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])

    def offsets(version: int, *, require_stable: bool) -> list[tuple[int, int]]:
        single = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[asked])
        request = OffsetFetchRequest(
            group_id="g", topics=[single], groups=[group], require_stable=require_stable and version >= 7
        )
        found = answer(offset_fetch, request, version, groups)
        topics = found.groups[0].topics if version >= 8 else found.topics
        return [(part.error_code, part.committed_offset) for part in topics[0].partitions]

    for version in (7, 9):
        assert offsets(version, require_stable=True) == [(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)] * 2
        assert offsets(version, require_stable=False) == [(0, 5), (0, -1)]


@pytest.mark.spec("CGRP-65")
def test_partitions_that_do_not_exist_fail_alone_and_the_others_are_stored() -> None:
    stored: list[Any] = []

    def ask(request: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def commit(token: Any, given: Any, _now_ms: int, *, api_version: int) -> None:
            stored.extend((t.name, [p.partition_index for p in t.partitions]) for t in given.topics)
            parts = [offset_commit.OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=0)]
            topics = [offset_commit.OffsetCommitResponse.OffsetCommitResponseTopic(name="t", partitions=parts)]
            token.set_result(offset_commit.OffsetCommitResponse(topics=topics))

        request(SimpleNamespace(commit_offsets=commit), future, 0)
        return future

    parts = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in (0, 1)
    ]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=parts) for name in ("t", "gone")]
    image = SimpleNamespace(topics=SimpleNamespace(by_name=lambda name: _TOPIC if name == "t" else None))
    groups = SimpleNamespace(runner=lambda _group_id: SimpleNamespace(ask=ask))
    request = OffsetCommitRequest(group_id="g", topics=topics)
    found = answer(offset_commit, request, 8, groups, cluster=SimpleNamespace(image=image))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stored == [("t", [0])]
    assert {t.name: [(p.partition_index, p.error_code) for p in t.partitions] for t in found.topics} == {
        "t": [(0, 0), (1, unknown)],
        "gone": [(0, unknown), (1, unknown)],
    }


@pytest.mark.spec("CGRP-91")
@pytest.mark.parametrize(("version", "is_asked", "wanted"), [(3, True, True), (5, False, False), (2, False, False)])
def test_the_operations_that_a_client_may_do_are_told_when_it_asks(version: int, is_asked: bool, wanted: bool) -> None:
    """Without an authorizer: READ, DELETE, DESCRIBE and the two of configurations."""
    h = ClassicShard()
    h.stable()
    groups = SimpleNamespace(runner=lambda _group_id: SimpleNamespace(shard=h.shard, call=lambda ask: ask(h.shard, 0)))
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=is_asked)
    (found,) = answer(describe_groups, request, version, groups).groups
    every = sum(1 << operation for operation in (3, 6, 8, 10, 11))
    assert found.authorized_operations == (every if wanted else -(2**31))


def test_many_partitions_of_a_deletion_are_resolved_in_slices_and_once_each() -> None:
    """Before, the time grew with the square of the number of partitions, on the event loop."""
    count = 20_000
    parts = [
        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index % 2 * index) for index in range(count)
    ]
    request = OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=parts)]
    )
    h = ClassicShard()
    assert h.commit("stored", topic="t") == 0
    asked: list[Any] = []

    def ask(make: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def delete(_token: Any, given: Any) -> None:
            asked.append(given)
            h.shard.delete_offsets("deleted", given)
            h.run()
            future.set_result(h.answers["deleted"])

        make(SimpleNamespace(delete_offsets=delete), future, 0)
        return future

    groups = SimpleNamespace(runner=lambda _group_id: SimpleNamespace(ask=ask))
    image = SimpleNamespace(topics=SimpleNamespace(by_name=lambda _name: _TOPIC))
    context = SimpleNamespace(api_version=0)

    async def run() -> tuple[Any, int]:
        slices = offset_delete.handle(context, request, cluster=SimpleNamespace(image=image), groups=groups)
        turns = 0
        while True:
            try:
                next(slices)
            except StopIteration as stop:
                return stop.value, turns
            turns += 1

    found, turns = asyncio.run(run())
    assert turns > count // 1024
    assert [[p.partition_index for p in topic.partitions] for topic in asked[0].topics] == [[0]]
    codes = {p.partition_index: p.error_code for p in found.topics[0].partitions}
    unknown = dict.fromkeys(range(1, count, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert codes == {0: 0} | unknown
    assert len(found.topics[0].partitions) == len(codes)


@pytest.mark.spec("LEPO-63")
def test_leader_epoch_of_an_offset_is_fetched_as_it_was_committed() -> None:
    h = ClassicShard()
    h.commit("known", 5, leader_epoch=4)
    h.commit("absent", 6, leader_epoch=-1, partition=1)
    groups = SimpleNamespace(runner=lambda _group_id: SimpleNamespace(shard=h.shard))
    asked = OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])
    single = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[asked])
    for version in (5, 7, 8, 9):
        request = OffsetFetchRequest(group_id="g", topics=[single], groups=[group])
        found = answer(offset_fetch, request, version, groups)
        topics = found.groups[0].topics if version >= 8 else found.topics
        assert [part.committed_leader_epoch for part in topics[0].partitions] == [4, -1]
