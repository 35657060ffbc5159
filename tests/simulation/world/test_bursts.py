"""Producers with many records under way, and one whose record comes late, in virtual time."""

from __future__ import annotations

import pytest

from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import KafkaError
from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.swarm import simulate

from .burst_workload import bursts
from .workloads import TOPIC, read_all

SETTINGS = {"num.partitions": "1", "default.replication.factor": "3", "min.insync.replicas": "2"}
IMPATIENT = {
    "linger.ms": "0",
    "request.timeout.ms": "1000",
    "delivery.timeout.ms": "1500",
    "socket.connection.setup.timeout.ms": "1000",
}


def test_a_record_that_was_given_up_does_not_come_behind_the_next_one():
    """It is on a slow way to the leader, which has a record of the next epoch when it arrives (KIP-360)."""
    with Cluster(2, properties=SETTINGS) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}

        async def send():
            async with AsyncProducer({**servers, **IMPATIENT}) as producer:
                await producer.send_and_wait(TOPIC, b"first")
                leader = cluster.leader_of(TOPIC, 0)
                cluster.slow_down("client", leader, 20_000)
                with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
                    await producer.send_and_wait(TOPIC, b"late")
                cluster.slow_down("client", leader, 0)
                await producer.send_and_wait(TOPIC, b"next")

        cluster.run(send())
        cluster.run_for(25_000)
        ((name, records),) = cluster.run(read_all(servers)).items()
        entries = (
            cluster.nodes[cluster.leader_of(TOPIC, 0)].node.partitions.get_by_name(TOPIC, 0).log.active_producers()
        )
    assert (name.partition, [record.value for record in records]) == (0, [b"first", b"next"])
    assert [entry.producer_epoch for entry in entries] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 9, 11])
def test_records_of_bursts_are_there_once_and_in_order(seed):
    simulate(bursts, [seed])
