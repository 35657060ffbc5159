"""What one client can do to another: latency of a small request beside hostile ones, and the node's memory.

A node runs as a process of its own. A victim, in a second process, asks for the metadata of a topic with one partition
every 4 ms, whether or not the last request was answered, and opens a connection for every 50 requests. A latency counts
from the time that the request was due. Attackers, in further processes, send what the case says for the whole time. The
first row has no attacker.

On a machine with other work the clock says little. The columns "cpu" are the processor time of the node's event loop
between the sending of a request and its answer: what the node did before it came to the victim.

    python benches/fairness.py                        all cases
    python benches/fairness.py --case pipeline --case half-frames --seconds 10
    python benches/fairness.py --data-path python     without I/O threads
    python benches/fairness.py --server kafka         the same against Apache Kafka, from KAFKA_LIBS
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import multiprocessing
import resource
import select
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from hostile_requests import (  # noqa: E402
    LARGE,
    SMALL,
    build_alter_configs,
    build_alter_configs_old,
    build_create_topics,
    build_delete_groups,
    build_delete_records,
    build_delete_topics,
    build_describe_configs,
    build_describe_groups,
    build_describe_partitions,
    build_epochs,
    build_fetch,
    build_fetch_session,
    build_find_coordinator,
    build_join,
    build_list_offsets,
    build_long_names,
    build_metadata,
    build_offset_commit,
    build_offset_fetch,
    build_produce,
    build_transaction,
    build_unknown_tags,
    frame,
    metadata_of,
    request_class,
)

from interop.harness import Java, KafkaServer, KraftlogServer, Server  # noqa: E402
from kraftlog._kraftlog import crc32c  # noqa: E402
from raw_client import RawClient  # noqa: E402

LARGE_PARTITIONS = 2_000
PERIOD_S = 0.004
REQUESTS_PER_CONNECTION = 50
SHARES = (50, 99, 99.9)

Attack = Callable[[str], None]


def connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.partition(":")
    sock = socket.create_connection((host, int(port)), timeout=120)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


# --- attacks ---------------------------------------------------------------------------------------------------------


def send_and_leave_unread(bootstrap: str, data: bytes, connections: int) -> None:
    """Send all of it on each connection as the node takes it, and read no answer."""
    rest = {}
    for _ in range(connections):
        sock = connect(bootstrap)
        sock.setblocking(False)
        rest[sock.fileno()] = (sock, memoryview(data))
    while True:
        _, writable, _ = select.select([], list(rest), [], 1.0)
        for number in writable:
            sock, left = rest[number]
            with contextlib.suppress(BlockingIOError):
                left = left[sock.send(left) :]
            rest[number] = (sock, left)
            if not left:
                del rest[number]
                IDLE.append(sock)
        if not rest:
            time.sleep(1)


IDLE: list[socket.socket] = []


def pipeline(bootstrap: str) -> None:
    send_and_leave_unread(bootstrap, metadata_of(LARGE) * 3_000, 1)


def pipeline_50(bootstrap: str) -> None:
    send_and_leave_unread(bootstrap, metadata_of(LARGE) * 20_000, 50)


def pipeline_read(bootstrap: str) -> None:
    """As ``pipeline``, with the answers read."""
    sock = connect(bootstrap)
    sock.setblocking(False)
    data = metadata_of(LARGE) * 1_000
    left = memoryview(data)
    while True:
        readable, writable, _ = select.select([sock], [sock], [])
        if readable:
            sock.recv(1 << 20)
        if writable:
            with contextlib.suppress(BlockingIOError):
                left = left[sock.send(left) :]
            left = left or memoryview(data)


def held_behind_poll(bootstrap: str) -> None:
    """A Fetch that waits for a minute, with answers queued behind it, on 20 connections."""
    request = request_class("Fetch")
    fetch = request(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            request.FetchTopic(
                topic=SMALL, partitions=[request.FetchTopic.FetchPartition(partition=0, partition_max_bytes=1 << 20)]
            )
        ]
        if hasattr(request.FetchTopic, "FetchPartition")
        else [
            request.FetchTopic(
                topic=SMALL, partitions=[request.FetchPartition(partition=0, partition_max_bytes=1 << 20)]
            )
        ],
        session_epoch=-1,
    )
    send_and_leave_unread(bootstrap, frame(fetch, 12) + metadata_of(LARGE) * 1_000, 20)


def connections(bootstrap: str) -> None:
    """Connect, ask for the API versions, leave, as fast as possible."""
    data = frame(request_class("ApiVersions")(), 0)
    while True:
        with connect(bootstrap) as sock:
            sock.sendall(data)
            sock.recv(1)


def half_frames(bootstrap: str) -> None:
    """Forty connections, one after another, that each leave inside a frame of 95 MB."""
    piece = bytes(1 << 20)
    for _ in range(40):
        with connect(bootstrap) as sock, contextlib.suppress(OSError):
            sock.sendall((95 << 20).to_bytes(4, "big") + b"\0\3\0\14" + bytes(8))
            for _ in range(90):
                sock.sendall(piece)
    time.sleep(3600)


def repeat(bootstrap: str, data: bytes) -> None:
    """Send a request, wait for its answer, and again; a connection that the node closes is opened anew."""
    while True:
        with connect(bootstrap) as sock, contextlib.suppress(OSError):
            while True:
                sock.sendall(data)
                size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL) or b"", "big")
                if not size:
                    break
                while size:
                    size -= len(sock.recv(min(size, 1 << 20)))
        time.sleep(0.1)


def entries(build: Callable[[], tuple[Any, int]]) -> Attack:
    """One request at a time of 200 000 entries."""

    def attack(bootstrap: str) -> None:
        request, version = build()
        repeat(bootstrap, frame(request, version))

    return attack


def bytes_slowly(bootstrap: str) -> None:
    """A thousand connections that send a byte of a request per second."""
    data = metadata_of(LARGE)
    sockets = [connect(bootstrap) for _ in range(1_000)]
    for position in range(len(data)):
        for sock in sockets:
            sock.sendall(data[position : position + 1])
        time.sleep(1)
    time.sleep(3600)


def idle_connections(bootstrap: str) -> None:
    """As many connections as the attacker has descriptors for, at most 10 000, that ask once and stay."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    data = frame(request_class("ApiVersions")(), 0)
    with contextlib.suppress(OSError):
        while len(IDLE) < min(10_000, most - 100):
            IDLE.append(connect(bootstrap))
            IDLE[-1].sendall(data)
    time.sleep(3600)


