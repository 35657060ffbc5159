"""Producers of a node in this process: records, Arrow rows, partitions, delivery reports, back-pressure, commands."""

from __future__ import annotations

import asyncio
import io
import time

import pytest

import kraftlog
from kraftlog.cli.__main__ import main
from kraftlog.client.config import ClientConfigError
from kraftlog.errors import KafkaError
from kraftlog.partitioner import key_partition

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def broker():
    with kraftlog.Broker() as node:
        yield node


def rows_of(broker, topic, partitions):
    with kraftlog.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign([(topic, number) for number in range(partitions)])
        ends = reader.end_offsets([(topic, number) for number in range(partitions)])
        found = []
        while any(reader.position(name).offset < end for name, end in ends.items()):
            found += reader.poll_records(5)
        return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_arrive_once_and_in_order_in_the_partition_of_their_key(broker, codec):
    topic = f"records-{codec}"
    broker.create_topic(topic, partitions=3)
    reports = []
    with kraftlog.Producer(
        bootstrap_servers=broker.bootstrap_servers, compression_type=codec, batch_size=1000, on_delivery=reports.append
    ) as producer:
        for number in range(1000):
            producer.send(topic, b"%d" % number, key=b"%d" % (number % 7), headers=[("h", b"x")], timestamp=10**12)
    found = rows_of(broker, topic, 3)
    assert sorted(int(record.value) for record in found) == list(range(1000))
    assert sum(report.record_count for report in reports) == 1000
    assert len(reports) > 10
    for partition in range(3):
        values = [int(record.value) for record in found if record.partition == partition]
        assert values == sorted(values)
    assert all(record.partition == key_partition(record.key, 3) for record in found)
    assert (found[0].headers, found[0].timestamp) == ([("h", b"x")], 10**12)


def test_rows_of_a_table_go_where_their_columns_say(broker):
    broker.create_topic("tables", partitions=2)
    headers = pa.array([[("a", b"1")], []] * 500, pa.list_(pa.struct([("key", pa.utf8()), ("value", pa.binary())])))
    table = pa.table(
        {
            "value": [b"%d" % number for number in range(1000)],
            "key": pa.array([None, b"k"] * 500),
            "partition": pa.array([number % 2 for number in range(1000)], pa.int32()),
            "timestamp": pa.array(range(1000), pa.timestamp("ms", "UTC")),
            "headers": headers,
        }
    )
    with kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_table("tables", table)
        producer.send_table("tables", table.select(["value", "key"]).to_batches()[0])
        with pytest.raises(ValueError, match="column offset"):
            producer.send_table("tables", pa.record_batch({"value": [b"x"], "offset": [1]}))
        with pytest.raises(ValueError, match="partition 9"):
            producer.send_table("tables", pa.record_batch({"value": [b"x"], "partition": pa.array([9], pa.int32())}))
    found = rows_of(broker, "tables", 2)
    assert len(found) == 2000
    first = next(record for record in found if record.partition == 1)
    assert (first.value, first.key, first.timestamp, first.headers) == (b"1", b"k", 1, [])


def test_buffer_memory_bounds_what_waits(broker):
    broker.create_topic("bounded", partitions=1)

    async def run():
        async with kraftlog.AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=50_000, batch_size=10_000, linger_ms=1000
        ) as producer:
            most = 0
            for _ in range(300):
                delivery = await producer.send("bounded", b"x" * 1000)
                most = max(most, producer.buffered_bytes)
            await producer.flush()
            return most, delivery.result()

    most, last = asyncio.run(run())
    assert most <= 50_000
    assert last.offset == 299


def test_a_batch_that_the_broker_refuses_is_an_error_and_the_next_one_goes_on(broker):
    broker.create_topic("refusing", partitions=1, config={"max.message.bytes": "2000"})
    with kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("refusing", b"x" * 5000)
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            producer.flush()
        producer.send("refusing", b"small")
        producer.flush()
    assert [record.value for record in rows_of(broker, "refusing", 1)] == [b"small"]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_record_arrives_with_each_kind_of_acknowledgement(broker, acks):
    topic = f"acks-{acks}"
    broker.create_topic(topic, partitions=2)
    reports = []
    with kraftlog.Producer(
        bootstrap_servers=broker.bootstrap_servers, acks=acks, on_delivery=reports.append, batch_size=2000
    ) as producer:
        for number in range(1000):
            producer.send(topic, b"%d" % number, partition=number % 2)
        producer.flush()
        assert sum(report.record_count for report in reports) == 1000
        assert {report.base_offset < 0 for report in reports} == {acks == 0}
        table = pa.table(kraftlog.read(broker.bootstrap_servers, topic, columns=["value"]))
    deadline = time.monotonic() + 30
    while table.num_rows < 1000 and time.monotonic() < deadline:  # nothing says when a broker has what acks=0 sent
        table = pa.table(kraftlog.read(broker.bootstrap_servers, topic, columns=["value"]))
    expected = [b"%d" % number for part in (0, 1) for number in range(part, 1000, 2)]
    assert table["value"].to_pylist() == expected


