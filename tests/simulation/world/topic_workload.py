"""A topic that is created, written, read and deleted, again and again under one name."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import ErrorCode, KraftlogError
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlog.wire.messages.metadata import MetadataRequest

from .broker_links import BrokerLinks
from .workloads import read_all

NAME = "scratch"
CREATED = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
WANTED = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=NAME)], allow_auto_topic_creation=False)
# In the last life.
RECORDS = 10
# Files of a deleted replica are removed a minute after they were renamed.
GONE_WITHIN_S = 150


async def topics(cluster):
    """One client per life of the topic; what it reads is what was written in that life.

    While faults happen, brokers may not know yet that the last topic is gone, and serve that one under its own id: only
    in the last life everything is there.
    """
    rng = random.Random(f"{cluster.seed}/topics")
    links = BrokerLinks(cluster, "operator")
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    life = 0
    while not cluster.is_quiet:
        life += 1
        topic_id = await _create(links, rng.choice((1, 2, 4)))
        acked, sent = [], []
        with suppress(KraftlogError, TimeoutError):
            async with asyncio.timeout(rng.choice((1, 5, 20))):
                await _write(servers, life, sent, acked, lambda: cluster.is_quiet)
        with suppress(KraftlogError, TimeoutError):
            async with asyncio.timeout(20):
                found, topic_ids = await _read(servers)
                if topic_ids <= {topic_id}:
                    _check(life, found, sent, [])
        await _delete(links, topic_id)
    acked, sent = [], []
    topic_id = await _create(links, 2)
    for address in links.all():
        await links.ask_until(WANTED, lambda answer: answer.topics[0].topic_id == topic_id, address=address)
    await _write(servers, life + 1, sent, acked, lambda: len(acked) == RECORDS)
    found, _ = await _read(servers)
    _check(life + 1, found, sent, acked)
    await _delete(links, topic_id)
    await _wait_until_gone(cluster)
    cluster.tell("client", f"{life + 1} topics had one name, and each its own records")


async def _create(links, partitions):
    """Create the topic, which nobody has; returns its id."""
    topic = CreateTopicsRequest.CreatableTopic(name=NAME, num_partitions=partitions, replication_factor=-1)
    answer = await links.ask_until(
        CreateTopicsRequest(topics=[topic]), lambda answer: answer.topics[0].error_code in CREATED
    )
    created = answer.topics[0]
    if created.error_code == ErrorCode.NONE:
        return created.topic_id
    # By a request whose answer was lost.
    answer = await links.ask_until(WANTED, lambda answer: answer.topics[0].error_code == ErrorCode.NONE)
    return answer.topics[0].topic_id


async def _delete(links, topic_id):
    """Delete the topic by its id, and wait until a broker that is asked does not know it."""
    topic = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
    gone = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID)
    await links.ask_until(DeleteTopicsRequest(topics=[topic]), lambda answer: answer.responses[0].error_code in gone)


async def _write(servers, life, sent, acked, is_done):
    settings = {"delivery.timeout.ms": "10000", "request.timeout.ms": "3000", "linger.ms": "0"}
    async with AsyncProducer({**servers, **settings}) as producer:
        while not is_done():
            value = f"life {life} record {len(sent)}".encode()
            sent.append(value)
            await (await producer.send(NAME, value))
            acked.append(value)
            await asyncio.sleep(0.05)


async def _read(servers):
    """The values of all records, and the ids of the topics that they were read from."""
    topic_ids = set()
    found = await read_all(servers, topic=NAME, topic_ids=topic_ids)
    return [record.value for records in found.values() for record in records], topic_ids


def _check(life, found, sent, acked):
    """Everything that was acknowledged is there, and nothing of another life."""
    if foreign := set(found) - set(sent):
        raise InvariantViolationError("RINV-20", f"{NAME} in life {life} has {sorted(foreign)[:3]}")
    if missing := set(acked) - set(found):
        raise InvariantViolationError("RINV-01", f"{NAME} in life {life} lacks {sorted(missing)[:3]}")
    if len(found) > len(set(found)):
        raise InvariantViolationError("RINV-05", f"{NAME} in life {life} has a record twice")


async def _wait_until_gone(cluster):
    """In the end no broker has files of a topic that was deleted."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + GONE_WITHIN_S
    while left := [
        f"{name}: {path.name}"
        for name, machine in cluster.nodes.items()
        for path in machine.data_path.iterdir()
        # A replica that was deleted while its broker was down is set aside and kept, as by Apache Kafka.
        if path.name.startswith(NAME) and not path.name.endswith("-stray")
    ]:
        if loop.time() > until_s:
            reason = f"{GONE_WITHIN_S} s after the last topic was deleted there are still {left[:5]}"
            raise InvariantViolationError("topic deletion", reason)
        await asyncio.sleep(1)