def long_polls_left(bootstrap: str) -> None:
    """Connections that ask for a poll of an hour with other requests behind it, and leave, one after another."""
    request = request_class("Fetch")
    partition = request.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    poll = request(
        max_wait_ms=3_600_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[request.FetchTopic(topic=SMALL, partitions=[partition])],
        session_epoch=-1,
    )
    data = frame(poll, 11) + metadata_of(LARGE) * 200
    while True:
        with connect(bootstrap) as sock:
            sock.sendall(data)
            time.sleep(0.05)


def thousands_of_groups(bootstrap: str) -> None:
    """Members of ever new groups."""
    request = request_class("JoinGroup")
    protocol = request.JoinGroupRequestProtocol(name="range", metadata=bytes(1000))
    for number in itertools.count():
        with connect(bootstrap) as sock:
            for index in range(100):
                made = request(
                    group_id=f"group-{number}-{index}",
                    session_timeout_ms=6_000,
                    rebalance_timeout_ms=100,
                    protocol_type="consumer",
                    protocols=[protocol],
                )
                sock.sendall(frame(made, 3))
            sock.recv(1)


def compressed_bombs(bootstrap: str) -> None:
    """Batches of a few kilobytes that claim to hold megabytes of zeros, with an offset that makes the node look."""
    request = request_class("Produce")
    bomb = gzip.compress(bytes(64 << 20))
    batch = bytearray(61) + bomb
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[16] = 2
    batch[21:23] = (1).to_bytes(2, "big")
    batch[57:61] = (1).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    data = [request.PartitionProduceData(index=0, records=bytes(batch))]
    made = request(acks=1, timeout_ms=1000, topic_data=[request.TopicProduceData(name=SMALL, partition_data=data)])
    repeat(bootstrap, frame(made, 9))


def all_topics(bootstrap: str) -> None:
    repeat(bootstrap, frame(request_class("Metadata")(topics=None), 12))


