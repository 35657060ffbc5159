"""A node's life: what it refuses to start with, what it leaves behind, what a crash costs."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.errors import ErrorCode, KafkaError, LogError, NodeClosedError
from kraftlog.node.config import ConfigError, NodeConfig
from kraftlog.node.node import Node, StartError
from kraftlog.node.standalone import format_when_needed, standalone_properties
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient
from waiting import until_true


def config(data_dir: Path, **changes: str) -> NodeConfig:
    dotted = {key.replace("_", "."): value for key, value in changes.items()}
    return NodeConfig(standalone_properties(data_dir, port=0, is_durable=True, changes=dotted))


def start_and_stop(node_config: NodeConfig) -> None:
    async def main():
        node = Node(node_config)
        await node.start()
        await node.stop()

    asyncio.run(main())


def produce(client: RawClient, topic: str, value: bytes, *, acks: int = -1) -> int:
    records = encode_batch([(1000, None, value, [])])
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    response = client.call(ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[topic_data]), 11)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == 0
    return answer.base_offset


def values(bootstrap_servers: str, topic: str) -> list[bytes]:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    request = FetchRequest(
        max_wait_ms=1000, min_bytes=1, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    )
    with RawClient(bootstrap_servers) as client:
        data = client.call(request, 12).responses[0].partitions[0]
    assert data.error_code == 0
    return [value for batch in read_batches(data.records) for _, _, _, value, _ in batch.records()]


def test_unformatted_directory_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(StartError, match="kraftlog storage format"):
        start_and_stop(config(tmp_path / "data"))
    with pytest.raises(StartError, match="kraftlog storage format"):
        start_and_stop(config(tmp_path / "absent"))


def test_directory_with_an_unfinished_write_of_segments_is_refused(tmp_path):
    """As Kafka refuses whatever is not named as a partition: half of its partitions may be replaced."""
    format_when_needed(config(tmp_path / "a"))
    (tmp_path / "a" / "_temporary" / "job").mkdir(parents=True)
    with pytest.raises(StartError, match=r"_temporary is there: .*spark\.finish_writes"):
        start_and_stop(config(tmp_path / "a"))
    (tmp_path / "a" / "_temporary" / "job").rmdir()
    (tmp_path / "a" / "_temporary").rmdir()
    start_and_stop(config(tmp_path / "a"))


def test_directory_of_another_node_or_cluster_is_refused(tmp_path):
    format_when_needed(config(tmp_path / "a"))
    with pytest.raises(StartError, match=r"node\.id=1"):
        start_and_stop(config(tmp_path / "a", node_id="2"))
    format_when_needed(config(tmp_path / "b"))
    with pytest.raises(StartError, match="do not belong together"):
        start_and_stop(config(tmp_path / "a", log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}"))


@pytest.mark.spec("BOOT-35")
def test_directory_in_use_is_refused_and_the_lock_is_given_back(tmp_path):
    with kraftlog.Broker(tmp_path), pytest.raises(LogError, match=r"\.lock"):
        start_and_stop(config(tmp_path))
    start_and_stop(config(tmp_path))


def test_port_in_use_is_refused_and_everything_given_back(tmp_path):
    with kraftlog.Broker() as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        format_when_needed(config(tmp_path))
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
        with pytest.raises(ConfigError, match="cannot listen"):
            start_and_stop(config(tmp_path, listeners=listeners))
    start_and_stop(config(tmp_path))


def test_clean_stop_leaves_kafkas_files_and_the_next_start_takes_the_marker_away(tmp_path):
    with kraftlog.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        with RawClient(broker.bootstrap_servers) as client:
            produce(client, "t", b"a")
            produce(client, "t", b"b")
    marker = json.loads((tmp_path / ".kafka_cleanshutdown").read_text())
    assert marker["version"] == 0
    assert marker["brokerEpoch"] > 0
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert sorted((tmp_path / name).read_text().splitlines()) == ["0", "2", "t 0 2", "t 1 0"]
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    assert (tmp_path / "t-0" / "partition.metadata").exists()
    with kraftlog.Broker(tmp_path) as broker:
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        assert values(broker.bootstrap_servers, "t") == [b"a", b"b"]


def test_directories_the_metadata_does_not_know_are_set_aside_not_deleted(tmp_path):
    with kraftlog.Broker(tmp_path) as broker:
        broker.create_topic("t")
    (tmp_path / "t-0").rename(tmp_path / "gone-3")
    with kraftlog.Broker(tmp_path):
        names = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(("gone", "t-")))
    assert names[0].startswith("gone-3.")
    assert names[0].endswith("-stray")
    assert names[1] == "t-0"


def test_deleted_directories_of_an_earlier_run_are_removed_after_the_delay(tmp_path):
    """RDLT-54: not at once, as they were before the fix."""
    with kraftlog.Broker(tmp_path) as broker:
        broker.create_topic("t")
        broker.delete_topic("t")
        until_true(lambda: [path.name.endswith("-delete") for path in tmp_path.glob("t-0*")] == [True])
    with kraftlog.Broker(tmp_path) as broker:
        broker.create_topic("other")
    assert len(list(tmp_path.glob("t-0*"))) == 1
    with kraftlog.Broker(tmp_path, log_segment_delete_delay_ms=50):
        until_true(lambda: not list(tmp_path.glob("t-0*")))


def test_two_log_directories_share_the_partitions(tmp_path):
    both = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    for _ in range(2):
        with kraftlog.Broker(tmp_path / "a", log_dirs=both, auto_create_topics_enable=False) as broker:
            if not list(tmp_path.glob("?/t-*")):
                broker.create_topic("t", partitions=4)
            placed = [len(list((tmp_path / name).glob("t-*"))) for name in "ab"]
            assert placed == [2, 2]


def test_broker_face_in_a_with_block():
    before = signal.getsignal(signal.SIGTERM)
    broker = kraftlog.Broker(auto_create_topics_enable=False, config={"num.partitions": 3})
    with pytest.raises(NodeClosedError):
        broker.create_topic("early")
    with broker:
        assert signal.getsignal(signal.SIGTERM) is before
        broker.create_topic("t", config={"retention.ms": 1000})
        with pytest.raises(KafkaError) as caught:
            broker.create_topic("t")
        assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        data_dir = broker.data_dir
        assert (data_dir / "t-0").is_dir()
        threads = [threading.Thread(target=broker.create_topic, args=(f"t{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (data_dir / "t3-0").is_dir()
        broker.delete_topic("t")
        with pytest.raises(KafkaError) as caught:
            broker.delete_topic("t")
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.close()
    assert not data_dir.exists()
    with pytest.raises(NodeClosedError):
        _ = broker.bootstrap_servers


def test_broker_face_on_the_callers_loop():
    async def main():
        async with kraftlog.Broker() as broker:
            await broker.create_topic("t", partitions=3)
            assert (broker.data_dir / "t-2").is_dir()
            await broker.delete_topic("t")
            return broker.data_dir

    assert not asyncio.run(main()).exists()


def test_two_brokers_in_one_process():
    with kraftlog.Broker() as one, kraftlog.Broker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers


def test_failed_start_of_a_broker_raises_in_the_callers_thread(tmp_path):
    with pytest.raises(ConfigError, match="must be set for a listener with SSL"):
        kraftlog.Broker(tmp_path, listener_security_protocol_map="PLAINTEXT:SSL,CONTROLLER:PLAINTEXT").start()


class Process:
    """``kraftlog dev`` in a process of its own."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "kraftlog",
                "dev",
                "--port",
                "0",
                "--data-dir",
                str(data_dir),
                "--override",
                "log.flush.on.ack=true",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(kraftlog.__file__).parents[1])},
        )
        line = self.process.stdout.readline()
        assert line.startswith("kraftlog dev: bootstrap.servers="), line + self.process.stderr.read()
        self.start_line = line
        self.bootstrap_servers = line.split("=")[1].split()[0]

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        status = self.process.wait(20)
        self.process.stdout.close()
        self.process.stderr.close()
        return status


