"""Three nodes in this process: what followers copy, whom leaders refuse, and what a change of leaders leaves."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer

from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.delete_records import DeleteRecordsRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from replicated_cluster import ReplicatedCluster
from waiting import until

TOPIC = "replicated"
PARTITIONS = 3


def produce(bootstrap, start, count):
    """Records ``start`` and up, dealt to the partitions in turn; the errors of those that were not acknowledged."""
    errors = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 2})
    for number in range(start, start + count):
        producer.produce(
            TOPIC,
            str(number).encode(),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: error and errors.append(error),
        )
    assert producer.flush(60) == 0
    return errors


def consume(bootstrap, count, group, **settings):
    """The numbers read by a new group, by partition, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
            **settings,
        }
    )
    consumer.subscribe([TOPIC])
    found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    try:
        for _ in range(600):
            for message in consumer.consume(500, 0.1):
                assert message.error() is None, message.error()
                found[message.partition()].append(int(message.value()))
            if sum(map(len, found.values())) >= count:
                break
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def log_bytes(cluster, node_id, index):
    path = cluster.partition(node_id, TOPIC, index).log.path
    return b"".join(segment.read_bytes() for segment in sorted(path.glob("*.log")))


async def settled(cluster):
    """Every replica is in sync, and knows that everything is committed."""

    def is_settled():
        for index in range(PARTITIONS):
            leader_id = cluster.leader_of(TOPIC, index)
            if not leader_id or len(cluster.partition(leader_id, TOPIC, index).replica.isr) != len(cluster.nodes):
                return False
            end = cluster.partition(leader_id, TOPIC, index).replica.log_end_offset
            for node_id in cluster.nodes:
                partition = cluster.partition(node_id, TOPIC, index)
                if partition is None or partition.replica.log_end_offset != end or partition.high_watermark != end:
                    return False
        return True

    await until(is_settled)


def fetch(partition, *, replica_id, broker_epoch, leader_epoch, offset=0):
    return FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[
            FetchRequest.FetchTopic(
                topic_id=partition.topic_id,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=partition.index,
                        current_leader_epoch=leader_epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=-1,
                        partition_max_bytes=1 << 20,
                    )
                ],
            )
        ],
    )


async def fetch_error(cluster, node_id, request):
    response = await cluster.request(node_id, request)
    return response.responses[0].partitions[0].error_code


