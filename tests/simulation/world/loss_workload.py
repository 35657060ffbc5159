"""A topic with unclean elections: records may be lost, and consumers detect the truncation (KIP-320)."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import ErrorCode, KraftlogError, LogTruncationError
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.create_topics import CreateTopicsRequest

from .broker_links import BrokerLinks
from .workloads import read_all

NAME = "losses"
PRODUCERS = ({"acks": "1", "enable.idempotence": "false"}, {"acks": "all"})
RESETS = ("none", "earliest", "latest")
# A reader that waits for the end of a log hears of an election by then.
METADATA_MS = "5000"
# For so long a reader that has as many records as there are goes on, and in the end gives up one that has not.
HEARD_S, GIVEN_UP_S = 10, 60


class View:
    """What a reader believes to be in a partition: the records that it read, without those that were truncated.

    A reader with a reset policy gets no error: an offset that it reads again shows the truncation.
    """

    def __init__(self, name, reset):
        self.name = name
        self.reset = reset
        self.values = []
        self.told_count = 0

    def read(self, offset, value):
        """A record came; nothing may be missing before it."""
        if self.reset != "none" and offset < len(self.values):
            self.truncated(offset)
        if offset != len(self.values):
            reason = (
                f"{self.name}: a reader gets offset {offset} after {len(self.values)} records, and was told nothing"
            )
            raise InvariantViolationError("RINV-30", reason)
        self.values.append(value)

    def truncated(self, offset):
        """The log differs from what was read, from this offset on."""
        self.told_count += 1
        del self.values[offset:]

    def check(self, values):
        """What the partition has in the end."""
        if self.values != values:
            pairs = enumerate(zip(self.values, values, strict=False))
            where = next(
                (number for number, (ours, found) in pairs if ours != found), min(map(len, (self.values, values)))
            )
            reason = f"{self.name}: a reader believes that {len(self.values)} records are there, {len(values)} are;"
            raise InvariantViolationError("RINV-30", f"{reason} they differ from offset {where} on")


class Ends:
    """How many records each partition has in the end, and how long readers wait for them."""

    def __init__(self, counts, clock):
        self.counts = counts
        self.clock = clock
        self.known_s = clock()

    def are_read(self, counts):
        """Whether a reader that has so many records is done, or never will be."""
        passed_s = self.clock() - self.known_s
        has_all = all(count == self.counts[name] for name, count in counts.items())
        return passed_s >= (HEARD_S if has_all else GIVEN_UP_S)


async def losses(cluster):
    """Producers that may lose records, and three readers: in the end each of them has read what is there."""
    rng = random.Random(f"{cluster.seed}/losses")
    partitions = rng.choice((1, 2))
    await _create(cluster, partitions)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    pause_s = rng.choice((0.02, 0.1, 0.5))
    names = [TopicPartition(NAME, index) for index in range(partitions)]
    ends = asyncio.get_running_loop().create_future()
    strikes = asyncio.ensure_future(_strike(cluster, rng, partitions))
    readers = [asyncio.ensure_future(_read(servers, names, cluster, ends, reset)) for reset in RESETS]
    writers = [
        asyncio.ensure_future(_write(cluster, {**servers, **settings}, number, names, pause_s))
        for number, settings in enumerate(PRODUCERS)
    ]
    try:
        await asyncio.gather(*writers)
        while cluster.what_is_missing() is not None:  # noqa: ASYNC110  no event says so
            await asyncio.sleep(0.5)
        await _write_last(servers, names)
        found = {
            name: [record.value for record in read] for name, read in (await read_all(servers, topic=NAME)).items()
        }
        ends.set_result(Ends({name: len(values) for name, values in found.items()}, asyncio.get_running_loop().time))
        told = 0
        for views in await asyncio.gather(*readers):
            for name, view in views.items():
                view.check(found[name])
                told += view.told_count
    finally:
        for task in (strikes, *readers, *writers):
            task.cancel()
    count = sum(map(len, found.values()))
    cluster.tell("client", f"the readers have the {count} records that are there, and were told {told} times of losses")


async def _create(cluster, partitions):
    configs = {"min.insync.replicas": "1", "retention.ms": "-1", "unclean.leader.election.enable": "true"}
    topic = CreateTopicsRequest.CreatableTopic(
        name=NAME,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    done = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    await BrokerLinks(cluster, "operator").ask_until(
        CreateTopicsRequest(topics=[topic]), lambda answer: answer.topics[0].error_code in done
    )


async def _strike(cluster, rng, partitions):
    """Let leaders go on alone, and then end: who takes their place lacks what they committed."""
    pause_s = rng.choice((2, 6, 1000))

    def happens(action, *arguments):
        cluster.world.after_ms(0, lambda: None if cluster.is_quiet else action(*arguments))

    while not cluster.is_quiet:
        await asyncio.sleep(rng.uniform(0.5, pause_s))
        leader = cluster.leader_of(NAME, rng.randrange(partitions))
        others = [name for name, machine in cluster.nodes.items() if "broker" in machine.roles and name != leader]
        if leader is None:
            continue
        for other in others:
            happens(cluster.cut, leader, other)
        await asyncio.sleep(rng.uniform(1, 8))
        happens(rng.choice((cluster.kill, cluster.power_off)), leader)
        for other in others:
            happens(cluster.mend_links, leader, other)
        await asyncio.sleep(rng.uniform(0.5, 6))
        happens(cluster.start, leader)


async def _write(cluster, settings, writer, names, pause_s):
    """Write until no fault happens any more; a producer that cannot go on is replaced."""
    settings = {"delivery.timeout.ms": "8000", "request.timeout.ms": "2000", "linger.ms": "0", **settings}
    number = 0
    while not cluster.is_quiet:
        with suppress(KraftlogError):
            async with AsyncProducer(settings) as producer:
                while not cluster.is_quiet:
                    number += 1
                    value = f"{writer} {number}".encode()
                    await (await producer.send(NAME, value, partition=names[number % len(names)].partition))
                    await asyncio.sleep(pause_s)


async def _write_last(servers, names):
    """A record at the end of each partition."""
    async with AsyncProducer({**servers, "linger.ms": "0"}) as producer:
        for name in names:
            await (await producer.send(NAME, b"last", partition=name.partition))


async def _read(servers, names, cluster, ends, reset):
    """Read up to the ends, once they are known; returns what this reader believes to be there.

    A reader that is beyond an end, or has as many records of another history, may not have heard of the last election
    yet: it reads on for longer than its metadata may be old.
    """
    views = {name: View(f"{name.topic}-{name.partition}", reset) for name in names}
    settings = {"auto.offset.reset": reset, "metadata.max.age.ms": METADATA_MS}
    heard = set()
    async with AsyncConsumer({**servers, **settings}) as consumer:
        consumer.assign(names)
        for name in names:
            consumer.seek(name, 0)
        while not (ends.done() and ends.result().are_read({name: len(view.values) for name, view in views.items()})):
            try:
                for record in await consumer.poll_records(0.5):
                    views[TopicPartition(NAME, record.partition)].read(record.offset, record.value)
            except LogTruncationError as error:
                diverging = error.diverging_offset
                offset = 0 if diverging is None else diverging.end_offset
                views[error.partition].truncated(offset)
                consumer.seek(error.partition, offset, leader_epoch=None if diverging is None else diverging.epoch)
            except KraftlogError as error:
                if repr(error) not in heard:
                    heard.add(repr(error))
                    cluster.tell("reader", f"hears {error!r}")
    return views
