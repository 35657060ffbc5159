"""One node, and a test that registers as broker 2 and plays a follower: time and offsets are the test's own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.features import supported_ranges
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.types import Uuid
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.produce import ProduceRequest
from replicated_cluster import ReplicatedCluster
from waiting import until

PUPPET = 2
LONG_LAG_MS = 60_000  # no step takes so long: who leaves the in-sync replicas, and when, is the test's own decision


@asynccontextmanager
async def connected(address):
    host, _, port = address.rpartition(":")
    connection = await RpcConnection.open(asyncio.get_running_loop(), host, int(port), client_id="2", timeout_s=30)
    try:
        yield connection
    finally:
        connection.close()


class Puppet:
    """Broker 2."""

    def __init__(self, cluster, controller, broker):
        self.cluster, self.controller, self.broker = cluster, controller, broker
        self.node = cluster.nodes[1]
        self.epoch = -1
        self.is_fenced = True

    async def register(self):
        response = await self.controller.request(
            BrokerRegistrationRequest(
                broker_id=PUPPET,
                cluster_id=self.node.cluster_id,
                incarnation_id=Uuid(b"i" * 16),
                listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=9)],
                features=[
                    BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in supported_ranges().items()
                ],
                log_dirs=[Uuid(b"d" * 16)],
                previous_broker_epoch=-1,
            )
        )
        assert response.error_code == 0
        self.epoch = response.broker_epoch

    async def beat(self):
        response = await self.controller.request(
            BrokerHeartbeatRequest(
                broker_id=PUPPET,
                broker_epoch=self.epoch,
                current_metadata_offset=self.node.metadata.image.offset,
                want_fence=self.is_fenced,
            )
        )
        assert response.error_code in {0, ErrorCode.REQUEST_TIMED_OUT}
        return response

    async def live(self):
        while True:
            await self.beat()
            await asyncio.sleep(0.2)

    def partition(self, topic, index=0):
        return self.cluster.partition(1, topic, index)

    def metadata(self, topic, index=0):
        return self.node.metadata.image.topics.by_name(topic).partitions[index]

    async def ask(self, topic, *wanted, session=(0, -1), wait_ms=0, max_bytes=1 << 20):
        """One fetch of (partition, fetch offset, last epoch), in a session of this id and epoch, or without one."""
        session_id, session_epoch = session
        partitions = [
            FetchRequest.FetchPartition(
                partition=index,
                current_leader_epoch=0,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                partition_max_bytes=max_bytes,
            )
            for index, offset, last_epoch in wanted
        ]
        topics = [FetchRequest.FetchTopic(topic_id=self.partition(topic).topic_id, partitions=partitions)]
        response = await self.broker.request(
            FetchRequest(
                replica_state=FetchRequest.ReplicaState(replica_id=PUPPET, replica_epoch=self.epoch),
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                session_id=session_id,
                session_epoch=session_epoch,
                topics=topics if wanted else [],
            )
        )
        assert (response.error_code, response.throttle_time_ms) == (0, 0)
        return response.session_id, [partition for answered in response.responses for partition in answered.partitions]

    async def fetch(self, topic, offset, *indexes, last_epoch=0, **options):
        wanted = [(index, offset, last_epoch if offset else -1) for index in indexes or (0,)]
        _, partitions = await self.ask(topic, *wanted, **options)
        return partitions

    async def produce(self, acks, *targets, timeout_ms=10_000):
        """Error code and base offset of each partition."""
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    topic_id=self.partition(topic).topic_id,
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=0, records=encode_batch([(0, None, b"x" * 50, [])]))
                    ],
                )
                for topic in targets
            ],
        )
        async with connected(self.cluster.bootstrap_servers) as client:
            response = await client.request(request)
        found = [partition for topic in response.responses for partition in topic.partition_responses]
        return [(partition.error_code, partition.base_offset) for partition in found]

    async def create(self, name, *replicas, **configs):
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in enumerate(replicas)
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        response = await self.broker.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert [created.error_code for created in response.topics] == [0], response
        await until(lambda: self.partition(name, len(replicas) - 1) is not None)


async def joins_once_it_is_unfenced(puppet):
    """ISR-35: a fenced follower at the end is served and stays outside; its next fetch after unfencing brings it in."""
    await puppet.create("t", [1, PUPPET], [1, PUPPET], min_insync_replicas="2")
    await puppet.create("alone", [1])
    assert puppet.metadata("t").isr == (1,)
    (answer,) = await puppet.fetch("t", 0)
    assert answer.error_code == 0
    assert list(puppet.partition("t").replica.isr) == [1]
    puppet.is_fenced = False
    await until(lambda: not puppet.node.metadata.image.cluster.brokers[PUPPET].fenced)
    await until(lambda: puppet.node.replicas.is_settled)
    assert puppet.metadata("t").isr == (1,)
    await puppet.fetch("t", 0)
    await until(lambda: puppet.metadata("t").isr == (1, PUPPET))
    await until(lambda: puppet.node.replicas.is_settled)


async def waits_for_the_follower(puppet):
    """ISR-63, ISR-65: one answer when the time is over, each partition with its own error and with its offset.

    The record may commit later.
    """
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert await puppet.produce(-1, "t", "alone", timeout_ms=300) == [(timed_out, 0), (0, 0)]
    assert puppet.partition("t").high_watermark == 0
    (answer,) = await puppet.fetch("t", 0)
    assert (answer.high_watermark, len(answer.records) > 0) == (0, True)
    await puppet.fetch("t", 1)
    assert puppet.partition("t").high_watermark == 1
    # A topic that is named twice leaves the I/O threads: the handler in Python answers alike.
    await puppet.create("late", [1, PUPPET])
    answered = await puppet.produce(-1, "late", "alone", "late", timeout_ms=100)
    assert answered == [(timed_out, 0), (timed_out, 1), (0, 1)]
    # Until a follower has named what this broker began to lead, its fetches wait for milliseconds only.
    await puppet.fetch("late", 0)


async def is_answered_by_appends(puppet):
    """ISR-20: a fetch that waits is answered by an append, although nothing of it is committed."""
    replica = puppet.partition("t").replica
    known = replica.in_sync_followers_with(1)
    waiting = asyncio.create_task(puppet.fetch("t", 1, wait_ms=20_000))
    await until(lambda: replica.in_sync_followers_with(1) != known)  # it has arrived
    assert await puppet.produce(1, "t") == [(0, 1)]
    (answer,) = await waiting
    assert (answer.high_watermark, len(answer.records) > 0) == (1, True)


async def leaves_and_comes_back(puppet):
    """ISR-28, ISR-33, ISR-34, ISR-56, ISR-57: by the offset that it fetches, and nothing else."""
    before = puppet.metadata("t")
    puppet.partition("t").replica.update_lag_max_ms(1)
    await until(lambda: puppet.node.replicas._check_in_sync() or puppet.metadata("t").isr == (1,))
    await until(lambda: list(puppet.partition("t").replica.isr) == [1])
    puppet.partition("t").replica.update_lag_max_ms(LONG_LAG_MS)
    after = puppet.metadata("t")
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert after.elr == (PUPPET,)
    assert await puppet.produce(-1, "t") == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert await puppet.produce(1, "t") == [(0, 2)]
    assert (puppet.partition("t").high_watermark, puppet.partition("t").replica.log_end_offset) == (1, 3)
    await puppet.fetch("t", 0)
    assert list(puppet.partition("t").replica.isr) == [1]
    assert puppet.metadata("t").isr == (1,)
    await puppet.fetch("t", 1)
    await until(lambda: puppet.metadata("t").isr == (1, PUPPET))
    await puppet.fetch("t", 3)
    assert puppet.partition("t").high_watermark == 3


async def gets_a_whole_first_batch(puppet):
    """RFET-16, RFET-17: whatever the limit of the partition; the next partition obeys it. Nothing is throttled."""
    for _ in range(2):
        records = encode_batch([(0, None, b"y" * 500, [])])
        puppet.partition("t", 1).replica.append(records, acks=1, now_ms=0)
    first, second = await puppet.fetch("t", 0, 1, 0, max_bytes=10)
    assert (first.partition_index, len(first.records) > 500) == (1, True)
    assert (second.partition_index, bytes(second.records)) == (0, b"")


async def hears_again_what_it_did_not_take(puppet):
    """RINV-36: a follower that diverges truncates, and takes nothing else from that answer."""
    await puppet.create("diverged", [1, PUPPET])
    assert await puppet.produce(1, "diverged") == [(0, 0)]
    session_id, _ = await puppet.ask("diverged", (0, 0, -1), session=(0, 0))
    await puppet.ask("diverged", (0, 1, 0), session=(session_id, 1))
    await until(lambda: puppet.partition("diverged").high_watermark == 1)
    _, (diverging,) = await puppet.ask("diverged", (0, 5, 0), session=(session_id, 2))
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 1)
    _, (told,) = await puppet.ask("diverged", (0, 1, 0), session=(session_id, 3))
    assert (told.diverging_epoch.epoch, told.high_watermark) == (-1, 1)
    _, nothing = await puppet.ask("diverged", session=(session_id, 4))
    assert nothing == []


def test_leader_follows_what_a_follower_fetches(tmp_path):
    asyncio.run(follow(tmp_path))


async def follow(tmp_path):
    cluster = ReplicatedCluster(
        tmp_path,
        1,
        replica_lag_time_max_ms=str(LONG_LAG_MS),
        broker_session_timeout_ms="9000",
        offsets_topic_replication_factor="1",
        default_replication_factor="1",
    )
    await cluster.start()
    try:
        async with (
            asyncio.timeout(60),
            connected(cluster._controllers[0]) as controller,
            connected(cluster.bootstrap_servers) as broker,
        ):
            puppet = Puppet(cluster, controller, broker)
            await puppet.register()
            living = asyncio.create_task(puppet.live())
            try:
                await joins_once_it_is_unfenced(puppet)
                await waits_for_the_follower(puppet)
                await is_answered_by_appends(puppet)
                await leaves_and_comes_back(puppet)
                await gets_a_whole_first_batch(puppet)
                await hears_again_what_it_did_not_take(puppet)
            finally:
                living.cancel()
                await asyncio.gather(living, return_exceptions=True)
    finally:
        await cluster.stop()
