"""Workers that read, process and write in transactions while nodes fail: each record counts exactly once (KIP-447)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import KraftlogError
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.history import RecordHistory

from .group_workload import CLASSIC_TIMES, PROTOCOLS, drained
from .workloads import TOPIC, produce, read_all, record_of

RESULTS = "results"
GROUP = "pipeline"
WORKERS = 2


class _Run:
    """What the workers of one run share."""

    def __init__(self, cluster):
        self.cluster = cluster
        rng = random.Random(f"{cluster.seed}/pipeline")
        self.servers = {"bootstrap.servers": cluster.bootstrap_servers}
        self.settings = {
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **rng.choice(PROTOCOLS),
        }
        if self.settings["group.protocol"] == "classic":
            self.settings |= CLASSIC_TIMES
        self.pause_s = rng.choice((0.05, 0.2))
        self.stays_s = rng.choice(((1, 4), (3, 20), (60, 90)))
        self.records = RecordHistory()
        self.is_drained = False


async def pipelines(cluster):
    """One producer, two workers and their results; the protocol of the group and how long workers stay are drawn."""
    shared = _Run(cluster)
    told = ", ".join(f"{name}={value}" for name, value in shared.settings.items())
    cluster.tell("client", f"workers stay {shared.stays_s} s: {told}")
    workers = [
        cluster.begin(_worker(shared, f"worker-{number}"), client=f"worker-{number}") for number in range(WORKERS)
    ]
    await produce(cluster, shared.servers, shared.records, "only", shared.pause_s)
    await drained(shared.servers, GROUP, workers, lambda _names, _committed: True)
    shared.is_drained = True
    while not all(worker.done() for worker in workers):  # noqa: ASYNC110  they run on other machines
        await asyncio.sleep(0.1)
    for worker in workers:
        worker.result()
    await _check(shared)


async def _worker(shared, name):
    """Works with a consumer and a producer of its own until something fails or its time is over, again and again."""
    cluster, loop = shared.cluster, asyncio.get_running_loop()
    rng = random.Random(f"{cluster.seed}/{name}")
    while not shared.is_drained:
        until_s = loop.time() + rng.uniform(*shared.stays_s)
        consumer = AsyncConsumer({**shared.servers, **shared.settings, "client.id": name})
        producer = AsyncProducer(
            {
                **shared.servers,
                "transactional.id": name,
                "delivery.timeout.ms": "8000",
                "request.timeout.ms": "2000",
                "linger.ms": "0",
            }
        )
        await consumer.start()
        await producer.start()
        consumer.subscribe([TOPIC])
        with suppress(KraftlogError):
            await producer.init_transactions()
            while not shared.is_drained and (cluster.is_quiet or loop.time() < until_s):
                await _transact(shared, consumer, producer)
        # One that dies leaves its membership, and perhaps a transaction, until somebody misses it.
        with suppress(KraftlogError, TimeoutError):
            await producer.close(timeout_s=2)
        await consumer.close(timeout_s=5, leave_group=rng.choice((None, False)))


async def _transact(shared, consumer, producer):
    found = await consumer.poll_records(0.5)
    if not found:
        return
    offsets = {}
    producer.begin_transaction()
    for record in found:
        shared.records.read(TOPIC, record.partition, record.offset, *record_of(record))
        result = f"{record.partition} {record.offset}".encode()
        await producer.send(RESULTS, result, key=result)
        offsets[TOPIC, record.partition] = record.offset + 1
    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata)
    await producer.commit_transaction()


async def _check(shared):
    wanted = Counter()
    for name, found in (await read_all(shared.servers)).items():
        shared.records.check_complete(TOPIC, name.partition, [(each.offset, *record_of(each)) for each in found])
        wanted.update((name.partition, each.offset) for each in found)
    results = await read_all(shared.servers, topic=RESULTS, **{"isolation.level": "read_committed"})
    seen = Counter(tuple(map(int, each.value.split())) for found in results.values() for each in found)
    if seen != wanted:
        reason = f"missing {sorted(wanted - seen)[:10]}, too often {sorted(seen - wanted)[:10]}"
        raise InvariantViolationError("exactly once", reason)
    shared.cluster.tell("client", f"{len(seen)} records have their results, each exactly once")
