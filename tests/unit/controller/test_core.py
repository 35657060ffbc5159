from __future__ import annotations

import pytest

from kraftlog.controller import MetadataDelta, MetadataImage
from kraftlog.errors import CorruptRecordError, ErrorCode, KafkaError
from kraftlog.features import metadata_version_from_string
from kraftlog.types import Uuid
from kraftlog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftlog.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest
from metadata_fixture import Cluster, one_broker

TOPIC_ID = Uuid(b"t" * 16)


def test_activation_of_an_empty_log_writes_what_kafka_writes():
    cluster = Cluster()
    first, *features, config, last = cluster.records
    assert first == BeginTransactionRecord(name="Bootstrap records")
    assert [(feature.name, feature.feature_level) for feature in features] == [
        ("metadata.version", 30),
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("share.version", 1),
        ("streams.version", 1),
        ("transaction.version", 2),
    ]
    assert config == ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1")
    assert last == EndTransactionRecord()
    assert not cluster.core.activate(cluster.bootstrap.records, 0).records


def test_activation_before_metadata_transactions_and_eligible_leader_replicas():
    cluster = Cluster(version=metadata_version_from_string("3.5"))
    assert cluster.records == [FeatureLevelRecord(name="metadata.version", feature_level=11)]


def test_activation_aborts_a_bootstrap_that_never_ended():
    cluster = Cluster()
    image = MetadataImage()
    image.replay(BeginTransactionRecord(name="Bootstrap records"))
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=30))
    core = type(cluster.core)(cluster_config(), image, rng=None)
    records = [record for record, _ in core.activate(cluster.bootstrap.records, 0).records]
    assert isinstance(records[0], AbortTransactionRecord)
    assert isinstance(records[1], BeginTransactionRecord)
    for record in records:
        image.replay(record)
    assert image.features["metadata.version"] == 30


def cluster_config():
    from kraftlog.controller import ControllerConfig

    return ControllerConfig(cluster_id="c")


def test_static_minimum_of_in_sync_replicas_is_written_into_the_bootstrap():
    cluster = Cluster(static={"min.insync.replicas": "2"})
    assert cluster.image.configs.get(4, "") == {"min.insync.replicas": "2"}


@pytest.mark.spec("TXNC-125")
def test_producer_ids_come_in_blocks_of_1000():
    """A broker without registration hears STALE_BROKER_EPOCH, too, as in Kafka's ClusterControlManager."""
    cluster = one_broker()
    epoch = cluster.image.cluster.brokers[1].epoch
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    for start in (0, 1000, 2000):
        answer = cluster.run(cluster.core.allocate_producer_ids(request))
        assert (answer.producer_id_start, answer.producer_id_len) == (start, 1000)
        assert cluster.records == [ProducerIdsRecord(broker_id=1, broker_epoch=epoch, next_producer_id=start + 1000)]
    for stale in (AllocateProducerIdsRequest(broker_id=1, broker_epoch=0), AllocateProducerIdsRequest(broker_id=9)):
        with pytest.raises(KafkaError) as caught:
            cluster.core.allocate_producer_ids(stale)
        assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_no_op_changes_nothing():
    cluster = one_broker()
    cluster.run(cluster.core.no_op())
    assert cluster.records == [NoOpRecord()]


def update(cluster, *updates, **options):
    request = UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        **options,
    )
    answer = cluster.run(cluster.core.update_features(request))
    return answer.error_code, answer.error_message


FAILED = "The update failed for all features since the following feature had an error: "


@pytest.mark.spec("KVER-06", "KVER-07", "KVER-13")
@pytest.mark.parametrize(
    ("updates", "message"),
    [
        (
            [("foo", 1, 1)],
            "Invalid update version 1 for feature foo. Local controller 1 does not support this feature.",
        ),
        (
            [("group.version", 1, 1), ("group.version", 9, 1)],
            "Invalid update version 9 for feature group.version. Local controller 1 only supports versions 0-1",
        ),
        (
            [("group.version", 0, 1)],
            (
                "Invalid update version 0 for feature group.version. Can't downgrade the version of this feature without"  # noqa: E501
                " setting the upgrade type to either safe or unsafe downgrade."
            ),
        ),
        (
            [("metadata.version", 29, 2)],
            (
                "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the requested downgrade because"  # noqa: E501
                " it might delete metadata information."
            ),
        ),
        (
            [("metadata.version", 29, 3)],
            (
                "Unsupported metadata.version downgrade from 30 to 29. Unsafe metadata downgrade is not supported in this"  # noqa: E501
                " version."
            ),
        ),
        (
            [("kraft.version", 0, 2)],
            "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature.",
        ),
        (
            [("group.version", -1, 1)],
            "Invalid update version -1 for feature group.version. A feature version cannot be less than 0.",
        ),
        (
            [("group.version", 1, 7)],
            (
                "Invalid update version 1 for feature group.version. The controller does not support the given upgrade"
                " type."
            ),
        ),
    ],
)
def test_update_features_is_refused_in_kafkas_words(updates, message):
    cluster = one_broker()
    assert update(cluster, *updates) == (ErrorCode.INVALID_UPDATE_VERSION, FAILED + message)
    assert not cluster.records


