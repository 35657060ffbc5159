"""Requests and responses in steps: the same objects and bytes as at once, bounded per step."""

from __future__ import annotations

import gc

import pytest

from kraftlog._kraftlog import Discard
from kraftlog.errors import LocalProtocolError, ProtocolError
from kraftlog.types import Uuid
from kraftlog.wire.frame import (
    begin_request,
    begin_response,
    decode_request,
    decode_small_request,
    encode_request,
    encode_response,
    encode_small_response,
)
from kraftlog.wire.messages.fetch import FetchResponse
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from kraftlog.wire.messages.metadata import MetadataRequest, MetadataResponse

from .test_wire_frame import served_rows


def frame_of(request, version):
    return b"".join(map(bytes, encode_request(request.API_KEY, version, 7, "test", request)))[4:]


def in_steps(codec, elements=1):
    """The result, and how many steps it took."""
    steps = 0
    while True:
        steps += 1
        result = codec.step(elements)
        if result is not None:
            return result, steps


def test_every_message_is_the_same_in_steps_of_one_element():
    sliced = 0
    for api, row in served_rows():
        version, body = row["version"], bytes.fromhex(row["hex"])
        if row["kind"] == "request":
            request = api.request.decode(body, version)
            frame = frame_of(request, version)
            header, decoder = begin_request(frame)
            decoded, steps = in_steps(decoder)
            assert (header, decoded) == decode_request(frame)
        else:
            response = api.response.decode(body, version)
            encoded, steps = in_steps(begin_response(api.key, version, 78, response))
            at_once = encode_response(api.key, version, 78, response)
            assert b"".join(map(bytes, encoded)) == b"".join(map(bytes, at_once))
        sliced += steps > 1
    assert sliced > 100


def nested_request():
    partition = ListOffsetsRequest.ListOffsetsPartition
    topics = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=f"topic-{number}",
            partitions=[partition(partition_index=index, timestamp=-1) for index in range(number)],
        )
        for number in range(40)
    ]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


@pytest.mark.parametrize("elements", [1, 7, 100, 10_000])
def test_step_decodes_the_elements_it_was_granted(elements):
    frame = frame_of(nested_request(), 7)
    total = 40 + sum(range(40))
    decoded, steps = in_steps(begin_request(frame)[1], elements)
    assert decoded == decode_request(frame)[1]
    assert steps >= total // elements


def test_damaged_request_fails_in_steps_as_it_does_at_once():
    frame = frame_of(nested_request(), 7)
    for end in range(20, len(frame), 97):
        with pytest.raises(ProtocolError) as at_once:
            decode_request(frame[:end])
        _, decoder = begin_request(frame[:end])
        with pytest.raises(ProtocolError) as sliced:
            in_steps(decoder, 3)
        assert str(sliced.value) == str(at_once.value)
        assert decoder.abandon()


def test_count_that_the_frame_cannot_hold_is_refused_before_the_first_element():
    _, decoder = begin_request(frame_of(MetadataRequest(topics=[]), 1)[:-4] + b"\x7f\xff\xff\xff")
    with pytest.raises(ProtocolError, match="cannot be in the 0 bytes"):
        decoder.step(1)


@pytest.mark.parametrize(("count", "is_small"), [(512, True), (513, False)])
def test_small_request_is_told_by_its_elements(count, is_small):
    frame = frame_of(
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=str(index)) for index in range(count)]), 12
    )
    decoded = decode_small_request(frame, 512)
    assert (decoded is not None) is is_small
    if decoded is not None:
        assert decoded == decode_request(frame)


def test_request_that_copies_many_bytes_is_not_small():
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(300_000))]
    frame = frame_of(JoinGroupRequest(group_id="group", protocol_type="consumer", protocols=protocols), 5)
    assert decode_small_request(frame, 512) is None
    assert in_steps(begin_request(frame)[1])[0] == decode_request(frame)[1]


def metadata_response(topics, partitions=3):
    partition = MetadataResponse.MetadataResponsePartition(replica_nodes=(1, 2, 3), isr_nodes=[1, 2], leader_id=1)
    return MetadataResponse(
        topics=[
            MetadataResponse.MetadataResponseTopic(
                name=f"topic-{number}", topic_id=Uuid.ZERO, partitions=[partition] * partitions
            )
            for number in range(topics)
        ]
    )


def test_large_response_is_encoded_into_several_buffers_with_one_size():
    response = metadata_response(5_000)
    assert encode_small_response(3, 12, 9, response, 512) is None
    parts, steps = in_steps(begin_response(3, 12, 9, response), 64)
    assert b"".join(parts) == b"".join(encode_response(3, 12, 9, response))
    assert steps > 5_000 // 64
    assert all(len(part) < 128 * 1024 for part in parts)


def test_records_stay_the_objects_that_were_given():
    records = [memoryview(bytes([number]) * 10) for number in range(100)]
    data = [
        FetchResponse.PartitionData(partition_index=number, records=part, aborted_transactions=None)
        for number, part in enumerate(records)
    ]
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="topic", partitions=data)])
    parts, _ = in_steps(begin_response(1, 12, 9, response), 3)
    assert [part for part in parts if isinstance(part, memoryview)] == records
    assert b"".join(map(bytes, parts)) == b"".join(map(bytes, encode_response(1, 12, 9, response)))


def test_response_that_the_version_cannot_carry_fails_in_its_step():
    response = metadata_response(100)
    broken = MetadataResponse(topics=[*response.topics, "no topic"])
    encoder = begin_response(3, 12, 9, broken)
    with pytest.raises(LocalProtocolError, match="expected"):
        in_steps(encoder, 16)


def test_objects_are_freed_a_step_at_a_time_and_only_by_their_last_owner():
    frame = frame_of(nested_request(), 7)
    request = decode_request(frame)[1]
    kept = request.topics[39]
    remains = [request]
    del request
    discard = Discard(remains)
    assert remains == []
    steps = 1
    while not discard.step(8):
        steps += 1
    assert steps > sum(range(39)) // 8
    assert [partition.partition_index for partition in kept.partitions] == list(range(39))


def test_decoded_objects_cost_the_collector_nothing():
    request = decode_request(frame_of(nested_request(), 7))[1]
    assert not gc.is_tracked(request)
    assert not gc.is_tracked(request.topics)
    assert not gc.is_tracked(request.topics[39].partitions[0])
