"""A seeded fuzzer of frames against a live node, while a well-behaved client goes on undisturbed.

    python tests/interop/frame_fuzzer.py --seed 7 --seconds 60

starts ``kraftlog dev`` on a free port of the loopback interface and says at the end what it did and found. Every
attack follows from the seed; timing does not. What must hold:

- the client's records all arrive, in order, and no request of its waits long;
- every connection that the node closes has one line in the node's log with the peer and the reason;
- no traceback, no internal error;
- the node's memory ends where it was half way.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import socket
import struct
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from interop.fuzz_target import STEADY, STEADY_WAIT_MAX_S, Link, Node, SteadyClient, framed, sized
from kraftlog._kraftlog import encode_batch
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.produce import ProduceRequest, ProduceResponse
from kraftlog.wire.registry import API_BY_KEY
from waiting import until_true
from wire_facts import GOLDEN, rows

TARGET = "fuzz-target"
SILENCE_S = 0.05
HALF_OPEN_MAX = 60
RSS_GROWTH_MAX_BYTES = 32 << 20
RSS_PEAK_MAX_BYTES = 320 << 20


# --- the attacks -----------------------------------------------------------------------------------------------------


@dataclass
class Findings:
    """What a run did and what was wrong."""

    attacks: Counter[str] = field(default_factory=Counter)
    closed_ports: Counter[int] = field(default_factory=Counter)
    ports: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)


class Fuzzer:
    """All attacks on one node, chosen by one seeded generator."""

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.rng = random.Random(seed)
        self.findings = Findings()
        self.half_open: deque[Link] = deque()
        self.bodies = golden_requests()
        zeros = bytes(48 << 20)
        self.bomb = encode_batch([(0, None, zeros, [])], compression="zstd")
        self.attacks: list[Callable[[], None]] = [
            self.random_frame,
            self.random_bytes,
            self.wrong_size,
            self.longer_than_claimed,
            self.truncated_frame,
            self.truncated_request,
            self.huge_count,
            self.huge_varint,
            self.unknown_tags,
            self.damaged_request,
            self.damaged_request,
            self.damaged_request,
            self.unknown_key,
            self.unknown_version,
            self.later_api_versions,
            self.broken_batch,
            self.broken_batch,
            self.decompression_bomb,
            self.half_open_connection,
            self.one_byte_at_a_time,
            self.pipeline_then_garbage,
            self.reset_in_the_middle,
            self.connect_and_leave,
        ]

    def step(self) -> None:
        attack = self.rng.choice(self.attacks)
        name = attack.__name__
        self.findings.attacks[name] += 1
        try:
            attack()
        except TimeoutError:
            self.findings.faults.append(f"{name}: neither an answer nor a closed connection")
        except AssertionError as error:
            self.findings.faults.append(f"{name}: {error}")

    def link(self) -> Link:
        link = Link(self.port)
        self.findings.ports[link.local_port] += 1
        return link

    def expect_closed(self, link: Link) -> None:
        """The node hangs up, and says so in its log."""
        answer = link.frame()
        link.close()
        if answer is not None:
            raise AssertionError(f"answered with {answer[:40].hex()} instead of closing")
        self.findings.closed_ports[link.local_port] += 1

    def expect_either(self, link: Link) -> None:
        """An answer, a closed connection, or silence for a request that waits: all are allowed."""
        try:
            if link.frame(SILENCE_S) is None:
                self.findings.closed_ports[link.local_port] += 1
        except TimeoutError:
            pass
        link.close()

    # frames that are none

    def random_frame(self) -> None:
        link = self.link()
        body = self.rng.randbytes(self.rng.choice([0, 1, 3, 7, 8, 30, 500, 70_000]))
        if body[:2] == b"\0\x12":
            body = b"\x7f" + body[1:]
        link.send(sized(body))
        (self.expect_closed if len(body) < 8 else self.expect_either)(link)

    def random_bytes(self) -> None:
        link = self.link()
        link.send(self.rng.randbytes(self.rng.randrange(1, 300)))
        self.expect_either(link)

    def wrong_size(self) -> None:
        link = self.link()
        size = self.rng.choice([-1, -(1 << 31), (100 << 20) + 1, 0x7FFFFFFF, 0x16030100, 0x47455420])
        link.send(struct.pack(">i", size) + self.rng.randbytes(self.rng.randrange(200)))
        self.expect_closed(link)

    def longer_than_claimed(self) -> None:
        """The frame ends inside the request; what follows is read as the next frame's size."""
        link = self.link()
        frame = framed(3, 9, MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="x" * 50)]))
        link.send(struct.pack(">i", self.rng.randrange(16, 40)) + frame[4:])
        self.expect_closed(link)

    def truncated_frame(self) -> None:
        """The peer goes away inside a frame."""
        link = self.link()
        frame = framed(18, 3, ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        link.send(frame[: self.rng.randrange(1, len(frame))])
        link.close(reset=self.rng.random() < 0.3)

    def reset_in_the_middle(self) -> None:
        link = self.link()
        link.send(struct.pack(">i", 8 << 20) + self.rng.randbytes(self.rng.randrange(1 << 20)))
        link.close(reset=True)

    def connect_and_leave(self) -> None:
        self.link().close(reset=self.rng.random() < 0.5)

    # frames that hold no request

    def request_body(self) -> tuple[int, int, bytes]:
        return self.rng.choice(self.bodies)

    def header(self, key: int, version: int) -> bytes:
        header = struct.pack(">hhih", key, version, self.rng.randrange(1 << 31), 4) + b"fuzz"
        return header + b"\0" * (API_BY_KEY[key].request_header_version(version) - 1)

    def truncated_request(self) -> None:
        key, version, body = self.request_body()
        if not body or key == 18:
            return
        link = self.link()
        link.send(sized(self.header(key, version) + body[: self.rng.randrange(len(body))]))
        self.expect_closed(link)

    def huge_count(self) -> None:
        link = self.link()
        count = self.rng.choice([1 << 20, 1 << 24, 0x7FFFFFFF])
        link.send(sized(self.header(3, 4) + struct.pack(">i", count) + self.rng.randbytes(self.rng.randrange(2000))))
        self.expect_closed(link)

    def huge_varint(self) -> None:
        link = self.link()
        claim = self.rng.choice([b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\x7f", b"\xff" * 6])
        link.send(sized(self.header(3, 12) + claim + self.rng.randbytes(self.rng.randrange(2000))))
        self.expect_closed(link)

    def unknown_tags(self) -> None:
        link = self.link()
        entry = b"\xe8\x07\x02ab"
        header = struct.pack(">hhih", 3, 12, 1, -1)
        link.send(sized(header + b"\xff\xff\x03" + entry * 65535))
        self.expect_closed(link)

    def damaged_request(self) -> None:
        key, version, body = self.request_body()
        data = bytearray(body)
        for _ in range(self.rng.randint(1, 4)):
            position = self.rng.randrange(len(data) + 1)
            choice = self.rng.randrange(4)
            if choice == 0:
                del data[position : position + self.rng.randrange(1, 9)]
            elif choice == 1 and data:
                data[position % len(data)] ^= 1 << self.rng.randrange(8)
            elif choice == 2:
                data[position:position] = self.rng.randbytes(self.rng.randrange(1, 9))
            else:
                data[position : position + 4] = struct.pack(">i", self.rng.choice([-1, 1 << 24, 0x7FFFFFFF]))
        link = self.link()
        link.send(sized(self.header(key, version) + data))
        self.expect_either(link)

    # requests that nobody serves

    def unknown_key(self) -> None:
        link = self.link()
        key = self.rng.choice([-1, 4, 5, 6, 7, 93, 500, 32767, -32768])
        link.send(sized(struct.pack(">hhih", key, self.rng.randrange(20), 1, -1) + self.rng.randbytes(20)))
        self.expect_closed(link)

    def unknown_version(self) -> None:
        link = self.link()
        key = self.rng.choice([key for key in API_BY_KEY if key != 18])
        version = self.rng.choice([-1, API_BY_KEY[key].max_version + 1, 32767])
        link.send(sized(struct.pack(">hhih", key, version, 1, -1) + bytes(20)))
        self.expect_closed(link)

    def later_api_versions(self) -> None:
        link = self.link()
        link.send(sized(struct.pack(">hhih", 18, self.rng.randrange(5, 200), 4711, -1) + self.rng.randbytes(20)))
        frame = link.frame()
        if frame is None or frame[:6] != struct.pack(">ih", 4711, 35):
            raise AssertionError(f"answer to a later ApiVersions is {frame!r}")
        link.close()

    # batches

    def produce(self, records: bytes) -> None:
        """The node answers with an error, and the connection goes on."""
        partition = ProduceRequest.PartitionProduceData(index=0, records=records)
        topic = ProduceRequest.TopicProduceData(name=TARGET, partition_data=[partition])
        link = self.link()
        response = link.ask(0, 9, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]))
        answered = isinstance(response, ProduceResponse)
        if not answered or response.responses[0].partition_responses[0].error_code == 0:
            raise AssertionError(f"a broken batch was answered with {response!r}: {records[:80].hex()}")
        link.ask(18, 0, ApiVersionsRequest())
        link.close()

    def broken_batch(self) -> None:
        batch = bytearray(encode_batch([(1, b"key", self.rng.randbytes(30), [])] * 3))
        match self.rng.randrange(7):
            case 0:
                batch[16] = self.rng.choice([3, 127, 255])  # magic
            case 1:
                batch[self.rng.randrange(17, 21)] ^= 1 << self.rng.randrange(8)  # CRC
            case 2:
                batch[self.rng.randrange(21, len(batch))] ^= 1 << self.rng.randrange(8)  # covered by the CRC
            case 3:
                struct.pack_into(">i", batch, 8, self.rng.choice([-1, 0, 13, 48, 1 << 30, 0x7FFFFFFF]))  # length
            case 4:
                del batch[self.rng.randrange(1, len(batch)) :]
            case 5:
                struct.pack_into(">i", batch, 57, self.rng.choice([-1, 0x7FFFFFFF]))  # count, CRC wrong too
            case _:
                batch += self.rng.randbytes(self.rng.randrange(1, 61))
        self.produce(bytes(batch))

    def decompression_bomb(self) -> None:
        """48 MiB of zeros in a few kB: taken or refused, but not kept in memory."""
        if self.rng.random() < 0.9:
            return
        partition = ProduceRequest.PartitionProduceData(index=0, records=self.bomb)
        topic = ProduceRequest.TopicProduceData(name=TARGET, partition_data=[partition])
        link = self.link()
        link.ask(0, 9, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]))
        link.close()

    # manners

    def half_open_connection(self) -> None:
        """Connections that say nothing, or stop inside a frame, and stay."""
        if len(self.half_open) >= HALF_OPEN_MAX:
            self.half_open.popleft().close(reset=self.rng.random() < 0.5)
        link = self.link()
        link.send(struct.pack(">i", self.rng.choice([100, 90 << 20]))[: self.rng.randrange(5)])
        self.half_open.append(link)

    def one_byte_at_a_time(self) -> None:
        link = self.link()
        link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in framed(18, 0, ApiVersionsRequest()):
            link.send(bytes([byte]))
        if link.frame() is None:
            raise AssertionError("a slow request was not answered")
        link.close()

    def pipeline_then_garbage(self) -> None:
        """Answers to what came before the garbage are sent, then the connection is closed."""
        link = self.link()
        count = self.rng.randrange(1, 20)
        good = b"".join(framed(18, 0, ApiVersionsRequest(), number) for number in range(count))
        link.send(good + sized(struct.pack(">hhih", 999, 0, 1, -1)))
        for number in range(count):
            frame = link.frame()
            if frame is None or frame[:4] != struct.pack(">i", number):
                raise AssertionError(f"answer {number} of {count} before garbage is {frame!r}")
        self.expect_closed(link)


