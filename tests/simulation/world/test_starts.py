"""How a broker starts: what it has read of the metadata before it touches its logs, and when it may lead."""

from __future__ import annotations

import pytest

from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import LogError
from kraftlog.node.registration import BrokerRegistration
from kraftlog.runtime.replica.replica_manager import ReplicaManager
from kraftlog.storage.log_dir import CLEAN_SHUTDOWN_NAME
from kraftlog.testing.world.cluster import Cluster
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.create_topics import CreateTopicsRequest

BROKER = "broker-2"


def remove(folder):
    for path in folder.iterdir():
        if path.is_dir():
            remove(path)
        else:
            path.unlink()
    folder.rmdir()


async def fill(cluster):
    """A topic with a setting of its own, and ten records."""
    host, _, port = cluster.bootstrap_servers.partition(":")
    connection = await RpcConnection.open(cluster.client().loop, host, int(port), client_id="test", timeout_s=5)
    config = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="77000000")
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[config])
    await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    async with AsyncProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(10):
            await (await producer.send("t", str(number).encode()))
    connection.close()


@pytest.mark.parametrize("is_broken", [False, True])
def test_broker_that_lost_its_metadata_log_reads_it_again_before_it_looks_at_its_logs(monkeypatch, is_broken):
    """RDLT-52, RDLT-57, STOP-26; and RDLT-21: what fails while the logs are loaded ends the process."""
    events = []
    load, start_timers, unfence = ReplicaManager.load, ReplicaManager.start_timers, BrokerRegistration.unfence

    async def loads(self):
        image = self._image()
        topic = image.topics.by_name("t")
        retention = image.configs.get(ConfigResourceType.TOPIC, "t").get("retention.ms")
        events.append(("load", topic is not None, retention))
        if is_broken:
            raise LogError("no log can be opened")
        await load(self)

    def starts_timers(self):
        events.append(("timers", self.is_settled))
        start_timers(self)

    async def is_unfenced(self):
        events.append(("unfence",))
        await unfence(self)

    with Cluster(5, controllers=1, brokers=1, checks=False) as cluster:
        cluster.run(fill(cluster))
        machine = cluster.nodes[BROKER]
        cluster.run_for(500)
        cluster.kill(BROKER)
        remove(machine.data_path / "__cluster_metadata-0")
        for owner, name, patch in (
            (ReplicaManager, "load", loads),
            (ReplicaManager, "start_timers", starts_timers),
            (BrokerRegistration, "unfence", is_unfenced),
        ):
            monkeypatch.setattr(owner, name, patch)
        if is_broken:
            machine.failing_disks.add(0)  # the process may end by itself
            cluster.start(BROKER)
            cluster.run_until(lambda: machine.exit_error is not None, within_ms=60_000)
            assert "no log can be opened" in str(machine.exit_error)
            assert events == [("load", True, "77000000")]
            return
        cluster.start(BROKER)
        cluster.run_until(lambda: machine.is_serving, within_ms=60_000)
        assert events == [("load", True, "77000000"), ("timers", True), ("unfence",)]
        partition = machine.node.partitions.get_by_name("t", 0)
        assert partition.log.log_end_offset == 10
        names = [path.name for path in machine.data_path.iterdir()]
        assert [name for name in names if name.endswith(("-stray", "-delete"))] == []


def test_timers_of_a_process_end_with_it_though_the_next_one_starts_before_they_are_due():
    """Seed 78011 with records: heartbeats of a broker that was killed went on, and kept its successor out."""
    with Cluster(3, controllers=1, brokers=1) as cluster:
        machine = cluster.nodes[BROKER]
        fired = []
        machine.run_now(lambda: machine.loop.call_later(0.5, fired.append, "of the process that was killed"))
        cluster.kill(BROKER)
        cluster.start(BROKER)
        machine.run_now(lambda: machine.loop.call_later(0.5, fired.append, "of the next one"))
        cluster.run_for(2_000)
        assert fired == ["of the next one"]


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_controller_whose_metadata_log_failed_was_not_stopped_cleanly(operation):
    """Seed 80136 with transactions: the next process did not recover the log, and read half a batch in it.

    Without a broker nobody but the metadata log knows that its directory failed.
    """
    with Cluster(5, controllers=1, brokers=1, checks=False) as cluster:
        cluster.run(fill(cluster))
        machine = cluster.nodes["controller-1"]
        marker = machine.data_path / CLEAN_SHUTDOWN_NAME
        cluster.fail_disk("controller-1", operation, after=0)
        cluster.run_until(lambda: machine.exit_error is not None, within_ms=60_000)
        assert not marker.exists()
