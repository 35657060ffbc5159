"""Which OffsetCommit requests are answered from their bytes, and what goes the long way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.api.handlers.offset_commit import PLAIN_BYTES_MAX, handle_frame
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.reply import Reply, TurnCalls
from kraftlog.types import Uuid
from kraftlog.wire.frame import decode_response, encode_request
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest

TOPIC_ID = Uuid(bytes(range(16)))
METADATA_UNITS_MAX = 8


class Runner:
    """A shard that keeps what it is asked, and answers when the test says so."""

    def __init__(self) -> None:
        self.shard = self
        self.asked: list[tuple[Any, ...]] = []
        self.reply = Reply(TurnCalls())

    @staticmethod
    def takes_metadata(units: int) -> bool:
        return units <= METADATA_UNITS_MAX

    def commit_encoded_offsets(self, *args: Any, partitions: Any, api_version: int) -> None:
        self.asked.append((*args, list(partitions), api_version))

    def post(self, request: Any) -> Reply:
        request(self, self.reply, 1_000)
        return self.reply


def _cluster() -> Any:
    image = SimpleNamespace(name="orders", topic_id=TOPIC_ID, partitions={0: None, 1: None})
    topics = SimpleNamespace(by_name={"orders": image}.get, by_id={TOPIC_ID: image}.get)
    return SimpleNamespace(image=SimpleNamespace(topics=topics))


def _groups(runner: Runner | None) -> Any:
    def find(group_id: str) -> Runner:
        assert group_id == "g"
        if runner is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return runner

    return SimpleNamespace(runner=find)


def _frame(version: int, *indexes: int, name: str = "orders", topic_id: Uuid = TOPIC_ID, metadata: str = "m") -> bytes:
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=5, committed_metadata=metadata
        )
        for index in indexes
    ]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)
    request = OffsetCommitRequest(group_id="g", topics=[topic] if indexes else [])
    return b"".join(map(bytes, encode_request(8, version, 77, "c", request)))[4:]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_a_plain_request_is_answered_when_its_shard_answers(version: int) -> None:
    async def run() -> None:
        runner = Runner()
        pending = handle_frame(version, _frame(version, 1, 0), cluster=_cluster(), groups=_groups(runner))
        assert pending is not None
        ((token, _, topics, now_ms, partitions, api_version),) = runner.asked
        assert (token, topics, now_ms, api_version) == (runner.reply, [("orders", TOPIC_ID)], 1_000, version)
        assert partitions == [(TOPIC_ID, 1), (TOPIC_ID, 0)]
        assert not pending.future.done()
        runner.reply.set_result(int(ErrorCode.ILLEGAL_GENERATION))
        assert _codes(version, pending) == [(1, ErrorCode.ILLEGAL_GENERATION), (0, ErrorCode.ILLEGAL_GENERATION)]

    asyncio.run(run())


def test_a_shard_that_moved_is_heard_of_in_each_partition() -> None:
    async def run() -> None:
        runner = Runner()
        pending = handle_frame(9, _frame(9, 0, 1), cluster=_cluster(), groups=_groups(runner))
        assert pending is not None
        runner.reply.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        assert _codes(9, pending) == [(0, ErrorCode.NOT_COORDINATOR), (1, ErrorCode.NOT_COORDINATOR)]

    asyncio.run(run())


def _codes(version: int, pending: Any) -> list[tuple[int, int]]:
    (frame,) = pending.finish(pending.future)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, response = decode_response(8, version, frame[4:])
    assert correlation_id == 77
    return [(part.partition_index, part.error_code) for topic in response.topics for part in topic.partitions]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(_frame(9), id="no topic"),
        pytest.param(_frame(9, 0, name="unknown"), id="unknown name"),
        pytest.param(_frame(10, 0, topic_id=Uuid(b"x" * 16)), id="unknown id"),
        pytest.param(_frame(9, 0, 2), id="unknown partition"),
        pytest.param(_frame(9, 0, metadata="m" * (METADATA_UNITS_MAX + 1)), id="metadata"),
        pytest.param(_frame(9, 0) + bytes(PLAIN_BYTES_MAX), id="large"),
        pytest.param(_frame(7, 0), id="old"),
    ],
)
def test_other_requests_go_the_long_way(frame: bytes) -> None:
    runner = Runner()
    version = int.from_bytes(frame[2:4], "big")
    assert handle_frame(version, frame, cluster=_cluster(), groups=_groups(runner)) is None
    assert runner.asked == []


def test_a_group_of_another_node_goes_the_long_way() -> None:
    assert handle_frame(9, _frame(9, 0), cluster=_cluster(), groups=_groups(None)) is None
