"""Transactions of ``kraftlog.Producer`` against a cluster of either product: what each test asserts."""

from __future__ import annotations

import asyncio
import time

import pyarrow as pa
import pytest

import kraftlog
from kraftlog.client import OffsetAndMetadata
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import TopicPartition


def ends(bootstrap, topic, isolation):
    with kraftlog.Consumer(bootstrap_servers=bootstrap, isolation_level=isolation) as consumer:
        return consumer.end_offsets(consumer.partitions_for(topic))


def values(bootstrap, topic, isolation="read_committed"):
    """The values that are visible once the markers of all ended transactions are written, which follows the answer."""
    deadline = time.monotonic() + 20
    while ends(bootstrap, topic, "read_committed") != ends(bootstrap, topic, "read_uncommitted"):
        assert time.monotonic() < deadline, "a transaction is open"
    table = pa.table(kraftlog.read(bootstrap, topic, isolation_level=isolation, columns=["value"]))
    return sorted(table["value"].to_pylist())


def commits_and_aborts(bootstrap, topic):
    """Two partitions, several transactions, one producer; empty transactions and a table in between."""
    with kraftlog.Producer(bootstrap_servers=bootstrap, transactional_id=f"x-{topic}") as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for inner in range(4):
                producer.send(topic, b"%d-%d" % (number, inner), partition=inner % 2)
            if number % 3 == 2:
                producer.flush()  # an abort of what the cluster has already
            (producer.abort_transaction if number % 3 else producer.commit_transaction)()
        producer.begin_transaction()
        producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send_table(topic, pa.table({"value": [b"table"]}))
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"never" * (1 // 0))
    expected = sorted([b"%d-%d" % (number, inner) for number in (0, 3) for inner in range(4)] + [b"table"])
    assert values(bootstrap, topic) == expected


def newer_producer_fences_the_older(bootstrap, topic):
    settings = {"bootstrap_servers": bootstrap, "transactional_id": f"fence-{topic}"}
    older = kraftlog.Producer(**settings)
    older.init_transactions()
    older.begin_transaction()
    older.send(topic, b"lost")
    older.flush()
    with kraftlog.Producer(**settings) as newer:
        newer.init_transactions()
        with newer.transaction():
            newer.send(topic, b"kept")
        with pytest.raises(KafkaError, match="another producer took over") as raised:
            older.commit_transaction()
        assert (raised.value.code, raised.value.name) == (ErrorCode.PRODUCER_FENCED, "PRODUCER_FENCED")
        with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
            older.begin_transaction()
        older.close()
    assert b"kept" in values(bootstrap, topic)
    assert b"lost" not in values(bootstrap, topic)
    assert b"lost" in values(bootstrap, topic, "read_uncommitted")


def offsets_are_part_of_the_transaction(bootstrap, source, target):
    """Consume, transform, produce: offsets become visible with the records, and not after an abort."""
    with kraftlog.Producer(bootstrap_servers=bootstrap) as filler:
        for number in range(20):
            filler.send(source, b"%d" % number, partition=0)

    async def run():
        settings = {"bootstrap_servers": bootstrap, "group_id": f"g-{source}", "enable_auto_commit": False}
        consumer = kraftlog.AsyncConsumer(auto_offset_reset="earliest", max_poll_records=10, **settings)
        producer = kraftlog.AsyncProducer(bootstrap_servers=bootstrap, transactional_id=f"ctp-{source}")
        async with consumer, producer:
            await producer.init_transactions()
            consumer.subscribe([source])
            committed = []
            for is_commit in (False, True):
                records = await consumer.poll_records(30)
                producer.begin_transaction()
                for record in records:
                    await producer.send(target, b"out-" + record.value)
                name = TopicPartition(source, 0)
                offsets = {name: OffsetAndMetadata(records[-1].offset + 1, 0, "m")}
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata)
                # Whatever the isolation level: who began at the offset before would process the records again.
                with pytest.raises(KafkaError) as raised:
                    await consumer.committed([name], timeout_s=0.3)
                assert raised.value.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
                await (producer.commit_transaction() if is_commit else producer.abort_transaction())
                committed.append((await consumer.committed([name])).get(name))
            return records, committed

    records, (before, after) = asyncio.run(run())
    assert before is None
    assert (after.offset, after.leader_epoch, after.metadata) == (records[-1].offset + 1, 0, "m")
    assert values(bootstrap, target) == sorted(b"out-" + record.value for record in records)


def failed_batch_has_to_be_aborted(bootstrap, topic):
    """A record that the broker refuses: the commit raises its error, and the producer goes on after the abort."""
    settings = {"bootstrap_servers": bootstrap, "transactional_id": f"fail-{topic}"}
    with kraftlog.Producer(**settings, max_request_size=4 << 20, batch_size=4 << 20) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"before", partition=0)
        producer.flush()
        producer.send(topic, b"x" * (3 << 20), partition=0)
        with pytest.raises(KafkaError) as raised:
            producer.commit_transaction()
        assert raised.value.code in {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
        producer.send(topic, b"between", partition=0)
        with pytest.raises(KafkaError):
            producer.flush()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"after", partition=0)
    assert values(bootstrap, topic) == [b"after"]
