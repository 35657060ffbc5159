"""Virtual time per CPU time of a cluster without faults: `python tests/simulation/world/rate.py`.

    python tests/simulation/world/rate.py --seeds 901:906                       without clients
    python tests/simulation/world/rate.py --seeds 901:906 --clients 2           each produces and fetches once a second
    python tests/simulation/world/rate.py --seeds 901:906 --clients 2 --quiet   who is idle asks less often
    python tests/simulation/world/rate.py --seeds 901:906 --clients 2 --pause 10   each produces every ten seconds
    python tests/simulation/world/rate.py --seeds 901:906 --no-checks           without invariants

CPU time of the process counts, from 5 s of virtual time after the start.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import logging
import os
import pstats
import statistics
import time

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.testing.world.cluster import LONG_WAITS, Cluster
from kraftlog.types import TopicPartition

TOPIC = "rate"
SETTINGS = {"num.partitions": "3", "default.replication.factor": "3", "min.insync.replicas": "2"}
WARM_UP_MS = 5_000


async def produce_and_fetch(cluster, number, counts, fetch_wait_ms, pause_s):
    """One client: it produces a record, fetches what is new, and waits."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    name = TopicPartition(TOPIC, number % 3)
    async with (
        AsyncProducer({**servers, "linger.ms": "0"}) as producer,
        AsyncConsumer({**servers, "auto.offset.reset": "earliest", "fetch.max.wait.ms": fetch_wait_ms}) as consumer,
    ):
        await (await producer.send(TOPIC, b"first", partition=name.partition))
        consumer.assign([name])
        while not cluster.is_quiet:
            await (await producer.send(TOPIC, b"a record", partition=name.partition))
            counts["produced"] += 1
            counts["fetched"] += len(await consumer.poll_records(0.5))
            await asyncio.sleep(pause_s)


def measure(
    seed: int,
    clients: int,
    simulated_s: float,
    profile: str | None,
    *,
    pause_s: float = 1,
    is_quiet: bool = False,
    checks: bool = True,
):
    """Cluster-hours per CPU-minute, and what happened in the meantime."""
    counts = {"produced": 0, "fetched": 0}
    with Cluster(seed, properties=SETTINGS | (LONG_WAITS if is_quiet else {}), checks=checks) as cluster:
        for number in range(clients):
            wait_ms = LONG_WAITS["replica.fetch.wait.max.ms"] if is_quiet else "500"
            cluster.begin(produce_and_fetch(cluster, number, counts, wait_ms, pause_s), client=f"client-{number}")
        cluster.run_for(WARM_UP_MS)
        before = counts.copy()
        events = cluster.world.event_count
        profiler = cProfile.Profile(time.process_time, builtins=False) if profile else None
        began_s = time.process_time()
        if profiler is not None:
            profiler.enable()
        cluster.run_for(simulated_s * 1e3)
        if profiler is not None:
            profiler.disable()
            pstats.Stats(profiler).dump_stats(profile)
        spent_s = time.process_time() - began_s
        events = cluster.world.event_count - events
    done = {name: (count - before[name]) / simulated_s for name, count in counts.items()}
    rate = simulated_s / 3600 / (spent_s / 60)
    print(
        f"seed {seed}: {rate:.2f} cluster-hours per CPU-minute, {simulated_s / spent_s:.1f} cluster-s per CPU-s,"
        f" {events / simulated_s:.0f} events, {done['produced']:.1f} records produced and {done['fetched']:.1f} fetched"
        " per virtual second",
        flush=True,
    )
    return rate


def main() -> None:
    """Measure what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="901:902", help="FIRST:END")
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--pause", type=float, default=1, help="virtual seconds between two records of a client")
    parser.add_argument("--seconds", type=float, default=60, help="virtual")
    parser.add_argument("--quiet", action="store_true", help="with LONG_WAITS, for clients too")
    parser.add_argument("--no-checks", action="store_true", help="without invariants")
    parser.add_argument("--profile", help="write a cProfile of the last seed to this file")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL + 1)
    first, _, end = arguments.seeds.partition(":")
    rates = [
        measure(
            seed,
            arguments.clients,
            arguments.seconds,
            arguments.profile,
            pause_s=arguments.pause,
            is_quiet=arguments.quiet,
            checks=not arguments.no_checks,
        )
        for seed in range(int(first), int(end))
    ]
    print(f"median {statistics.median(rates):.2f} cluster-hours per CPU-minute; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
