"""Which fetches open a session of the Python handlers on a node whose sockets I/O threads own."""

from __future__ import annotations

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch
from kraftlog.runtime.replica.retention import Retention, RetentionIntervals
from kraftlog.types import Uuid
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient


def session_id(client, version, *, topic="absent"):
    """Of a fetch that the data path never answers: there is no such topic."""
    names = {"topic": topic} if version < 13 else {"topic_id": Uuid(bytes(15) + b"1")}
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)
    topics = [FetchRequest.FetchTopic(partitions=[partition], **names)]
    return client.call(FetchRequest(max_bytes=1000, session_epoch=0, topics=topics), version).session_id


@pytest.mark.parametrize("data_path", ["native", "python"])
def test_the_data_path_gets_the_next_fetch_of_a_client_again(tmp_path, data_path):
    with (
        kraftlog.Broker(tmp_path, kraftlog_data_path=data_path) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        opened = {version: session_id(client, version) for version in (11, 12, 13, 18)}
    assert opened[11] % 2 == 1, "no version of the data path"
    expected = {0} if data_path == "native" else {1}
    assert {opened[version] % 2 for version in (12, 13, 18)} == expected
    assert (opened[13] == 0) == (data_path == "native")


def test_an_idle_session_is_told_what_retention_deleted(tmp_path):
    """Fails where the session is not told: its fetches look only at partitions that moved."""
    with (
        kraftlog.Broker(tmp_path, kraftlog_data_path="native") as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        broker.create_topic("t", config={"retention.ms": "1"})
        partition = broker._embedded.running.partitions.get_by_name("t", 0)
        data = ProduceRequest.PartitionProduceData(index=0, records=encode_batch([(1, None, b"v", [])]))
        topic = ProduceRequest.TopicProduceData(topic_id=partition.topic_id, partition_data=[data])
        produced = client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 13)
        assert produced.responses[0].partition_responses[0].error_code == 0
        asked = FetchRequest.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
        topics = [FetchRequest.FetchTopic(topic_id=partition.topic_id, partitions=[asked])]
        opened = client.call(FetchRequest(max_bytes=1000, session_epoch=0, topics=topics), 13)
        assert opened.session_id % 2 == 0
        assert opened.responses[0].partitions[0].log_start_offset == 0
        idle = FetchRequest(max_bytes=1000, session_id=opened.session_id, session_epoch=1)
        assert client.call(idle, 13).responses == ()
        partition.log.roll(2)
        intervals = RetentionIntervals(check_ms=1, initial_delay_ms=1)
        retention = Retention(
            intervals, partition.loop, [partition], lambda: 10**13, lambda run, *arguments: run(*arguments)
        )
        retention.check()
        assert partition.log.log_start_offset == 1
        later = FetchRequest(max_bytes=1000, session_id=opened.session_id, session_epoch=2)
        assert client.call(later, 13).responses[0].partitions[0].log_start_offset == 1
