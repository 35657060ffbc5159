"""What clients do in drawn runs: every operation is recorded and checked."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import KraftlogError
from kraftlog.testing.world.history import OffsetHistory, RecordHistory
from kraftlog.types import TopicPartition

TOPIC = "records"


async def records(cluster):
    """Two idempotent producers and a group of one member; at the end everything is read again."""
    history, offsets = RecordHistory(), OffsetHistory()
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    tasks = [asyncio.ensure_future(_produce(cluster, servers, history, name)) for name in ("first", "second")]
    tasks.append(asyncio.ensure_future(_consume(cluster, servers, history, offsets)))
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    await _check(cluster, servers, history)


async def _produce(cluster, servers, history, name):
    settings = {"delivery.timeout.ms": "3600000", "request.timeout.ms": "5000", "linger.ms": "0"}
    async with AsyncProducer({**servers, **settings}) as producer:
        number = 0
        while not cluster.is_quiet:
            number += 1
            history.sent(name, number)
            delivery = await (await producer.send(TOPIC, f"{name} {number}".encode(), key=str(number).encode()))
            history.acked(TOPIC, delivery.partition, delivery.base_offset, name, number)
            await asyncio.sleep(0.02)
    assert number, "nothing was produced"


def _record(record):
    name, _, number = record.value.decode().partition(" ")
    return name, int(number)


async def _consume(cluster, servers, history, offsets):
    settings = {"group.id": "readers", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    async with AsyncConsumer({**servers, **settings, "enable.auto.commit": "false"}) as consumer:
        consumer.subscribe([TOPIC])
        while not cluster.is_quiet:
            with suppress(KraftlogError):
                found = await consumer.poll_records(0.5)
                for record in found:
                    history.read(TOPIC, record.partition, record.offset, *_record(record))
                if found:
                    await _commit(consumer, offsets, found)


async def _commit(consumer, offsets, found):
    wanted = {}
    for record in found:
        wanted[TopicPartition(TOPIC, record.partition)] = record.offset + 1
    await consumer.commit(wanted)
    for name, offset in wanted.items():
        offsets.committed("readers", TOPIC, name.partition, offset)
    for name, known in (await consumer.committed(list(wanted))).items():
        if known is not None:
            offsets.fetched("readers", TOPIC, name.partition, known.offset)


async def _check(cluster, servers, history):
    async with AsyncConsumer({**servers, "auto.offset.reset": "earliest"}) as consumer:
        names = await consumer.partitions_for(TOPIC)
        consumer.assign(names)
        ends = await consumer.end_offsets(names)
        found = {name: [] for name in names}
        for name, end in ends.items():
            while (await consumer.position(name)).offset < end:
                for record in await consumer.poll_records(1.0):
                    found[TopicPartition(TOPIC, record.partition)].append((record.offset, *_record(record)))
    for name, read in found.items():
        history.check_complete(TOPIC, name.partition, read)
    cluster.tell("client", f"{history.acked_count} records were acknowledged, all of them are there")
