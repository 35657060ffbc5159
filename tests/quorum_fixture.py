"""A metadata quorum over a real directory, with as little node around it as it needs."""

from __future__ import annotations

import time
from pathlib import Path

from kraftlog.features import supported_ranges
from kraftlog.metrics import Metrics
from kraftlog.node.config import NodeConfig
from kraftlog.node.controller_registration import ControllerRegistration
from kraftlog.node.quorum_settings import channel_settings, metadata_settings
from kraftlog.node.settings import node_identity
from kraftlog.runtime.metadata.controller_channel import ControllerChannel
from kraftlog.runtime.metadata.metadata_quorum import MetadataQuorum
from kraftlog.storage.dynamic_voter import DynamicVoter
from kraftlog.storage.formatter import Formatter
from kraftlog.storage.meta_properties import ensure_directory_id, random_uuid
from kraftlog.types import NodeId, Uuid
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from metadata_fixture import CLUSTER_ID

PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
}


def format_directory(path, *, is_static=False):
    voter = DynamicVoter(node_id=NodeId(1), host="127.0.0.1", port=9093, directory_id=random_uuid())
    Formatter(
        directories=[path],
        metadata_directory=path,
        cluster_id=CLUSTER_ID,
        node_id=NodeId(1),
        initial_voters=None if is_static else (voter,),
        has_dynamic_quorum=not is_static,
        report=lambda _: None,
    ).run()


def quorum_over(path, *, node_id=1, cluster_id=CLUSTER_ID, was_clean=False, **properties):
    """A quorum that is not started; ``config``, ``metrics`` and ``channel`` are put beside what it has itself."""
    settings = {"node.id": str(node_id), "log.dirs": str(path), **PROPERTIES, **properties}
    settings.setdefault("controller.quorum.bootstrap.servers", "127.0.0.1:9093")
    config = NodeConfig(settings)
    metrics = Metrics()
    quorum = MetadataQuorum(
        metadata_settings(
            config,
            cluster_id=cluster_id,
            directory_id=ensure_directory_id(Path(path)),
            was_clean_shutdown=was_clean,
            end_points=config.advertised_listeners,
        ),
        metrics,
        wall_ms=lambda: time.time_ns() // 1_000_000,
    )
    quorum.config, quorum.metrics = config, metrics
    quorum.channel = ControllerChannel(channel_settings(config), quorum.replica, quorum.controller)
    quorum.replica.add_leader_listener(quorum.channel.leader_changed)
    return quorum


async def started(path, **options):
    quorum = quorum_over(path, **options)
    await quorum.start()
    if quorum.is_leader:
        identity = node_identity(
            quorum.config, quorum.cluster_id, quorum.config.advertised_listeners, is_controller_listener=True
        )
        await ControllerRegistration(identity, quorum.channel).register()
    return quorum


async def register_broker(quorum, *, broker_id=None, previous=-1):
    """Registers and unfences a broker, this node's own by default; any other has a directory of its own."""
    directory = quorum.replica.raft.config.local_key.directory_id
    if broker_id is not None:
        directory = Uuid(bytes([0xD1, broker_id]) * 8)
    request = BrokerRegistrationRequest(
        broker_id=quorum.node_id if broker_id is None else broker_id,
        cluster_id=quorum.cluster_id,
        incarnation_id=random_uuid(),
        listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)],
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in supported_ranges().items()
        ],
        log_dirs=[directory],
        previous_broker_epoch=previous,
    )
    epoch = (await quorum.submit_request(request)).broker_epoch
    await heartbeat(quorum, epoch, broker_id=request.broker_id)
    return epoch


def heartbeat(quorum, epoch, *, broker_id=None, **changes):
    request = BrokerHeartbeatRequest(
        broker_id=quorum.node_id if broker_id is None else broker_id,
        broker_epoch=epoch,
        current_metadata_offset=quorum.image.offset,
        **changes,
    )
    return quorum.submit_request(request)


def create_topic(quorum, name, partitions=1):
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return quorum.submit_request(CreateTopicsRequest(topics=[topic]))


def content(image):
    return (
        {topic.topic_id: topic for topic in image.topics},
        image.cluster,
        image.configs,
        image.security,
        image.producer_ids,
        image.features,
    )
