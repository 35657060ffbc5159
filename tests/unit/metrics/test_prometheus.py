"""The text of a scrape, read by Prometheus's own parser, and the listener that gives it."""

from __future__ import annotations

import asyncio
import math
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kraftlog.metrics.controller import ControllerMetrics
from kraftlog.metrics.histogram import QUANTILES
from kraftlog.metrics.listener import MetricsListener
from kraftlog.metrics.prometheus import CONTENT_TYPE, to_prometheus_text
from kraftlog.metrics.raft import RAFT_STATES, RaftMetrics, RaftState
from kraftlog.metrics.registry import MetricGroup, Metrics, Reading
from waiting import until


def families(metrics):
    return {family.name: family for family in text_string_to_metric_families(to_prometheus_text(metrics.snapshot()))}


def samples(family):
    return {(sample.name, tuple(sample.labels.items())): sample.value for sample in family.samples}


def test_every_reading_is_a_family_with_help_and_type_that_prometheus_parses():
    metrics = Metrics()
    raft = RaftMetrics(metrics)
    raft.on_turn(RaftState(state="candidate", voted_id=4, epoch=7), 0, 0)
    controller = ControllerMetrics(metrics, wall_ms=lambda: 5)
    controller.on_operation(0, 1_000_000, 3_000_000)
    controller.on_elections(unclean=2, from_eligible=0)
    found = families(metrics)
    assert len(found) == len(metrics.snapshot())
    assert all(family.documentation for family in found.values())
    state = found["kafka_server_raft_metrics_current_state"]
    assert state.type == "gauge"
    name = "kafka_server_raft_metrics_current_state"
    assert samples(state) == {
        (name, (("state", raft_state),)): float(raft_state == "candidate") for raft_state in RAFT_STATES
    }
    assert samples(found["kafka_server_raft_metrics_current_epoch"]) == {
        ("kafka_server_raft_metrics_current_epoch", ()): 7
    }
    assert math.isnan(found["kafka_server_raft_metrics_commit_latency_max"].samples[0].value)
    elections = found["kafka_controller_controllerstats_uncleanleaderelectionspersec"]
    assert (elections.type, elections.samples[0].value) == ("counter", 2)
    queue = found["kafka_controller_controllereventmanager_eventqueuetimems"]
    assert queue.type == "summary"
    name = queue.name
    assert samples(queue) == {
        **{(name, (("quantile", str(quantile)),)): 1 for quantile in QUANTILES},
        (f"{name}_sum", ()): 1,
        (f"{name}_count", ()): 1,
    }


def test_texts_labels_and_odd_numbers_come_back_as_they_were():
    odd = 'a "quoted" \\ back\nslash'
    metrics = Metrics()
    readings = [
        Reading("some-text", odd, odd),
        Reading("large", math.inf, "", tags=(("feature-name", odd),)),
        Reading("large", -math.inf, "", tags=(("feature-name", "b"),)),
        Reading("exact", 2**53, ""),
    ]
    metrics.register(MetricGroup("kafka.server", "odd-group", lambda: readings))
    found = families(metrics)
    assert found["kafka_server_odd_group_some_text"].samples[0].labels == {"some_text": odd}
    assert [sample.value for sample in found["kafka_server_odd_group_large"].samples] == [math.inf, -math.inf]
    assert found["kafka_server_odd_group_large"].samples[0].labels == {"feature_name": odd}
    assert found["kafka_server_odd_group_exact"].samples[0].value == 2**53


def ask(*requests, listener=None):
    """Each request on its own connection; all answers."""

    async def run():
        served = listener or MetricsListener(lambda: "# some metrics\n")
        await served.open("127.0.0.1", 0)
        answers = []
        for request in requests:
            reader, writer = await asyncio.open_connection(*served.address)
            writer.write(request)
            answers.append(await reader.read())
            writer.close()
        served.close()
        return answers

    return asyncio.run(run())


def test_listener_answers_get_and_head_of_metrics_and_refuses_the_rest():
    rest = b" HTTP/1.1\r\nHost: x\r\n\r\n"
    get, head, post, other, old, noise, long = ask(
        b"GET /metrics?name=x" + rest,
        b"HEAD /metrics" + rest,
        b"POST /metrics" + rest,
        b"GET /" + rest,
        b"GET /metrics HTTP/1.0\r\n\r\n",
        b"\x00\x01\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"x" * 20_000,
    )
    heading, body = get.split(b"\r\n\r\n")
    assert heading.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Content-Type: " + CONTENT_TYPE.encode(),
        b"Content-Length: 15",
        b"Connection: close",
    ]
    assert body == b"# some metrics\n"
    assert head == heading + b"\r\n\r\n"
    assert old == get
    assert post.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET, HEAD\r\n" in post
    assert other.startswith(b"HTTP/1.1 404 ")
    assert noise.startswith(b"HTTP/1.1 400 ")
    assert long.startswith(b"HTTP/1.1 431 ")


def test_listener_takes_a_request_in_pieces_and_drops_who_waits_when_it_closes():
    async def run():
        served = MetricsListener(lambda: "x 1\n")
        with pytest.raises(RuntimeError):
            _ = served.address
        await served.open("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*served.address)
        sent = b""
        for piece in (b"GET /met", b"rics HTTP/1.1\r\n"):
            writer.write(piece)
            sent += piece
            await until(lambda: [connection._received for connection in served._connections] == [sent])  # noqa: B023
        writer.write(b"\r\n")
        assert (await reader.read()).endswith(b"\r\n\r\nx 1\n")
        writer.close()
        reader, writer = await asyncio.open_connection(*served.address)
        await until(lambda: served._connections)
        address = served.address
        served.close()
        assert await reader.read() == b""
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection(*address)

    asyncio.run(run())


def test_listener_has_a_limit_of_connections():
    async def run():
        served = MetricsListener(lambda: "x 1\n")
        await served.open("127.0.0.1", 0)
        held = [socket.create_connection(served.address) for _ in range(32)]
        await until(lambda: len(served._connections) == 32)
        reader, _ = await asyncio.open_connection(*served.address)
        assert await reader.read() == b""
        held.pop().close()
        await until(lambda: len(served._connections) == 31)
        reader, writer = await asyncio.open_connection(*served.address)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"x 1\n")
        for connection in held:
            connection.close()
        served.close()

    asyncio.run(run())
