"""Types that users of the clients see; read by mypy (``.ci/dev type``), never run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import assert_type

from kraftlog import AsyncConsumer, AsyncProducer, Consumer, Producer
from kraftlog._kraftlog import ArrowBatch
from kraftlog.client import RecordDelivery
from kraftlog.metrics import MetricsSnapshot, MetricValue
from kraftlog.types import TopicPartition


def told(partitions: Collection[TopicPartition]) -> None:
    """Hear of partitions."""


def consume() -> None:
    with Consumer(bootstrap_servers="localhost:9092", group_id="g") as consumer:
        assert_type(consumer, Consumer)
        consumer.subscribe(["orders"], on_assign=told, on_revoke=told, on_lost=told)
        consumer.subscribe(pattern="orders-.*")
        consumer.subscribe(pattern=re.compile("orders-.*"))
        consumer.subscribe(pattern=re.compile(b"orders-.*"))  # type: ignore[arg-type]
        assert_type(consumer.subscription, tuple[str, ...])
        assert_type(consumer.current_lag(("orders", 0)), int | None)
        for record in consumer:
            assert_type(record.offset, int)
        consumer.unsubscribe()
        consumer.enforce_rebalance("more memory")
        consumer.wakeup()
        assert_type(consumer.metrics(), MetricsSnapshot)
        assert_type(consumer.metrics().get("consumer-metrics.request-total"), MetricValue | None)
        consumer.close(timeout_s=1.5, leave_group=True)


async def consume_on_a_loop() -> None:
    async with AsyncConsumer({"bootstrap.servers": "localhost:9092"}) as consumer:
        assert_type(consumer, AsyncConsumer)
        consumer.subscribe(pattern="orders-.*", on_assign=told)
        async for record in consumer:
            assert_type(record.value, bytes | None)
        async for batch in consumer.batches(idle_s=1):
            assert_type(batch, ArrowBatch)
        consumer.unsubscribe()  # type: ignore[unused-coroutine]
        await consumer.close(timeout_s=1)


def produce() -> None:
    with Producer(bootstrap_servers="localhost:9092") as producer:
        assert_type(producer.partitions_for("orders"), list[TopicPartition])
        assert_type(producer.send_and_wait("orders", b"v", key=b"k", timeout_s=1), RecordDelivery)
        assert_type(producer.metrics(), MetricsSnapshot)
        producer.send_table("orders", object(), key="id", value="payload", partition_by="town")
        producer.flush(timeout_s=1)
        producer.close(timeout_s=1)


async def produce_on_a_loop() -> None:
    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        assert_type(await producer.partitions_for("orders"), list[TopicPartition])
        sent = await producer.send("orders", b"v")
        assert_type(sent, asyncio.Future[RecordDelivery])
        assert_type((await sent).offset, int)
        assert_type((await producer.send_and_wait("orders", None)).log_append_time, int | None)
        await producer.flush(timeout_s=1)
