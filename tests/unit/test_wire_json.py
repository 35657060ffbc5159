"""Messages in Kafka's JSON form: what it refuses. That it equals Kafka's own output, the golden rows show."""

from __future__ import annotations

import json

import pytest

from kraftlog.errors import LocalProtocolError, RemoteProtocolError
from kraftlog.types import Uuid
from kraftlog.wire.json import message_from_json, message_to_json
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.metadata_records import PartitionRecord
from kraftlog.wire.messages.quorum_state import QuorumStateData


def test_quorum_state_file_text_round_trips():
    text = {"leaderId": 1, "leaderEpoch": 7, "votedId": -1, "votedDirectoryId": str(Uuid.ZERO)}
    message = message_from_json(QuorumStateData, text, 1)
    assert (message.leader_id, message.leader_epoch) == (1, 7)
    assert json.loads(json.dumps(message_to_json(message, 1))) == text


def test_tagged_default_is_left_out_and_read_back():
    record = PartitionRecord(partition_id=1, replicas=(1,), isr=(1,))
    value = message_to_json(record, 2)
    assert "eligibleLeaderReplicas" not in value
    assert message_from_json(PartitionRecord, value, 2) == record


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "field 'topics' is missing"),
        ({"topics": 5}, "field 'topics' is a list, not 5"),
        ({"topics": [5]}, "MetadataRequestTopic is an object, not 5"),
        ({"topics": [{"name": 5}]}, "field 'name' is string, not 5"),
        ({"topics": [{"name": None}]}, "field 'name' is null"),
        ([], "MetadataRequest is an object"),
    ],
)
def test_json_that_is_not_the_message_is_refused(value, reason):
    with pytest.raises(RemoteProtocolError, match=reason):
        message_from_json(MetadataRequest, value, 1)


def test_text_that_is_no_uuid_is_refused():
    value = {"leaderId": 1, "leaderEpoch": 7, "votedId": -1, "votedDirectoryId": "no"}
    with pytest.raises(RemoteProtocolError, match="field 'votedDirectoryId'"):
        message_from_json(QuorumStateData, value, 1)


def test_value_that_the_version_lacks_is_our_fault():
    with pytest.raises(LocalProtocolError, match="allow_auto_topic_creation cannot be set in version 1"):
        message_to_json(MetadataRequest(allow_auto_topic_creation=False), 1)
    with pytest.raises(LocalProtocolError, match="has versions 0 to 13, not 20"):
        message_to_json(MetadataRequest(), 20)
