"""queued.max.requests and queued.max.request.bytes at their smallest, on both data paths: everything is answered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import kraftlog
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from raw_client import RawClient

TIMEOUT_S = 60.0
NAMES = 2_000
API_VERSIONS = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


@pytest.fixture(params=["native", "python"])
def broker(request):
    config = {
        "queued.max.requests": "1",
        "queued.max.request.bytes": "1",
        "kraftlog.data.path": request.param,
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "1000",
    }
    with kraftlog.Broker(config=config) as broker:
        yield broker


def large_metadata():
    names = [MetadataRequest.MetadataRequestTopic(name=f"absent-{number}") for number in range(NAMES)]
    return MetadataRequest(topics=names)


def fill(client, request):
    """Send until the node receives no more; how many requests it took."""
    for count in range(1_000_000):
        try:
            client.send(request, 3)
        except TimeoutError:
            return count
    return 0


def test_many_connections_that_pipeline_are_all_answered(broker):
    requests = [MetadataRequest(topics=[])] * 30 + [large_metadata()] + [API_VERSIONS] * 5

    def pipeline(_):
        with RawClient(broker.bootstrap_servers, timeout_s=TIMEOUT_S) as client:
            sent = [(request, client.send(request, 3)) for request in requests]
            answers = [(client.receive(request.API_KEY, 3), number) for request, number in sent]
        assert all(received == number for (received, _), number in answers)
        return len(answers[30][0][1].topics)

    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(pipeline, range(12))) == [NAMES] * 12


def test_a_client_that_reads_no_answers_keeps_nobody_waiting(broker):
    request = large_metadata()
    with (
        RawClient(broker.bootstrap_servers, timeout_s=TIMEOUT_S) as idle,
        RawClient(broker.bootstrap_servers, timeout_s=TIMEOUT_S) as other,
    ):
        idle.sock.settimeout(1.0)
        with ThreadPoolExecutor(1) as thread:
            filling = thread.submit(fill, idle, request)
            while not filling.done():
                assert other.call(API_VERSIONS, 3).error_code == 0
            assert filling.result() > 0
        for _ in range(20):
            assert other.call(API_VERSIONS, 3).error_code == 0


def test_members_of_a_group_that_wait_for_each_other_are_joined(broker):
    def join(_):
        with RawClient(broker.bootstrap_servers, timeout_s=TIMEOUT_S) as client:
            protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
            request = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id="",
                protocol_type="consumer",
                protocols=[protocol],
            )
            answer = client.call(request, 3)
            return answer.error_code, answer.generation_id, len(answer.members)

    with RawClient(broker.bootstrap_servers, timeout_s=TIMEOUT_S) as client:
        while client.call(FindCoordinatorRequest(key="g", key_type=0), 3).error_code:
            pass
    with ThreadPoolExecutor(3) as threads:
        joined = sorted(threads.map(join, range(3)))
    assert joined == [(0, 1, 0), (0, 1, 0), (0, 1, 3)]
