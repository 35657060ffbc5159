"""One replica of a ``kraftlog.Quorum`` under load, or one of pysyncobj: a line of JSON in, a line of JSON out."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

Propose = Callable[[list[bytes]], Awaitable[object]]


def percentiles(latencies: list[float]) -> dict[str, float]:
    """In ms."""
    latencies.sort()
    count = len(latencies)
    return {name: latencies[min(count - 1, int(count * part))] * 1000 for name, part in RANKS.items()} if count else {}


RANKS = {"p50": 0.5, "p99": 0.99, "max": 1.0}


async def closed_loop(propose: Propose, *, depth: int, size: int, per_call: int, seconds: float) -> dict[str, Any]:
    """``depth`` commands are always under way, in calls of ``per_call``; warmed up for a fifth of the time first."""
    commands = [bytes(size)] * per_call
    latencies: list[float] = []
    warm_s = time.perf_counter() + seconds / 5
    end_s = warm_s + seconds
    counted = 0

    async def worker() -> None:
        nonlocal counted
        while True:
            begun_s = time.perf_counter()
            if begun_s >= end_s:
                return
            await propose(commands)
            done_s = time.perf_counter()
            if warm_s <= done_s < end_s:
                counted += per_call
                latencies.append(done_s - begun_s)

    await asyncio.gather(*(worker() for _ in range(max(1, depth // per_call))))
    return {"per_s": counted / seconds, "mb_s": counted * size / seconds / 1e6, **percentiles(latencies)}


async def open_loop(propose: Propose, *, rate: int, size: int, seconds: float) -> dict[str, Any]:
    """``rate`` commands a second, one per call, whatever the answers do; latency counts from when each was due."""
    command = [bytes(size)]
    latencies: list[float] = []
    running: set[asyncio.Task[None]] = set()
    begun_s = time.perf_counter()

    async def one(due_s: float) -> None:
        await propose(command)
        latencies.append(time.perf_counter() - due_s)

    sent = 0
    while (now_s := time.perf_counter() - begun_s) < seconds:
        while sent < now_s * rate:
            task = asyncio.ensure_future(one(begun_s + sent / rate))
            running.add(task)
            task.add_done_callback(running.discard)
            sent += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*running)
    took_s = time.perf_counter() - begun_s
    return {"per_s": sent / took_s, "mb_s": sent * size / took_s / 1e6, **percentiles(latencies)}


async def serve(node: Any, propose: Propose) -> None:
    """Answer one request after the other."""
    print(json.dumps({}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        kind = request.pop("do")
        if kind == "leader":
            answer: dict[str, Any] = {"is_leader": node.is_leader}
        elif kind == "cpu":
            used = resource.getrusage(resource.RUSAGE_SELF)
            answer = {"cpu_s": used.ru_utime + used.ru_stime}
        else:
            answer = await (open_loop if kind == "rate" else closed_loop)(propose, **request)
        print(json.dumps(answer), flush=True)


async def kraftlog_member(options: dict[str, Any]) -> None:
    """A kraftlog replica."""
    import kraftlog

    class Count(kraftlog.StateMachine):
        count = 0

        def apply(self, batch: Any) -> None:
            self.count += len(batch)

        def snapshot(self) -> list[bytes]:
            return [b"%d" % self.count]

        def restore(self, records: Any) -> None:
            self.count = int(records[0])

    is_flushed = options.pop("flush")
    voters = {int(node_id): address for node_id, address in options.pop("voters").items()}
    async with kraftlog.Quorum(Count(), voters=voters, timeout_s=60, **options) as quorum:
        if not is_flushed:
            log = quorum._log.log  # there is no such setting: it would not be a replicated log
            log.flush = lambda: log.log_end_offset
        await serve(quorum, quorum.propose)


async def pysyncobj_member(options: dict[str, Any]) -> None:
    """A replica of pysyncobj: in memory, as it comes; its journal file is never fsynced."""
    from pysyncobj import SyncObj, SyncObjConf, replicated

    class Count(SyncObj):
        def __init__(self, own: str, others: list[str]) -> None:
            super().__init__(own, others, SyncObjConf(autoTick=True, commandsQueueSize=1_000_000))
            self.count = 0

        @replicated
        def add(self, command: bytes) -> int:
            self.count += 1
            return self.count

    addresses = options["voters"]
    own = addresses[str(options["node_id"])]
    node: Any = Count(own, [address for address in addresses.values() if address != own])
    loop = asyncio.get_running_loop()

    async def propose(commands: list[bytes]) -> None:
        future: asyncio.Future[object] = loop.create_future()

        def done(result: object, error: object) -> None:
            if error:
                loop.call_soon_threadsafe(future.set_exception, RuntimeError(str(error)))
            else:
                loop.call_soon_threadsafe(future.set_result, result)

        for command in commands:
            node.add(command, callback=done)
        await future

    class Face:
        @property
        def is_leader(self) -> bool:
            return bool(node._isLeader())

    await serve(Face(), propose)


if __name__ == "__main__":
    OPTIONS = json.loads(sys.argv[2])
    asyncio.run({"kraftlog": kraftlog_member, "pysyncobj": pysyncobj_member}[sys.argv[1]](OPTIONS))
