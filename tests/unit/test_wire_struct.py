"""Message classes behave as the frozen, slotted, keyword-only dataclasses they are declared to be."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from kraftlog._kraftlog import decode_message
from kraftlog.errors import ErrorCode, KafkaError, LocalProtocolError, RemoteProtocolError
from kraftlog.types import Uuid
from kraftlog.wire import records
from kraftlog.wire.messages.control_records import EndTxnMarker, LeaderChangeMessage
from kraftlog.wire.messages.create_partitions import CreatePartitionsResponse
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.group_coordinator_records import ConsumerGroupMemberMetadataValue
from kraftlog.wire.messages.headers import RequestHeader
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.metadata_records import TopicRecord
from wire_facts import MESSAGES, generator, message_classes


def test_generated_files_are_what_the_generator_makes():
    files = generator().generated()
    differing = [str(path) for path, text in files.items() if not path.exists() or path.read_text() != text]
    stale = [str(path) for path in MESSAGES.glob("*.py") if path not in files]
    assert not differing + stale, f"run .ci/generate_wire.py: {differing + stale}"


def test_every_version_of_every_message_encodes_its_defaults():
    for cls in message_classes().values():
        for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
            message = cls()
            assert cls.decode(message.encode(version), version) == message


def test_unset_fields_have_kafkas_defaults():
    request = FetchRequest()
    assert (request.replica_id, request.session_epoch, request.max_bytes) == (-1, -1, 0x7FFFFFFF)
    assert request.replica_state == FetchRequest.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert FetchResponse.PartitionData().diverging_epoch == FetchResponse.EpochEndOffset(epoch=-1, end_offset=-1)
    assert MetadataRequest().topics == ()


def test_messages_are_frozen_and_keyword_only():
    request = FetchRequest(min_bytes=1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="min_bytes"):
        request.min_bytes = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="min_bytes"):
        del request.min_bytes
    with pytest.raises(dataclasses.FrozenInstanceError, match="other"):
        request.other = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="keyword-only"):
        FetchRequest(1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="FetchRequest has no field 'min_byte'"):
        FetchRequest(min_byte=1)  # type: ignore[call-arg]
    assert request.min_bytes == 1
    assert not hasattr(request, "__dict__")


def test_dataclass_functions_work():
    request = FetchRequest(min_bytes=1, topics=(FetchRequest.FetchTopic(topic="t"),))
    assert dataclasses.is_dataclass(FetchRequest)
    assert dataclasses.is_dataclass(request)
    changed = dataclasses.replace(request, min_bytes=2)
    assert (changed.min_bytes, changed.topics) == (2, request.topics)
    names = [field.name for field in dataclasses.fields(FetchRequest.ReplicaState)]
    assert names == ["replica_id", "replica_epoch", "unknown_tagged_fields"]
    assert dataclasses.asdict(request)["topics"][0]["topic"] == "t"


def test_messages_compare_hash_copy_and_print():
    request = FetchRequest(min_bytes=1, topics=(FetchRequest.FetchTopic(topic="t"),))
    same = FetchRequest(min_bytes=1, topics=(FetchRequest.FetchTopic(topic="t"),))
    assert request == same
    assert hash(request) == hash(same)
    assert request != FetchRequest(min_bytes=2)
    assert request != 1
    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request
    assert repr(request) == "FetchRequest(min_bytes=1, topics=(FetchRequest.FetchTopic(topic='t'),))"
    assert repr(FetchRequest()) == "FetchRequest()"


def test_value_that_the_version_lacks_is_refused_unless_ignorable():
    with pytest.raises(LocalProtocolError, match="MetadataRequest v0 allow_auto_topic_creation: the version has no"):
        MetadataRequest(allow_auto_topic_creation=False).encode(0)
    assert FetchRequest(rack_id="r").encode(4) == FetchRequest().encode(4)


@pytest.mark.parametrize(
    ("message", "version", "reason"),
    [
        (RequestHeader(request_api_key=1 << 15), 1, "request_api_key"),
        (RequestHeader(request_api_key="1"), 1, "request_api_key"),  # type: ignore[arg-type]
        (RequestHeader(client_id="x" * 40000), 1, "client_id: a string of 40000 bytes is too long"),
        (RequestHeader(client_id="\ud800"), 1, "client_id"),
        (TopicRecord(name=None), 0, "name: null where the version allows none"),  # type: ignore[arg-type]
        (TopicRecord(topic_id=b"short"), 0, "topic_id: a uuid has 16 bytes, not 5"),  # type: ignore[arg-type]
        (FetchRequest(topics=(TopicRecord(),)), 12, "FetchRequest.FetchTopic expected, TopicRecord given"),  # type: ignore[arg-type]
        (FetchRequest(topics=5), 12, "topics"),  # type: ignore[arg-type]
        (FetchRequest(), 19, "has versions 0 to 18, not 19"),
        (FetchRequest(), -1, "has versions 0 to 18, not -1"),
    ],
)
def test_what_cannot_be_encoded_is_our_fault_and_says_where(message, version, reason):
    with pytest.raises(LocalProtocolError, match=reason):
        message.encode(version)


def test_error_message_that_quotes_too_long_a_name_is_cut():
    text = "é" * 20_000
    sent = CreatePartitionsResponse(
        results=[CreatePartitionsResponse.CreatePartitionsTopicResult(name="t", error_message=text)]
    )
    for version in range(4):
        (result,) = CreatePartitionsResponse.decode(sent.encode(version), version).results
        assert result.error_message == text[:16_383], "the 32 767th byte would be half a character"


def test_fields_take_any_sequence_and_any_buffer():
    topics = [FetchRequest.ForgottenTopic(topic="t", partitions=range(3))]
    data = FetchRequest(forgotten_topics_data=iter(topics)).encode(12)  # type: ignore[arg-type]
    decoded = FetchRequest.decode(memoryview(bytearray(data)), 12)
    assert decoded.forgotten_topics_data == (FetchRequest.ForgottenTopic(topic="t", partitions=(0, 1, 2)),)


def test_decode_of_a_version_that_does_not_exist_is_our_fault():
    with pytest.raises(LocalProtocolError, match="has versions 0 to 18, not 40"):
        FetchRequest.decode(b"", 40)


def test_decode_error_names_message_version_field_and_position():
    data = FetchRequest(topics=(FetchRequest.FetchTopic(topic="some"),)).encode(12)
    with pytest.raises(RemoteProtocolError, match=r"FetchRequest v12 topics.topic: 4 bytes wanted at position \d+, 2 "):
        FetchRequest.decode(data[: data.index(b"some") + 2], 12)


def test_uuids_of_a_message_are_uuids():
    topic_id = Uuid(bytes(range(16)))
    decoded = TopicRecord.decode(TopicRecord(name="t", topic_id=topic_id).encode(0), 0)
    assert type(decoded.topic_id) is Uuid
    assert decoded.topic_id == topic_id


def test_null_of_a_tagged_struct_is_written_as_kafka_does():
    """Not one of the golden rows has it; these bytes are what Kafka 4.3.1's class gave."""
    message = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert message.encode(0).hex() == "010101010101ffffffff0101000100"
    assert ConsumerGroupMemberMetadataValue.decode(message.encode(0), 0) == message
    assert ConsumerGroupMemberMetadataValue().encode(0).hex() == "010101010101ffffffff0100"


