"""Calls of a consumer beside reading: lag, wake-up, iteration, closing, and topics that do not exist."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest

import kraftlog
from kraftlog.errors import ErrorCode, KafkaError, NodeClosedError, WakeupError
from kraftlog.types import TopicPartition
from waiting import until_true

pytestmark = pytest.mark.timeout(120)
T0 = ("calls", 0)


@pytest.fixture(scope="module")
def broker():
    with kraftlog.Broker() as node:
        node.create_topic("calls", partitions=2)
        with kraftlog.Producer(bootstrap_servers=node.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("calls", b"%d" % number, partition=0)
        yield node


def consumer(broker, **settings):
    return kraftlog.Consumer(
        bootstrap_servers=broker.bootstrap_servers, **{"auto_offset_reset": "earliest", **settings}
    )


@pytest.fixture
def in_thread():
    """Run something on another thread; what it raises is the result."""
    threads = []

    def run(work):
        found = []

        def catch():
            try:
                found.append(work())
            except Exception as error:  # noqa: BLE001
                found.append(error)

        threads.append(threading.Thread(target=catch))
        threads[-1].start()
        return found

    yield run
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_lag_counts_the_records_behind_the_position(broker, isolation_level):
    with consumer(broker, max_poll_records=4, isolation_level=isolation_level) as reader:
        with pytest.raises(KafkaError, match="calls-0 is not assigned"):
            reader.current_lag(T0)
        reader.assign([T0])
        assert reader.current_lag(T0) is None
        reader.poll(30)
        assert reader.current_lag(T0) == 6
        reader.seek(T0, 9)
        assert reader.current_lag(T0) == 1


def test_lag_of_a_reader_of_committed_records_ends_at_the_open_transaction(broker):
    broker.create_topic("open")
    settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": "open"}
    with kraftlog.Producer(**settings) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("open", b"committed")
        producer.begin_transaction()
        producer.send("open", b"open")
        producer.flush()
        for isolation_level, lag in (("read_uncommitted", 3), ("read_committed", 2)):
            with consumer(broker, isolation_level=isolation_level) as reader:
                reader.assign([("open", 0)])
                reader.seek(("open", 0), 0)
                until_true(lambda: reader.current_lag(("open", 0)) is not None)
                assert reader.current_lag(("open", 0)) == lag
        producer.abort_transaction()


def test_wakeup_ends_a_poll_on_another_thread_or_else_the_next_one(broker, in_thread):
    with consumer(broker) as reader:
        reader.assign([T0])
        assert len(reader.poll(30)) == 10
        found = in_thread(reader.poll)
        time.sleep(0.05)  # most likely it waits by now; if not, its own next poll is woken
        reader.wakeup()
        until_true(lambda: found)
        assert isinstance(found[0], WakeupError)
        assert reader.poll(0) is None
        reader.wakeup()
        until_true(lambda: reader._async._is_woken)
        with pytest.raises(WakeupError, match=r"wakeup\(\) was called"):
            reader.poll(30)


def test_wakeup_may_be_called_by_a_signal_handler(broker):
    with consumer(broker) as reader:
        reader.assign([("calls", 1)])
        before = signal.signal(signal.SIGALRM, lambda *_: reader.wakeup())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(WakeupError):
                reader.poll(30)
        finally:
            signal.signal(signal.SIGALRM, before)


def test_close_ends_a_poll_on_another_thread_with_an_error(broker, in_thread):
    reader = consumer(broker)
    reader.assign([("calls", 1)])
    found = in_thread(reader.poll)
    until_true(lambda: reader._async._core.is_polled)
    reader.close()
    until_true(lambda: found)
    assert isinstance(found[0], NodeClosedError)
    reader.wakeup()  # too late, and no error


def test_poll_without_anything_to_read_is_an_error(broker):
    with consumer(broker) as reader:
        for poll in (reader.poll, reader.poll_records, lambda: next(reader.batches())):
            with pytest.raises(KafkaError, match=r"call subscribe\(\) or assign\(\) before poll\(\)"):
                poll()


def test_iteration_gives_records_one_by_one_until_none_comes(broker):
    expected = [b"%d" % number for number in range(10)]
    with consumer(broker, max_poll_records=3) as reader:
        reader.assign([T0])
        assert [record.value for record in reader.records(idle_s=0.2)] == expected
        reader.seek(T0, 0)
        assert [record.offset for record, _ in zip(reader, range(5), strict=False)] == list(range(5))


def test_asynchronous_iteration_gives_batches_and_records(broker):
    async def read():
        settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
        async with kraftlog.AsyncConsumer({**settings, "max.poll.records": 4}) as reader:
            reader.assign([T0])
            assert [len(batch) async for batch in reader.batches(idle_s=0.2)] == [4, 4, 2]
            reader.seek(T0, 8)
            assert [record.value async for record in reader.records(idle_s=2)] == [b"8", b"9"]
            reader.seek(T0, 7)
            async for record in reader:
                assert record.offset == 7
                break

    asyncio.run(read())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_close_does_not_wait_longer_than_it_is_told_to(protocol, caplog):
    with kraftlog.Broker() as node:
        node.create_topic("t")
        reader = consumer(node, group_id="g", group_protocol=protocol)
        reader.subscribe(["t"])
        while not reader.assignment:
            reader.poll(0.05)
        with kraftlog.Producer(bootstrap_servers=node.bootstrap_servers) as producer:
            producer.send("t", b"")
        assert reader.poll(30) is not None
    began = time.monotonic()
    reader.close(timeout_s=0.5)
    assert time.monotonic() - began < 4
    assert "within 0.5 s" in caplog.text


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_coordinator_that_goes_away_is_no_error_of_poll_and_named_by_a_commit(tmp_path, protocol):
    settings = {"group_id": "g", "group_protocol": protocol, "heartbeat_interval_ms": 100, "request_timeout_ms": 2000}
    with kraftlog.Broker(tmp_path) as node:
        node.create_topic("t")
        servers = node.bootstrap_servers
        reader = consumer(node, **settings)
        reader.subscribe(["t"])
        while not reader.assignment:
            reader.poll(0.05)
    with reader:
        assert reader.poll(1) is None
        with pytest.raises(KafkaError, match=r"coordinator of group g: .*127\.0\.0\.1"):
            reader.commit({("t", 0): 0}, timeout_s=0.5)
        with kraftlog.Broker(tmp_path, port=int(servers.rpartition(":")[2])) as node:
            with kraftlog.Producer(bootstrap_servers=servers) as producer:
                producer.send("t", b"")
            assert len(reader.poll(60)) == 1
            while [found.offset for found in reader.committed([("t", 0)]).values()] != [1]:
                reader.poll(0.05)  # the partition may be given up before the commit: then the record comes again
                reader.commit(timeout_s=60)


# What is not there


def updates_in_half_a_second(reader):
    metadata = reader._async._core.metadata
    before = metadata.update_count
    time.sleep(0.5)
    return metadata.update_count - before


def test_questions_about_topics_that_are_not_there_name_them_and_are_forgotten():
    with kraftlog.Broker(config={"auto.create.topics.enable": "false"}) as node:
        node.create_topic("calls", partitions=2)
        with consumer(node) as reader:
            for ask, text in (
                (lambda: reader.partitions_for("nosuch"), "UNKNOWN_TOPIC_OR_PARTITION: topic nosuch"),
                (lambda: reader.end_offsets([("nosuch", 0)]), "UNKNOWN_TOPIC_OR_PARTITION: topic nosuch"),
                (lambda: reader.beginning_offsets([("calls", 7)]), "calls has 2 partitions, no 7"),
                (lambda: reader.partitions_for("no such"), "INVALID_TOPIC_EXCEPTION: topic no such"),
            ):
                with pytest.raises(KafkaError, match=text):
                    ask()
            assert reader.partitions_for("calls") == [TopicPartition("calls", 0), TopicPartition("calls", 1)]
            assert updates_in_half_a_second(reader) <= 1, "metadata of what is not there is asked for again and again"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_topic_that_is_created_after_subscribe_is_read(protocol):
    config = {"auto.create.topics.enable": "false", "group.consumer.min.heartbeat.interval.ms": 100}
    with kraftlog.Broker(config={**config, "group.consumer.heartbeat.interval.ms": 100}) as node:
        settings = {"group_id": "g", "group_protocol": protocol, "heartbeat_interval_ms": 100}
        with consumer(node, **settings, allow_auto_create_topics=False) as reader:
            reader.subscribe(["late"])
            assert reader.poll(0.5) is None
            node.create_topic("late")
            with kraftlog.Producer(bootstrap_servers=node.bootstrap_servers) as producer:
                producer.send("late", b"")
            assert reader.poll(30) is not None


def test_invalid_names_are_errors_of_poll_that_name_the_topic(broker):
    with consumer(broker, group_id="invalid", group_protocol="classic") as reader:
        reader.subscribe(["no such"])
        with pytest.raises(KafkaError, match="topic no such") as caught:
            reader.poll(30)
        assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
