"""Topics through a live node: created, described page by page, extended, deleted; names, ids and limits."""

from __future__ import annotations

import pytest

import kraftlog
from kraftlog.controller.topic_control import TopicControl
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from raw_client import RawClient


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kraftlog.Broker(tmp_path_factory.mktemp("data")) as one:
        yield one


@pytest.fixture
def client(broker):
    with RawClient(broker.bootstrap_servers) as one:
        yield one


def create(client, *topics, version=7, **settings):
    request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(**topic) for topic in topics], **settings)
    return client.call(request, version).topics


def metadata(client, *names, version=13, **settings):
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return client.call(MetadataRequest(topics=topics, **settings), version)


def make(client, name, partitions=1):
    (topic,) = create(client, {"name": name, "num_partitions": partitions, "replication_factor": 1})
    assert topic.error_code == ErrorCode.NONE, topic
    return topic.topic_id


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_every_version_creates(client, version):
    name = f"created-v{version}"
    (topic,) = create(client, {"name": name, "num_partitions": 2, "replication_factor": 1}, version=version)
    assert topic.error_code == ErrorCode.NONE
    answer = metadata(client, name, allow_auto_topic_creation=False)
    (here,) = [broker.node_id for broker in answer.brokers]
    assert [partition.leader_id for partition in answer.topics[0].partitions] == [here, here]
    if version >= 5:
        settings = {config.name: config.value for config in topic.configs}
        assert settings["retention.ms"] == "604800000"
        assert "internal.segment.bytes" not in settings


def test_create_topics_validate_only_creates_nothing(client):
    (topic,) = create(client, {"name": "only-tried", "num_partitions": 1, "replication_factor": 1}, validate_only=True)
    assert topic.error_code == ErrorCode.NONE
    (found,) = metadata(client, "only-tried", allow_auto_topic_creation=False).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_metadata_creates_a_topic_that_is_asked_for_and_answers_with_it(client):
    (found,) = metadata(client, "wanted").topics
    assert found.error_code == ErrorCode.NONE
    assert found.topic_id != Uuid.ZERO
    assert len(found.partitions) == 1


@pytest.mark.parametrize("version", [4, 9, 13])
def test_metadata_creates_nothing_when_it_may_not(client, version):
    found = metadata(client, "unwanted", version=version, allow_auto_topic_creation=False).topics
    assert [topic.error_code for topic in found] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_metadata_refuses_names_no_topic_can_have(client):
    codes = {topic.name: topic.error_code for topic in metadata(client, "a b", "..", "x" * 250).topics}
    assert set(codes.values()) == {ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_metadata_of_all_topics_is_null_and_before_version_1_an_empty_list(client):
    make(client, "listed")
    assert "listed" in {topic.name for topic in client.call(MetadataRequest(topics=None), 12).topics}
    assert "listed" in {topic.name for topic in client.call(MetadataRequest(topics=()), 0).topics}
    assert client.call(MetadataRequest(topics=()), 1).topics == ()


def test_metadata_by_topic_id(client):
    topic_id = make(client, "by-id")
    topics = [
        MetadataRequest.MetadataRequestTopic(topic_id=known_or_not, name=None)
        for known_or_not in (topic_id, Uuid(b"\x05" * 16))
    ]
    known, unknown = client.call(MetadataRequest(topics=topics), 12).topics
    assert (known.name, known.error_code) == ("by-id", ErrorCode.NONE)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


def test_describe_topic_partitions_goes_page_by_page(client):
    make(client, "page-a", 3)
    make(client, "page-b", 3)
    asked = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("page-b", "page-a")]
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        request = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=2, cursor=cursor)
        page = client.call(request)
        seen += [(topic.name, partition.partition_index) for topic in page.topics for partition in topic.partitions]
        following = page.next_cursor
        cursor = following and DescribeTopicPartitionsRequest.Cursor(
            topic_name=following.topic_name, partition_index=following.partition_index
        )
        pages += 1
    assert seen == [(name, index) for name in ("page-a", "page-b") for index in range(3)]
    assert pages == 3


@pytest.mark.parametrize(("topic", "partition"), [("page-a", -1), ("elsewhere", 0)])
def test_describe_topic_partitions_refuses_a_wrong_cursor(client, topic, partition):
    cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=topic, partition_index=partition)
    asked = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("page-b", "page-a")]
    answer = client.call(DescribeTopicPartitionsRequest(topics=asked, cursor=cursor))
    assert [(refused.name, refused.error_code, refused.partitions) for refused in answer.topics] == [
        (name, ErrorCode.INVALID_REQUEST, ()) for name in ("page-b", "page-a")
    ]


def test_describe_topic_partitions_says_what_is_unknown(client):
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="nowhere")])
    (topic,) = client.call(request).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_create_partitions_extends_and_refuses_to_shrink(client):
    make(client, "grown", 2)

    def ask(count):
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name="grown", count=count, assignments=None)
        (result,) = client.call(CreatePartitionsRequest(topics=[topic], timeout_ms=5000)).results
        return result.error_code

    assert ask(4) == ErrorCode.NONE
    assert len(metadata(client, "grown").topics[0].partitions) == 4
    assert ask(4) == ErrorCode.INVALID_PARTITIONS
    assert ask(1) == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics_every_version_deletes(client, version):
    name = f"deleted-v{version}"
    make(client, name)
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[name, "never-was"], timeout_ms=5000)
    else:
        states = [DeleteTopicsRequest.DeleteTopicState(name=topic_name) for topic_name in (name, "never-was")]
        request = DeleteTopicsRequest(topics=states, timeout_ms=5000)
    codes = {response.name: response.error_code for response in client.call(request, version).responses}
    assert codes == {name: ErrorCode.NONE, "never-was": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    (found,) = metadata(client, name, allow_auto_topic_creation=False).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_delete_topics_by_id(client):
    topic_id = make(client, "deleted-by-id")
    state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
    (result,) = client.call(DeleteTopicsRequest(topics=[state], timeout_ms=5000)).responses
    assert (result.name, result.error_code) == ("deleted-by-id", ErrorCode.NONE)


def test_embedded_topic_with_arguments_of_a_wrong_type_is_refused_at_once(broker):
    for arguments in (("wrong", "3"), (5, 3), ("wrong", True)):
        with pytest.raises(TypeError, match="must be of type"):
            broker.create_topic(*arguments)
    with pytest.raises(TypeError, match="must be of type"):
        broker.delete_topic(None)


def test_embedded_topic_whose_creation_fails_unexpectedly_is_refused_at_once(broker, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("in an operation")

    monkeypatch.setattr(TopicControl, "create_topics_in_steps", broken)
    with pytest.raises(KafkaError, match="ZeroDivisionError: in an operation") as caught:
        broker.create_topic("unlucky", 3, timeout_s=30)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_topics_whose_creation_fails_unexpectedly_are_refused_one_by_one(client, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("in an operation")

    with monkeypatch.context() as patch:
        patch.setattr(TopicControl, "create_topics_in_steps", broken)
        refused = create(client, {"name": "unlucky-a"}, {"name": "unlucky-b"})
    assert [(topic.name, topic.error_code) for topic in refused] == [
        ("unlucky-a", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("unlucky-b", ErrorCode.UNKNOWN_SERVER_ERROR),
    ]
    assert "ZeroDivisionError" in refused[0].error_message
    make(client, "lucky")  # on the same connection
