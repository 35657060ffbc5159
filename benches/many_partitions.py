"""How long the node's event loop, and another client, wait while topics with many partitions come and go.

``python benches/many_partitions.py [PARTITIONS]`` runs a broker in this process. It prints, for the creation and the
deletion of a topic, the longest time in which the event loop ran nothing else, the CPU it used in such a time (the
measure for a machine that is not idle), the longest pause of the garbage collector, the longest answer to a client that
asks for ApiVersions all the time, and how long it took until every log was open or gone. With ``--own-process`` the
collector is kept from the node's objects as ``server-start`` does it; a program that embeds a broker decides on its
collector itself.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from pathlib import Path

from kraftlog.broker import Broker
from kraftlog.node.frozen_heap import FrozenHeap

LOOK_S = 0.001
SETTLED_S = 600.0

CLIENT = """
import json, socket, struct, sys, time
host, port = sys.argv[1].rsplit(":", 1)
header = struct.pack(">hhih", 18, 0, 0, -1)
frame = struct.pack(">i", len(header)) + header
with socket.create_connection((host, int(port))) as sock:
    print("ready", flush=True)
    while True:
        began = time.perf_counter()
        sock.sendall(frame)
        size = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))[0]
        sock.recv(size, socket.MSG_WAITALL)
        print(json.dumps([time.time(), time.perf_counter() - began]), flush=True)
        time.sleep(0.002)
"""


class LoopWatch:
    """The longest pause between two runs of a timer on the loop, and the most CPU its thread used in between."""

    def __init__(self) -> None:
        self.longest_s = self.longest_cpu_s = 0.0
        self._last_s, self._last_cpu_s = time.perf_counter(), time.thread_time()

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s, now_cpu_s = time.perf_counter(), time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s - LOOK_S)
        self.longest_cpu_s = max(self.longest_cpu_s, now_cpu_s - self._last_cpu_s)
        self._last_s, self._last_cpu_s = now_s, now_cpu_s
        loop.call_later(LOOK_S, self.run, loop)


class CollectorWatch:
    """The longest pause of the garbage collector, by generation; seconds."""

    def __init__(self) -> None:
        self.longest_s = [0.0, 0.0, 0.0]
        self._began_s = 0.0
        gc.callbacks.append(self._on_phase)

    def _on_phase(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = time.perf_counter()
        else:
            generation = info["generation"]
            self.longest_s[generation] = max(self.longest_s[generation], time.perf_counter() - self._began_s)


async def settled(broker: Broker, count: int) -> None:
    """Wait until the node has this many partitions and nothing to do."""
    replicas = broker._embedded.running.replicas
    end_s = time.perf_counter() + SETTLED_S
    while time.perf_counter() < end_s:
        if len(replicas.partitions) == count and replicas.is_settled:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError


def longest_answer(lines: list[str], since: float) -> float:
    """The longest answer to the client since a time of day, seconds."""
    return max(took for at, took in map(json.loads, lines) if at >= since)


async def measure(partitions: int, data_dir: Path, *, owns_process: bool) -> None:
    """Create and delete a topic, and print what was seen."""
    loop = asyncio.get_running_loop()
    with (data_dir / "answers").open("w+", encoding="utf-8") as answers:
        async with Broker(data_dir / "data", log_flush_on_ack=False) as broker:
            client = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CLIENT, broker.bootstrap_servers, stdout=answers
            )
            try:
                if owns_process:
                    registry = broker._embedded.running.partitions
                    heap = FrozenHeap(registry)
                    heap.begin()
                    registry.add_listener(heap.follow)
                await asyncio.sleep(1)
                await broker.create_topic("warm", partitions=10)
                await settled(broker, 10)
                watch = LoopWatch()
                watch.run(loop)
                collector = CollectorWatch()
                for what, work, count in (
                    ("create", broker._embedded.create_topic("many", partitions, None), partitions + 10),
                    ("delete", broker._embedded.delete_topic("many"), 10),
                ):
                    since, began_s = time.time(), time.perf_counter()
                    watch.longest_s = watch.longest_cpu_s = 0.0
                    collector.longest_s = [0.0, 0.0, 0.0]
                    await work
                    answered_s = time.perf_counter() - began_s
                    await settled(broker, count)
                    took_s = time.perf_counter() - began_s
                    block_ms = watch.longest_s * 1000
                    pauses_ms = ", ".join(f"{pause_s * 1000:.1f}" for pause_s in collector.longest_s)
                    await asyncio.sleep(0.2)
                    answers.flush()
                    lines = (data_dir / "answers").read_text(encoding="utf-8").splitlines()[1:-1]
                    print(
                        f"{what} {partitions} partitions: longest loop block {block_ms:.1f} ms (CPU "
                        f"{watch.longest_cpu_s * 1000:.1f} ms), longest collection "
                        f"of generations 0 to 2 {pauses_ms} ms, longest answer to another client "
                        f"{longest_answer(lines, since) * 1000:.1f} ms, call {answered_s:.2f} s, "
                        f"settled after {took_s:.2f} s"
                    )
            finally:
                client.kill()
                await client.wait()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("partitions", type=int, nargs="?", default=2500)
    parser.add_argument("--own-process", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kraftlog-many-") as data_dir:
        asyncio.run(measure(args.partitions, Path(data_dir), owns_process=args.own_process))


if __name__ == "__main__":
    main()
