"""Answers and words: as an Apache Kafka 4.3.1 node was seen to give them to the same requests."""

from __future__ import annotations

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.features import metadata_version_from_string
from kraftlog.types import Uuid
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlog.wire.messages.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from metadata_fixture import Cluster, directory_of, one_broker

REFUSED_NAME = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


def test_create_topic_writes_topic_configs_partitions_in_that_order():
    cluster = one_broker()
    created = cluster.create("orders", 2, configs={"retention.ms": "5", "cleanup.policy": "compact"})
    assert (created.error_code, created.error_message, created.num_partitions, created.replication_factor) == (
        0,
        None,
        2,
        1,
    )
    topic, retention, policy, first, second = cluster.records
    assert topic == TopicRecord(name="orders", topic_id=created.topic_id)
    assert retention == ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5")
    assert policy.value == "compact"
    assert first == PartitionRecord(
        partition_id=0,
        topic_id=created.topic_id,
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory_of(1),),
    )
    assert second.partition_id == 1
    assert cluster.versions == [0, 0, 0, 2, 2]


def test_record_versions_follow_metadata_version():
    for release, version in (("3.3", 0), ("3.7-IV2", 1), ("3.9", 1), ("4.0-IV1", 2), ("4.3", 2)):
        cluster = one_broker(version=metadata_version_from_string(release))
        cluster.create("t")
        assert cluster.versions == [0, version]
        assert bool(cluster.records[1].directories) == (version > 0)


def test_effective_configs_name_their_source():
    cluster = one_broker(static={"log.retention.hours": "2", "log.segment.bytes": "2097152"})
    created = cluster.create("t", configs={"cleanup.policy": "compact"})
    configs = {config.name: (config.value, config.config_source) for config in created.configs}
    assert len(configs) == 33
    assert configs["cleanup.policy"] == ("compact", 1)
    assert configs["min.insync.replicas"] == ("1", 3)
    assert configs["retention.ms"] == ("7200000", 4)
    assert configs["segment.bytes"] == ("2097152", 4)
    assert configs["max.message.bytes"] == ("1048588", 5)


def test_defaults_come_from_the_nodes_configuration():
    """CPRT-93."""
    cluster = one_broker(static={"num.partitions": "7"})
    created = cluster.create("t", -1, -1)
    assert (created.num_partitions, created.replication_factor) == (7, 1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        ("b d", f"Topic name is invalid: 'b d' {REFUSED_NAME}"),
        ("x\n", f"Topic name is invalid: 'x\n' {REFUSED_NAME}"),
        ("é", f"Topic name is invalid: 'é' {REFUSED_NAME}"),
        ("x" * 250, f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("or_ders", "Topic 'or_ders' collides with existing topic: or.ders"),
    ],
)
def test_create_bad_name_is_refused(name, message):
    cluster = one_broker()
    cluster.create("or.ders")
    result = cluster.create(name)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    assert not cluster.records
    assert cluster.create("x" * 249).error_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ({"partitions": 0}, 37, "Number of partitions was set to an invalid non-positive value."),
        ({"partitions": -2}, 37, "Number of partitions was set to an invalid non-positive value."),
        ({"factor": 0}, 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        ({"factor": -2}, 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            {"factor": 3},
            38,
            (
                "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because"  # noqa: E501
                " only 1 broker(s) are registered or some brokers have all their log directories cordoned."
            ),
        ),
        ({"partitions": 20000}, 44, "Excessively large number of partitions per request."),
        ({"configs": {"foo": "1"}}, 40, "Unknown topic config name: foo"),
        ({"configs": {"retention.ms": None}}, 40, "Null value not supported for topic configs: retention.ms"),
        (
            {"configs": {"retention.ms": "abc"}},
            40,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"assignments": [(0, [9])]},
            39,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        ({"assignments": [(0, [1, 1])]}, 39, "The manual partition assignment includes the broker 1 more than once."),
        ({"assignments": [(0, [])]}, 39, "The manual partition assignment includes an empty replica list."),
        ({"assignments": [(1, [1])]}, 39, "partitions should be a consecutive 0-based integer sequence"),
        ({"assignments": [(0, [1]), (2, [1])]}, 39, "partitions should be a consecutive 0-based integer sequence"),
        (
            {"assignments": [(0, [1]), (0, [1])]},
            39,
            "Found multiple manual partition assignments for partition 0",
        ),
    ],
)
def test_create_is_refused_with_kafkas_code_and_words(arguments, code, message):
    """CPRT-93."""
    cluster = one_broker()
    result = cluster.create("t", **arguments)
    assert (result.error_code, result.error_message) == (code, message)
    assert (result.num_partitions, result.replication_factor, result.topic_id) == (-1, -1, Uuid.ZERO)
    assert not cluster.records


