"""Consumers of a node in this process: rows, positions, groups, the how-to pages, and brokers that lie."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

import kraftlog
from integration.client.lying_broker import LyingBroker
from kraftlog._kraftlog import encode_values
from kraftlog.client import OffsetAndMetadata
from kraftlog.client.config import ClientConfig, ClientConfigError, reset_strategy
from kraftlog.errors import CorruptRecordError, KafkaError, NoOffsetForPartitionError, RemoteProtocolError
from kraftlog.reading.scan_options import DEFAULT_COLUMNS
from kraftlog.types import TopicPartition
from kraftlog.wire.frame import encode_response
from kraftlog.wire.messages.fetch import FetchResponse

PAGES = Path(__file__).resolve().parents[3] / "docs" / "how-to"
T0 = ("orders", 0)
pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def broker():
    with kraftlog.Broker() as node:
        node.create_topic("orders", partitions=2)
        confluent = pytest.importorskip("confluent_kafka")
        producer = confluent.Producer({"bootstrap.servers": node.bootstrap_servers})
        for number in range(3000):
            producer.produce("orders", b"v%d" % number, b"k", partition=number % 2, headers=[("h", b"x")])
        producer.flush()
        yield node


def consumer(broker, **settings):
    return kraftlog.Consumer(
        bootstrap_servers=broker.bootstrap_servers, **{"auto_offset_reset": "earliest", **settings}
    )


@pytest.mark.spec("CTRN-42")
def test_columns_are_those_of_a_scan_and_rows_are_bounded(broker):
    with consumer(broker, max_poll_records=1000) as reader:
        reader.assign([T0])
        first = pa.record_batch(reader.poll(30))
        second = pa.record_batch(reader.poll(30))
        assert first.schema.names == list(DEFAULT_COLUMNS)
        assert (first.num_rows, second.num_rows) == (1000, 500)
        assert first.column("offset").to_pylist() + second.column("offset").to_pylist() == list(range(1500))
        assert second.column("value")[-1].as_py() == b"v2998"
        assert first.column("headers")[0].as_py() == [{"key": "h", "value": b"x"}]
        assert reader.position(T0).offset == 1500
        assert reader.poll(0.1) is None
        assert reader.end_offsets([T0]) == {TopicPartition("orders", 0): 1500}
        assert reader.beginning_offsets([T0]) == {TopicPartition("orders", 0): 0}
        assert reader.offsets_for_times({T0: 2**62}) == {TopicPartition("orders", 0): None}
        found = reader.offsets_for_times({T0: 0})[TopicPartition("orders", 0)]
        assert (found.offset, found.leader_epoch) == (0, 0)


def test_records_are_objects_with_the_same_content(broker):
    with consumer(broker) as reader:
        reader.assign([("orders", 1)])
        reader.seek(("orders", 1), 10)
        records = reader.poll_records(10)
        assert len(records) == 1490
        record = records[0]
        assert (record.topic, record.partition, record.offset) == ("orders", 1, 10)
        assert (record.key, record.value, record.headers) == (b"k", b"v21", [("h", b"x")])
        batch = reader.poll(0.1)
        assert batch is None
        reader.seek(("orders", 1), 1499)
        assert len(reader.poll(30)) == 1


def test_paused_partitions_give_nothing_and_go_on_where_they_were(broker):
    with consumer(broker) as reader:
        reader.assign([T0])
        reader.pause([T0])
        assert reader.poll(0.3) is None
        reader.resume([T0])
        assert len(reader.poll(30)) == 1500


@pytest.mark.spec("CTRN-12")
def test_commits_carry_the_leader_epoch_and_a_restart_goes_on_there(broker):
    with consumer(broker, group_id="restart", max_poll_records=100, enable_auto_commit=False) as reader:
        reader.assign([T0])
        reader.poll(30)
        reader.commit()
        reader.commit({("orders", 1): OffsetAndMetadata(7, 0, "note")})
    with consumer(broker, group_id="restart") as reader:
        found = reader.committed([T0, ("orders", 1)])
        assert found[TopicPartition(*T0)].offset == 100
        assert found[TopicPartition(*T0)].leader_epoch == 0
        assert found[TopicPartition("orders", 1)] == OffsetAndMetadata(7, 0, "note")
        reader.assign([T0])
        assert pa.record_batch(reader.poll(30)).column("offset")[0].as_py() == 100


def test_without_a_committed_offset_and_a_policy_poll_raises(broker):
    with consumer(broker, auto_offset_reset="none") as reader:
        reader.assign([T0])
        with pytest.raises(NoOffsetForPartitionError, match="orders-0"):
            reader.poll(30)
        reader.seek(T0, 1499)
        assert len(reader.poll(30)) == 1


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_of_a_group_share_the_partitions(broker, strategy):
    settings = {
        "group_id": f"share-{strategy}",
        "heartbeat_interval_ms": 100,
        "partition_assignment_strategy": strategy,
    }
    with consumer(broker, **settings) as first:
        first.subscribe(["orders"])
        rows = 0
        while rows < 3000:
            rows += len(first.poll(30))
        assert len(first.assignment) == 2
        with consumer(broker, **settings) as second:
            second.subscribe(["orders"])
            wait(lambda: len(first.assignment) == len(second.assignment) == 1, first, second)
            assert set(first.assignment) | set(second.assignment) == {
                TopicPartition("orders", 0),
                TopicPartition("orders", 1),
            }
            assert first.poll(0.1) is None
            assert second.poll(0.1) is None, "what was committed when partitions moved is read again"
        wait(lambda: len(first.assignment) == 2, first)


def wait(is_done, *readers):
    deadline = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < deadline
        for reader in readers:
            assert reader.poll(0.05) is None


def test_async_consumer_runs_on_the_loop_of_the_caller(broker):
    async def read() -> int:
        async with kraftlog.AsyncConsumer(
            {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}, columns=["value"]
        ) as reader:
            reader.assign([T0])
            batch = await reader.poll(30)
            assert batch.column_names == ["value"]
            return len(batch)

    assert asyncio.run(read()) == 1500


def test_bounded_read_does_not_wait_for_ever_for_an_end_that_the_log_does_not_reach(broker):
    async def read() -> int:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "request.timeout.ms": 2000,
            "auto.offset.reset": "none",
        }
        async with kraftlog.AsyncConsumer(settings) as reader:
            reader.assign([T0])
            reader.seek(T0, 1495)
            rows = await reader.poll_before(T0, 10**6)
            with pytest.raises(TimeoutError, match="orders-0: no record came at offset 1500, before 1000000, for 2"):
                await reader.poll_before(T0, 10**6)
            return len(rows)

    assert asyncio.run(read()) == 5


def test_first_poll_comes_soon_after_the_construction(broker):
    times: list[float] = []
    while len(times) < 5 or (min(times) >= 0.2 and len(times) < 100):  # more often on a busy machine
        begin = time.perf_counter()
        with consumer(broker) as reader:
            reader.assign([T0])
            assert reader.poll(30) is not None
            times.append(time.perf_counter() - begin)
    assert min(times) < 0.2


@pytest.mark.parametrize("page", ["consume.md", "truncation.md"])
def test_code_of_the_pages_runs(broker, page):
    code = "\n".join(re.findall(r"^(?:    .*|)$", (PAGES / page).read_text(), re.MULTILINE))
    code = "\n".join(line[4:] for line in code.splitlines())
    exec(compile(code, page, "exec"), {"servers": broker.bootstrap_servers})


def test_both_programs_of_the_page_about_kafka_python_do_the_same(capsys):
    pytest.importorskip("kafka")
    text = (PAGES / "replace-kafka-python.md").read_text()
    printed = []
    for code in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        with kraftlog.Broker() as node:
            node.create_topic("orders")
            names = {"servers": node.bootstrap_servers}
            exec(compile(code, "replace-kafka-python.md", "exec"), names)
            names["consumer"].close()
            names["producer"].close()
        printed.append(capsys.readouterr().out)
    assert printed == ["0 b'table 4' b'one coffee'\n"] * 2


def test_unknown_settings_and_values_are_errors():
    for settings, wanted in (
        ({}, "bootstrap.servers must be set"),
        ({"bootstrap.servers": "a:1", "fetch.max.byte": "1"}, "unknown settings of a consumer: fetch.max.byte"),
        ({"bootstrap.servers": "a:1", "acks": "1"}, "unknown settings of a consumer: acks"),
        ({"bootstrap.servers": "a:1", "isolation.level": "none"}, "isolation.level=none: must be one of"),
        ({"bootstrap.servers": "a:1", "auto.offset.reset": "by_duration:1h"}, "auto.offset.reset"),
    ):
        with pytest.raises(ClientConfigError, match=re.escape(wanted)):
            ClientConfig(settings, "consumer")
    assert reset_strategy("by_duration:P1DT2H3M4.5S") == ((26 * 60 + 3) * 60 + 4.5) * 1000


# Brokers that lie


def send_records(records, count=1):
    def lie(link, header, request):
        response = FetchResponse(
            responses=[
                FetchResponse.FetchableTopicResponse(
                    topic="orders", partitions=[FetchResponse.PartitionData(high_watermark=100, records=records)]
                )
            ]
        )
        for buffer in encode_response(1, header.request_api_version, header.correlation_id, response):
            link.sendall(buffer)

    return lie


def raw_answer(body):
    def lie(link, header, request):
        payload = struct.pack(">i", header.correlation_id) + body
        link.sendall(struct.pack(">i", len(payload)) + payload)

    return lie


def negative_size(link, header, request):
    link.sendall(struct.pack(">i", -5) + b"x" * 10)


def huge_size(link, header, request):
    link.sendall(struct.pack(">i", 2**31 - 1) + b"x" * 10)


def bomb():
    """A few KiB that hold 70 MiB: more than the bound of any ratio."""
    return encode_values([bytes(70 << 20)], compression="zstd")


BATCH = encode_values([b"a", b"b"])


@pytest.mark.parametrize(
    ("lie", "error", "text"),
    [
        (raw_answer(random.Random(1).randbytes(300)), RemoteProtocolError, "node 1 at 127.0.0.1"),
        (raw_answer(b""), RemoteProtocolError, "node 1 at 127.0.0.1"),
        (negative_size, RemoteProtocolError, "-5 bytes"),
        (huge_size, RemoteProtocolError, "2147483647 bytes"),
        (send_records(BATCH[:-3]), CorruptRecordError, "one whole batch"),
        (send_records(BATCH[:-1] + b"\xff"), CorruptRecordError, "CRC"),
        (send_records(b"\0" * 200), CorruptRecordError, "fetched orders-0"),
        (send_records(bomb()), CorruptRecordError, "bound"),
    ],
    ids="random empty negative huge partial crc zeros bomb".split(),
)
def test_a_broker_that_lies_costs_an_error_that_names_it(lie, error, text):
    broker = LyingBroker(lie)
    try:
        with consumer(broker, auto_offset_reset="none") as reader:
            reader.assign([T0])
            reader.seek(T0, 0)
            with pytest.raises(error, match=re.escape(text)):
                reader.poll(30)
            assert reader.position(T0).offset == 0
    finally:
        broker.close()


GARBAGE = random.Random(2).randbytes(200)


@pytest.mark.parametrize("body", [GARBAGE, b"", b"\xff" * 64], ids=["random", "empty", "ones"])
@pytest.mark.parametrize("api_key", [3, 2, 1], ids=["Metadata", "ListOffsets", "Fetch"])
def test_each_answer_of_a_consumer_may_be_a_lie(api_key, body):
    broker = LyingBroker(raw_answer(body), lie_about=api_key)
    try:
        with consumer(broker) as reader:
            reader.assign([T0])
            if api_key == 1:
                reader.seek(T0, 0)
            with pytest.raises(RemoteProtocolError, match=r"at 127\.0\.0\.1:\d+"):
                reader.poll(30)
    finally:
        broker.close()


def endless(link, header, request):
    """An answer of 50 MiB that comes byte by byte and never ends."""
    link.sendall(struct.pack(">ii", 50 << 20, header.correlation_id))
    with contextlib.suppress(OSError):
        while True:
            link.sendall(b"\0")
            time.sleep(0.01)


def test_an_answer_that_never_ends_costs_the_request_timeout_and_only_its_bytes():
    broker = LyingBroker(endless, lie_about=2)
    try:
        tracemalloc.start()
        with consumer(broker, request_timeout_ms=500) as reader:
            with pytest.raises(TimeoutError, match="offsets"):
                reader.end_offsets([T0], timeout_s=1.2)
            assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
        broker.close()


def test_a_peer_that_is_no_broker_is_named_in_the_error():
    broker = LyingBroker(raw_answer(b"HTTP/1.1 400 Bad Request\r\n\r\n"), lie_from_start=True)
    try:
        with consumer(broker) as reader:
            reader.assign([T0])
            with pytest.raises((RemoteProtocolError, KafkaError)):
                reader.poll(30)
    finally:
        broker.close()
