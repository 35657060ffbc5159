"""Batches on their way to leaders, some of which are not known yet."""

from __future__ import annotations

import asyncio

from client_connections import client_connections
from kraftlog._kraftlog import EncodedBatch, encode_batch
from kraftlog.client.batch_sender import BatchSender
from kraftlog.client.config import ClientConfig
from kraftlog.client.state.cluster_metadata import ClusterMetadata, Node, PartitionInfo, TopicInfo
from kraftlog.metrics.producer import ProducerMetrics, ProducerState
from kraftlog.types import TopicPartition, Uuid


def test_a_partition_without_a_leader_holds_up_no_other():
    async def run():
        loop = asyncio.get_running_loop()
        wanted, spawned = [], []
        metadata = ClusterMetadata()
        metadata.nodes = {1: Node(1, "h", 1)}
        metadata.topics = {"t": TopicInfo(Uuid.ZERO, {0: PartitionInfo(None), 1: PartitionInfo(1)})}

        class Topics:
            def want(self, topic):
                wanted.append(topic)

        sender = BatchSender(
            ClientConfig({"bootstrap.servers": "h:1"}, "producer"),
            client_connections("h:1"),
            metadata,
            Topics(),
            ProducerMetrics(tuple, lambda: ProducerState(0, 0, 0, 0)),
            None,
            is_idempotent=False,
            spawn=lambda work: spawned.append(work.close()),
            wake=lambda: None,
            on_end=lambda _: None,
            discard_open=lambda _: None,
        )
        for number in range(2):
            data = EncodedBatch(encode_batch([(0, None, b"v", ())]))
            sender.enqueue(TopicPartition("t", number), data, 1, loop.create_future())
        await sender.send_ready()
        assert (wanted, len(spawned), sender.requests_in_flight) == (["t"], 1, 1)
        await sender.send_ready()
        assert (wanted, len(spawned)) == (["t", "t"], 1)

    asyncio.run(run())