async def refusals(cluster):
    """LEPO-02, LEPO-03, LEPO-16, ISR-14: what a leader tells replicas that it does not take, and nothing moves."""
    leader_id = cluster.leader_of(TOPIC)
    follower_id = next(node_id for node_id in cluster.nodes if node_id != leader_id)
    partition = cluster.partition(leader_id, TOPIC)
    epoch = partition.leader_epoch
    registered = cluster.nodes[leader_id].metadata.image.cluster.brokers[follower_id].epoch
    told = {
        "foreign": {"replica_id": 77, "broker_epoch": 1, "leader_epoch": epoch},
        "earlier life": {"replica_id": follower_id, "broker_epoch": registered - 1, "leader_epoch": epoch},
        "fenced": {"replica_id": follower_id, "broker_epoch": registered, "leader_epoch": epoch - 1},
        "unknown": {"replica_id": follower_id, "broker_epoch": registered, "leader_epoch": epoch + 1},
        "out of range": {
            "replica_id": follower_id,
            "broker_epoch": registered,
            "leader_epoch": epoch,
            "offset": 1 << 40,
        },
    }
    codes = {what: await fetch_error(cluster, leader_id, fetch(partition, **asked)) for what, asked in told.items()}
    assert codes == {
        "foreign": ErrorCode.UNKNOWN_LEADER_EPOCH,
        "earlier life": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "fenced": ErrorCode.FENCED_LEADER_EPOCH,
        "unknown": ErrorCode.UNKNOWN_LEADER_EPOCH,
        "out of range": ErrorCode.OFFSET_OUT_OF_RANGE,
    }
    asked = fetch(partition, replica_id=follower_id, broker_epoch=registered, leader_epoch=epoch)
    assert await fetch_error(cluster, follower_id, asked) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def fetch_from_followers(cluster):
    """RINV-91, ISR-77: KIP-392; a follower serves consumers up to its own high watermark."""
    leader_id = cluster.leader_of(TOPIC)
    follower_id = next(node_id for node_id in cluster.nodes if node_id != leader_id)
    partition = cluster.partition(leader_id, TOPIC)

    async def fetched(node_id, rack, **asked):
        request = fetch(partition, replica_id=-1, broker_epoch=-1, leader_epoch=-1, **asked)
        response = await cluster.request(node_id, replace(request, rack_id=rack))
        return response.responses[0].partitions[0]

    sent_on = await fetched(leader_id, f"rack-{follower_id}", offset=50)
    assert (sent_on.error_code, sent_on.preferred_read_replica, bytes(sent_on.records)) == (0, follower_id, b"")
    assert sent_on.high_watermark == partition.high_watermark
    served = await fetched(leader_id, f"rack-{leader_id}", offset=50)
    assert (served.preferred_read_replica, len(served.records) > 0) == (-1, True)
    read = await fetched(follower_id, f"rack-{follower_id}", offset=50)
    assert (read.error_code, read.preferred_read_replica) == (0, -1)
    assert read.high_watermark == cluster.partition(follower_id, TOPIC).high_watermark
    assert bytes(read.records) == bytes(served.records)
    at_end = await fetched(follower_id, "", offset=read.high_watermark)
    assert (at_end.error_code, bytes(at_end.records)) == (0, b"")
    assert (await fetched(follower_id, "", offset=read.high_watermark + 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def placed(cluster, partition):
    """A partition as the metadata of each node has it."""
    images = [node.metadata.image for node in cluster.nodes.values()]
    return [image.topics.by_id(partition.topic_id).partitions[partition.index] for image in images]


async def lose_a_directory(cluster):
    """RFET-87, RDLT-51: the metadata knows the directory of each replica; a directory that fails loses its leaders."""

    def is_known(node_id, partition):
        directory_id = partition.log_dir.directory_id
        return all(found.directory(node_id) == directory_id for found in placed(cluster, partition))

    def all_known():
        return all(is_known(node_id, found) for node_id, node in cluster.nodes.items() for found in node.partitions)

    await until(all_known)

    def held(node):
        return node.partitions.in_directory(node.log_dirs[1])

    def leads(node):
        return sum(partition.is_leader for partition in held(node))

    node_id, node = max(cluster.nodes.items(), key=lambda item: leads(item[1]))
    lost = held(node)
    assert lost
    node.replicas.fail_log_dir(node.log_dirs[1], OSError(errno.EIO, "Input/output error"))
    await until(
        lambda: all(
            found.leader not in {node_id, -1} and node_id not in found.isr
            for partition in lost
            for found in placed(cluster, partition)
        )
    )
    counts = replica_metrics(cluster)[node_id]
    assert counts["OfflineReplicaCount"] == len(lost)
    assert node.metrics.snapshot()["LogManager.OfflineLogDirectoryCount"] == 1
    assert await asyncio.to_thread(produce, cluster.bootstrap_servers, 1_200, 60) == []


def replica_metrics(cluster):
    """Those of ReplicaManager, by node."""
    return {
        node_id: {
            name.removeprefix("ReplicaManager."): value
            for name, value in node.metrics.snapshot().items()
            if name.startswith("ReplicaManager.")
        }
        for node_id, node in cluster.nodes.items()
    }


async def list_end(cluster, node_id, replica_id, leader_epoch):
    request = ListOffsetsRequest(
        replica_id=replica_id,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=TOPIC,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=0, current_leader_epoch=leader_epoch, timestamp=-1
                    )
                ],
            )
        ],
    )
    return (await cluster.request(node_id, request)).topics[0].partitions[0]


async def delete_records(cluster, offset):
    """RFET-32, ISR-82: the answer comes when the followers' logs start where the leader's does."""
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsRequest.DeleteRecordsTopic(
                name=TOPIC,
                partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)],
            )
        ],
        timeout_ms=10_000,
    )
    response = await cluster.request(cluster.leader_of(TOPIC), request)
    answered = response.topics[0].partitions[0]
    assert (answered.error_code, answered.low_watermark) == (0, offset)
    assert [cluster.partition(node_id, TOPIC).log.log_start_offset for node_id in cluster.nodes] == [offset] * 3


@pytest.mark.slow
@pytest.mark.parametrize("fetches", ["python", "native"])
def test_three_replicas_hold_the_same_through_a_change_of_leaders(tmp_path, fetches):
    asyncio.run(hold_the_same(tmp_path, fetches))


