"""A topic whose beginning goes, by DeleteRecords and by retention, while readers are behind.

Brokers that are down need not know of a deletion, as in Apache Kafka: one of them may lead later, and its log begins
where it did. That no log begins earlier than it did is a rule of the checkers.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import ErrorCode, KraftlogError
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.node_machine import BROKER_PORT
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_records import DeleteRecordsRequest

from .broker_links import PASSING, BrokerLinks
from .workloads import read_all

NAME = "trims"
HIGH_WATERMARK = -1


class Trims:
    """What clients were told of one partition: acknowledged records, and up to where records were deleted."""

    def __init__(self, name, highest_start):
        self.name = name
        self.acked = {}
        self.deleted_end = 0
        self._highest_start = highest_start

    def deleted(self, asked, low_watermark):
        """A request to delete records was acknowledged."""
        if low_watermark < asked:
            reason = f"{self.name}: records before {asked} are deleted, the low watermark is {low_watermark}"
            raise InvariantViolationError("RINV-19", reason)
        self.deleted_end = max(self.deleted_end, low_watermark)

    def check_step(self, offset, next_offset):
        """A reader that was to read one offset got another one: what lies between is not there any more."""
        if not offset <= next_offset <= max(offset, self._highest_start()):
            reason = f"{self.name}: a reader gets offset {next_offset} instead of {offset}"
            raise InvariantViolationError("RINV-11", f"{reason}, no log begins behind {self._highest_start()}")

    def check_value(self, offset, value):
        """What a reader gets is what was acknowledged."""
        if self.acked.get(offset, value) != value:
            raise InvariantViolationError("RINV-01", f"{self.name}: {value!r} at {offset}, not {self.acked[offset]!r}")

    def check(self, records):
        """What is there in the end: everything from the beginning of the log on."""
        begin = records[0].offset
        self.check_step(0, begin)
        for number, record in enumerate(records):
            if record.offset != begin + number:
                raise InvariantViolationError("RINV-01", f"{self.name}: {record.offset} instead of {begin + number}")
            self.check_value(record.offset, record.value)
        lost = [offset for offset in self.acked if offset >= begin + len(records)]
        if lost:
            raise InvariantViolationError("RINV-01", f"{self.name}: {lost[0]} was acknowledged and is behind the end")


async def trims(cluster):
    """Two producers, an operator that deletes, and readers: what is read has no gap but what was deleted."""
    rng = random.Random(f"{cluster.seed}/trims")
    partitions = rng.choice((1, 2))
    retention_bytes = rng.choice((-1, -1, 2_000))
    links = BrokerLinks(cluster, "operator")
    await _create(links, partitions, retention_bytes)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    pause_s = rng.choice((0.02, 0.1, 0.5))
    found = {}
    for index in range(partitions):
        name = TopicPartition(NAME, index)
        found[name] = Trims(
            f"{NAME}-{index}", lambda name=name: cluster.checkers.partitions.highest_start(name.topic, name.partition)
        )
    done = asyncio.get_running_loop().create_future()
    operator = asyncio.ensure_future(_delete(cluster, rng, links, found))
    racks = ("", f"rack-{rng.randrange(1, 8)}")
    readers = [asyncio.ensure_future(_read(servers, found, done, rack, rng)) for rack in racks]
    try:
        await asyncio.gather(*(_write(cluster, servers, writer, found, pause_s) for writer in range(2)))
        await operator
        while cluster.what_is_missing() is not None:  # noqa: ASYNC110  no event says so
            await asyncio.sleep(0.5)
        await _write_last(servers, found)
        done.set_result(None)
        jumps = sum(await asyncio.gather(*readers))
        everything = await read_all(servers, topic=NAME)
        for name, trims_of in found.items():
            trims_of.check(everything.pop(name))
        # An operator may have added partitions, to which nothing is written.
        assert not any(everything.values()), everything
    finally:
        for task in (operator, *readers):
            task.cancel()
    deleted = sum(each.deleted_end for each in found.values())
    acked = sum(len(each.acked) for each in found.values())
    cluster.tell(
        "client", f"{acked} records were acknowledged, {deleted} deleted; readers found the log cut {jumps} times"
    )


async def _create(links, partitions, retention_bytes):
    configs = {"retention.ms": "-1", "retention.bytes": str(retention_bytes), "segment.ms": "500"}
    topic = CreateTopicsRequest.CreatableTopic(
        name=NAME,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    final = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    await links.ask_until(CreateTopicsRequest(topics=[topic]), lambda answer: answer.topics[0].error_code in final)


async def _delete(cluster, rng, links, found):
    """Delete up to some offset now and then, at the leader of a partition."""
    most_s = rng.choice((1, 5, 30))
    while not cluster.is_quiet:
        await asyncio.sleep(rng.uniform(0.2, most_s))
        name = rng.choice(list(found))
        leader = cluster.leader_of(name.topic, name.partition)
        if leader is None:
            continue
        highest = max(found[name].acked, default=0)
        offset = rng.choice((HIGH_WATERMARK, rng.randrange(highest + 1), rng.randrange(highest + 1)))
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=name.partition, offset=offset)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=NAME, partitions=[partition])
        address = (cluster.nodes[leader].address, BROKER_PORT)
        try:
            answer = await links.ask(address, DeleteRecordsRequest(topics=[topic], timeout_ms=2_000))
        except PASSING:
            links.close(address)
            continue
        result = answer.topics[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            found[name].deleted(offset, result.low_watermark)


async def _write(cluster, servers, writer, found, pause_s):
    """Write batches of some records until no fault happens any more; a producer that cannot go on is replaced."""
    settings = {"delivery.timeout.ms": "8000", "request.timeout.ms": "2000", "linger.ms": "5", **servers}
    names = list(found)
    number = 0
    while not cluster.is_quiet:
        with suppress(KraftlogError):
            async with AsyncProducer(settings) as producer:
                while not cluster.is_quiet:
                    name = names[number % len(names)]
                    number += 1
                    values = [f"{writer} {number} {part}".encode() for part in range(1 + number % 4)]
                    sent = [await producer.send(NAME, value, partition=name.partition) for value in values]
                    for value, acked in zip(values, sent, strict=True):
                        found[name].acked[(await acked).offset] = value
                    await asyncio.sleep(pause_s)


async def _write_last(servers, found):
    """A record at the end of each partition."""
    async with AsyncProducer({**servers, "linger.ms": "0"}) as producer:
        for name, trims_of in found.items():
            acked = await (await producer.send(NAME, b"last", partition=name.partition))
            trims_of.acked[acked.offset] = b"last"


async def _read(servers, found, done, rack, rng):
    """Read on, slowly at times, until the last records are read; returns how often the log was cut meanwhile."""
    settings = {"auto.offset.reset": "earliest", "metadata.max.age.ms": "5000", "client.rack": rack}
    wanted = dict.fromkeys(found, 0)
    last = set()
    jumps = 0
    async with AsyncConsumer({**servers, **settings}) as consumer:
        consumer.assign(list(found))
        while not (done.done() and len(last) == len(found)):
            with suppress(KraftlogError):
                for record in await consumer.poll_records(0.5):
                    name = TopicPartition(NAME, record.partition)
                    found[name].check_step(wanted[name], record.offset)
                    found[name].check_value(record.offset, record.value)
                    jumps += record.offset != wanted[name]
                    wanted[name] = record.offset + 1
                    if record.value == b"last":
                        last.add(name)
            if not done.done():
                await asyncio.sleep(rng.choice((0, 0, 1, 10)))
    return jumps
