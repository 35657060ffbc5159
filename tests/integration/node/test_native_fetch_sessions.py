"""Which fetches open a session of the Python handlers on a node whose sockets I/O threads own."""

from __future__ import annotations

import pytest

import kraftlog
from kraftlog.types import Uuid
from kraftlog.wire.messages.fetch import FetchRequest
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
