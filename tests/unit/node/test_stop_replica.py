"""StopReplica on the listener between brokers: what a controller of Kafka 3.x asks, and what the node answers."""

from __future__ import annotations

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.produce import ProduceRequest
from kraftlog.wire.messages.stop_replica import StopReplicaRequest
from raw_client import RawClient
from waiting import until_true

STOP_REPLICA = 5
EPOCH_DURING_DELETE = -2
PARTITIONS = 10


def produce_error(client, index):
    data = ProduceRequest.PartitionProduceData(index=index, records=encode_batch([(1000, None, b"x", [])]))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    response = client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 11)
    return response.responses[0].partition_responses[0].error_code


class Controller:
    """A controller of Kafka 3.x, as the broker sees it."""

    def __init__(self, client, *, controller_epoch, broker_epoch):
        self.client = client
        self.epochs = {"controller_epoch": controller_epoch, "broker_epoch": broker_epoch}

    def stop(self, *states, version=3, topic="t", **epochs):
        """The error of the request, or those of the partitions, in order."""
        partitions = [
            StopReplicaRequest.StopReplicaPartitionState(
                partition_index=index, leader_epoch=leader_epoch, delete_partition=deleted
            )
            for index, leader_epoch, deleted in states
        ]
        topics = [StopReplicaRequest.StopReplicaTopicState(topic_name=topic, partition_states=partitions)]
        return self._ask(StopReplicaRequest(topic_states=topics, **self.epochs | epochs), version)

    def stop_old(self, *indexes, version, deletes):
        """The same with the fields of versions 0 to 2."""
        fields = {"controller_epoch": self.epochs["controller_epoch"], "delete_partitions": deletes}
        if version == 0:
            ungrouped = [
                StopReplicaRequest.StopReplicaPartitionV0(topic_name="t", partition_index=index) for index in indexes
            ]
            return self._ask(StopReplicaRequest(ungrouped_partitions=ungrouped, **fields), version)
        fields["broker_epoch"] = self.epochs["broker_epoch"]
        topics = [StopReplicaRequest.StopReplicaTopicV1(name="t", partition_indexes=indexes)]
        return self._ask(StopReplicaRequest(topics=topics, **fields), version)

    def _ask(self, request, version):
        response = self.client.call(request, version)
        return response.error_code or [partition.error_code for partition in response.partition_errors]


def kept(*directories):
    names = (path.name[2:] for directory in directories for path in directory.glob("t-*"))
    return {int(name) for name in names if name.isdigit()}


def served(client):
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return {key.api_key: (key.min_version, key.max_version) for key in client.call(request).api_keys}


@pytest.mark.spec(
    *("STOP-01", "STOP-02", "STOP-03", "STOP-04", "STOP-05", "STOP-06", "STOP-07", "STOP-08", "STOP-09", "STOP-10"),
    *("STOP-11", "STOP-12", "STOP-13", "STOP-14"),
)
def test_controller_of_kafka_3_stops_replicas(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log_dirs": f"{first},{second}",
        "log_flush_on_ack": False,
    }
    with kraftlog.Broker(first, **settings) as broker:
        broker.create_topic("t", partitions=PARTITIONS)
        with RawClient(broker.bootstrap_servers.split(",")[1]) as clients:
            assert {produce_error(clients, index) for index in range(PARTITIONS)} == {0}
    with kraftlog.Broker(first, **settings) as broker:
        node = broker._embedded.running
        between, clients = map(RawClient, broker.bootstrap_servers.split(","))
        epoch = node.partitions.get_by_name("t", 0).leader_epoch
        assert epoch > 0, "the restart was an election"
        registered = node.metadata.image.cluster.brokers[1].epoch
        controller = Controller(between, controller_epoch=node.metadata.image.epoch, broker_epoch=registered)

        def is_served(index):
            return node.partitions.get_by_name("t", index) is not None

        # Clients see what Kafka 4.3.1 shows them.
        assert STOP_REPLICA not in served(clients)
        assert served(between)[STOP_REPLICA] == (0, 4)
        with RawClient(broker.bootstrap_servers.split(",")[1]) as refused:
            refused.send(StopReplicaRequest(), 3)
            assert refused.is_closed_by_peer()

        # The whole request is refused.
        stale = {"controller_epoch": controller.epochs["controller_epoch"] - 1}
        assert controller.stop((0, epoch, True), **stale) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert controller.stop((0, epoch, True), broker_epoch=registered - 1) == ErrorCode.STALE_BROKER_EPOCH
        # A delayed request of before the restart: the data survives. The others of the request are handled.
        assert controller.stop((0, 0, True), (1, epoch, False), (2, epoch + 1, False)) == [
            ErrorCode.FENCED_LEADER_EPOCH,
            0,
            0,
        ]
        assert (is_served(0), is_served(1), is_served(2)) == (True, False, False)
        assert produce_error(clients, 0) == 0
        assert produce_error(clients, 1) == produce_error(clients, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert kept(first, second) == set(range(PARTITIONS))
        assert controller.stop((1, epoch, False)) == [0], "again"
        # Each by its own flag, and in the older versions by one for all; without an epoch nothing is compared.
        assert controller.stop((3, EPOCH_DURING_DELETE, True), (4, EPOCH_DURING_DELETE, False), version=4) == [0, 0]
        assert controller.stop_old(5, version=0, deletes=False) == [0]
        assert controller.stop_old(6, 7, version=1, deletes=True) == [0, 0]
        assert controller.stop_old(5, version=2, deletes=True) == [0], "closed before, its directory is there"
        assert not any(is_served(index) for index in (3, 4, 5, 6, 7))
        assert kept(first, second) == {0, 1, 2, 4, 8, 9}
        # Nothing is there: neither a partition, nor a topic, nor a name that could be one's.
        assert controller.stop((5, -1, True), (99, -1, True), (-7, -1, True)) == [0, 0, 0]
        for name in ("unknown", "../b/t", "__cluster_metadata", ""):
            assert controller.stop((0, -1, True), topic=name) == [0]
        assert (first / "__cluster_metadata-0").is_dir()
        assert kept(first, second) == {0, 1, 2, 4, 8, 9}
        # An offline directory.
        lost = node.partitions.get_by_name("t", 8)
        node.loop.call_soon_threadsafe(node.replicas.fail_log_dir, node.log_dirs[1], OSError(5, "broken"))
        offline = lost.index if lost.log_dir is node.log_dirs[1] else 9
        until_true(lambda: not is_served(offline))
        assert controller.stop((offline, epoch, True)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert offline in kept(second)
        for client in (between, clients):
            client.sock.close()
