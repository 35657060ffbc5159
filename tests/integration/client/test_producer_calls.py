"""Calls of a producer beside sending: waiting no longer than told to, and partitions of topics."""

from __future__ import annotations

import asyncio
import time

import pytest

import kraftlog
from kraftlog.errors import KafkaError
from kraftlog.types import TopicPartition
from waiting import until_true

pytestmark = pytest.mark.timeout(120)


def producer(servers, **settings):
    return kraftlog.Producer(bootstrap_servers=servers, **{"linger_ms": 0, **settings})


@pytest.fixture
def stopped(tmp_path):
    """A producer that knows a topic, and what starts its broker again."""
    with kraftlog.Broker(tmp_path) as node:
        node.create_topic("late", partitions=2)
        servers = node.bootstrap_servers
        found = producer(servers)
        found.partitions_for("late")
    yield found, lambda: kraftlog.Broker(tmp_path, port=int(servers.rpartition(":")[2]))
    found.close(timeout_s=30)


def test_flush_that_takes_too_long_says_what_waits_and_it_is_delivered_later(stopped):
    found, restart = stopped
    found.send("late", b"value", partition=1)
    with pytest.raises(TimeoutError, match=r"1 batches, \d+ bytes, were not delivered within 0\.3 s; the last conn"):
        found.flush(timeout_s=0.3)
    with restart() as node:
        found.flush(timeout_s=60)
        assert len(kraftlog.read(node.bootstrap_servers, "late").polars().collect()) == 1


def test_close_that_takes_too_long_ends_all_the_same(stopped):
    found, _ = stopped
    found.send("late", b"value")
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"not delivered within 0\.3 s"):
        found.close(timeout_s=0.3)
    assert time.monotonic() - began < 5
    with pytest.raises(KafkaError, match="closed"):
        raise found._async.first_failure


@pytest.mark.parametrize("end", ["flush", "close"])
def test_records_without_metadata_of_their_topic_do_not_hold_up_the_end(end):
    found = producer("127.0.0.1:1")
    found.send("nowhere", b"value")
    until_true(lambda: not found._records)  # linger.ms is over: it is being handed over
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"metadata of their topic, and did not end within 0\.3 s"):
        getattr(found, end)(timeout_s=0.3)
    assert time.monotonic() - began < 5
    if end == "flush":
        with pytest.raises(TimeoutError):
            found.close(timeout_s=0)


def test_open_transaction_that_is_not_aborted_in_time_does_not_hold_up_the_end():
    with kraftlog.Broker() as node:
        node.create_topic("t")
        found = producer(node.bootstrap_servers, transactional_id="t")
        found.init_transactions()
        found.begin_transaction()
        found.send("t", b"value")
        found.flush()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"the open transaction was not aborted within 0\.3 s"):
        found.close(timeout_s=0.3)
    assert time.monotonic() - began < 5


def test_partitions_of_a_topic_are_numbered_and_one_that_is_not_there_is_named():
    with kraftlog.Broker(config={"auto.create.topics.enable": "false"}) as node:
        node.create_topic("t", partitions=3)
        expected = [TopicPartition("t", number) for number in range(3)]
        with producer(node.bootstrap_servers) as found:
            assert found.partitions_for("t") == expected
            with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: metadata of nosuch"):
                found.partitions_for("nosuch", timeout_s=0.3)
            with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION: topic no such"):
                found.partitions_for("no such")

        async def ask():
            async with kraftlog.AsyncProducer(bootstrap_servers=node.bootstrap_servers) as found:
                with pytest.raises(KafkaError, match="metadata of nosuch"):
                    await found.partitions_for("nosuch", timeout_s=0)
                return await found.partitions_for("t")

        assert asyncio.run(ask()) == expected
