"""A node that stops in the middle of a deletion finishes it at the next start."""

from __future__ import annotations

from pathlib import Path

import kraftlog
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from raw_client import RawClient
from waiting import until_true


def of_topic(data: Path) -> list[str]:
    return sorted(path.name for path in data.iterdir() if path.name.startswith("t-"))


def test_logs_that_were_to_be_deleted_at_the_stop_are_gone_after_the_next_start(tmp_path: Path) -> None:
    with kraftlog.Broker(tmp_path, log_flush_on_ack=False) as broker:
        broker.create_topic("t", partitions=400)
        topic = DeleteTopicsRequest.DeleteTopicState(name="t")
        with RawClient(broker.bootstrap_servers) as client:
            assert client.call(DeleteTopicsRequest(topics=[topic], timeout_ms=10_000)).responses[0].error_code == 0
    assert [name for name in of_topic(tmp_path) if not name.endswith("-delete")] == []
    with kraftlog.Broker(tmp_path, log_flush_on_ack=False):
        until_true(lambda: of_topic(tmp_path) == [])