def test_manual_assignment_with_a_partition_count_is_refused():
    cluster = one_broker()
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    for count, factor, word in ((1, -1, "numPartitions"), (-1, 1, "replication factor")):
        topic = CreateTopicsRequest.CreatableTopic(
            name="t", num_partitions=count, replication_factor=factor, assignments=[assignment]
        )
        result = cluster.run(cluster.core.create_topics(CreateTopicsRequest(topics=[topic]))).topics[0]
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert result.error_message == f"A manual partition assignment was specified, but {word} was not set to -1."


def test_create_existing_duplicate_and_reserved_names_are_refused():
    cluster = one_broker()
    cluster.create("a")
    assert cluster.create("a").error_message == "Topic 'a' already exists."
    assert cluster.create("__cluster_metadata").error_code == ErrorCode.INVALID_REQUEST
    twice = CreateTopicsRequest.CreatableTopic(name="d", num_partitions=1, replication_factor=1)
    response = cluster.run(cluster.core.create_topics(CreateTopicsRequest(topics=[twice, twice])))
    assert [(topic.error_code, topic.error_message) for topic in response.topics] == [(42, "Duplicate topic name.")]


def test_one_bad_topic_does_not_stop_the_others_and_validate_only_writes_nothing():
    cluster = one_broker()
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("g 2", "g1")
    ]
    response = cluster.run(cluster.core.create_topics(CreateTopicsRequest(topics=topics)))
    assert [topic.error_code for topic in response.topics] == [17, 0]
    assert cluster.create("v", validate_only=True).error_code == 0
    assert cluster.image.topics.by_name("v") is None
    assert cluster.image.topics.by_name("g1") is not None


def test_fenced_brokers_are_in_the_replicas_but_not_in_sync():
    cluster = one_broker()
    cluster.register(2)
    cluster.create("t", 4, 2)
    for partition in cluster.image.topics.by_name("t").partitions.values():
        assert partition.replicas == (1, 2)
        assert (partition.isr, partition.leader) == ((1,), 1)
        assert partition.directories == (directory_of(1), directory_of(2))
    result = cluster.create("u", assignments=[(0, [2])])
    assert result.error_message == (
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown."
    )
    cluster.heartbeat(1, want_fence=True)
    assert cluster.create("w").error_message == (
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have all their log"
        " directories cordoned."
    )


def test_replicas_spread_over_racks_and_leaders_over_brokers():
    cluster = Cluster()
    for broker_id in range(1, 7):
        cluster.add_broker(broker_id, rack="ab"[broker_id % 2])
    cluster.create("t", 60, 2)
    partitions = cluster.image.topics.by_name("t").partitions.values()
    racks = [
        {cluster.image.cluster.brokers[replica].rack for replica in partition.replicas} for partition in partitions
    ]
    assert racks == [{"a", "b"}] * 60
    leaders = [partition.leader for partition in partitions]
    assert {leaders.count(broker_id) for broker_id in range(1, 7)} == {10}


