"""Batches on their way to leaders that are not known yet."""

from __future__ import annotations

import asyncio

from client_connections import client_connections
from kraftlog._kraftlog import EncodedBatch, encode_batch
from kraftlog.client.batch_sender import BatchSender
from kraftlog.client.config import ClientConfig
from kraftlog.client.state.cluster_metadata import ClusterMetadata
from kraftlog.metrics.producer import ProducerMetrics, ProducerState
from kraftlog.types import TopicPartition


def test_batches_of_further_partitions_are_enqueued_while_metadata_is_asked_for():
    async def run():
        loop = asyncio.get_running_loop()
        refreshed = []

        def enqueue(number):
            data = EncodedBatch(encode_batch([(0, None, b"v", ())]))
            sender.enqueue(TopicPartition("t", number), data, 1, loop.create_future())

        class Topics:
            def use(self, topic):
                assert topic == "t"

            async def refresh(self):
                refreshed.append(len(refreshed))
                enqueue(len(refreshed))

        sender = BatchSender(
            ClientConfig({"bootstrap.servers": "h:1"}, "producer"),
            client_connections("h:1"),
            ClusterMetadata(),
            Topics(),
            ProducerMetrics(tuple, lambda: ProducerState(0, 0, 0, 0)),
            None,
            is_idempotent=False,
            spawn=lambda work: work.close(),
            wake=lambda: None,
            on_end=lambda _: None,
            discard_open=lambda _: None,
        )
        enqueue(0)
        await sender.send_ready()
        assert refreshed == [0]
        await sender.send_ready()
        assert refreshed == [0, 1, 2]

    asyncio.run(run())