def all_topics_20(bootstrap: str) -> None:
    send_and_leave_unread(bootstrap, frame(request_class("Metadata")(topics=None), 12) * 100, 20)


def produce_large(bootstrap: str) -> None:
    """A batch of 90 MB, which the topic refuses by its size or by its bytes."""
    request = request_class("Produce")
    data = [request.PartitionProduceData(index=0, records=b"\2" * (90 << 20))]
    made = request(acks=1, timeout_ms=1000, topic_data=[request.TopicProduceData(name=SMALL, partition_data=data)])
    repeat(bootstrap, frame(made, 9))


CASES: dict[str, tuple[Attack | None, int]] = {
    "none": (None, 0),
    "pipeline": (pipeline, 1),
    "pipeline-read": (pipeline_read, 1),
    "pipeline-50": (pipeline_50, 1),
    "held-behind-poll": (held_behind_poll, 1),
    "connections": (connections, 4),
    "half-frames": (half_frames, 1),
    "Metadata": (entries(build_metadata), 1),
    "Metadata-all": (all_topics, 1),
    "Metadata-all-20": (all_topics_20, 1),
    "FindCoordinator": (entries(build_find_coordinator), 1),
    "ListOffsets": (entries(build_list_offsets), 1),
    "Fetch": (entries(build_fetch), 1),
    "Fetch-session": (entries(build_fetch_session), 1),
    "Produce": (entries(build_produce), 1),
    "Produce-90MB": (produce_large, 1),
    "OffsetFetch": (entries(build_offset_fetch), 1),
    "OffsetCommit": (entries(build_offset_commit), 1),
    "DescribeConfigs": (entries(build_describe_configs), 1),
    "CreateTopics": (entries(build_create_topics), 1),
    "DeleteTopics": (entries(build_delete_topics), 1),
    "DeleteRecords": (entries(build_delete_records), 1),
    "OffsetForLeaderEpoch": (entries(build_epochs), 1),
    "DescribeGroups": (entries(build_describe_groups), 1),
    "DescribeGroups-90MB": (entries(build_unknown_tags), 1),
    "DeleteGroups": (entries(build_delete_groups), 1),
    "IncrementalAlterConfigs": (entries(build_alter_configs), 1),
    "DescribeTopicPartitions": (entries(build_describe_partitions), 1),
    "JoinGroup-90MB": (entries(build_join), 1),
    "AlterConfigs": (entries(build_alter_configs_old), 1),
    "AddPartitionsToTxn": (entries(build_transaction), 1),
    "Metadata-long-names": (entries(build_long_names), 1),
    "bytes-slowly": (bytes_slowly, 1),
    "idle-connections": (idle_connections, 1),
    "long-polls-left": (long_polls_left, 1),
    "groups": (thousands_of_groups, 1),
    "compressed-bombs": (compressed_bombs, 1),
}


# --- the victim ------------------------------------------------------------------------------------------------------


class Caller:
    """A connection of the victim: requests that were sent, when they were due, and the node's time at that moment."""

    def __init__(self, bootstrap: str) -> None:
        self.sock = connect(bootstrap)
        self.due: deque[tuple[float, float]] = deque()
        self.sent = 0
        self._received = bytearray()

    def receive(self, pid: int) -> list[tuple[float, float]]:
        """Latencies of the answers that came, and the node's time meanwhile."""
        self._received += self.sock.recv(1 << 16)
        now, used = time.perf_counter(), loop_seconds(pid)
        latencies = []
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                break
            del self._received[:end]
            due, used_before = self.due.popleft()
            latencies.append((now - due, used - used_before))
        return latencies


