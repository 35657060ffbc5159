"""What clients do in drawn runs: every operation is recorded and checked."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import KraftlogError
from kraftlog.testing.world.history import OffsetHistory, RecordHistory, TransactionHistory
from kraftlog.types import TopicPartition

TOPIC = "records"


async def records(cluster):
    """Two idempotent producers and a group of one member; at the end everything is read again. The load is drawn."""
    await records_every(cluster, random.Random(f"{cluster.seed}/load").choice((0.02, 0.1, 0.5)))


async def records_every(cluster, pause_s):
    """The same; producers wait so long between an acknowledgement and the next record."""
    history, offsets = RecordHistory(), OffsetHistory()
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    tasks = [asyncio.ensure_future(produce(cluster, servers, history, name, pause_s)) for name in ("first", "second")]
    tasks.append(asyncio.ensure_future(_consume(cluster, servers, history, offsets)))
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    await _check(cluster, servers, history)


async def produce(cluster, servers, history, name, pause_s):
    settings = {
        "delivery.timeout.ms": "3600000",
        "request.timeout.ms": "5000",
        "linger.ms": "0",
        "metadata.max.age.ms": "5000",
    }
    async with AsyncProducer({**servers, **settings}) as producer:
        number = 0
        while not cluster.is_quiet:
            number += 1
            history.sent(name, number)
            delivery = await (await producer.send(TOPIC, f"{name} {number}".encode(), key=str(number).encode()))
            history.acked(TOPIC, delivery.partition, delivery.offset, name, number)
            await asyncio.sleep(pause_s)
    assert number, "nothing was produced"


def record_of(record):
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
                    history.read(TOPIC, record.partition, record.offset, *record_of(record))
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


async def read_all(servers, *, topic=TOPIC, topic_ids=None, **settings):
    """Every record of a topic, by partition, up to the ends at the beginning; adds the topic's ids to a set."""
    async with AsyncConsumer({**servers, "auto.offset.reset": "earliest", **settings}) as consumer:
        names = await consumer.partitions_for(topic)
        consumer.assign(names)
        ends = await consumer.end_offsets(names)
        found = {name: [] for name in names}
        for name, end in ends.items():
            while (await consumer.position(name)).offset < end:
                for record in await consumer.poll_records(1.0):
                    found[TopicPartition(topic, record.partition)].append(record)
                if topic_ids is not None:
                    topic_ids.add(consumer._core.metadata.topic_id(topic))
    return found


async def _check(cluster, servers, history):
    for name, read in (await read_all(servers)).items():
        history.check_complete(TOPIC, name.partition, [(record.offset, *record_of(record)) for record in read])
    cluster.tell("client", f"{history.acked_count} records were acknowledged, all of them are there")


async def transactions(cluster):
    """A transactional producer that commits and aborts; readers of committed records see each whole or not at all."""
    history = TransactionHistory()
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    number = 0
    while not cluster.is_quiet:
        # A producer whose transaction has no known end is replaced: the next one aborts what it left open.
        with suppress(KraftlogError):
            async with AsyncProducer({**servers, **TRANSACTIONAL}) as producer:
                await producer.init_transactions()
                while not cluster.is_quiet:
                    number += 1
                    await _transact(producer, history, number)
                    await asyncio.sleep(0.02)
    async with AsyncProducer({**servers, **TRANSACTIONAL}) as producer:
        await producer.init_transactions()
        number += 1
        await _transact(producer, history, 3 * number)  # one that is committed
    async with asyncio.timeout(60):
        while (seen := await _seen_when_none_is_open(servers)) is None:  # noqa: ASYNC110  no event says so
            await asyncio.sleep(0.5)
    history.check(seen)
    cluster.tell("client", f"{len(seen)} records of committed transactions are seen, each transaction as a whole")


TRANSACTIONAL = {
    "transactional.id": "transfers",
    "delivery.timeout.ms": "8000",
    "request.timeout.ms": "2000",
    "linger.ms": "0",
}
RECORDS_PER_TRANSACTION = 3


async def _transact(producer, history, number):
    history.began(number, RECORDS_PER_TRANSACTION)
    producer.begin_transaction()
    for part in range(RECORDS_PER_TRANSACTION):
        await producer.send(TOPIC, str(number).encode(), key=f"{number} {part}".encode())
    is_committed = number % 3 == 0 or number % 2 == 1
    await (producer.commit_transaction() if is_committed else producer.abort_transaction())
    history.ended(number, is_committed=is_committed)


async def _seen_when_none_is_open(servers):
    """The transaction of each committed record; None while a transaction is open."""
    everything = await read_all(servers)
    ends = {name: found[-1].offset for name, found in everything.items() if found}
    async with AsyncConsumer({**servers, "isolation.level": "read_committed"}) as stable:
        stable_ends = await stable.end_offsets(list(ends))
    if any(stable_ends[name] <= end for name, end in ends.items()):
        return None
    # Not before: a transaction that ends between the two would be missing, though none is open behind them.
    committed = await read_all(servers, **{"isolation.level": "read_committed"})
    if any(name not in committed for name in ends):
        return None
    return [int(record.value) for found in committed.values() for record in found]
