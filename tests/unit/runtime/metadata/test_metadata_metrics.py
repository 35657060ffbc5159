"""The metrics of a whole node: what its metadata quorum tells them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import threading
import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

import kraftlog
from kraftlog.cli.__main__ import main
from kraftlog.controller import MetadataDelta, MetadataImage
from kraftlog.controller.topic_image import PartitionImage, TopicImage
from kraftlog.errors import CorruptRecordError, LogError, NodeClosedError
from kraftlog.node.config import ConfigError, NodeConfig
from kraftlog.runtime.metadata.cluster_counts import ClusterCounter
from kraftlog.types import Uuid
from quorum_fixture import PROPERTIES, create_topic, format_directory, heartbeat, register_broker, started

STATIC = {"controller.quorum.voters": "1@127.0.0.1:9093"}


def values(quorum, group, *names):
    snapshot = quorum.metrics.snapshot()
    return tuple(snapshot[f"{group}.{name}"] for name in names)


@pytest.mark.spec("METR-15", "BOOT-28")
@pytest.mark.parametrize(("is_static", "ignored"), [(False, 1), (True, 0)])
def test_static_voters_are_ignored_where_the_voter_set_is_in_the_log(tmp_path, is_static, ignored):
    async def run():
        format_directory(tmp_path, is_static=is_static)
        quorum = await started(tmp_path, **STATIC)
        try:
            assert quorum.is_leader
            assert values(quorum, "KafkaController", "IgnoredStaticVoters") == (ignored,)
            assert values(quorum, "broker-metadata-metrics", "ignored-static-voters") == (ignored,)
        finally:
            await quorum.stop()

    asyncio.run(run())


def test_controller_counts_what_is_committed_and_says_how_far_it_is(tmp_path):
    async def run():
        format_directory(tmp_path)
        quorum = await started(tmp_path, **{"metadata.max.idle.interval.ms": "0"})
        try:
            names = ("ActiveBrokerCount", "FencedBrokerCount", "GlobalTopicCount", "GlobalPartitionCount")
            assert values(quorum, "KafkaController", *names) == (0, 0, 0, 0)
            epoch = await register_broker(quorum)
            await create_topic(quorum, "orders", partitions=3)
            assert values(quorum, "KafkaController", *names) == (1, 0, 1, 3)
            offsets = values(quorum, "KafkaController", "LastAppliedRecordOffset", "LastCommittedRecordOffset")
            assert offsets == (quorum.image.offset, quorum.image.offset)
            assert values(quorum, "broker-metadata-metrics", "last-applied-record-offset") == (quorum.image.offset,)
            assert values(quorum, "KafkaController", "ActiveControllerCount", "NewActiveControllersCount") == (1, 1)
            assert values(quorum, "KafkaController", "LastAppliedRecordLagMs") == (0,)
            assert values(quorum, "MetadataLoader", "CurrentControllerId", "CurrentMetadataVersion") == (1, 30)
            assert values(quorum, "MetadataLoader", "FinalizedLevel{featureName=kraftVersion}") == (1,)
            started_count, queue = values(quorum, "KafkaController", "EventQueueOperationsStartedCount") + values(
                quorum, "ControllerEventManager", "EventQueueTimeMs"
            )
            assert started_count == queue.count > 3
            await heartbeat(quorum, epoch, want_shut_down=True)
            await heartbeat(quorum, epoch, want_shut_down=True)
            assert values(quorum, "KafkaController", *names) == (0, 1, 1, 3)
            assert values(
                quorum,
                "KafkaController",
                "ControlledShutdownBrokerCount",
                "OfflinePartitionsCount",
                "PreferredReplicaImbalanceCount",
            ) == (1, 3, 3)
        finally:
            await quorum.stop()
        assert not quorum.metrics.snapshot()

    asyncio.run(run())


@pytest.mark.spec("METR-14")
def test_second_life_in_one_process_counts_from_the_checkpoint_on(tmp_path):
    async def run():
        format_directory(tmp_path)
        properties = {
            "metadata.log.max.record.bytes.between.snapshots": "1",
            "metadata.max.idle.interval.ms": "0",
        }
        quorum = await started(tmp_path, **properties)
        await register_broker(quorum)
        await create_topic(quorum, "orders", partitions=3)
        await quorum.replica.log.snapshots.finish()
        await asyncio.sleep(0)
        size_bytes, age_ms = values(
            quorum, "SnapshotEmitter", "LatestSnapshotGeneratedBytes", "LatestSnapshotGeneratedAgeMs"
        )
        newest = max(tmp_path.glob("__cluster_metadata-0/*.checkpoint"))
        assert size_bytes == newest.stat().st_size
        assert 0 <= age_ms < 60_000
        await quorum.stop()
        again = await started(tmp_path, **properties)
        try:
            assert values(again, "MetadataLoader", "HandleLoadSnapshotCount") == (1,)
            assert values(again, "KafkaController", "GlobalTopicCount", "GlobalPartitionCount") == (1, 3)
        finally:
            await again.stop()

    asyncio.run(run())


def test_errors_of_listeners_and_of_the_log_are_counted_apart(tmp_path):
    """RDLT-20: counted as in Kafka; the node ends instead of serving what the metadata does not say."""
    names = ("metadata-apply-error-count", "metadata-load-error-count")

    async def run():
        format_directory(tmp_path)
        quorum = await started(tmp_path)

        def broken(image, delta):
            raise LogError("it cannot be acted on")

        quorum.add_listener(broken)
        with pytest.raises(NodeClosedError):
            await register_broker(quorum)
        assert values(quorum, "broker-metadata-metrics", *names) == (1, 0)
        assert values(quorum, "KafkaController", "MetadataErrorCount") == (1,)
        assert isinstance(quorum.replica.failure, LogError)
        await quorum.stop()
        quorum = await started(tmp_path)
        quorum.on_failure(CorruptRecordError("it cannot be read"))
        assert values(quorum, "broker-metadata-metrics", *names) == (0, 1)
        assert values(quorum, "KafkaController", "MetadataErrorCount") == (1,)
        await quorum.stop()

    asyncio.run(run())


def partition(leader, *, isr=(1, 2), elr=()):
    return PartitionImage(replicas=(1, 2, 3), directories=(Uuid.ZERO,) * 3, isr=isr, elr=elr, leader=leader)


def test_counter_tells_elections_of_replicas_that_were_not_in_sync():
    topic = TopicImage("t", Uuid(bytes([9] * 16)), {})
    image = MetadataImage()
    counter = ClusterCounter(image)

    def change(*partitions):
        delta = MetadataDelta()
        delta.changed_partitions = {(topic.topic_id, index): partition for index, partition in enumerate(partitions)}
        counter.apply(image, delta)
        return counter.counts, counter.unclean_elections, counter.elections_from_eligible

    counts, *elections = change(partition(1), partition(2))
    assert (counts.partitions, counts.offline_partitions, counts.imbalanced_partitions) == (2, 0, 1)
    assert elections == [0, 0]
    counts, *elections = change(partition(2), partition(-1, isr=(2,), elr=(1,)))
    assert (counts.partitions, counts.offline_partitions, counts.imbalanced_partitions) == (2, 1, 2)
    assert elections == [0, 0]
    counts, *elections = change(partition(3), partition(1, isr=(1,)))
    assert (counts.offline_partitions, counts.imbalanced_partitions) == (0, 1)
    assert elections == [1, 1]
    deleted = MetadataDelta(deleted_topics={topic.topic_id: replace(topic)})
    counter.apply(image, deleted)
    assert counter.counts.partitions == counter.counts.imbalanced_partitions == 0


@pytest.mark.parametrize("text", ["9404", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "http://a:1/metrics"])
def test_metrics_listener_that_is_no_address_is_refused(text):
    settings = {"node.id": "1", "log.dirs": "/none", **PROPERTIES, **STATIC}
    with pytest.raises(ConfigError, match=r"^kraftlog\.metrics\.listener="):
        NodeConfig({**settings, "kraftlog.metrics.listener": text})
    config = NodeConfig({**settings, "kraftlog.metrics.listener": "[::1]:0"})
    assert (config.metrics_listener, config.unknown_keys) == (("::1", 0), [])


def describe(servers):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["metadata-quorum", "--bootstrap-server", servers, "describe", "--status"]) == 0
    return dict(re.split(r":\s+", line, maxsplit=1) for line in printed.getvalue().splitlines())


@pytest.mark.spec("METR-16", "METR-18")
def test_describe_quorum_metrics_in_process_and_over_http_agree():
    config = {"kraftlog.metrics.listener": "127.0.0.1:0", "metadata.max.idle.interval.ms": 0}
    with kraftlog.Broker(config=config) as broker:
        broker.create_topic("orders", partitions=3)
        status = describe(broker.bootstrap_servers)
        snapshot = broker.metrics()
        with urllib.request.urlopen(broker.metrics_url, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(broker.metrics_url + "/no", timeout=30)
        url = broker.metrics_url
    scraped = {family.name: family for family in text_string_to_metric_families(text)}
    fields = {"current-leader": "LeaderId", "current-epoch": "LeaderEpoch", "high-watermark": "HighWatermark"}
    for name, field in fields.items():
        family = scraped["kafka_server_raft_metrics_" + name.replace("-", "_")]
        assert int(status[field]) == snapshot[f"raft-metrics.{name}"] == family.samples[0].value
    voters = json.loads(status["CurrentVoters"])
    assert len(voters) == snapshot["raft-metrics.number-of-voters"] == 1
    assert snapshot["raft-metrics.current-vote-directory-id"] == voters[0]["directoryId"]
    assert scraped["kafka_controller_kafkacontroller_globalpartitioncount"].samples[0].value == 3
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=30)


@pytest.mark.spec("METR-16")
def test_readers_on_other_threads_see_whole_states_while_the_broker_works():
    with kraftlog.Broker() as broker:
        is_over = threading.Event()
        wrong = []

        def read():
            highest = -1
            while not is_over.is_set():
                snapshot = broker.metrics()
                high_watermark = snapshot["raft-metrics.high-watermark"]
                if high_watermark < highest or snapshot["raft-metrics.log-end-offset"] < high_watermark:
                    wrong.append(snapshot)
                highest = high_watermark

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for number in range(20):
            broker.create_topic(f"topic-{number}")
        is_over.set()
        for reader in readers:
            reader.join()
        assert not wrong
        assert broker.metrics()["KafkaController.GlobalTopicCount"] == 20
