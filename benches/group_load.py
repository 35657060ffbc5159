"""Clients of groups for ``coordinators.py``: they send frames that are encoded beforehand, so that the server works.

Each function is the body of a client's process. It prints ``begin`` when the measurement begins, waits for nothing
afterwards, and returns what it measured.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "python")]

from kraftlog.types import Uuid  # noqa: E402
from kraftlog.wire.frame import decode_response, encode_request  # noqa: E402
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest  # noqa: E402
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest  # noqa: E402
from kraftlog.wire.messages.heartbeat import HeartbeatRequest  # noqa: E402
from kraftlog.wire.messages.join_group import JoinGroupRequest  # noqa: E402
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest  # noqa: E402
from kraftlog.wire.messages.sync_group import SyncGroupRequest  # noqa: E402
from raw_client import RawClient  # noqa: E402

MEMBERS = 1_000
GROUPS = 10_000
CONNECTIONS = 20
IN_FLIGHT = 10
FIRST_RECORDS = 10
TIMEOUT_S = 120.0
NOT_YET = {14, 15, 16}  # being loaded, not available, not the coordinator
MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, COMMIT_VERSION, CONSUMER_VERSION = 9, 5, 4, 9, 1

Figures = dict[str, float]


def begin() -> float:
    """Tell the parent to read the server's CPU time."""
    print("begin", flush=True)
    return time.perf_counter()


def await_coordinator(bootstrap: str, group: str) -> None:
    """Return when the group's coordinator takes requests."""
    deadline = time.perf_counter() + TIMEOUT_S
    with RawClient(bootstrap, timeout_s=TIMEOUT_S) as link:
        while link.call(HeartbeatRequest(group_id=group, member_id="nobody"), HEARTBEAT_VERSION).error_code in NOT_YET:
            # Asking for it creates its topic.
            link.call(FindCoordinatorRequest(coordinator_keys=[group]), 6)
            if time.perf_counter() > deadline:
                raise SystemExit("there is no group coordinator")
            time.sleep(0.05)


# -- a new group ----------------------------------------------------------------------------------------------------


def first_records(bootstrap: str, topic: str, _seconds: float) -> Figures:
    """Milliseconds from ``subscribe`` to the first record: of the node's first group, and the median of nine more."""
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(topic, b"v", partition=0)
    if producer.flush(30):
        raise SystemExit("the record was not acknowledged")
    times_ms = []
    begin()
    for number in range(FIRST_RECORDS):
        settings = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-{number}", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"fetch.wait.max.ms": 10})
        began = time.perf_counter()
        consumer.subscribe([topic])
        while (record := consumer.poll(0.1)) is None or record.error():
            if time.perf_counter() - began > TIMEOUT_S:
                raise SystemExit("no record came")
        times_ms.append((time.perf_counter() - began) * 1000)
        consumer.close()
    return {"first_ms": times_ms[0], "next_ms": statistics.median(times_ms[1:]), "count": FIRST_RECORDS}


# -- commits of many groups -----------------------------------------------------------------------------------------


class CommitLink:
    """A connection that has ``IN_FLIGHT`` commits on their way, of one group after the other."""

    def __init__(self, bootstrap: str, frames: list[bytes]) -> None:
        host, _, port = bootstrap.partition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.count = 0
        self.expected = b""
        self._frames = frames
        self._next = 0
        self._received = bytearray()

    def send(self, count: int) -> None:
        taken = [self._frames[(self._next + index) % len(self._frames)] for index in range(count)]
        self._next += count
        self.sock.sendall(b"".join(taken))

    def receive(self) -> int:
        """Take what has come; the number of answers, all of them without an error."""
        data = self.sock.recv(1 << 16)
        if not data:
            raise SystemExit("the server closed the connection")
        self._received += data
        position = count = 0
        while len(self._received) - position >= 4:
            size = int.from_bytes(self._received[position : position + 4], "big")
            if len(self._received) - position < 4 + size:
                break
            answer = bytes(self._received[position + 8 : position + 4 + size])
            if answer != self.expected:
                raise SystemExit(f"a commit was answered with {answer.hex()}")
            position += 4 + size
            count += 1
        del self._received[:position]
        self.count += count
        return count


