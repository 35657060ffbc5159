"""What a send waits for, and for how long: metadata of its topic, and room in buffer.memory (max.block.ms)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import kraftlog
from kraftlog.errors import KafkaError, NodeClosedError
from waiting import TIMEOUT_S

pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def broker():
    with kraftlog.Broker(config={"auto.create.topics.enable": "false"}) as node:
        node.create_topic("there", partitions=1)
        yield node


def settings(broker, **more):
    return {"bootstrap_servers": broker.bootstrap_servers, "max_block_ms": 300, "linger_ms": 0, **more}


def test_a_topic_that_does_not_come_is_an_error_after_max_block_ms(broker):
    async def run():
        loop = asyncio.get_running_loop()
        async with kraftlog.AsyncProducer(**settings(broker)) as producer:
            begun_s = loop.time()
            results = await asyncio.gather(
                *(producer.send("missing", b"x") for _ in range(100)),
                producer.send_table("missing", pa.record_batch({"value": [b"x"]})),
                producer.partitions_for("missing"),
                return_exceptions=True,
            )
            assert loop.time() - begun_s >= 0.3
            assert {type(result) for result in results} == {KafkaError}
            assert all("UNKNOWN_TOPIC_OR_PARTITION" in str(result) for result in results)
            await (await producer.send("there", b"x"))
            broker.create_topic("missing", partitions=1)
            await (await producer.send("missing", b"x"))

    asyncio.run(run())


def test_records_of_a_missing_topic_wait_once_and_the_others_go_on(broker, caplog):
    # With a wait for each, these would take seven minutes.
    with kraftlog.Producer(**settings(broker, max_block_ms=2000, linger_ms=10_000)) as producer:
        for number in range(200):
            producer.send("absent", b"x")
            producer.send("there", b"%d" % number)
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            producer.flush()
    assert "200 records for absent are not sent" in caplog.text
    with kraftlog.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign([("there", 0)])
        found = []
        while b"199" not in found:
            found += [record.value for record in reader.poll_records(5)]
    assert [value for value in found if value != b"x"] == [b"%d" % number for number in range(200)]


def test_a_send_that_may_not_wait_finds_metadata_later(broker):
    async def run():
        async with kraftlog.AsyncProducer(**settings(broker, max_block_ms=0)) as producer:
            with pytest.raises(KafkaError):
                await producer.send("there", b"x")
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    with contextlib.suppress(KafkaError):
                        delivery = await producer.send("there", b"x")
                        break
            await delivery

    asyncio.run(run())


def test_records_that_find_no_room_are_errors_and_what_has_room_waits_for_its_delivery():
    async def run(broker):
        limits = {"buffer_memory": 50_000, "batch_size": 10_000, "delivery_timeout_ms": 1500}
        async with kraftlog.AsyncProducer(**settings(broker, **limits)) as producer:
            await producer.send_and_wait("gone", b"x")
            broker.close()
            waiting = [await producer.send("gone", b"x" * 1000) for _ in range(45)]
            with pytest.raises(KafkaError, match=r"of 50000 bytes of buffer\.memory are used"):
                await producer.send("gone", b"x" * 10_000)
            with pytest.raises(KafkaError, match=r"found no room within max\.block\.ms"):
                await producer.send_table("gone", pa.record_batch({"value": [b"x" * 10_000]}))
            for delivery in waiting:
                with pytest.raises(KafkaError):
                    await delivery
            assert producer.buffered_bytes == 0
            delivery = await producer.send("gone", b"x" * 10_000)  # it has room now
            with pytest.raises(KafkaError):
                await delivery

    with kraftlog.Broker() as node:
        node.create_topic("gone", partitions=1)
        asyncio.run(run(node))


def test_a_producer_that_is_closed_leaves_no_send_waiting(broker):
    async def run():
        producer = kraftlog.AsyncProducer(**settings(broker, bootstrap_servers="127.0.0.1:1", max_block_ms=60_000))
        await producer.start()
        waiting = asyncio.ensure_future(producer.send("there", b"x"))
        await asyncio.sleep(0.05)
        await producer.close()
        with pytest.raises((KafkaError, NodeClosedError)):
            await waiting

    asyncio.run(run())