def golden_requests() -> list[tuple[int, int, bytes]]:
    """Bodies of requests that Kafka wrote."""
    found = []
    for path in sorted((GOLDEN / "wire/api").glob("*.jsonl.gz")):
        requests = (row for row in rows(path) if row["kind"] == "request")
        served = (row for row in requests if API_BY_KEY[row["apiKey"]].serves(row["version"]))
        found += [(row["apiKey"], row["version"], bytes.fromhex(row["hex"])) for row in served]
    return found


# --- a run -----------------------------------------------------------------------------------------------------------


def create_topics(port: int) -> None:
    link = Link(port)
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in (TARGET, STEADY)
    ]
    link.ask(19, 5, CreateTopicsRequest(topics=topics, timeout_ms=10_000))
    link.close()


def check_log(output: str, findings: Findings) -> None:
    """One line per closed connection, never two; what the node left out for being too many, it counted."""
    named = Counter(int(port) for port in re.findall(r"closing connection from 127\.0\.0\.1:(\d+) .*: \S", output))
    missing = sum(max(0, count - named[port]) for port, count in findings.closed_ports.items())
    left_out = sum(
        int(count) for count in re.findall(r"(\d+) more warnings about 127\.0\.0\.1 within a second", output)
    )
    if missing > left_out:
        findings.faults.append(f"{missing} closed connections have no line in the log, and {left_out} were left out")
    twice = {port: count for port, count in named.items() if count > findings.ports[port]}
    if twice:
        findings.faults.append(f"{len(twice)} connections have more than one line: ports {list(twice)[:5]}")
    bad = [line for line in output.splitlines() if re.search(r"Traceback|internal error|\bERROR\b|panicked", line)]
    if bad:
        findings.faults.append(f"{len(bad)} lines of alarm in the log, the first: {bad[0]}")