def test_settings_that_contradict_each_other_are_errors():
    with pytest.raises(ClientConfigError, match="needs acks=all"):
        kraftlog.AsyncProducer(bootstrap_servers="a:1", acks=0, enable_idempotence=True)
    with pytest.raises(ClientConfigError, match="needs acks=all"):
        kraftlog.AsyncProducer(bootstrap_servers="a:1", acks=1, enable_idempotence=True)


def test_commands_produce_and_consume(broker, monkeypatch, capsys, tmp_path):
    broker.create_topic("lines", partitions=1)
    where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "lines"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"k:one\nk:two\n")))
    assert main(["produce", *where, "--key-separator", ":"]) == 0
    assert "2 records" in capsys.readouterr().err
    assert main(["consume", *where, "--from-beginning", "--max-records", "2"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    file = tmp_path / "lines.parquet"
    assert main(["consume", *where, "--from-beginning", "--max-records", "1", "--output", str(file)]) == 0
    assert pq.read_table(file).column("value").to_pylist() == [b"one"]
    assert main(["consume", *where, "--offset", "1", "--idle-ms", "500", "--json"]) == 0
    assert '"offset": 1' in capsys.readouterr().out


def test_each_record_has_a_future_of_its_own_with_its_offset(broker):
    """A caller that gives up waiting takes nothing from the others of its batch, and not the producer's batch."""
    broker.create_topic("futures", partitions=1)

    async def run():
        async with kraftlog.AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=200) as producer:
            futures = [await producer.send("futures", b"%d" % number) for number in range(3)]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(futures[1], 0.01)
            await producer.flush()
            assert futures[1].cancelled()
            assert [futures[0].result().offset, futures[2].result().offset] == [0, 2]
            waiting = [asyncio.create_task(producer.send_and_wait("futures", b"more")) for _ in range(3)]
            await asyncio.sleep(0.05)
            waiting[0].cancel()
            assert [(await task).offset for task in waiting[1:]] == [4, 5]

    asyncio.run(run())
    assert len(rows_of(broker, "futures", 1)) == 6


def test_batches_of_a_table_have_futures_that_may_be_cancelled(broker):
    broker.create_topic("cancelled", partitions=1)

    async def run():
        async with kraftlog.AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            (first,) = await producer.send_table("cancelled", pa.table({"value": [b"a", b"b"]}))
            first.cancel()
            (second,) = await producer.send_table("cancelled", pa.table({"value": [b"c"]}))
            assert (await second).base_offset == 2
            await producer.flush()

    asyncio.run(run())


def test_failure_of_a_batch_is_that_of_each_record_and_is_raised_once_by_the_blocking_producer(broker):
    broker.create_topic("small", partitions=1, config={"max.message.bytes": "200"})

    async def run():
        async with kraftlog.AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            futures = [await producer.send("small", b"x" * 300) for _ in range(2)]
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                await producer.flush()
            assert [future.exception().name for future in futures] == ["MESSAGE_TOO_LARGE"] * 2

    asyncio.run(run())
    with kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            producer.send_and_wait("small", b"x" * 300)
        assert producer.send_and_wait("small", b"x").offset == 0
        producer.flush()


def test_one_record_that_does_not_come_through_in_time(broker):
    with kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        with pytest.raises(TimeoutError, match=r"the record for slow was not delivered within 0\.05 s"):
            producer.send_and_wait("slow", b"x", timeout_s=0.05)
        producer.flush()
        assert producer.metrics()["producer-metrics.record-send-total"] == 1


def test_columns_of_a_table_are_named(broker):
    broker.create_topic("named", partitions=5)
    table = pa.table({"id": ["a", "b", None], "payload": [b"1", b"2", b"3"], "region": ["north", "south", "north"]})
    with kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_table("named", table, key="id", value="payload", partition_by="region")
        producer.flush()
        with pytest.raises(ValueError, match="column region: it is not known here"):
            producer.send_table("named", table, key="id", value="payload")
        with pytest.raises(ValueError, match="column town: there is none"):
            producer.send_table("named", table, key="id", value="payload", partition_by="town")
    found = {record.value: (record.key, record.partition) for record in rows_of(broker, "named", 5)}
    north, south = key_partition(b"north", 5), key_partition(b"south", 5)
    assert found == {b"1": (b"a", north), b"2": (b"b", south), b"3": (None, north)}


def test_a_column_may_be_value_and_decide_the_partition(broker):
    broker.create_topic("twice", partitions=5)
    with kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_table("twice", pa.table({"word": ["x", "y"]}), value="word", partition_by="word")
    found = {record.value: (record.key, record.partition) for record in rows_of(broker, "twice", 5)}
    assert found == {word: (None, key_partition(word, 5)) for word in (b"x", b"y")}