def test_dev_says_where_it_is_and_stops_gracefully_on_sigterm(tmp_path):
    process = Process(tmp_path)
    assert f"data={tmp_path} (kept)" in process.start_line
    assert "log.flush.on.ack=true" in process.start_line
    assert process.end(signal.SIGTERM) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_killed_while_producing_keeps_what_was_acknowledged_once_and_in_order(tmp_path):
    acknowledged = 0
    for _ in range(4):
        process = Process(tmp_path)
        killer = threading.Timer(0.3, process.end, [signal.SIGKILL])
        killer.start()
        try:
            with RawClient(process.bootstrap_servers) as client:
                while True:
                    assert produce(client, "auto", b"%d" % acknowledged) >= acknowledged
                    acknowledged += 1
        except (OSError, AssertionError, IndexError):
            pass
        killer.join()
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        if acknowledged == 0:
            with kraftlog.Broker(tmp_path) as broker:
                broker.create_topic("auto")
            (tmp_path / ".kafka_cleanshutdown").unlink()
            continue
        with kraftlog.Broker(tmp_path) as broker:
            found = values(broker.bootstrap_servers, "auto")
        (tmp_path / ".kafka_cleanshutdown").unlink()
        numbers = [int(value) for value in found]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= acknowledged
        acknowledged = len(numbers)
    assert acknowledged > 0


def test_topic_created_again_under_its_name_begins_empty_whatever_the_checkpoints_say(tmp_path):
    with kraftlog.Broker(tmp_path) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as client:
            for _ in range(3):
                produce(client, "t", b"old")
    with kraftlog.Broker(tmp_path) as broker:
        broker.delete_topic("t")
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as client:
            assert produce(client, "t", b"new") == 0
        assert broker._embedded.running.partitions.get_by_name("t", 0).log.recovery_point == 1
        assert values(broker.bootstrap_servers, "t") == [b"new"]