# --- bounds that Kafka does not have ---


def tagged(count, size):
    header = b"\0\0" * 2 + b"\0\0\0\1" + b"\xff\xff"
    number = bytes([count & 127 | 128, count >> 7]) if count > 127 else bytes([count])
    return header + number + b"".join(bytes([100, *uvarint(size)]) + bytes(size) for _ in range(count))


def uvarint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return out + bytes([value])


def test_unknown_tagged_fields_are_bounded_in_number_and_bytes():
    assert len(decode_message(RequestHeader, tagged(128, 1), 2).unknown_tagged_fields) == 128
    with pytest.raises(RemoteProtocolError, match="more than 128 unknown tagged fields"):
        decode_message(RequestHeader, tagged(129, 0), 2)
    assert decode_message(RequestHeader, tagged(2, 32768), 2).unknown_tagged_fields[1][1] == bytes(32768)
    with pytest.raises(RemoteProtocolError, match="more than 65536 bytes in unknown tagged fields"):
        decode_message(RequestHeader, tagged(3, 32768), 2)


def test_array_elements_are_bounded_in_number():
    body = b"\0\x40\0\0" + bytes(0x400000 * 2)
    with pytest.raises(RemoteProtocolError, match="topics: more array elements than a message may have"):
        MetadataRequest.decode(body, 0)
    with pytest.raises(RemoteProtocolError, match="elements cannot be in"):
        MetadataRequest.decode(b"\x7f\xff\xff\xff" + bytes(100), 0)


# --- errors and records ---


def test_error_codes_have_kafkas_names_and_retriable_flags():
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "of t-0")
    assert (error.code, error.name, error.retriable) == (6, "NOT_LEADER_OR_FOLLOWER", True)
    assert str(error) == "NOT_LEADER_OR_FOLLOWER: of t-0"
    assert str(KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)) == "INVALID_TOPIC_EXCEPTION"
    assert not KafkaError(17).retriable
    assert KafkaError(12345).name == "UNKNOWN_SERVER_ERROR"


def test_error_table_is_the_facts():
    errors = generator().load("protocol-facts.json.gz")["errors"]
    for error in errors:
        assert getattr(ErrorCode, error["name"]) == error["code"]
        assert ErrorCode.name_of(error["code"]) == error["name"]
        assert ErrorCode.is_retriable(error["code"]) == error["retriable"]


def test_control_records_round_trip():
    message = LeaderChangeMessage(leader_id=3, voters=(LeaderChangeMessage.Voter(voter_id=3),))
    key, value = records.encode_control_record(message)
    assert key == b"\0\0\0\2"
    assert records.decode_control_record(key, value) == (2, message)
    marker = EndTxnMarker(coordinator_epoch=7)
    key, value = records.encode_control_record(marker, kind=1)
    assert (key, value) == (b"\0\0\0\1", b"\0\0\0\0\0\7")
    assert records.decode_control_record(key, value) == (1, marker)
    assert records.decode_control_record(key, b"\0\5\0\0\0\7and more") == (1, marker)
    assert records.decode_control_record(b"\0\0\0\x63", b"") == (99, None)
    with pytest.raises(LocalProtocolError):
        records.encode_control_record(marker)


@pytest.mark.parametrize("value", [b"", b"\1", b"\2\2\0", b"\1\x7f\0", b"\1\2\5", b"\1\2\0\5abc", b"\xff" * 9])
def test_broken_metadata_record_is_refused(value):
    with pytest.raises(RemoteProtocolError):
        records.decode_metadata_record(value)
