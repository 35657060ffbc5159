"""Producers that send many records before they wait for one: batches, codecs, a full buffer, time-outs of delivery."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import KraftlogError
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.history import RecordHistory

from .workloads import TOPIC, read_all, record_of

PRODUCERS = 3
ALL_WITHIN_S = 60
# One that gives up does so while its requests are on their way, or wait in a broker.
DELIVERY_TIMES = (
    {"request.timeout.ms": "5000", "delivery.timeout.ms": "3600000"},
    {"request.timeout.ms": "1000", "delivery.timeout.ms": "1500"},
    {"request.timeout.ms": "3000", "delivery.timeout.ms": "4000"},
)


async def bursts(cluster):
    """Idempotent producers: a record that is acknowledged stays, none is there twice or before an earlier one."""
    history = RecordHistory()
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    failed = await asyncio.gather(*(_produce(cluster, servers, history, f"p{number}") for number in range(PRODUCERS)))
    for name, found in (await read_all(servers)).items():
        history.check_complete(TOPIC, name.partition, [(record.offset, *record_of(record)) for record in found])
    cluster.tell("client", f"{history.acked_count} records were acknowledged and are there, {sum(failed)} failed")


async def _produce(cluster, servers, history, name):
    """Send bursts; returns how many records were given up."""
    rng = random.Random(f"{cluster.seed}/{name}")
    settings = {
        "linger.ms": rng.choice(("0", "5", "100")),
        "batch.size": rng.choice(("100", "1000", "1048576")),
        "buffer.memory": rng.choice(("1000", "33554432")),
        "compression.type": rng.choice(("none", "gzip", "snappy", "lz4", "zstd")),
        "metadata.max.age.ms": "5000",
        **rng.choice(DELIVERY_TIMES),
    }
    most, pause_s = rng.choice((3, 30, 100)), rng.choice((0.05, 0.3, 1.0))
    has_keys = rng.randrange(2)
    cluster.tell(name, f"sends up to {most} records at once: {settings}")
    number = failed = 0
    async with AsyncProducer({**servers, **settings}) as producer:
        while not cluster.is_quiet:
            deliveries = {}
            for _ in range(rng.randrange(1, most + 1)):
                number += 1
                history.sent(name, number)
                key = str(rng.randrange(8)).encode() if has_keys else None
                with suppress(KraftlogError):
                    deliveries[number] = await producer.send(TOPIC, f"{name} {number}".encode(), key=key)
            if not rng.randrange(8):
                await asyncio.sleep(rng.uniform(0, 0.1))  # some are acknowledged, or have failed, before they are asked
            for sent, delivery in deliveries.items():
                try:
                    found = await delivery
                except KraftlogError:
                    failed += 1
                else:
                    history.acked(TOPIC, found.partition, found.offset, name, sent)
            await asyncio.sleep(pause_s)
        await _reach_all(cluster, servers, producer, history, name, number)
    return failed


async def _reach_all(cluster, servers, producer, history, name, number):
    """Once nothing fails any more, records without a key go to each partition, to those that were added too."""
    while cluster.what_is_missing() is not None:  # noqa: ASYNC110  no event says so
        await asyncio.sleep(0.5)
    async with AsyncConsumer(servers) as observer:
        missing = {partition.partition for partition in await observer.partitions_for(TOPIC)}
    until_s = asyncio.get_running_loop().time() + ALL_WITHIN_S
    while missing:
        if asyncio.get_running_loop().time() > until_s:
            reason = f"{name} sends nothing to the partitions {sorted(missing)} of {TOPIC}"
            raise InvariantViolationError("producer metadata", reason)
        number += 1
        history.sent(name, number)
        with suppress(KraftlogError):
            found = await producer.send_and_wait(TOPIC, f"{name} {number}".encode())
            history.acked(TOPIC, found.partition, found.offset, name, number)
            missing.discard(found.partition)
        await asyncio.sleep(0.5)
