"""Batches on their way to leaders, some of which are not known yet."""

from __future__ import annotations

import asyncio

import pytest

from client_connections import client_connections
from kraftlog._kraftlog import EncodedBatch, encode_batch
from kraftlog.client import batch_sender
from kraftlog.client.batch_sender import BatchSender
from kraftlog.client.config import ClientConfig
from kraftlog.client.state.cluster_metadata import ClusterMetadata, Node, PartitionInfo, TopicInfo
from kraftlog.errors import KafkaError
from kraftlog.metrics.producer import ProducerMetrics, ProducerState
from kraftlog.types import TopicPartition, Uuid


class Topics:
    """Which topics the sender wants to know more of."""

    def __init__(self):
        self.wanted = []

    def want(self, topic):
        self.wanted.append(topic)


def sender_to(*leaders, topics, spawned, is_idempotent=False, **settings):
    """A sender of the partitions of "t" that these nodes lead; its requests go to ``spawned`` instead."""
    metadata = ClusterMetadata()
    metadata.nodes = {1: Node(1, "h", 1)}
    metadata.topics = {"t": TopicInfo(Uuid.ZERO, {number: PartitionInfo(id_) for number, id_ in enumerate(leaders)})}
    return BatchSender(
        ClientConfig({"bootstrap.servers": "h:1", **settings}, "producer"),
        client_connections("h:1"),
        metadata,
        topics,
        ProducerMetrics(tuple, lambda: ProducerState(0, 0, 0, 0)),
        None,
        is_idempotent=is_idempotent,
        spawn=lambda work: spawned.append(work.close()),
        wake=lambda: None,
        on_end=lambda _: None,
        discard_open=lambda _: None,
    )


def enqueue(sender, number):
    """One record to a partition; the future of its delivery."""
    delivery = asyncio.get_running_loop().create_future()
    data = EncodedBatch(encode_batch([(0, None, b"v", ())]))
    sender.enqueue(TopicPartition("t", number), data, 1, delivery)
    return delivery


def test_a_partition_without_a_leader_holds_up_no_other():
    async def run():
        topics, spawned = Topics(), []
        sender = sender_to(None, 1, topics=topics, spawned=spawned)
        for number in range(2):
            enqueue(sender, number)
        await sender.send_ready()
        assert (topics.wanted, len(spawned), sender.requests_in_flight) == (["t"], 1, 1)
        await sender.send_ready()
        assert (topics.wanted, len(spawned)) == (["t", "t"], 1)

    asyncio.run(run())


def test_no_batch_is_sent_before_there_is_a_producer_id(monkeypatch):
    """A batch without an id was sent after InitProducerId had failed, and stored twice when it was sent again."""
    found = [None, None, (7, 0)]

    async def new_producer_id(*_):
        return found.pop(0)

    monkeypatch.setattr(batch_sender, "new_producer_id", new_producer_id)

    async def run():
        spawned = []
        waits = {"delivery.timeout.ms": "100", "request.timeout.ms": "50", "linger.ms": "0", "retry.backoff.ms": "60"}
        sender = sender_to(1, topics=Topics(), spawned=spawned, is_idempotent=True, **waits)
        delivery = enqueue(sender, 0)
        await sender.send_ready()
        assert not spawned
        await sender.send_ready()
        with pytest.raises(KafkaError, match=r"delivery\.timeout\.ms"):  # its time is over all the same
            await delivery
        enqueue(sender, 0)
        await sender.send_ready()
        assert len(spawned) == 1

    asyncio.run(run())


def test_batches_of_a_producer_id_that_was_used_up_wait_for_another_one():
    async def run():
        work = []
        sender = sender_to(1, topics=Topics(), spawned=[], is_idempotent=True)
        sender._spawn = work.append
        sender.take_producer((7, 32767))
        enqueue(sender, 0)
        await sender.send_ready()
        sender.take_producer(None)
        await work.pop()
        assert (sender.requests_in_flight, sender.has_waiting) == (0, True)

    asyncio.run(run())