def test_update_features_writes_the_new_levels():
    cluster = one_broker(version=metadata_version_from_string("3.9"))
    assert update(cluster, ("metadata.version", 30, 1), ("eligible.leader.replicas.version", 1, 1)) == (0, None)
    # CPRT-71: the settings that eligible leader replicas need come first, in the same batch.
    assert [type(record) for record in cluster.records] == [ConfigRecord, FeatureLevelRecord, FeatureLevelRecord]
    assert cluster.image.metadata_version.name == "4.3-IV0"
    assert update(cluster, ("kraft.version", 1, 1), ("group.version", 1, 1), validate_only=True) == (0, None)
    assert "group.version" not in cluster.image.features
    assert update(cluster, ("eligible.leader.replicas.version", 0, 2)) == (0, None)
    assert "eligible.leader.replicas.version" not in cluster.image.features


@pytest.mark.spec("KVER-05", "KVER-08", "KVER-19")
def test_kraft_version_is_raised_by_the_raft_layer_last_and_a_no_op_is_waited_for():
    asked = []
    cluster = one_broker()
    features = cluster.core._features
    features._kraft_version = lambda: 0
    features._raise_kraft_version = lambda level, is_dry_run: asked.append((level, is_dry_run))
    both = ("kraft.version", 1, 1), ("group.version", 0, 2)
    assert update(cluster, *both, validate_only=True) == (0, None)
    assert asked == [(1, True)]
    assert not cluster.records
    assert update(cluster, *both) == (0, None)
    assert asked[1:] == [(1, False)]
    assert [type(record) for record in cluster.records] == [FeatureLevelRecord, NoOpRecord]
    # What the others refuse never reaches it, whatever the order.
    assert update(cluster, ("kraft.version", 1, 1), ("group.version", 9, 1))[0] == ErrorCode.INVALID_UPDATE_VERSION
    assert len(asked) == 2

    def refuse(level, is_dry_run):
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "Voter 2 is not known to support kraft.version 1")

    features._raise_kraft_version = refuse
    assert update(cluster, ("kraft.version", 1, 1)) == (
        ErrorCode.INVALID_UPDATE_VERSION,
        FAILED + "Voter 2 is not known to support kraft.version 1",
    )
    assert not cluster.records
    features._raise_kraft_version = None
    assert "cannot be changed here" in update(cluster, ("kraft.version", 1, 1))[1]


def test_dependencies_of_features_are_checked():
    cluster = one_broker(version=metadata_version_from_string("3.9"))
    code, message = update(cluster, ("eligible.leader.replicas.version", 1, 1))
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert "depends on metadata.version level 23" in message


# The image


def topic_records():
    return [
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0
        ),
    ]


def test_transaction_takes_effect_at_its_end_and_not_at_all_when_aborted():
    image = MetadataImage()
    for end, is_visible in ((AbortTransactionRecord(), False), (EndTransactionRecord(), True)):
        image.replay(BeginTransactionRecord())
        delta = MetadataDelta()
        for record in topic_records():
            image.replay(record, delta)
        assert image.is_in_transaction
        assert delta.is_empty
        image.replay(end, delta)
        assert not image.is_in_transaction
        assert (image.topics.by_name("t") is not None) == is_visible
        assert bool(delta.created_topics) == is_visible


@pytest.mark.parametrize(
    "records",
    [
        [EndTransactionRecord()],
        [AbortTransactionRecord()],
        [BeginTransactionRecord(), BeginTransactionRecord()],
        [RemoveTopicRecord(topic_id=TOPIC_ID)],
        [topic_records()[1]],
        [topic_records()[0], PartitionChangeRecord(partition_id=3, topic_id=TOPIC_ID)],
    ],
)
def test_records_that_cannot_follow_are_refused(records):
    image = MetadataImage()
    *before, last = records
    for record in before:
        image.replay(record)
    with pytest.raises(CorruptRecordError):
        image.replay(last)


def test_delta_tells_what_changed_and_forgets_what_came_and_went():
    image = MetadataImage()
    delta = MetadataDelta()
    for record in topic_records():
        image.replay(record, delta)
    assert list(delta.created_topics) == [TOPIC_ID]
    assert list(delta.changed_partitions) == [(TOPIC_ID, 0)]
    image.replay(RemoveTopicRecord(topic_id=TOPIC_ID), delta)
    assert delta.is_empty
    for record in topic_records():
        image.replay(record)
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1), delta)
    assert delta.changed_partitions[TOPIC_ID, 0].leader_epoch == 1
    image.replay(RemoveTopicRecord(topic_id=TOPIC_ID), delta)
    assert list(delta.deleted_topics) == [TOPIC_ID]
    assert not delta.changed_partitions


def test_copy_changes_on_its_own():
    image = MetadataImage()
    for record in topic_records():
        image.replay(record)
    copy = image.copy()
    copy.replay(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
    copy.replay(ConfigRecord(resource_type=2, resource_name="t", name="a", value="b"))
    assert image.topics.by_name("t").partitions[0].leader == 1
    assert image.configs.get(2, "t") == {}


def test_kraft_version_levels_in_the_log_are_skipped():
    image = MetadataImage()
    image.replay(FeatureLevelRecord(name="kraft.version", feature_level=1))
    assert image.features == {}
