"""A controller with brokers, without raft, log or node: what the controller tests share."""

from __future__ import annotations

import random
from collections.abc import Generator

from kraftlog.controller import ControllerConfig, ControllerCore, MetadataDelta, MetadataImage
from kraftlog.controller.operations import operation_of
from kraftlog.controller.steps import finish_steps
from kraftlog.features import LATEST_PRODUCTION, default_levels, supported_ranges
from kraftlog.storage.bootstrap import BootstrapMetadata
from kraftlog.types import Uuid
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest

CLUSTER_ID = "6ukEYB2qBMCQ4OIrSkFKQA"


def directory_of(broker_id):
    return Uuid(bytes(14) + bytes([1, broker_id]))


class Cluster:
    """Runs operations and applies what they write, as raft would."""

    def __init__(self, version=LATEST_PRODUCTION, static=None, local_node_id=1):
        config = ControllerConfig(
            cluster_id=CLUSTER_ID, local_node_id=local_node_id, static_broker_configs=static or {}
        )
        self.core = ControllerCore(config, MetadataImage(), rng=random.Random(1))
        self.delta = MetadataDelta()
        self.bootstrap = BootstrapMetadata.from_levels(default_levels(version), source="test")
        self.records = []
        self.run(self.core.activate(self.bootstrap.records, 0))

    @property
    def image(self):
        return self.core.image

    def run(self, outcome):
        """Run an operation to its end and apply what it writes."""
        result = finish_steps(outcome) if isinstance(outcome, Generator) else outcome
        self.records = [record for record, _ in result.records]
        self.versions = [version for _, version in result.records]
        if result.records:
            last_offset = self.core.next_offset + len(result.records) - 1
            self.core.apply(result.records, last_offset=last_offset, epoch=1)
        if result.on_appended is not None:
            result.on_appended(self.core.next_offset - 1)
        return result.response

    def ask(self, request, now_ms=0):
        """Run the operation that a request asks for, as the active controller does."""
        return self.run(operation_of(request).begin(self.core, request, now_ms))

    def register(self, broker_id, **changes):
        return self.run(self.core.register_broker(self.registration(broker_id, **changes), 0))

    @staticmethod
    def registration(broker_id, *, incarnation=0, rack=None, previous=-1, **changes):
        values = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": Uuid(bytes([broker_id] * 15 + [incarnation])),
            "listeners": [BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="h", port=9092)],
            "features": [
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_ranges().items()
            ],
            "rack": rack,
            "log_dirs": [directory_of(broker_id)],
            "previous_broker_epoch": previous,
        }
        return BrokerRegistrationRequest(**(values | changes))

    def heartbeat(self, broker_id, **changes):
        values = {
            "broker_id": broker_id,
            "broker_epoch": self.image.cluster.brokers[broker_id].epoch,
            "current_metadata_offset": self.image.offset,
        }
        return self.run(self.core.broker_heartbeat(BrokerHeartbeatRequest(**(values | changes)), 0))

    def add_broker(self, broker_id, **changes):
        self.register(broker_id, **changes)
        return self.heartbeat(broker_id)

    def create(self, name, partitions=1, factor=1, *, configs=None, assignments=(), validate_only=False):
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else factor,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                for index, replicas in assignments
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        response = self.run(self.core.create_topics(CreateTopicsRequest(topics=[topic], validate_only=validate_only)))
        return response.topics[0]

    def partition(self, topic, index=0):
        return self.image.topics.by_name(topic).partitions[index]


def one_broker(**changes):
    cluster = Cluster(**changes)
    cluster.add_broker(1)
    return cluster


def cluster_of(count, *, racks=(), **changes):
    """A cluster of ``count`` unfenced brokers from 1 on."""
    cluster = Cluster(**changes)
    for broker_id in range(1, count + 1):
        cluster.add_broker(broker_id, rack=racks[broker_id - 1] if racks else None)
    return cluster
