"""A process that runs out of file descriptors refuses work and keeps its directories."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import time
from pathlib import Path

import pytest

import kraftlog
from descriptors import all_descriptors_taken, soft_limit
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.node.process import raise_descriptor_limit
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient

SOFT_LIMIT = 400
TIMEOUT_S = 20.0


def produce(client: RawClient, value: bytes, *, acks: int = -1, timeout_ms: int = 5000) -> int:
    data = ProduceRequest.PartitionProduceData(index=0, records=encode_batch([(1000, None, value, [])]))
    topic_data = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    response = client.call(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic_data]), 11)
    return response.responses[0].partition_responses[0].error_code


def test_segment_that_cannot_be_begun_for_want_of_descriptors_fails_the_request_only(tmp_path: Path) -> None:
    with (
        kraftlog.Broker(tmp_path, log_flush_on_ack=False) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        broker.create_topic("t", config={"internal.segment.bytes": 2000})
        assert produce(client, b"x" * 1500) == 0
        with soft_limit(SOFT_LIMIT), all_descriptors_taken():
            assert produce(client, b"y" * 1500) == ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(client, b"y" * 1500) == ErrorCode.KAFKA_STORAGE_ERROR
        assert all(log_dir.is_online for log_dir in broker._embedded.running.log_dirs)
        assert produce(client, b"z" * 1500) == 0
        assert broker._embedded.running.partitions.get_by_name("t", 0).high_watermark == 2


def test_flush_that_cannot_open_a_file_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        kraftlog.Broker(tmp_path, log_flush_on_ack=True) as broker,
        RawClient(broker.bootstrap_servers, timeout_s=TIMEOUT_S) as client,
    ):
        broker.create_topic("t")
        # The append opens the segment; the first flush opens the directory as well.
        with soft_limit(SOFT_LIMIT), all_descriptors_taken(left=1), caplog.at_level(logging.WARNING):
            assert produce(client, b"x", timeout_ms=200) == ErrorCode.REQUEST_TIMED_OUT
        assert "is tried again" in caplog.text
        assert produce(client, b"y", timeout_ms=10_000) == 0
        assert broker._embedded.running.partitions.get_by_name("t", 0).high_watermark == 2


def test_idle_connections_leave_descriptors_for_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        soft_limit(SOFT_LIMIT),
        caplog.at_level(logging.INFO),
        contextlib.ExitStack() as stack,
        kraftlog.Broker(tmp_path, log_flush_on_ack=False, socket_listen_backlog_size=SOFT_LIMIT) as broker,
        RawClient(broker.bootstrap_servers, timeout_s=TIMEOUT_S) as client,
    ):
        host, _, port = broker.bootstrap_servers.rpartition(":")
        deadline = time.monotonic() + TIMEOUT_S
        while "accepts no more connections" not in caplog.text:
            assert time.monotonic() < deadline
            # Each takes two descriptors, as the client is in this process.
            stack.enter_context(socket.create_connection((host, int(port)), timeout=TIMEOUT_S))
            time.sleep(0.001)
        broker.create_topic("t", partitions=3)
        assert produce(client, b"x") == 0
        stack.close()
        while "accepts connections again" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with RawClient(broker.bootstrap_servers, timeout_s=TIMEOUT_S) as other:
            assert produce(other, b"y") == 0
        assert caplog.text.count("accepts no more connections") == 1


def test_commands_raise_the_soft_limit(caplog: pytest.LogCaptureFixture) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with soft_limit(SOFT_LIMIT), caplog.at_level(logging.INFO):
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    assert f"raised the limit of open files from {SOFT_LIMIT} to {hard}" in caplog.text
