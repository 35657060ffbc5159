"""Many quorums on three nodes of one machine: `python benches/quorum_host_bench.py --quorums 1000`.

Three processes, each a ``kraftlog.QuorumHost`` with all quorums; the first one proposes. Prints how long it takes until
every quorum has a leader, memory and threads of each process, the CPU that idle quorums take, and proposals per second:
one caller per quorum that proposes again as soon as it is answered, for so many quorums at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

import kraftlog

_WARM_UP_S = 3.0


class Count(kraftlog.StateMachine):
    """Counts bytes."""

    def __init__(self):
        self.total = 0

    def apply(self, batch):
        self.total += sum(map(len, batch.commands))

    def snapshot(self):
        return [b"%d" % self.total]

    def restore(self, records):
        self.total = int(records[0])


def facts():
    """Memory in MB, threads and CPU seconds of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "threads": threading.active_count(),
        "cpu_s": time.process_time(),
    }


async def serve(connection, node_id, arguments, voters, home):
    """One node: it answers what the parent asks on a pipe."""
    loop = asyncio.get_running_loop()
    async with kraftlog.QuorumHost(data_dir=Path(home) / str(node_id), node_id=node_id, voters=voters) as host:
        began_s = time.monotonic()
        names = [f"q{number}" for number in range(arguments.quorums)]
        quorums = await asyncio.gather(*(host.open(name, Count()) for name in names))
        connection.send(time.monotonic() - began_s)
        while True:
            asked = await loop.run_in_executor(None, connection.recv)
            if asked == "facts":
                connection.send(facts())
            elif asked == "barrier":
                await asyncio.gather(*(quorum.read_barrier(timeout_s=300) for quorum in quorums))
                connection.send(time.monotonic() - began_s)
            elif asked == "leaders":
                connection.send(sum(quorum.is_leader for quorum in quorums))
            elif isinstance(asked, int):
                connection.send(await propose(quorums[:asked], arguments))
            else:
                return


async def propose(quorums, arguments):
    """Proposals per second, and their median and 99th percentile in ms."""
    value, times_s = bytes(arguments.bytes), []
    end_s = time.monotonic() + _WARM_UP_S + arguments.seconds

    async def call(quorum):
        while (before_s := time.monotonic()) < end_s:
            await quorum.propose([value], timeout_s=120)
            if before_s > end_s - arguments.seconds:
                times_s.append(time.monotonic() - before_s)

    await asyncio.gather(*map(call, quorums))
    cuts = statistics.quantiles(times_s, n=100)
    return {"per_s": len(times_s) / arguments.seconds, "p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


def run_node(connection, node_id, arguments, voters, home):
    """The main function of a process."""
    asyncio.run(serve(connection, node_id, arguments, voters, home))


def free_ports(count):
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def main():
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quorums", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--bytes", type=int, default=100, help="of a command")
    parser.add_argument("--busy", default="1,10,100,1000", help="quorums that are proposed to at one time")
    arguments = parser.parse_args()
    voters = {node_id: f"127.0.0.1:{port}" for node_id, port in enumerate(free_ports(3), 1)}
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as home:
        nodes = []
        for node_id in voters:
            ours, theirs = context.Pipe()
            process = context.Process(target=run_node, args=(theirs, node_id, arguments, voters, home))
            process.start()
            nodes.append((process, ours))
        for _, node in nodes:
            node.recv()
        nodes[0][1].send("barrier")
        print(json.dumps({"quorums": arguments.quorums, "all_led_after_s": round(nodes[0][1].recv(), 1)}), flush=True)

        def ask(what):
            for _, node in nodes:
                node.send(what)
            return [node.recv() for _, node in nodes]

        print(json.dumps({"leaders": ask("leaders")}), flush=True)
        time.sleep(15)
        before = ask("facts")
        time.sleep(arguments.seconds * 2)
        after = ask("facts")
        idle = [
            round((b["cpu_s"] - a["cpu_s"]) / (arguments.seconds * 2) * 100, 1)
            for a, b in zip(before, after, strict=True)
        ]
        print(
            json.dumps(
                {
                    "idle_cpu_percent": idle,
                    "mb": [round(each["mb"]) for each in after],
                    "threads": [each["threads"] for each in after],
                }
            ),
            flush=True,
        )
        for busy in map(int, arguments.busy.split(",")):
            nodes[0][1].send(min(busy, arguments.quorums))
            found = nodes[0][1].recv()
            print(json.dumps({"busy": busy} | {name: round(value, 1) for name, value in found.items()}), flush=True)
        for process, node in nodes:
            node.send("end")
            process.join(120)


if __name__ == "__main__":
    main()