async def hold_the_same(tmp_path, fetches):
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster = ReplicatedCluster(
        tmp_path, log_flush_on_ack="true", replica_selector_class=selector, kraftlog_follower_fetches=fetches
    )
    await cluster.start()
    try:
        await cluster.create_topic(TOPIC, PARTITIONS)
        assert await asyncio.to_thread(produce, cluster.bootstrap_servers, 0, 600) == []
        await settled(cluster)
        leader_id = cluster.leader_of(TOPIC)
        epoch = cluster.partition(leader_id, TOPIC).leader_epoch
        follower_id = next(node_id for node_id in cluster.nodes if node_id != leader_id)
        assert (await list_end(cluster, leader_id, follower_id, epoch)).offset == 200
        assert (await list_end(cluster, follower_id, -2, epoch)).offset == 200
        refused = await list_end(cluster, leader_id, follower_id, epoch + 1)
        assert refused.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

        await cluster.stop(leader_id)
        # Some partitions are led by the node that stopped; two of three replicas are in sync, as many as needed.
        await until(
            lambda: sum(found["UnderReplicatedPartitions"] for found in replica_metrics(cluster).values()) >= PARTITIONS
        )
        found = replica_metrics(cluster).values()
        assert sum(counts["AtMinIsrPartitionCount"] for counts in found) >= PARTITIONS
        assert sum(counts["UnderMinIsrPartitionCount"] for counts in found) == 0
        assert await asyncio.to_thread(produce, cluster.bootstrap_servers, 600, 600) == []
        await cluster.start(leader_id)
        await settled(cluster)
        assert cluster.partition(leader_id, TOPIC).leader_epoch > epoch
        found = replica_metrics(cluster)
        assert sum(counts["UnderReplicatedPartitions"] for counts in found.values()) == 0
        assert all(counts["PartitionCount"] >= PARTITIONS for counts in found.values())
        assert sum(counts["LeaderCount"] for counts in found.values()) >= PARTITIONS
        assert sum(counts["IsrExpandsPerSec"].count for counts in found.values()) >= PARTITIONS
        await refusals(cluster)
        await fetch_from_followers(cluster)
        await delete_records(cluster, 30)
        for index in range(PARTITIONS):
            logs = [log_bytes(cluster, node_id, index) for node_id in cluster.nodes]
            assert logs[0]
            assert logs[0] == logs[1] == logs[2]
            epochs = [cluster.partition(node_id, TOPIC, index).log.epoch_entries() for node_id in cluster.nodes]
            assert epochs[0] == epochs[1] == epochs[2]
        settings = {"client.rack": f"rack-{cluster.leader_of(TOPIC) % 3 + 1}"}
        found = await asyncio.to_thread(consume, cluster.bootstrap_servers, 1_170, "readers", **settings)
        for index in range(PARTITIONS):
            wanted = list(range(index, 1_200, PARTITIONS))
            assert found[index] == (wanted[30:] if index == 0 else wanted)
        await lose_a_directory(cluster)
    finally:
        await cluster.stop()


@pytest.mark.parametrize("fetches", ["python", "native"])
def test_a_follower_that_lost_its_directory_holds_commits_for_its_lag_time_only(tmp_path, fetches):
    """ISR-67: nothing is appended behind the records that wait, and the broker of the lost replica stays live."""
    asyncio.run(lose_a_follower(tmp_path, fetches))


async def lose_a_follower(tmp_path, fetches):
    cluster = ReplicatedCluster(tmp_path, log_flush_on_ack="true", kraftlog_follower_fetches=fetches)
    await cluster.start()
    try:
        await cluster.create_topic(TOPIC, PARTITIONS)
        assert await asyncio.to_thread(produce, cluster.bootstrap_servers, 0, 30) == []
        await settled(cluster)

        def followed(node):
            held = node.partitions.in_directory(node.log_dirs[1])
            return [found.index for found in held if found.topic == TOPIC and not found.is_leader]

        node_id, node = max(cluster.nodes.items(), key=lambda item: len(followed(item[1])))
        lost = followed(node)
        assert lost
        leaders = [cluster.partition(cluster.leader_of(TOPIC, index), TOPIC, index) for index in lost]
        epochs = [leader.leader_epoch for leader in leaders]
        node.replicas.fail_log_dir(node.log_dirs[1], OSError(errno.EIO, "Input/output error"))
        await until(lambda: all(node_id not in leader.replica.isr for leader in leaders))
        assert await asyncio.to_thread(produce, cluster.bootstrap_servers, 30, 30) == []
        assert [leader.leader_epoch for leader in leaders] == epochs
    finally:
        await cluster.stop()