def test_unclean_stop_of_many_partitions_recovers_them_all(tmp_path):
    with kraftlog.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=10)
        with RawClient(broker.bootstrap_servers) as client:
            produce(client, "t", b"kept")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with (tmp_path / "t-0" / "00000000000000000000.log").open("ab") as file:
        file.write(b"torn" * 50)
    with kraftlog.Broker(tmp_path) as broker:
        assert values(broker.bootstrap_servers, "t") == [b"kept"]
        with RawClient(broker.bootstrap_servers) as client:
            assert produce(client, "t", b"next") == 1


def test_directory_that_cannot_be_opened_is_a_storage_error(tmp_path):
    with kraftlog.Broker(tmp_path) as broker:
        broker.create_topic("t")
        broker.create_topic("fine")
    (tmp_path / "t-0" / "partition.metadata").write_text("version: 0\nnonsense\n")
    with kraftlog.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        records = encode_batch([(1000, None, b"x", [])])
        data = ProduceRequest.PartitionProduceData(index=0, records=records)
        topic_data = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        response = client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic_data]), 11)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, "fine", b"x") == 0


def test_connections_above_the_limits_are_refused():
    with kraftlog.Broker(max_connections_per_ip=2) as broker:
        with RawClient(broker.bootstrap_servers) as one, RawClient(broker.bootstrap_servers):
            with RawClient(broker.bootstrap_servers) as third:
                assert third.is_closed_by_peer()
            assert produce_error(one, "absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        deadline = 50
        while deadline:
            with RawClient(broker.bootstrap_servers) as later:
                try:
                    produce_error(later, "absent")
                    break
                except OSError:
                    deadline -= 1
        assert deadline


def produce_error(client: RawClient, topic: str) -> int:
    data = ProduceRequest.PartitionProduceData(index=0, records=encode_batch([(1000, None, b"x", [])]))
    topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    response = client.call(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[topic_data]), 11)
    return response.responses[0].partition_responses[0].error_code


def test_idle_and_half_open_connections_are_closed():
    with kraftlog.Broker(connections_max_idle_ms=200) as broker:
        with RawClient(broker.bootstrap_servers) as idle, RawClient(broker.bootstrap_servers) as half_open:
            half_open.sock.sendall(b"\0\0\0\x10abc")
            assert idle.is_closed_by_peer()
            assert half_open.is_closed_by_peer()
        with RawClient(broker.bootstrap_servers) as fresh:
            assert produce_error(fresh, "absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_stop_answers_what_is_in_flight_and_ends_long_polls():
    broker = kraftlog.Broker().start()
    broker.create_topic("t")
    client = RawClient(broker.bootstrap_servers)
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=60000, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="t", partitions=[partition])]
    )
    client.send(request, 12)
    produce_sock = RawClient(broker.bootstrap_servers)
    produce_error(produce_sock, "absent")
    broker.close()
    _, response = client.receive(1, 12)
    assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert client.is_closed_by_peer()
    client.sock.close()
    produce_sock.sock.close()


def test_retention_by_size_moves_the_start_and_removes_files(tmp_path):
    with kraftlog.Broker(tmp_path, log_retention_check_interval_ms=50, log_initial_task_delay_ms=0) as broker:
        # By size alone: the records are from 1970.
        settings = {"segment.bytes": 1 << 20, "retention.bytes": 1 << 20, "retention.ms": -1, "file.delete.delay.ms": 0}
        broker.create_topic("t", config=settings)
        with RawClient(broker.bootstrap_servers) as client:
            for _ in range(40):
                produce(client, "t", random.Random(1).randbytes(100_000))
        log = broker._embedded.running.partitions.get_by_name("t", 0).log
        # Four segments of ten batches each; without the older of the last two, less than a mebibyte would be left.
        until_true(lambda: log.log_start_offset == 20)
        until_true(lambda: len(list((tmp_path / "t-0").glob("*.log"))) == 2)
    with kraftlog.Broker(tmp_path) as broker:
        assert broker._embedded.running.partitions.get_by_name("t", 0).log.log_start_offset == 20


def test_checkpoints_are_written_while_the_node_runs(tmp_path):
    with kraftlog.Broker(
        tmp_path, replica_high_watermark_checkpoint_interval_ms=20, log_flush_offset_checkpoint_interval_ms=20
    ) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as client:
            produce(client, "t", b"a")
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            path = tmp_path / name
            until_true(lambda path=path: path.exists() and path.read_text() == "0\n1\nt 0 1\n")


def test_topic_settings_take_effect_while_the_node_runs():
    with kraftlog.Broker() as broker:
        broker.create_topic("t")
        partition = broker._embedded.running.partitions.get_by_name("t", 0)
        assert partition.config.cleanup_policy == {"delete"}
        with RawClient(broker.bootstrap_servers) as client:
            change = IncrementalAlterConfigsRequest.AlterableConfig(
                name="max.message.bytes", config_operation=0, value="100"
            )
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=2, resource_name="t", configs=[change]
            )
            client.call(IncrementalAlterConfigsRequest(resources=[resource]))
            assert produce_error(client, "t") == 0
            records = encode_batch([(1000, None, b"x" * 100, [])])
            data = ProduceRequest.PartitionProduceData(index=0, records=records)
            topic_data = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
            answer = client.call(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[topic_data]), 11)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