def test_delete_by_name_and_id_removes_topic_and_settings():
    cluster = one_broker()
    by_id = cluster.create("a", configs={"retention.ms": "5"})
    cluster.create("b")
    states = [
        DeleteTopicsRequest.DeleteTopicState(topic_id=by_id.topic_id),
        DeleteTopicsRequest.DeleteTopicState(name="b"),
    ]
    response = cluster.run(cluster.core.delete_topics(DeleteTopicsRequest(topics=states)))
    assert [(topic_response.name, topic_response.error_code) for topic_response in response.responses] == [
        ("a", 0),
        ("b", 0),
    ]
    assert [type(record) for record in cluster.records] == [RemoveTopicRecord] * 2
    assert len(cluster.image.topics) == 0
    assert cluster.image.configs.get(2, "a") == {}


def test_delete_refusals_have_kafkas_codes_and_words():
    cluster = one_broker()
    topic_id = cluster.create("a").topic_id
    other = Uuid(b"q" * 16)
    state = DeleteTopicsRequest.DeleteTopicState
    for states, expected in (
        ([state(name="nope")], [(3, "This server does not host this topic-partition.")]),
        ([state(topic_id=other)], [(100, "This server does not host this topic ID.")]),
        ([state()], [(42, "Neither topic name nor id were specified.")]),
        ([state(name="a", topic_id=other)], [(42, "You may not specify both topic name and topic id.")]),
        ([state(name="a"), state(name="a")], [(42, "Duplicate topic name.")]),
        ([state(topic_id=other), state(topic_id=other)], [(42, "Duplicate topic id.")]),
        (
            [state(topic_id=topic_id), state(name="a")],
            [(42, "The provided topic name maps to an ID that was already supplied.")],
        ),
    ):
        response = cluster.run(cluster.core.delete_topics(DeleteTopicsRequest(topics=states)))
        assert [
            (topic_response.error_code, topic_response.error_message) for topic_response in response.responses
        ] == expected
    response = cluster.run(cluster.core.delete_topics(DeleteTopicsRequest(topic_names=["a", "b"])))
    assert {topic_response.name: topic_response.error_code for topic_response in response.responses} == {"a": 0, "b": 3}


def grow(cluster, name, count, assignments=None, **options):
    topic = CreatePartitionsRequest.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=assignment) for assignment in assignments],
    )
    request = CreatePartitionsRequest(topics=[topic], **options)
    result = cluster.run(cluster.core.create_partitions(request)).results[0]
    return result.error_code, result.error_message


def test_create_partitions_adds_records_behind_the_existing_ones():
    cluster = one_broker()
    cluster.create("a", 2)
    assert grow(cluster, "a", 4) == (0, None)
    assert [record.partition_id for record in cluster.records] == [2, 3]
    assert grow(cluster, "a", 5, [[1]]) == (0, None)
    assert grow(cluster, "a", 9, validate_only=True) == (0, None)
    assert len(cluster.image.topics.by_name("a").partitions) == 5


def test_create_partitions_refusals_have_kafkas_codes_and_words():
    """CPRT-94."""
    cluster = one_broker()
    cluster.create("a", 4)
    assert grow(cluster, "a", 4) == (37, "Topic already has 4 partition(s).")
    assert grow(cluster, "a", 1) == (37, "The topic a currently has 4 partition(s); 1 would not be an increase.")
    assert grow(cluster, "nope", 4) == (3, None)
    assert grow(cluster, "a", 6, [[1]]) == (
        39,
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    )
    assert grow(cluster, "a", 5, [[7]]) == (
        39,
        "The manual partition assignment includes broker 7, but no such broker is registered.",
    )
    assert grow(cluster, "a", 20000)[0] == ErrorCode.POLICY_VIOLATION
    twice = CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=9, assignments=None)
    response = cluster.run(cluster.core.create_partitions(CreatePartitionsRequest(topics=[twice, twice])))
    assert [(result.error_code, result.error_message) for result in response.results] == [(42, "Duplicate topic name.")]
