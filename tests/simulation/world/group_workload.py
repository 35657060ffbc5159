"""Groups whose members come and go while nodes fail: no record is skipped, and at the end every one is processed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.errors import KraftlogError
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.history import GroupHistory, RecordHistory
from kraftlog.types import TopicPartition

from .workloads import TOPIC, produce, record_of

GROUP = "workers"
MEMBERS = 3
PROTOCOLS = (
    {"group.protocol": "consumer"},
    {"group.protocol": "consumer", "group.remote.assignor": "range"},
    {"group.protocol": "classic", "partition.assignment.strategy": "range"},
    {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"},
)
# An operator may add partitions: classic groups and producers learn of them with their metadata.
CLASSIC_TIMES = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1500", "metadata.max.age.ms": "5000"}
DRAINED_WITHIN_S = 120


class _Run:
    """What the members of one run share."""

    def __init__(self, cluster):
        self.cluster = cluster
        rng = random.Random(f"{cluster.seed}/group")
        self.settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": rng.choice(("true", "false")),
            "auto.commit.interval.ms": "3000",
            **rng.choice(PROTOCOLS),
        }
        if self.settings["group.protocol"] == "classic":
            self.settings |= CLASSIC_TIMES
        # Static members (KIP-345) come back to what they had, unless they are missed before.
        self.is_static = not random.Random(f"{cluster.seed}/static").randrange(3)
        self.pause_s = rng.choice((0.05, 0.2))
        self.stays_s = rng.choice(((1, 4), (3, 20), (60, 90)))
        self.records, self.group = RecordHistory(), GroupHistory()
        self.is_drained = False
        self.assigned = {}

    def is_settled(self, names, committed):
        """Whether each partition has one member; checks what was committed."""
        for name, offset in committed.items():
            self.group.committed(TOPIC, name.partition, offset)
        self.group.check(TOPIC, self.records.acked_places(TOPIC))
        return Counter(name for assigned in self.assigned.values() for name in assigned) == Counter(names)


async def groups(cluster):
    """One producer and three members; the protocol, how they commit and how long they stay are drawn."""
    shared = _Run(cluster)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    told = ", ".join(f"{name}={value}" for name, value in shared.settings.items() if name != "bootstrap.servers")
    kind = "static members" if shared.is_static else "members"
    cluster.tell("client", f"{kind} stay {shared.stays_s} s: {told}")
    members = [
        cluster.begin(_member(shared, f"member-{number}"), client=f"member-{number}") for number in range(MEMBERS)
    ]
    await produce(cluster, servers, shared.records, "only", shared.pause_s)
    await drained(servers, GROUP, members, shared.is_settled)
    shared.is_drained = True
    while not all(member.done() for member in members):  # noqa: ASYNC110  they run on other machines
        await asyncio.sleep(0.1)
    for member in members:
        member.result()
    cluster.tell("client", f"{shared.group.processed_count} records were processed by the group, none was skipped")


async def _member(shared, name):
    """Joins, works and leaves, again and again; once nothing fails any more it stays until all is processed."""
    cluster = shared.cluster
    rng = random.Random(f"{cluster.seed}/{name}")
    while not shared.is_drained:
        until_s = asyncio.get_running_loop().time() + rng.uniform(*shared.stays_s)
        settings = {**shared.settings, "client.id": name}
        if shared.is_static:
            settings["group.instance.id"] = name
        consumer = AsyncConsumer(settings)
        await consumer.start()
        consumer.subscribe([TOPIC])
        uncommitted = {}
        while not shared.is_drained and (cluster.is_quiet or asyncio.get_running_loop().time() < until_s):
            with suppress(KraftlogError):
                await _work(shared, consumer, uncommitted)
            shared.assigned[name] = consumer.assignment
        shared.assigned[name] = ()
        # A member that dies is missed only after its session.
        await consumer.close(timeout_s=5, leave_group=rng.choice((None, False)))


async def _work(shared, consumer, uncommitted):
    for record in await consumer.poll_records(0.5):
        shared.records.read(TOPIC, record.partition, record.offset, *record_of(record))
        shared.group.processed(TOPIC, record.partition, record.offset)
        uncommitted[TopicPartition(TOPIC, record.partition)] = record.offset + 1
    if shared.settings["enable.auto.commit"] == "false":
        for lost in uncommitted.keys() - set(consumer.assignment):
            del uncommitted[lost]
        if uncommitted:
            await consumer.commit(uncommitted)
            for name, offset in uncommitted.items():
                shared.group.committed(TOPIC, name.partition, offset)
            uncommitted.clear()


async def drained(servers, group, members, is_settled):
    """Return when the group has committed every end and ``is_settled(names, committed)`` says so, too.

    Args:
        servers: Settings of a client of the cluster.
        group: Its id.
        members: Tasks, none of which ends before.
        is_settled: Called with the partitions and their committed offsets; raises what it finds.
    """
    what = "nothing is known"
    settings = {"group.id": group, "enable.auto.commit": "false", "metadata.max.age.ms": "1000"}
    async with AsyncConsumer({**servers, **settings}) as observer:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + DRAINED_WITHIN_S
        while loop.time() < until_s:
            for member in members:
                if member.done():
                    member.result()
            with suppress(KraftlogError):
                names = await observer.partitions_for(TOPIC)
                observer.assign(names)
                ends = await observer.end_offsets(names)
                committed = {name: known.offset for name, known in (await observer.committed(names)).items()}
                what = f"ends {ends}, committed {committed}"
                if is_settled(names, committed) and all(committed.get(name, 0) == end for name, end in ends.items()):
                    return
            await asyncio.sleep(0.5)
    raise InvariantViolationError("group liveness", f"{group} is behind after {DRAINED_WITHIN_S} s: {what}")
