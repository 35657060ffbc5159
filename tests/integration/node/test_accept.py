"""Connections that I/O threads accept while the event loop of a node is held up, as by threads that compute."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import kraftlog
from kraftlog._kraftlog import encode_batch
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient
from waiting import until_true

TIMEOUT_S = 30.0
NATIVE = {"kraftlog.data.path": "native"}
# Connections of which Python has not heard.
UNHEARD_MAX = 256


@contextlib.contextmanager
def held_up(broker: kraftlog.Broker) -> Iterator[None]:
    """The loop does nothing meanwhile."""
    is_held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        go_on.wait(2 * TIMEOUT_S)  # longer than a client that is not served waits

    broker._embedded.running.loop.call_soon_threadsafe(hold)
    assert is_held.wait(TIMEOUT_S)
    try:
        yield
    finally:
        go_on.set()


def produce(client: RawClient) -> int:
    data = ProduceRequest.PartitionProduceData(index=0, records=encode_batch([(1000, None, b"x", [])]))
    topic_data = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    response = client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic_data]), 11)
    error_code: int = response.responses[0].partition_responses[0].error_code
    return error_code


def test_new_connection_is_served_while_the_loop_is_held_up_and_asks_python_later(tmp_path: Path) -> None:
    with kraftlog.Broker(tmp_path, config=NATIVE) as broker:
        broker.create_topic("t")
        with RawClient(broker.bootstrap_servers, timeout_s=TIMEOUT_S) as first:
            assert produce(first) == 0
        with contextlib.ExitStack() as stack:
            with held_up(broker):
                client = stack.enter_context(RawClient(broker.bootstrap_servers, timeout_s=TIMEOUT_S))
                assert produce(client) == 0
                sent = client.send(ApiVersionsRequest(), 0)
            received, response = client.receive(ApiVersionsRequest.API_KEY, 0)
            assert (received, response.error_code) == (sent, 0)
            assert produce(client) == 0


def test_connections_of_which_python_has_not_heard_are_bounded_and_the_others_follow(tmp_path: Path) -> None:
    backlog = {"socket.listen.backlog.size": "512"}
    with kraftlog.Broker(tmp_path, config=NATIVE | backlog) as broker, contextlib.ExitStack() as stack:
        connections = broker._embedded.running._connections
        assert connections is not None
        admission = connections.admission
        host, _, port = broker.bootstrap_servers.rpartition(":")
        before = admission.open
        with held_up(broker):
            for _ in range(UNHEARD_MAX + 100):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=TIMEOUT_S))
            until_true(lambda: admission.open >= before + UNHEARD_MAX)
            assert admission.open == before + UNHEARD_MAX
        until_true(lambda: admission.open == before + UNHEARD_MAX + 100)
        stack.close()
        until_true(lambda: admission.open == before)
        until_true(lambda: len(connections) == before)