def loop_seconds(pid: int) -> float:
    """Processor time of the first thread of a process, which has the event loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def victim(bootstrap: str, pid: int, seconds: float, results: Any) -> None:
    """Send a request every ``PERIOD_S``, whether or not the last one was answered; latencies in seconds."""
    data = metadata_of(SMALL)
    latencies: list[tuple[float, float]] = []
    began = time.perf_counter()
    callers: list[Caller] = []
    number = 0
    while number * PERIOD_S < seconds or any(caller.due for caller in callers):
        due = began + number * PERIOD_S
        is_over = number * PERIOD_S >= seconds
        wait = 1.0 if is_over else max(0.0, due - time.perf_counter())
        readable, _, _ = select.select([caller.sock for caller in callers if caller.due], [], [], wait)
        for caller in callers:
            if caller.sock in readable:
                latencies += caller.receive(pid)
        if is_over or time.perf_counter() < due:
            continue
        number += 1
        if not callers or callers[-1].sent == REQUESTS_PER_CONNECTION:
            callers = [*(caller for caller in callers if caller.due), Caller(bootstrap)]
        callers[-1].due.append((due, loop_seconds(pid)))
        callers[-1].sent += 1
        callers[-1].sock.sendall(data)
    results.put(latencies)


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def percentile(latencies: Sequence[float], share: float) -> float:
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3


def create_topics(server: Server) -> None:
    request = request_class("CreateTopics")
    with RawClient(server.bootstrap, timeout_s=300) as client:
        for topic, count in ((SMALL, 1), (LARGE, LARGE_PARTITIONS)):
            wanted = request.CreatableTopic(name=topic, num_partitions=count, replication_factor=1)
            client.call(request(topics=[wanted], timeout_ms=120_000), 5)
        coordinator = request_class("FindCoordinator")
        client.call(coordinator(key_type=0, coordinator_keys=["g"]), 4)
    time.sleep(5)


def run_case(server: Server, name: str, seconds: float) -> dict[str, Any]:
    attack, processes = CASES[name]
    context = multiprocessing.get_context("fork")
    assert server.process is not None
    before_mb = rss_mb(server.process.pid)
    attackers = [
        context.Process(target=attack, args=(server.bootstrap,), daemon=True) for _ in range(processes) if attack
    ]
    for process in attackers:
        process.start()
    results = context.Queue()
    judged = context.Process(target=victim, args=(server.bootstrap, server.process.pid, seconds, results), daemon=True)
    judged.start()
    peak_mb = before_mb
    latencies: list[tuple[float, float]] | None = None
    give_up = time.monotonic() + seconds * 3 + 60
    while latencies is None and time.monotonic() < give_up:
        peak_mb = max(peak_mb, rss_mb(server.process.pid))
        with contextlib.suppress(Exception):
            latencies = results.get(timeout=0.05)
    for process in [*attackers, judged]:
        process.kill()
        process.join()
    time.sleep(1.5)
    row: dict[str, Any] = {"case": name, "peak_MB": peak_mb - before_mb}
    row["after_MB"] = rss_mb(server.process.pid) - before_mb
    if latencies:
        for unit, values in zip(("ms", "cpu"), zip(*latencies, strict=True), strict=True):
            row |= {f"p{share}_{unit}": percentile(values, share / 100) for share in SHARES}
            row[f"max_{unit}"] = max(values) * 1e3
    return row


def make_server(kind: str, home: Path, data_path: str | None) -> Server:
    config = {"auto.create.topics.enable": "false"}
    if data_path is not None:
        config["kraftlog.data.path"] = data_path
    if kind == "kafka":
        java = Java.find() if hasattr(Java, "find") else Java()
        return KafkaServer(home, java, config, heap="1g", fast_start=False)
    return KraftlogServer(home, config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only these")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a case")
    parser.add_argument("--server", choices=("kraftlog", "kafka"), default="kraftlog")
    parser.add_argument("--data-path", choices=("native", "python"), help="kraftlog.data.path; its default if not set")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    columns = [f"{name}_{unit}" for unit in ("ms", "cpu") for name in (*(f"p{share}" for share in SHARES), "max")]
    columns += ["peak_MB", "after_MB"]
    rows = []
    with tempfile.TemporaryDirectory() as home:
        server = make_server(arguments.server, Path(home) / "server", arguments.data_path)
        with server.running():
            create_topics(server)
            print(f"{'case':24}" + "".join(f"{column:>10}" for column in columns), flush=True)
            for name in arguments.case or CASES:
                row = run_case(server, name, arguments.seconds)
                rows.append(row)
                figures = (f"{row[column]:10.1f}" if column in row else f"{'none':>10}" for column in columns)
                print(f"{name:24}" + "".join(figures), flush=True)
                if server.process is None or server.process.poll() is not None:
                    raise SystemExit(f"the server ended: {server.log_tail()}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