def commit_request(group: str, topic: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    )


def commits(bootstrap: str, topic: str, seconds: float) -> Figures:
    """Commits per second of ten thousand groups over twenty connections."""
    # Of each partition of the coordinator's topic.
    for number in range(200):
        await_coordinator(bootstrap, f"g{number}")
    with RawClient(bootstrap, timeout_s=TIMEOUT_S) as link:
        # The answer to a commit that was stored; all the others have to be the same.
        link.send(commit_request("g0", topic, 1), COMMIT_VERSION)
        expected = link._exactly(int.from_bytes(link._exactly(4), "big"))[4:]
    _, answer = decode_response(8, COMMIT_VERSION, bytes(4) + expected)
    if answer.topics[0].partitions[0].error_code:
        raise SystemExit(f"a commit was refused: {answer}")
    links = []
    for number in range(CONNECTIONS):
        frames = [
            b"".join(map(bytes, encode_request(8, COMMIT_VERSION, 1, "bench", commit_request(f"g{group}", topic, 1))))
            for group in range(number, GROUPS, CONNECTIONS)
        ]
        links.append(CommitLink(bootstrap, frames))
        links[-1].expected = expected
    with selectors.DefaultSelector() as selector:
        for link in links:
            selector.register(link.sock, selectors.EVENT_READ, link)
        # Every group exists before the time begins.
        run_commits(selector, links, until=lambda: min(link.count for link in links) >= GROUPS // CONNECTIONS)
        already = sum(link.count for link in links)
        began = begin()
        run_commits(selector, links, until=lambda: time.perf_counter() - began >= seconds)
        elapsed_s = time.perf_counter() - began
    count = sum(link.count for link in links) - already
    return {"count": count, "commits_s": count / elapsed_s}


def run_commits(selector: selectors.BaseSelector, links: list[CommitLink], until: Any) -> None:
    """Keep all connections busy until ``until`` says so, and take the answers that are left."""
    for link in links:
        link.send(IN_FLIGHT)
    waiting = IN_FLIGHT * len(links)
    is_over = False
    while waiting:
        ready = selector.select(TIMEOUT_S)
        if not ready:
            raise SystemExit("no commit was answered")
        is_over = is_over or until()
        for key, _ in ready:
            found = key.data.receive()
            waiting -= found
            if found and not is_over:
                key.data.send(found)
                waiting += found


# -- members of one group -------------------------------------------------------------------------------------------


class Member:
    """A member of a classic group on a connection of its own."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.link = RawClient(bootstrap, timeout_s=TIMEOUT_S)
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.members: list[str] = []

    def send_join(self) -> None:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(30))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.link.send(request, JOIN_VERSION)

    def take_id(self) -> None:
        _, answer = self.link.receive(11, JOIN_VERSION)
        if answer.error_code != MEMBER_ID_REQUIRED:
            raise SystemExit(f"JoinGroup without an id was answered with {answer.error_code}")
        self.member_id = answer.member_id

    def receive_join(self) -> None:
        _, answer = self.link.receive(11, JOIN_VERSION)
        if answer.error_code:
            raise SystemExit(f"JoinGroup was answered with {answer.error_code}")
        self.generation = answer.generation_id
        self.leads = answer.leader == self.member_id
        self.members = [member.member_id for member in answer.members]

    def send_sync(self) -> None:
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment(member_id=found, assignment=bytes(30)) for found in self.members],
        )
        self.link.send(request, SYNC_VERSION)

    def receive_sync(self) -> None:
        _, answer = self.link.receive(14, SYNC_VERSION)
        if answer.error_code:
            raise SystemExit(f"SyncGroup was answered with {answer.error_code}")

    def await_rebalance(self) -> None:
        """Send heartbeats until one says that the group rebalances."""
        deadline = time.perf_counter() + TIMEOUT_S
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        while (code := self.link.call(request, HEARTBEAT_VERSION).error_code) != REBALANCE_IN_PROGRESS:
            if code or time.perf_counter() > deadline:
                raise SystemExit(f"no rebalance began: {code}")


def generation_of(members: list[Member]) -> None:
    """Every member has sent its JoinGroup; returns when all have their assignments."""
    for member in members:
        member.receive_join()
    for member in members:
        member.send_sync()
    for member in members:
        member.receive_sync()
    if len({member.generation for member in members}) != 1 or sum(member.leads for member in members) != 1:
        raise SystemExit("the members are not in one generation")


def classic_members(bootstrap: str, topic: str, _seconds: float) -> Figures:
    """A thousand members join a group of one; then all of them rebalance."""
    await_coordinator(bootstrap, f"{topic}-members")
    first, *others = members = [Member(bootstrap, f"{topic}-members") for _ in range(MEMBERS)]
    first.send_join()
    first.take_id()
    first.send_join()
    generation_of([first])
    began = begin()
    for member in others:
        member.send_join()
    for member in others:
        member.take_id()
        member.send_join()
    # The generation waits for the member that is there already.
    first.await_rebalance()
    first.send_join()
    generation_of(members)
    joined = time.perf_counter()
    leader = next(member for member in members if member.leads)
    leader.send_join()  # a leader that joins again begins a rebalance
    followers = [member for member in members if member is not leader]
    followers[0].await_rebalance()  # before it, followers would get the generation that there is
    for member in followers:
        member.send_join()
    generation_of(members)
    return {"join_s": joined - began, "rebalance_s": time.perf_counter() - joined, "count": 2}


def consumer_members(bootstrap: str, topic: str, _seconds: float) -> Figures:
    """A thousand members of KIP-848 join a group and send heartbeats until each has its partition of a thousand."""
    await_coordinator(bootstrap, f"{topic}-consumers")
    links = [RawClient(bootstrap, timeout_s=TIMEOUT_S) for _ in range(MEMBERS)]
    ids = [str(Uuid(number.to_bytes(16, "big"))) for number in range(1, MEMBERS + 1)]
    epochs = [0] * MEMBERS
    owned: list[tuple[Any, ...]] = [()] * MEMBERS
    part = ConsumerGroupHeartbeatRequest.TopicPartitions
    began = begin()
    rounds = 0
    while True:
        rounds += 1
        for number, link in enumerate(links):
            request = ConsumerGroupHeartbeatRequest(
                group_id=f"{topic}-consumers",
                member_id=ids[number],
                member_epoch=epochs[number],
                rebalance_timeout_ms=300_000 if rounds == 1 else -1,
                subscribed_topic_names=[topic] if rounds == 1 else None,
                topic_partitions=[
                    part(topic_id=found.topic_id, partitions=found.partitions) for found in owned[number]
                ],
            )
            link.send(request, CONSUMER_VERSION)
        for number, link in enumerate(links):
            _, answer = link.receive(68, CONSUMER_VERSION)
            if answer.error_code:
                raise SystemExit(f"a heartbeat was answered with {answer.error_code}: {answer.error_message}")
            epochs[number] = answer.member_epoch
            if answer.assignment is not None:
                owned[number] = tuple(answer.assignment.topic_partitions)
        if all(sum(len(found.partitions) for found in of_member) == 1 for of_member in owned):
            return {"join_s": time.perf_counter() - began, "rounds": rounds, "count": 1}
        if time.perf_counter() - began > TIMEOUT_S:
            raise SystemExit("the members did not get their partitions")


ROWS = {
    "first-record": first_records,
    "commits": commits,
    "classic-members": classic_members,
    "consumer-members": consumer_members,
}
