"""Plain OffsetCommit requests: the same fields, records and answers as those of decoded ones, or none at all."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlog._kraftlog import PlainOffsetCommit
from kraftlog.coordinator.offsets import CommittedOffset
from kraftlog.runtime.coordinator.record_codec import encode_records
from kraftlog.types import Uuid
from kraftlog.wire.frame import encode_request, encode_response
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

TOPICS = {"orders": Uuid(bytes(range(16))), "Grüße": Uuid(b"\xff" * 16), "without-id": Uuid.ZERO}
NOW_MS = 1_700_000_000_123


def _request(**fields: Any) -> OffsetCommitRequest:
    part = OffsetCommitRequest.OffsetCommitRequestPartition
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=name,
            topic_id=topic_id,
            partitions=[
                part(partition_index=0, committed_offset=0, committed_leader_epoch=-1, committed_metadata=None),
                part(partition_index=300 + number, committed_offset=2**40, committed_leader_epoch=7),
                part(partition_index=7, committed_offset=-1, committed_metadata="ü𐍈" * (number + 60)),
            ],
        )
        for number, (name, topic_id) in enumerate(TOPICS.items())
    ]
    return OffsetCommitRequest(**{"group_id": "gröup", "member_id": "m", "topics": topics} | fields)


def _parse(request: OffsetCommitRequest, version: int, partitions_max: int = 16) -> PlainOffsetCommit | None:
    return PlainOffsetCommit.parse(_frame(request, version), partitions_max=partitions_max)


def _frame(request: OffsetCommitRequest, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(8, version, 0x1234567, "client", request)))[4:]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_what_a_plain_request_says(version: int) -> None:
    request = _request(generation_id_or_member_epoch=5, group_instance_id="i")
    commit = _parse(request, version)
    assert commit is not None
    for name in ("group_id", "generation_id_or_member_epoch", "member_id", "group_instance_id"):
        assert getattr(commit, name) == getattr(request, name)
    assert commit.topics == [
        (topic.topic_id if version == 10 else topic.name, tuple(part.partition_index for part in topic.partitions))
        for topic in request.topics
    ]
    # The limit counts UTF-16 code units, of which the second letter takes two.
    assert commit.metadata_units_max == 3 * 62
    simple = _parse(OffsetCommitRequest(group_id="g", topics=request.topics[:1]), version)
    assert simple is not None
    assert (simple.member_id, simple.group_instance_id, simple.generation_id_or_member_epoch) == ("", None, -1)


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize("code", [0, 25, -1])
def test_the_answer_is_that_of_the_encoder(version: int, code: int) -> None:
    request = _request()
    commit = _parse(request, version)
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=code
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    assert commit is not None
    assert commit.answer(code) == b"".join(map(bytes, encode_response(8, version, 0x1234567, response)))


@pytest.mark.parametrize("version", [9, 10])
def test_records_and_positions_are_those_of_the_encoder(version: int) -> None:
    request = _request()
    commit = _parse(request, version)
    assert commit is not None
    records, positions = commit.records(list(TOPICS.items()), NOW_MS)
    offsets = {
        (topic.name, part.partition_index): CommittedOffset(
            offset=part.committed_offset,
            leader_epoch=part.committed_leader_epoch,
            metadata=part.committed_metadata or "",
            commit_timestamp_ms=NOW_MS,
            topic_id=topic.topic_id,
        )
        for topic in request.topics
        for part in topic.partitions
    }
    assert records == encode_records(offset.to_record("gröup", *place) for place, offset in offsets.items())
    assert positions == [
        (place, offset.offset, offset.leader_epoch, offset.metadata, offset.topic_id)
        for place, offset in offsets.items()
    ]
    with pytest.raises(ValueError, match="one name and id per topic"):
        commit.records([], NOW_MS)
    with pytest.raises(ValueError, match="16 bytes"):
        commit.records([("orders", Uuid(b"short"))] * 3, NOW_MS)


def test_other_requests_are_not_plain() -> None:
    request = _request()
    assert _parse(request, 7) is None, "not the flexible encoding"
    assert _parse(request, 9, partitions_max=8) is None, "too many partitions"
    first = request.topics[0]
    assert _parse(_request(topics=[first, first]), 9) is None, "a topic twice"
    twice = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[first.partitions[0]] * 2)
    assert _parse(_request(topics=[twice]), 9) is None, "a partition twice"
    frame = _frame(request, 9)
    for end in range(len(frame)):
        assert PlainOffsetCommit.parse(frame[:end], partitions_max=16) is None, f"cut at {end}"
    assert PlainOffsetCommit.parse(memoryview(frame + b"ignored"), partitions_max=16) is not None
    assert PlainOffsetCommit.parse(b"\0\1" + frame[2:], partitions_max=16) is None, "another API"
