"""Consumers and producers of any Kafka cluster, in columns.

with kraftlog.Consumer({"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}) as consumer:
    consumer.assign([("orders", 0)])
    batch = consumer.poll(timeout_s=1.0)        # an Arrow record batch with the columns of a scan, or None

The protocol state is in ``client.state``, without I/O; the connections and tasks around it run on an asyncio loop.
"""

from __future__ import annotations

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.client.consumer import Consumer
from kraftlog.client.producer import Producer
from kraftlog.client.producer_batch import BatchDelivery, RecordDelivery
from kraftlog.client.state.position import OffsetAndEpoch, OffsetAndMetadata, OffsetAndTime
from kraftlog.client.transactions import GroupMetadata

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "BatchDelivery",
    "Consumer",
    "GroupMetadata",
    "OffsetAndEpoch",
    "OffsetAndMetadata",
    "OffsetAndTime",
    "Producer",
    "RecordDelivery",
]
