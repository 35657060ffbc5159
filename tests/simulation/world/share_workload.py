"""A share group whose members come and go while nodes fail (KIP-932), by its wire protocol."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from uuid import UUID

from kraftlog._kraftlog import read_batches
from kraftlog.errors import CorruptRecordError, ErrorCode, KafkaError
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.history import RecordHistory, ShareHistory
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from kraftlog.wire.messages.share_fetch import ShareFetchRequest
from kraftlog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .broker_links import PASSING, BrokerLinks
from .workloads import TOPIC, produce

GROUP = "sharers"
MEMBERS = 3
ACCEPT, RELEASE = 1, 2
GROUP_RESOURCE = 32
SET = 0
DRAINED_WITHIN_S = 150
MOST_DELIVERIES = 10
SETTINGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "15000",
    "share.delivery.count.limit": str(MOST_DELIVERIES),
}


async def shares(cluster):
    """One producer and three members, which accept most records and release or forget the others."""
    if cluster.levels.get("share.version") == 0:
        while not cluster.is_quiet:  # noqa: ASYNC110  no event says so
            await asyncio.sleep(1)
        return
    rng = random.Random(f"{cluster.seed}/share")
    records, history = RecordHistory(), ShareHistory()
    stays_s = rng.choice(((1, 4), (3, 20), (60, 90)))
    cluster.tell("client", f"members stay {stays_s} s")
    end = asyncio.Event()
    await _configure(cluster)
    members = [
        cluster.begin(_live(cluster, f"member-{number}", history, stays_s, end), client=f"member-{number}")
        for number in range(MEMBERS)
    ]
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    await produce(cluster, servers, records, "only", rng.choice((0.05, 0.2)))
    loop = asyncio.get_running_loop()
    until_s = loop.time() + DRAINED_WITHIN_S
    wanted = records.acked_places(TOPIC)
    while missing := history.missing(wanted, MOST_DELIVERIES):
        for member in members:
            if member.done():
                member.result()
        if loop.time() > until_s:
            what = f"{sorted(missing)[:10]} of {len(missing)} records"
            reason = f"{what} were delivered to nobody who accepts them within {DRAINED_WITHIN_S} s"
            raise InvariantViolationError("share group liveness", reason)
        await asyncio.sleep(0.5)
    end.set()
    for member in members:
        while not member.done():  # noqa: ASYNC110  it runs on another machine
            await asyncio.sleep(0.1)
        member.result()
    cluster.tell("client", f"{len(wanted)} records were delivered, none again after its acceptance was stored")


async def _configure(cluster):
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=SET, value=value)
        for name, value in SETTINGS.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=configs
    )
    message = IncrementalAlterConfigsRequest(resources=[resource])
    await BrokerLinks(cluster, "operator").ask_until(message, lambda answer: not answer.responses[0].error_code)


class _Member:
    """One member: heartbeats, and fetches from the leaders of what it was assigned."""

    def __init__(self, cluster, name, history, rng):
        self.cluster = cluster
        self.links = BrokerLinks(cluster, name)
        self.history, self.rng = history, rng
        self.member_id = str(UUID(int=rng.getrandbits(128)))
        self.epoch = 0
        self.assigned = {}
        self.is_answered = False
        self.coordinator = None
        self.leaders = {}
        self.sessions = {}
        self.next_beat_s = 0.0
        self.has_more = False

    async def beat(self):
        if self.coordinator is None:
            answer = await self.links.ask(
                self.links.any(), FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
            )
            found = answer.coordinators[0]
            _check(found.error_code)
            self.coordinator = (found.host, found.port)
        # An answer that is lost may have brought an assignment, which the coordinator repeats only to a full request.
        is_full = self.epoch == 0 or not self.is_answered
        self.is_answered = False
        answer = await self.links.ask(
            self.coordinator,
            ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=self.epoch,
                subscribed_topic_names=[TOPIC] if is_full else None,
            ),
        )
        if answer.error_code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}:
            self.epoch, self.assigned = 0, {}
            return
        _check(answer.error_code)
        self.is_answered = True
        self.epoch = answer.member_epoch
        self.next_beat_s = asyncio.get_running_loop().time() + answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self.assigned = {each.topic_id: tuple(each.partitions) for each in answer.assignment.topic_partitions}
            self.leaders = {}

    async def leave(self):
        request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=-1)
        if self.coordinator is not None and self.epoch > 0:
            await self.links.ask(self.coordinator, request)

    async def find_leaders(self):
        topics = [MetadataRequest.MetadataRequestTopic(name=TOPIC)]
        answer = await self.links.ask(self.links.any(), MetadataRequest(topics=topics))
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        leaders = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.partition_index in self.assigned.get(topic.topic_id, ()):
                    _check(partition.error_code)
                    place = (topic.topic_id, partition.partition_index)
                    leaders.setdefault(brokers[partition.leader_id], []).append(place)
        for address in self.sessions.keys() - leaders.keys():
            self.forget(address)
        self.leaders = leaders

    def forget(self, address):
        self.sessions.pop(address, None)
        self.links.close(address)

    async def work(self):
        """Fetch once from each leader, and acknowledge what came.

        When the faults are over, a member whom one leader gives records does not wait for those that have none: a fetch
        reads one segment, which may hold a single batch, and all has to be delivered in a bounded time.
        """
        has_more = self.cluster.is_quiet and self.has_more
        self.has_more = False
        for address, places in list(self.leaders.items()):
            try:
                await self.work_with(address, places, max_wait_ms=0 if has_more else 200)
            except PASSING:
                self.forget(address)
                self.leaders = {}
                return

    async def work_with(self, address, places, *, max_wait_ms):
        epoch, known = self.sessions.get(address, (0, ()))
        if known != tuple(places):
            self.forget(address)
            epoch = 0
        self.sessions[address] = (epoch + 1, tuple(places))
        asked_after = self.history.accepted_count
        answer = await self.links.ask(
            address,
            ShareFetchRequest(
                group_id=GROUP,
                member_id=self.member_id,
                share_session_epoch=epoch,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_records=20,
                batch_size=20,
                topics=_fetch_topics(places) if epoch == 0 else (),
            ),
        )
        _check(answer.error_code)
        acknowledged, has_moved = {}, False
        for topic in answer.responses:
            for partition in topic.partitions:
                has_moved |= partition.error_code != 0
                sound = _sound_offsets(partition.records)
                leader = self.cluster.leader_of(TOPIC, partition.partition_index)
                is_by_leader = leader is not None and self.cluster.nodes[leader].address == address[0]
                for acquired in partition.acquired_records:
                    for offset in range(acquired.first_offset, acquired.last_offset + 1):
                        self.history.delivered(
                            partition.partition_index,
                            offset,
                            acquired.delivery_count,
                            is_by_leader=is_by_leader,
                            asked_after=asked_after,
                        )
                        kind = self.rng.choices((ACCEPT, RELEASE, None), (20, 3, 1))[0]
                        if offset not in sound:
                            kind = RELEASE
                        if kind is not None:
                            if kind == ACCEPT:
                                self.history.accepting(partition.partition_index, offset)
                            place = (topic.topic_id, partition.partition_index)
                            acknowledged.setdefault(place, []).append((offset, kind))
        if acknowledged:
            self.has_more = True
            await self.acknowledge(address, acknowledged)
        _check(ErrorCode.NOT_LEADER_OR_FOLLOWER if has_moved else 0)

    async def acknowledge(self, address, acknowledged):
        epoch, places = self.sessions[address]
        self.sessions[address] = (epoch + 1, places)
        batch = ShareAcknowledgeRequest.AcknowledgementBatch
        topics = [
            ShareAcknowledgeRequest.AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    ShareAcknowledgeRequest.AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            batch(first_offset=offset, last_offset=offset, acknowledge_types=(kind,))
                            for offset, kind in offsets
                        ],
                    )
                ],
            )
            for (topic_id, index), offsets in acknowledged.items()
        ]
        answer = await self.links.ask(
            address,
            ShareAcknowledgeRequest(group_id=GROUP, member_id=self.member_id, share_session_epoch=epoch, topics=topics),
        )
        _check(answer.error_code)
        for topic in answer.responses:
            for partition in topic.partitions:
                if not partition.error_code:
                    for offset, kind in acknowledged[topic.topic_id, partition.partition_index]:
                        if kind == ACCEPT:
                            self.history.accepted(partition.partition_index, offset)


def _sound_offsets(records):
    """Offsets of the batches that have their checksum; a disk may have spoilt the others."""
    data, sound = memoryview(records or b""), set()
    with suppress(CorruptRecordError):  # a header: nobody can tell what follows
        for batch in read_batches(data, check_crc=False):
            with suppress(CorruptRecordError):
                read_batches(data[batch.position : batch.position + batch.size_bytes])
                sound.update(range(batch.base_offset, batch.last_offset + 1))
    return sound


def _fetch_topics(places):
    topics = {}
    for topic_id, index in places:
        topics.setdefault(topic_id, []).append(ShareFetchRequest.FetchPartition(partition_index=index))
    return [ShareFetchRequest.FetchTopic(topic_id=each, partitions=found) for each, found in topics.items()]


def _check(code):
    if code:
        raise KafkaError(code)


async def _live(cluster, name, history, stays_s, end):
    """Join, work and leave, again and again; a member that dies leaves its locks and its membership behind."""
    loop, rng = asyncio.get_running_loop(), random.Random(f"{cluster.seed}/{name}")
    while not end.is_set():
        member = _Member(cluster, name, history, rng)
        until_s = loop.time() + rng.uniform(*stays_s)
        while not end.is_set() and (cluster.is_quiet or loop.time() < until_s):
            try:
                if loop.time() >= member.next_beat_s:
                    await member.beat()
                if member.assigned and not member.leaders:
                    await member.find_leaders()
            except PASSING:
                member.coordinator = None
                member.links.close()
                member.sessions.clear()
            if member.leaders:
                await member.work()
            if not (cluster.is_quiet and member.has_more):
                await asyncio.sleep(0.1)
        if rng.random() < 0.5:
            with suppress(*PASSING):
                await member.leave()
        member.links.close()
