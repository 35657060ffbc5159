"""A compacted topic as a table: clients write values of their keys, and others read all of it again and again."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import ErrorCode, KraftlogError
from kraftlog.testing.world.history import TableHistory
from kraftlog.wire.messages.create_topics import CreateTopicsRequest

from .broker_links import BrokerLinks
from .workloads import read_all

TABLE = "table"
WRITERS = 2
KEYS_PER_WRITER = 6
TOMBSTONES = 0.2


async def tables(cluster):
    """Two writers with keys of their own, and a reader; in the end every key has its last value."""
    rng = random.Random(f"{cluster.seed}/table")
    history = TableHistory()
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    await _create(cluster, rng)
    pause_s = rng.choice((0.02, 0.1, 0.5))
    tasks = [
        asyncio.ensure_future(_write(cluster, servers, history, number, pause_s, random.Random(rng.random())))
        for number in range(WRITERS)
    ]
    tasks.append(asyncio.ensure_future(_read(cluster, servers, history)))
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    last = {}
    for records in (await read_all(servers, topic=TABLE)).values():
        last |= history.check_read(map(_value_of, records))
    history.check_complete(last)
    cluster.tell("client", f"of {history.write_count} values the last of each key is there")


async def _create(cluster, rng):
    configs = [
        CreateTopicsRequest.CreatableTopicConfig(name="cleanup.policy", value="compact"),
        CreateTopicsRequest.CreatableTopicConfig(name="segment.ms", value=str(rng.choice((500, 3000)))),
        CreateTopicsRequest.CreatableTopicConfig(name="min.cleanable.dirty.ratio", value="0.01"),
    ]
    topic = CreateTopicsRequest.CreatableTopic(
        name=TABLE, num_partitions=rng.choice((1, 2)), replication_factor=-1, configs=configs
    )
    done = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    await BrokerLinks(cluster, "operator").ask_until(
        CreateTopicsRequest(topics=[topic]), lambda answer: answer.topics[0].error_code in done
    )


async def _write(cluster, servers, history, number, pause_s, rng):
    settings = {"delivery.timeout.ms": "3600000", "request.timeout.ms": "5000", "linger.ms": "0"}
    async with AsyncProducer({**servers, **settings}) as producer:
        while not cluster.is_quiet:
            key = f"writer {number} key {rng.randrange(KEYS_PER_WRITER)}".encode()
            value = None if rng.random() < TOMBSTONES else b"%x" % rng.getrandbits(64)
            written = history.written(key, value)
            await (await producer.send(TABLE, value, key=key, headers=[("number", b"%d" % written)]))
            history.acked(key, written)
            await asyncio.sleep(pause_s)


async def _read(cluster, servers, history):
    while not cluster.is_quiet:
        with suppress(KraftlogError, TimeoutError):  # no leader, perhaps for long
            async with asyncio.timeout(30):
                for records in (await read_all(servers, topic=TABLE)).values():
                    history.check_read(map(_value_of, records))
        await asyncio.sleep(1)


def _value_of(record):
    return record.key, int(dict(record.headers)["number"]), record.value
