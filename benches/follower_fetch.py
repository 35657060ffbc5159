"""Processor time of a leader per fetch of a follower: by the data path, and by the Python handler.

Both answer in this process, over logs in a temporary directory, without sockets; decoding and encoding are counted. An
idle fetch continues a session in which nothing moved, a busy one follows an append to one partition and names it.

    PYTHONPATH=python:tests python benches/follower_fetch.py [--partitions 1 100 1000] [--fetches 400]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path
from types import GeneratorType, SimpleNamespace

from kraftlog._kraftlog import DataServiceProbe, encode_batch
from kraftlog.api.handlers import fetch
from kraftlog.api.slices import at_once
from kraftlog.runtime.replica.fetch_session import FetchSessionCache
from kraftlog.wire.frame import decode_request, encode_request, encode_response
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.metadata_records import RegisterBrokerRecord
from replica_bench import FIRST, NODE, Bench

FOLLOWER = 2
VERSION = 17
ROUNDS = 5
BATCH = encode_batch([(0, None, b"x" * 1000, [])])


def request(session_id: int, epoch: int, partitions: list[tuple[int, int]]) -> bytes:
    asked = [
        FetchRequest.FetchPartition(
            partition=index,
            fetch_offset=offset,
            current_leader_epoch=0,
            last_fetched_epoch=0 if offset else -1,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        for index, offset in partitions
    ]
    message = FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=FOLLOWER, replica_epoch=20),
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=10 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchRequest.FetchTopic(topic_id=FIRST, partitions=asked)] if asked else [],
    )
    return b"".join(map(bytes, encode_request(1, VERSION, 7, "2", message)))[4:]


class Python:
    """The handler, as it answers what I/O threads hand over."""

    def __init__(self, bench: Bench, _: Path) -> None:
        self.bench = bench
        self.sessions = FetchSessionCache(1000, 120_000, random.Random(1))
        self.context = SimpleNamespace(
            api_version=VERSION, peer=SimpleNamespace(is_on_data_path=False), listener_name="PLAINTEXT"
        )

    def answer(self, frame: bytes) -> bytes:
        message = decode_request(frame)[1]
        answer = fetch.handle(
            self.context,
            message,
            cluster=SimpleNamespace(image=self.bench.image, node_id=NODE),
            settings=SimpleNamespace(fetch_max_bytes=57_671_680, selects_replicas_by_rack=False),
            replicas=self.bench.partitions,
            sessions=self.sessions,
            isr_changes=SimpleNamespace(submit=lambda *_: None),
        )
        response = at_once(answer) if isinstance(answer, GeneratorType) else answer
        return b"".join(map(bytes, encode_response(1, VERSION, 7, response)))


class DataPath:
    """The data service."""

    def __init__(self, bench: Bench, path: Path) -> None:
        self.probe = DataServiceProbe(path, flush_on_ack=False, partitions=bench.partitions.native)

    def answer(self, frame: bytes) -> bytes:
        became, answer, _ = self.probe.handle(frame)
        if answer is None:
            raise SystemExit(f"the data service answers {became}")
        return answer


async def measure(count: int, fetches: int, path: Path, kind: type[Python | DataPath]) -> tuple[float, float]:
    """Microseconds per idle fetch and per busy one, medians over rounds."""
    bench = Bench(path)
    bench.create(partitions=count, replicas=(NODE, FOLLOWER))
    bench.commit(RegisterBrokerRecord(broker_id=FOLLOWER, broker_epoch=20, fenced=False))
    await bench.settle()
    server = kind(bench, path)
    opened = server.answer(request(0, 0, [(index, 0) for index in range(count)]))
    session_id = FetchResponse.decode(opened[9:], VERSION).session_id
    replica = bench.partitions.get(FIRST, 0).replica
    epoch = offset = 0
    rounds = []
    for _ in range(ROUNDS):
        times = []
        for is_busy in (False, True):
            frames = []
            for _ in range(fetches):
                epoch += 1
                frames.append(request(session_id, epoch, [(0, offset)] if is_busy else []))
                offset += is_busy
            spent_ns = 0
            for frame in frames:
                if is_busy:
                    replica.append(BATCH, acks=1, now_ms=0)
                start_ns = time.process_time_ns()
                server.answer(frame)
                spent_ns += time.process_time_ns() - start_ns
            times.append(spent_ns / fetches / 1000)
        rounds.append(times)
    await bench.manager.fetchers.stop()
    for log_dir in bench.log_dirs:
        log_dir.release()
    return statistics.median(idle for idle, _ in rounds), statistics.median(busy for _, busy in rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--fetches", type=int, default=400)
    arguments = parser.parse_args()
    print(f"{'partitions':>10}  {'path':10}  {'idle us':>9}  {'busy us':>9}")
    for count in arguments.partitions:
        for kind in (Python, DataPath):
            with tempfile.TemporaryDirectory() as directory:
                idle, busy = asyncio.run(measure(count, arguments.fetches, Path(directory), kind))
            print(f"{count:10}  {kind.__name__:10}  {idle:9.1f}  {busy:9.1f}")


if __name__ == "__main__":
    main()
