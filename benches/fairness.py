"""What one client can do to another: latency of a small request beside hostile ones, and the node's memory.

A node runs as a process of its own. A victim, in a second process, asks for the metadata of a topic with one partition
every 4 ms, whether or not the last request was answered, and opens a connection for every 50 requests. A latency counts
from the time that the request was due. Attackers, in further processes, send what the case says for the whole time. The
first row has no attacker.

On a machine with other work the clock says little. The columns "cpu" are the processor time of the node's event loop
between the sending of a request and its answer: what the node did before it came to the victim.

    python benches/fairness.py                        all cases
    python benches/fairness.py --case pipeline --case half-frames --seconds 10
    python benches/fairness.py --server kafka         the same against Apache Kafka, from KAFKA_LIBS
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import select
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from interop.harness import Java, KafkaServer, KraftlogServer, Server  # noqa: E402
from kraftlog.wire.frame import encode_request  # noqa: E402
from kraftlog.wire.registry import API_BY_KEY  # noqa: E402
from raw_client import RawClient  # noqa: E402

SMALL, LARGE = "small", "large"
LARGE_PARTITIONS = 2_000
ENTRIES = 200_000
PERIOD_S = 0.004
REQUESTS_PER_CONNECTION = 50
SHARES = (50, 99, 99.9)
KEYS = {api.name: key for key, api in API_BY_KEY.items()}

Attack = Callable[[str], None]


def frame(request: Any, version: int | None = None) -> bytes:
    """A request with its size before it."""
    used = API_BY_KEY[request.API_KEY].max_version if version is None else version
    return b"".join(map(bytes, encode_request(request.API_KEY, used, 1, "fairness", request)))


def request_class(name: str) -> Any:
    return API_BY_KEY[KEYS[name]].request


def connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.partition(":")
    sock = socket.create_connection((host, int(port)), timeout=120)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def metadata_of(topic: str, version: int = 12) -> bytes:
    request = request_class("Metadata")
    wanted = [request.MetadataRequestTopic(name=topic)]
    return frame(request(topics=wanted, allow_auto_topic_creation=False), version)


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


def names(prefix: str, count: int = ENTRIES) -> Iterable[str]:
    return (f"{prefix}-{index}" for index in range(count))


def build_metadata() -> tuple[Any, int]:
    request = request_class("Metadata")
    topics = [request.MetadataRequestTopic(name=name) for name in names("absent")]
    return request(topics=topics, allow_auto_topic_creation=False), 12


def build_find_coordinator() -> tuple[Any, int]:
    return request_class("FindCoordinator")(key_type=0, coordinator_keys=list(names("group"))), 4


def build_list_offsets() -> tuple[Any, int]:
    request = request_class("ListOffsets")
    partition = request.ListOffsetsPartition
    wanted = [partition(partition_index=index, timestamp=-1) for index in range(ENTRIES)]
    return request(replica_id=-1, topics=[request.ListOffsetsTopic(name=LARGE, partitions=wanted)]), 7


def build_fetch() -> tuple[Any, int]:
    request = request_class("Fetch")
    wanted = [request.FetchPartition(partition=index, partition_max_bytes=1) for index in range(ENTRIES)]
    topics = [request.FetchTopic(topic=LARGE, partitions=wanted)]
    return request(max_wait_ms=500, min_bytes=1, max_bytes=1, topics=topics, session_epoch=-1), 12


def build_fetch_session() -> tuple[Any, int]:
    made, version = build_fetch()
    return request_class("Fetch")(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=made.topics, session_epoch=0), version


def build_produce() -> tuple[Any, int]:
    request = request_class("Produce")
    data = [request.PartitionProduceData(index=index, records=b"") for index in range(ENTRIES)]
    return request(acks=1, timeout_ms=1000, topic_data=[request.TopicProduceData(name=LARGE, partition_data=data)]), 9


def build_offset_fetch() -> tuple[Any, int]:
    request = request_class("OffsetFetch")
    topics = [request.OffsetFetchRequestTopics(name=LARGE, partition_indexes=range(ENTRIES))]
    return request(groups=[request.OffsetFetchRequestGroup(group_id="g", topics=topics)]), 8


def build_offset_commit() -> tuple[Any, int]:
    request = request_class("OffsetCommit")
    wanted = [
        request.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(ENTRIES)
    ]
    return request(group_id="g", topics=[request.OffsetCommitRequestTopic(name=LARGE, partitions=wanted)]), 8


def build_describe_configs() -> tuple[Any, int]:
    request = request_class("DescribeConfigs")
    resource = request.DescribeConfigsResource
    wanted = [resource(resource_type=2, resource_name=LARGE, configuration_keys=None)] * (ENTRIES // 100)
    return request(resources=wanted), 4


def build_create_topics() -> tuple[Any, int]:
    request = request_class("CreateTopics")
    topics = [
        request.CreatableTopic(name=f"not a name {index}", num_partitions=1, replication_factor=1)
        for index in range(ENTRIES)
    ]
    return request(topics=topics, timeout_ms=1000, validate_only=True), 7


def build_delete_topics() -> tuple[Any, int]:
    return request_class("DeleteTopics")(topic_names=list(names("absent")), timeout_ms=1000), 5


def build_delete_records() -> tuple[Any, int]:
    request = request_class("DeleteRecords")
    wanted = [request.DeleteRecordsPartition(partition_index=index, offset=0) for index in range(ENTRIES)]
    return request(topics=[request.DeleteRecordsTopic(name=LARGE, partitions=wanted)], timeout_ms=1000), 2


def build_epochs() -> tuple[Any, int]:
    request = request_class("OffsetForLeaderEpoch")
    wanted = [
        request.OffsetForLeaderPartition(partition=index, current_leader_epoch=-1, leader_epoch=0)
        for index in range(ENTRIES)
    ]
    topics = [request.OffsetForLeaderTopic(topic=LARGE, partitions=wanted)]
    return request(replica_id=-1, topics=topics), 4


def build_describe_groups() -> tuple[Any, int]:
    return request_class("DescribeGroups")(groups=list(names("absent"))), 5


def build_delete_groups() -> tuple[Any, int]:
    return request_class("DeleteGroups")(groups_names=list(names("absent"))), 2


def build_alter_configs() -> tuple[Any, int]:
    request = request_class("IncrementalAlterConfigs")
    resources = [
        request.AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in names("absent")
    ]
    return request(resources=resources, validate_only=True), 1


def build_describe_partitions() -> tuple[Any, int]:
    request = request_class("DescribeTopicPartitions")
    return request(topics=[request.TopicRequest(name=name) for name in names("absent")]), 0


def build_unknown_tags() -> tuple[Any, int]:
    """Strings that are long, so that the frame is near the bound of socket.request.max.bytes."""
    return request_class("DescribeGroups")(groups=["x" * 30_000] * 3_000), 5


def build_join() -> tuple[Any, int]:
    request = request_class("JoinGroup")
    protocols = [request.JoinGroupRequestProtocol(name=f"p{index}", metadata=bytes(9 << 20)) for index in range(10)]
    return request(
        group_id="joined",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=100,
        protocol_type="consumer",
        protocols=protocols,
    ), 5


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


def make_server(kind: str, home: Path) -> Server:
    config = {"auto.create.topics.enable": "false"}
    if kind == "kafka":
        java = Java.find() if hasattr(Java, "find") else Java()
        return KafkaServer(home, java, config, heap="1g", fast_start=False)
    return KraftlogServer(home, config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only these")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a case")
    parser.add_argument("--server", choices=("kraftlog", "kafka"), default="kraftlog")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    columns = [f"{name}_{unit}" for unit in ("ms", "cpu") for name in (*(f"p{share}" for share in SHARES), "max")]
    columns += ["peak_MB", "after_MB"]
    rows = []
    with tempfile.TemporaryDirectory() as home:
        server = make_server(arguments.server, Path(home) / "server")
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