def fuzz(seed: int, seconds: float, home: Path) -> Findings:
    """One run against a node of its own."""
    node = Node(home)
    try:
        create_topics(node.port)
        fuzzer = Fuzzer(node.port, seed)
        findings = fuzzer.findings
        steady = SteadyClient(node.port)
        steady.start()
        started = time.monotonic()
        warm_bytes = warm_files = 0
        while (elapsed := time.monotonic() - started) < seconds:
            if elapsed > seconds * 0.5 and not warm_bytes:
                warm_bytes, warm_files = node.memory_bytes(), node.open_files()
            fuzzer.step()
            if node.process.poll() is not None:
                findings.faults.append(f"the node ended with {node.process.returncode}")
                return findings
            if len(findings.faults) > 20:
                break
        steady.stopping.set()
        steady.join(60)
        findings.faults += steady.faults
        if steady.is_alive() or steady.consumed != steady.produced:
            findings.faults.append(f"{steady.produced} records produced, {steady.consumed} consumed")
        if steady.wait_max_s > STEADY_WAIT_MAX_S:
            findings.faults.append(f"the steady client waited {steady.wait_max_s:.1f} s")
        for link in fuzzer.half_open:
            link.close()
        with contextlib.suppress(TimeoutError):
            until_true(lambda: node.memory_bytes() - warm_bytes <= RSS_GROWTH_MAX_BYTES, 10)
        end_bytes, peak_bytes = node.memory_bytes(), node.memory_bytes("VmHWM")
        if end_bytes - warm_bytes > RSS_GROWTH_MAX_BYTES:
            findings.faults.append(f"memory grew from {warm_bytes >> 20} to {end_bytes >> 20} MiB")
        if peak_bytes > RSS_PEAK_MAX_BYTES:
            findings.faults.append(f"memory reached {peak_bytes >> 20} MiB")
        with contextlib.closing(Link(node.port)) as link:
            link.ask(18, 0, ApiVersionsRequest())
        code = node.stop()
        if code != 0:
            findings.faults.append(f"the node ended with {code} after SIGTERM")
        check_log(node.output(), findings)
        findings.figures = {
            "seed": seed,
            "attacks": sum(findings.attacks.values()),
            "closed by the node": sum(findings.closed_ports.values()),
            "records through the steady client": steady.consumed,
            "longest wait of the steady client, s": round(steady.wait_max_s, 2),
            "memory warm, end, peak, MiB": (warm_bytes >> 20, end_bytes >> 20, peak_bytes >> 20),
            "open files warm": warm_files,
        }
        return findings
    finally:
        if node.process.poll() is None:
            node.process.kill()
            node.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--home", type=Path, help="keep the node's data and output here")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with contextlib.ExitStack() as stack:
        home = arguments.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftlog-fuzz-")))
        home.mkdir(parents=True, exist_ok=True)
        findings = fuzz(arguments.seed, arguments.seconds, home)
    for name, value in findings.figures.items():
        print(f"{name}: {value}")
    for name, count in sorted(findings.attacks.items()):
        print(f"  {count:6d} {name}")
    for fault in findings.faults:
        print(f"FAULT {fault}")
    return 1 if findings.faults else 0


if __name__ == "__main__":
    sys.exit(main())
