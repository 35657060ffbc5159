"""What brokers show to clients before it is committed is noticed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kraftlog._kraftlog import encode_values
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import ErrorCode
from kraftlog.runtime.replica.partition import Partition
from kraftlog.testing import Cluster, InvariantViolationError
from kraftlog.testing.world.followed_log import batches_in
from kraftlog.testing.world.node_machine import NodeMachine
from kraftlog.testing.world.story import Story
from kraftlog.testing.world.visibility_checker import VisibilityChecker
from kraftlog.wire.frame import encode_request, encode_response
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftlog.wire.messages.produce import ProduceRequest, ProduceResponse


class Sock(SimpleNamespace):
    __hash__ = object.__hash__


class Partitions(list):
    def get_by_name(self, _topic, _index):
        return self[0]


class Broker:
    """A broker with one partition, of which 4 records are committed, and one connection."""

    def __init__(self):
        self.replica = SimpleNamespace(is_under_min_isr=False, partition_epoch=7)
        self.partition = SimpleNamespace(
            topic="t", topic_id="id", index=0, high_watermark=4, leader_epoch=2, replica=self.replica
        )
        machine = NodeMachine.__new__(NodeMachine)
        machine.name, machine.bad_disks = "broker-1", set()
        partitions = Partitions([self.partition])
        machine.node = SimpleNamespace(partitions=partitions)
        self.sock = Sock(machine=machine, getsockname=lambda: ("b", 9092))
        self.served = []
        logs = SimpleNamespace(check_served=lambda *served: self.served.append(served))
        committed = SimpleNamespace(
            highest=lambda *_: 4, logs=logs, lost_epoch=lambda *_: -1, has_history=lambda *_: True
        )
        self.checker = VisibilityChecker(9092, committed, Story(SimpleNamespace(now_ms=0.0)))

    def exchange(self, version, request, answer):
        key = request.API_KEY
        self.checker.arrived(self.sock, b"".join(encode_request(key, version, 7, "client", request)))
        self.checker.sent(self.sock, b"".join(bytes(part) for part in encode_response(key, version, 7, answer)))

    def serve(self, *, end_offset=4, high_watermark=4, last_stable_offset=4, isolation_level=0, replica_id=-1):
        answered = FetchResponse.PartitionData(
            partition_index=0,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            records=encode_values([b"a"] * end_offset, timestamps=1, partition_leader_epoch=0),
        )
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=(answered,))
        request = FetchRequest(isolation_level=isolation_level, replica_id=replica_id)
        self.exchange(12, request, FetchResponse(responses=(topic,)))

    def tell_latest(self, offset, *, timestamp=-1, isolation_level=0):
        asked = ListOffsetsRequest.ListOffsetsPartition(timestamp=timestamp)
        topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=(asked,))
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=(topic,))
        answered = ListOffsetsResponse.ListOffsetsPartitionResponse(offset=offset, leader_epoch=0)
        topics = (ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=(answered,)),)
        self.exchange(7, request, ListOffsetsResponse(topics=topics))

    def acknowledge(self, meanwhile, *, error_code=0):
        """Answer a record of acks=-1 that is committed, after something has happened."""
        produced = ProduceRequest.PartitionProduceData(index=0, records=encode_values([b"a"], timestamps=1))
        data = ProduceRequest.TopicProduceData(name="t", partition_data=(produced,))
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(data,))
        self.checker.arrived(self.sock, b"".join(encode_request(request.API_KEY, 9, 7, "client", request)))
        meanwhile()
        told = ProduceResponse.PartitionProduceResponse(index=0, error_code=error_code, base_offset=3)
        topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=(told,))
        answer = encode_response(request.API_KEY, 9, 7, ProduceResponse(responses=(topic,)))
        self.checker.sent(self.sock, b"".join(bytes(part) for part in answer))


def test_consumers_get_what_is_committed():
    broker = Broker()
    broker.serve()
    broker.serve(end_offset=2, last_stable_offset=2, isolation_level=1)
    broker.serve(last_stable_offset=2)
    broker.serve(end_offset=9, high_watermark=9, replica_id=2)  # a follower
    ends = [batch.end_offset for *_, data in broker.served for batch in batches_in(data)]
    assert ends == [4, 2, 4]
    assert broker.checker.looked["RINV-10"] == 3


@pytest.mark.parametrize(
    "shown",
    [
        {"end_offset": 5},
        {"end_offset": 5, "high_watermark": 5},
        {"last_stable_offset": 2, "isolation_level": 1},
        {"last_stable_offset": 5, "isolation_level": 1},
    ],
)
def test_consumers_get_nothing_else(shown):
    with pytest.raises(InvariantViolationError, match="RINV-10"):
        Broker().serve(**shown)


def test_the_latest_offset_does_not_go_back():
    broker = Broker()
    broker.tell_latest(4)
    broker.tell_latest(2, isolation_level=1)
    broker.tell_latest(1, timestamp=-2)
    broker.partition.leader_epoch = 1
    broker.tell_latest(3)  # a broker that does not know yet that it leads no more
    broker.partition.leader_epoch = 3
    with pytest.raises(InvariantViolationError, match="RINV-12"):
        broker.tell_latest(3)


def test_a_record_needs_enough_replicas_in_sync_at_some_time():
    """The in-sync set may shrink while a record waits; none is committed if it was too small all the time (RINV-31)."""
    broker = Broker()
    broker.acknowledge(lambda: None)
    broker.acknowledge(lambda: setattr(broker.replica, "is_under_min_isr", True))
    broker.acknowledge(lambda: setattr(broker.replica, "partition_epoch", 8))  # it grew and shrank
    broker.acknowledge(lambda: None, error_code=ErrorCode.NOT_ENOUGH_REPLICAS)
    assert broker.checker.looked["RINV-31"] == 3
    with pytest.raises(InvariantViolationError, match="RINV-31"):
        broker.acknowledge(lambda: None)


def test_a_record_that_is_acknowledged_before_it_is_committed_is_noticed(monkeypatch):
    monkeypatch.setattr(Partition, "wait_for_ack", lambda _self, _appended, completed: completed(0))

    async def produce(servers):
        async with AsyncProducer({"bootstrap.servers": servers, "linger.ms": "0"}) as producer:
            for _ in range(5):
                await (await producer.send("t", b"a record"))
                await asyncio.sleep(0.1)

    settings = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    with (
        Cluster(1, properties=settings) as cluster,
        pytest.raises(InvariantViolationError, match="RINV-02"),
    ):
        cluster.run(produce(cluster.bootstrap_servers))
