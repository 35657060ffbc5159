"""What an application hears of records that were not delivered, and which rows are committed for it."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from contextlib import suppress

import pytest

import kraftlog
from kraftlog.cli.__main__ import main
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition
from waiting import until_true

pa = pytest.importorskip("pyarrow")
T0 = ("rows", 0)


@pytest.fixture(scope="module")
def broker():
    with kraftlog.Broker() as node:
        node.create_topic("rows", partitions=1)
        node.create_topic("small", partitions=1, config={"max.message.bytes": 2000})
        node.create_topic("good", partitions=1)
        with kraftlog.Producer(bootstrap_servers=node.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("rows", b"%d" % number)
        yield node


def producer(broker, **settings):
    return kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers, **settings)


def consumer(broker, **settings):
    return kraftlog.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest", "max.poll.records": 10},
        **settings,
    )


def values_of(broker, topic):
    return pa.table(kraftlog.read(broker.bootstrap_servers, topic, columns=["value"]))["value"].to_pylist()


# Producers


@pytest.mark.timeout(120)
@pytest.mark.parametrize("call", ["flush", "send", "close"])
def test_batch_that_failed_before_a_call_is_raised_once(broker, call):
    found = producer(broker, linger_ms=0)
    found.send("small", b"x" * 5000)
    until_true(lambda: found._async.first_failure is not None)
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        found.send("good", b"not sent") if call == "send" else getattr(found, call)()
    if call != "close":
        found.send("good", b"after")
        found.flush()
    found.close()
    assert b"not sent" not in values_of(broker, "good")


def test_record_that_cannot_be_sent_is_refused_by_send_and_leaves_the_others(broker):
    broker.create_topic("fields")
    with producer(broker, linger_ms=1000) as found:
        for arguments, kind, text in (
            ({"value": "text"}, TypeError, "the value must be bytes or None, not str"),
            ({"value": b"", "key": 5}, TypeError, "the key must be bytes or None, not int"),
            ({"value": b"", "headers": [(b"h", b"")]}, TypeError, "the name of a header must be str, not bytes"),
            ({"value": b"", "headers": [("h", "x")]}, TypeError, "header h must be bytes or None, not str"),
            ({"value": b"", "headers": [("\ud800", b"x")]}, UnicodeEncodeError, "surrogates"),
            ({"value": b"", "timestamp": 2**63}, ValueError, "timestamp 9223372036854775808 is out of range"),
            ({"value": b"", "timestamp": -1}, ValueError, "timestamp -1 is out of range"),
            ({"value": b"", "timestamp": 1.5}, TypeError, "the timestamp must be milliseconds as int, not float"),
        ):
            found.send("fields", b"before")
            with pytest.raises(kind, match=text):
                found.send("fields", **arguments)
        found.send("fields", memoryview(b"view"), key=bytearray(b"k"), headers=[("h", None)], timestamp=0)
    assert values_of(broker, "fields") == [b"before"] * 8 + [b"view"]


@pytest.mark.timeout(120)
def test_records_behind_one_without_a_place_are_delivered(broker):
    broker.create_topic("places", partitions=2)
    with producer(broker, linger_ms=1000) as found:
        found.send("places", b"first", partition=0)
        found.send("places", b"nowhere", partition=7)
        found.send("places", b"last", partition=1)
        with pytest.raises(KafkaError, match="places has 2 partitions, no 7"):
            found.flush()
        found.flush()
    assert sorted(values_of(broker, "places")) == [b"first", b"last"]


@pytest.mark.timeout(120)
def test_transaction_that_lost_a_record_before_it_was_sent_cannot_be_committed(broker):
    broker.create_topic("whole", partitions=1)
    with producer(broker, transactional_id="whole") as found:
        found.init_transactions()
        found.begin_transaction()
        found.send("whole", b"one")
        found.send("whole", b"two", partition=9)
        with pytest.raises(KafkaError, match="no 9"):
            found.commit_transaction()
        found.abort_transaction()
        with found.transaction():
            found.send("whole", b"three")
    rows = kraftlog.read(broker.bootstrap_servers, "whole", columns=["value"], isolation_level="read_committed")
    assert pa.table(rows)["value"].to_pylist() == [b"three"]


@pytest.mark.timeout(120)
def test_transaction_whose_batch_timed_out_cannot_be_committed(tmp_path):
    with kraftlog.Broker(tmp_path) as node:
        node.create_topic("late")
        port = int(node.bootstrap_servers.rpartition(":")[2])
        with producer(node, transactional_id="late") as found:
            found.init_transactions()
            with found.transaction():
                found.send("late", b"before")
        found = producer(node, transactional_id="late", delivery_timeout_ms=500, linger_ms=0)
        found.init_transactions()
        found._thread.call(lambda: found._async.partitions_for("late"), what="producer")  # the leader is known
    found.begin_transaction()
    found.send("late", b"lost")
    until_true(lambda: not found._async.is_transaction_open or found._async.first_failure is not None)
    with kraftlog.Broker(tmp_path, port=port) as node:
        with pytest.raises(KafkaError, match=r"late-0: delivery\.timeout\.ms"):
            found.commit_transaction()
        found.abort_transaction()
        found.close()
        rows = kraftlog.read(node.bootstrap_servers, "late", columns=["value"], isolation_level="read_committed")
        assert pa.table(rows)["value"].to_pylist() == [b"before"]


def test_command_reports_a_batch_that_failed_while_it_waited_for_lines(broker, monkeypatch, capsys):
    class SlowLines(io.RawIOBase):
        """A line that the broker refuses, and later, once it has refused it, another one."""

        def __iter__(self):
            yield b"x" * 5000 + b"\n"
            threading.Event().wait(1)
            yield b"fine\n"

    class Stdin:
        buffer = SlowLines()

    monkeypatch.setattr("sys.stdin", Stdin())
    assert main(["produce", "--bootstrap-server", broker.bootstrap_servers, "--topic", "small"]) == 1
    assert "MESSAGE_TOO_LARGE" in capsys.readouterr().err


# Consumers


def committed(broker, group):
    with kraftlog.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group) as reader:
        found = reader.committed([T0]).get(TopicPartition(*T0))
        return None if found is None else found.offset


@pytest.mark.timeout(120)
def test_rows_in_hand_are_committed_by_the_next_poll_and_not_by_the_clock(broker):
    with consumer(broker, group_id="clock", auto_commit_interval_ms=20) as reader:
        reader.assign([T0])
        assert len(reader.poll(30)) == 10
        until_true(lambda: committed(broker, "clock") == 0)  # the clock has ticked, with the rows still in hand
        assert len(reader.poll(30)) == 10
        until_true(lambda: committed(broker, "clock") == 10)
        reader.commit()
        assert committed(broker, "clock") == 20
    assert committed(broker, "clock") == 20


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("is_failing", "offset"), [(True, 10), (False, 20)])
def test_block_that_fails_does_not_commit_the_rows_of_its_last_poll(broker, is_failing, offset):
    group = f"failing-{is_failing}"
    with suppress(ZeroDivisionError), consumer(broker, group_id=group) as reader:
        reader.assign([T0])
        reader.poll(30)
        reader.poll(30)
        if is_failing:
            raise ZeroDivisionError
    assert committed(broker, group) == offset


def test_async_block_that_fails_does_not_commit_the_rows_of_its_last_poll(broker):
    async def run():
        settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
        async with kraftlog.AsyncConsumer(settings, group_id="failing", max_poll_records=10) as reader:
            reader.assign([T0])
            await reader.poll(30)
            await reader.poll(30)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    assert committed(broker, "failing") == 10


@pytest.mark.timeout(120)
def test_command_commits_what_it_printed(broker, capsys):
    command = ["consume", "--bootstrap-server", broker.bootstrap_servers, "--topic", "rows", "--group", "printed"]
    for first in (0, 7):
        assert main([*command, "--from-beginning", "--max-records", "7"]) == 0
        assert capsys.readouterr().out.split() == [str(number) for number in range(first, first + 7)]
    assert committed(broker, "printed") == 14


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--partition", "0", "--partition", "7"], "rows has 1 partitions, numbered from 0"),
        (["--max-records", "0"], "--max-records must be at least 1"),
    ],
)
def test_command_refuses_what_it_would_wait_for_without_end(broker, capsys, arguments, text):
    assert main(["consume", "--bootstrap-server", broker.bootstrap_servers, "--topic", "rows", *arguments]) == 1
    assert text in capsys.readouterr().err


def test_names_and_partitions_of_another_type_are_errors_that_say_so(broker):
    with consumer(broker, group_id="types") as reader:
        with pytest.raises(TypeError, match=r"topics are a list of names: subscribe\(\['rows'\]\)"):
            reader.subscribe("rows")
        with pytest.raises(TypeError, match=r"a partition is a pair such as \('orders', 0\), not 'rows'"):
            reader.assign(("rows", 0))


@pytest.mark.timeout(120)
def test_commit_that_fails_at_the_end_is_a_warning_and_the_member_leaves_nevertheless(broker, caplog):
    async def refuse(*_offsets, **_member):
        raise KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, "no")

    with consumer(broker, group_id="refused", group_protocol="consumer") as reader:
        reader.subscribe(["rows"])
        reader.poll(30)
        reader._async._group.group.commit = refuse
    assert [record.message for record in caplog.records if "refused" in record.message] == [
        "commit before the end of group refused: INVALID_COMMIT_OFFSET_SIZE: no"
    ]
    began = time.monotonic()
    with consumer(broker, group_id="refused", group_protocol="consumer") as reader:
        reader.subscribe(["rows"])
        reader.poll(30)
    assert time.monotonic() - began < 30  # the other one would have kept its partition until its session's end


def test_brokers_that_cannot_be_reached_are_named_in_the_log_and_in_the_error(caplog):
    settings = {"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": 500, "reconnect.backoff.ms": 10}
    with (
        kraftlog.Consumer(settings) as reader,
        pytest.raises(TimeoutError, match=r"not within 0\.5 s; .* 127\.0\.0\.1:1"),
    ):
        reader.partitions_for("rows")
    assert [record.message[:43] for record in caplog.records] == ["no connection to 127.0.0.1:1, attempt 1: BR"]
    with kraftlog.Producer({**settings, "max.block.ms": 1_000}) as writer:
        writer.send("rows", b"")
        with pytest.raises(KafkaError, match=r"metadata of rows; .* 127\.0\.0\.1:1"):
            writer.flush()
