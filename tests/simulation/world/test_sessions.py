"""Members of another library die, and the next ones wait for the end of their sessions: an hour of virtual time."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kraftlog.testing.world.cluster import LONG_WAITS, Cluster

SESSION_MS = 30 * 60_000
MEMBERS = 3
SETTINGS = LONG_WAITS | {"num.partitions": "1", "group.max.session.timeout.ms": "3600000"}
PATIENT = {
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": SESSION_MS // 3,
    "max_poll_interval_ms": 2 * SESSION_MS,
    "request_timeout_ms": 2 * SESSION_MS,
    "connections_max_idle_ms": 2 * SESSION_MS,
    "metadata_max_age_ms": SESSION_MS,
    "fetch_max_wait_ms": 10_000,
}


def test_an_hour_of_session_timeouts(caplog):
    """The embedded node of a pytest suite; each member reads the record once the one before is missed."""
    caplog.set_level(logging.CRITICAL)
    with Cluster(5, controllers=1, brokers=0, combined=1, properties=SETTINGS) as cluster:
        servers = cluster.bootstrap_servers
        joined_s = []

        async def produce():
            async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
                await producer.send_and_wait("numbers", b"1")

        async def read():
            consumer = AIOKafkaConsumer(
                "numbers",
                bootstrap_servers=servers,
                group_id="readers",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **PATIENT,
            )
            await consumer.start()
            assert (await consumer.getone()).value == b"1"
            joined_s.append(cluster.world.now_ms / 1e3)
            await asyncio.sleep(1e9)

        cluster.run(produce())
        began_s = time.process_time()
        for number in range(MEMBERS):
            cluster.begin(read(), client=f"member-{number}")
            cluster.run_until(lambda: len(joined_s) > number, within_ms=2 * SESSION_MS)  # noqa: B023  called in the loop
            cluster.client(f"member-{number}").stop()
        spent_s = time.process_time() - began_s
    print(f"{(joined_s[-1] - joined_s[0]) / 3600:.2f} hours in {spent_s:.2f} CPU-s")
    waited_s = [later - before for before, later in itertools.pairwise(joined_s)]
    assert all(SESSION_MS / 1e3 - 1 < each < SESSION_MS / 1e3 + 10 for each in waited_s), waited_s
