"""What the largest requests of every API do to another client: one request of many entries per array of each schema.

A node runs as a process of its own whose event loop notes the processor time of its longest turn. For each API that a
listener serves and each array of its request, this sends the request with 200 000 entries there, first of things that
do not exist, then of things that do. Meanwhile another connection sends a small request every 2 ms. A row has

    turn   longest turn of the event loop, processor time in ms
    wait   longest wait of the small request, ms; on a machine with other work it says little
    cpu    most processor time of the event loop between a small request and its answer, ms
    total  from the first byte of the large request to the last of its answer, ms
    MB     growth of the node's resident memory while it was handled

    python benches/request_walk.py                          all APIs of both listeners
    python benches/request_walk.py --key 0 --key 28         some APIs
    python benches/request_walk.py --data-path python       without I/O threads
    python benches/request_walk.py --stacks --key 24        also where turns above 20 ms spend their time
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import mmap
import os
import select
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from fairness import loop_seconds, rss_mb  # noqa: E402
from hostile_requests import frame, request_class  # noqa: E402

from interop.harness import CLUSTER_ID, KraftlogServer  # noqa: E402
from kraftlog.api.handler_table import APIS  # noqa: E402
from kraftlog.wire.registry import API_BY_KEY  # noqa: E402
from large_shapes import Shape, World, make_world, shapes_of  # noqa: E402

PARTITIONS = 2_000
ENTRIES = 200_000
PERIOD_S = 0.002
SLOW_TURN_S = 0.02
ANSWER_TIMEOUT_S = 60.0
# What follows an answer: the request's objects are freed.
REST_S = 0.1

TURNS_VARIABLE, STACKS_VARIABLE = "REQUEST_WALK_TURNS", "REQUEST_WALK_STACKS"
_LONGEST = struct.Struct("d")


# --- the node --------------------------------------------------------------------------------------------------------


def run_node() -> int:
    """``kraftlog`` with an event loop that notes its longest turn in a shared file."""
    from kraftlog.__main__ import main as kraftlog_main

    with Path(os.environ[TURNS_VARIABLE]).open("r+b") as file:
        noted = mmap.mmap(file.fileno(), _LONGEST.size)
    base: Any = asyncio.base_events.BaseEventLoop
    run_once = base._run_once
    began_s = [0.0]

    def timed(loop: Any) -> None:
        began_s[0] = used_s = time.thread_time()
        run_once(loop)
        used_s = time.thread_time() - used_s
        if used_s > _LONGEST.unpack_from(noted)[0]:
            _LONGEST.pack_into(noted, 0, used_s)

    base._run_once = timed
    if os.environ.get(STACKS_VARIABLE):
        gc.callbacks.append(_report_collections())
    if os.environ.get(STACKS_VARIABLE):
        threading.Thread(target=_note_stacks, args=(threading.get_ident(), began_s), daemon=True).start()
    return kraftlog_main(sys.argv[2:])


def _report_collections() -> Callable[[str, dict[str, int]], None]:
    """Prints collections of garbage that take long."""
    began_s = 0.0

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal began_s
        if phase == "start":
            began_s = time.thread_time()
        elif time.thread_time() - began_s > SLOW_TURN_S / 2:
            print(f"STACK generation {info['generation']} took {time.thread_time() - began_s:.3f} s", flush=True)

    return on_collection


def _note_stacks(thread_id: int, began_s: list[float]) -> None:
    """Print where long turns are, now and again."""
    clock = time.pthread_getcpuclockid(thread_id)
    counts: Counter[str] = Counter()
    printed_s = time.monotonic()
    while True:
        time.sleep(0.004)
        if time.clock_gettime(clock) - began_s[0] > SLOW_TURN_S:
            stack = traceback.extract_stack(sys._current_frames()[thread_id])
            if stack[-1].name != "select":
                places = [f"{Path(place.filename).stem}:{place.lineno} {place.name}" for place in stack[-7:]]
                counts[" > ".join(places)] += 1
        if counts and time.monotonic() - printed_s > 1:
            printed_s = time.monotonic()
            for text, count in counts.most_common(3):
                print(f"STACK {count:4} {text}", flush=True)
            counts.clear()


class WatchedServer(KraftlogServer):
    """A node as a user starts it, with a loop that is watched."""

    def start_command(self) -> list[str]:
        return [sys.executable, __file__, "--node", "server-start", str(self.properties_path)]


# --- the walk --------------------------------------------------------------------------------------------------------


class Walk:
    """Sends shapes to a running node.

    Args:
        server: The node.
        turns: The shared file with its longest turn.
    """

    def __init__(self, server: WatchedServer, turns: mmap.mmap) -> None:
        self._server = server
        self._turns = turns
        small = request_class("Metadata")
        wanted = [small.MetadataRequestTopic(name="small")]
        self._small = frame(small(topics=wanted, allow_auto_topic_creation=False), 12)

    def measure(self, shape: Shape, port: int) -> dict[str, Any]:
        """Send one request and small ones beside it."""
        assert self._server.process is not None
        pid = self._server.process.pid
        data = frame(shape.request, shape.version)
        shown: dict[str, Any] = {"case": shape.name, "version": shape.version, "frame_MB": len(data) / 1e6}
        before_mb = peak_mb = rss_mb(pid)
        with connect(port) as large, connect(self._server.port) as small:
            small.sendall(self._small)
            small.recv(1 << 16)
            _LONGEST.pack_into(self._turns, 0, 0.0)
            large.setblocking(False)
            left, received, size = memoryview(data), bytearray(), None
            began_s = time.perf_counter()
            ended_s: float | None = None
            sent_s: float | None = None
            sent_cpu_s = 0.0
            waits: list[float] = []
            cpu: list[float] = []
            next_s = began_s
            shown["answer"] = "none"
            while True:
                now_s = time.perf_counter()
                if ended_s is None and now_s - began_s > ANSWER_TIMEOUT_S:
                    ended_s = now_s
                if ended_s is not None and sent_s is None and now_s - ended_s > REST_S:
                    break
                if sent_s is None and now_s >= next_s:
                    sent_s, sent_cpu_s, next_s = now_s, loop_seconds(pid), now_s + PERIOD_S
                    small.sendall(self._small)
                    peak_mb = max(peak_mb, rss_mb(pid))
                wait_s = 0.5 if sent_s is not None else max(0.0, next_s - now_s)
                reads = [small] if ended_s is not None else [small, large]
                readable, writable, _ = select.select(reads, [large] if left else [], [], wait_s)
                if small in readable:
                    if not small.recv(1 << 16):
                        raise ConnectionError("the node closed the connection of small requests")
                    if sent_s is not None:
                        waits.append(time.perf_counter() - sent_s)
                        cpu.append(loop_seconds(pid) - sent_cpu_s)
                        sent_s = None
                if writable:
                    try:
                        left = left[large.send(left) :]
                    except BlockingIOError:
                        pass
                    except OSError:
                        left = left[:0]
                if large in readable:
                    try:
                        piece = large.recv(1 << 20)
                    except BlockingIOError:
                        continue
                    except OSError:
                        piece = b""
                    received += piece[: max(0, 64 - len(received))]
                    if size is None and len(received) >= 4:
                        size = 4 + int.from_bytes(received[:4], "big")
                        shown["answer"] = f"{size}"
                    if size is not None:
                        size -= len(piece)
                    if not piece or (size is not None and size <= 0):
                        if not piece:
                            shown["answer"] = "closed"
                        ended_s = time.perf_counter()
                        left = left[:0]
        shown |= {
            "turn": _LONGEST.unpack_from(self._turns)[0] * 1e3,
            "wait": max(waits, default=0.0) * 1e3,
            "cpu": max(cpu, default=0.0) * 1e3,
            "total": ((ended_s or began_s) - began_s) * 1e3,
            "MB": peak_mb - before_mb,
        }
        return shown


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def controller_keys() -> list[int]:
    return [key for key in APIS if "controller" in API_BY_KEY[key].listeners]


def broker_keys() -> list[int]:
    return [key for key in APIS if "broker" in API_BY_KEY[key].listeners]


def cases(world: World, entries: int, listeners: list[str], keys: list[int] | None) -> Iterator[tuple[str, Shape]]:
    for listener, served in (("broker", broker_keys()), ("controller", controller_keys())):
        if listener not in listeners:
            continue
        for key in served:
            if keys is None or key in keys:
                for shape in shapes_of(key, world, entries):
                    yield listener, shape


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", type=int, action="append", help="only these API keys")
    parser.add_argument("--listener", action="append", choices=("broker", "controller"), help="only this listener")
    parser.add_argument("--data-path", choices=("native", "python"), default="native")
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--above", type=float, default=0.0, help="print only rows whose longest turn is above this, ms")
    parser.add_argument("--stacks", action="store_true", help="sample turns above 20 ms")
    arguments = parser.parse_args()
    columns = ("turn", "wait", "cpu", "total", "MB")
    with tempfile.TemporaryDirectory() as home:
        turns_path = Path(home) / "turns"
        turns_path.write_bytes(bytes(_LONGEST.size))
        os.environ[TURNS_VARIABLE] = str(turns_path)
        if arguments.stacks:
            os.environ[STACKS_VARIABLE] = "1"
        server = WatchedServer(
            Path(home) / "server",
            {"auto.create.topics.enable": "false", "kraftlog.data.path": arguments.data_path},
        )
        with turns_path.open("r+b") as file, server.running():
            walk = Walk(server, mmap.mmap(file.fileno(), _LONGEST.size))
            world = make_world(server.bootstrap, PARTITIONS, CLUSTER_ID)
            time.sleep(3)
            print(f"{'case':70}" + "".join(f"{column:>9}" for column in columns) + "  answer", flush=True)
            rows = []
            read = server.log_path.stat().st_size
            for listener, shape in cases(
                world, arguments.entries, arguments.listener or ["broker", "controller"], arguments.key
            ):
                port = server.port if listener == "broker" else server.controller_port
                row = walk.measure(shape, port)
                rows.append(row)
                if row["turn"] >= arguments.above:
                    name = f"{listener[0]} {shape.name} v{shape.version}"
                    print(
                        f"{name:70}" + "".join(f"{row[column]:9.1f}" for column in columns) + f"  {row['answer']}",
                        flush=True,
                    )
                if arguments.stacks:
                    time.sleep(0.3)
                    text = server.log_path.read_bytes()[read:].decode(errors="replace")
                    for line in text.splitlines():
                        # Lines of the log without a level are stacks, of this program or of an error.
                        if " INFO " not in line:
                            print("    " + line, flush=True)
                    read = server.log_path.stat().st_size
                if server.process is None or server.process.poll() is not None:
                    print(server.log_tail(), flush=True)
                    raise SystemExit("the node ended")
            above = [row for row in rows if row["turn"] > 50]
            longest = max(row["turn"] for row in rows)
            print(f"{len(rows)} requests; longest turn {longest:.1f} ms; {len(above)} above 50 ms")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--node"]:
        raise SystemExit(run_node())
    main()
