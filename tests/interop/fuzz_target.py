"""What the frame fuzzer works with: a node in a process of its own, a bare connection,
and a client that must not notice.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from kraftlog.wire.frame import decode_response, encode_request
from kraftlog.wire.registry import API_BY_KEY
from kraftlog.wire.struct import Message

STEADY = "steady"
ANSWER_TIMEOUT_S = 10.0
STEADY_WAIT_MAX_S = 10.0


# --- the node ----------------------------------------------------------------------------------------------------


class Node:
    """``kraftlog dev`` as a process of its own, its output in a file."""

    def __init__(self, home: Path) -> None:
        self.output_path = home / "node.out"
        command = [sys.executable, "-m", "kraftlog", "dev", "--port", "0", "--data-dir", str(home / "data")]
        # Topics named by damaged requests would fill the disk, not find defects.
        command += ["--override", "auto.create.topics.enable=false"]
        command += ["--override", f"kraftlog.data.path={os.environ.get('KRAFTLOG_TEST_DATA_PATH', 'native')}"]
        with self.output_path.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        self.port = self._wait_for_port()

    def _wait_for_port(self) -> int:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"bootstrap\.servers=127\.0\.0\.1:(\d+)", self.output())
            if found:
                return int(found[1])
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(f"the node did not start\n{self.output()}")

    def output(self) -> str:
        return self.output_path.read_text(errors="replace")

    def memory_bytes(self, name: str = "VmRSS") -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) * 1024 if found else 0

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


# --- one connection ----------------------------------------------------------------------------------------------


class Link:
    """A blocking connection that sends what it likes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
        self.local_port: int = self.socket.getsockname()[1]

    def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # it may have hung up on the first bytes already
            self.socket.sendall(data)

    def frame(self, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes | None:
        """The next response; None when the node closed the connection.

        Raises:
            TimeoutError: Neither came in time.
        """
        self.socket.settimeout(timeout_s)
        try:
            head = self._exactly(4)
            self.socket.settimeout(ANSWER_TIMEOUT_S)
            return None if head is None else self._exactly(int.from_bytes(head, "big"))
        except ConnectionError:
            return None

    def _exactly(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                return None
            data += more
        return data

    def ask(self, key: int, version: int, request: Message) -> Message:
        self.send(framed(key, version, request))
        frame = self.frame()
        if frame is None:
            raise AssertionError(f"no answer to {API_BY_KEY[key].name}")
        return decode_response(key, version, frame)[1]

    def close(self, *, reset: bool = False) -> None:
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def framed(key: int, version: int, request: Message, correlation_id: int = 1) -> bytes:
    return b"".join(bytes(part) for part in encode_request(key, version, correlation_id, "fuzzer", request))


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


# --- the client that must not notice -------------------------------------------------------------------------------


class SteadyClient(threading.Thread):
    """Produces and consumes with librdkafka, and remembers what it expected and the longest wait."""

    def __init__(self, port: int) -> None:
        super().__init__(name="steady", daemon=True)
        self.port = port
        self.stopping = threading.Event()
        self.produced = 0
        self.consumed = 0
        self.wait_max_s = 0.0
        self.faults: list[str] = []

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - reported by the run
            self.faults.append(f"the steady client ended with {error!r}")

    def _run(self) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        common = {"bootstrap.servers": f"127.0.0.1:{self.port}", "error_cb": self._on_error}
        producer = Producer({**common, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
        consumer = Consumer({**common, "group.id": "steady", "enable.auto.commit": False, "fetch.wait.max.ms": 50})
        consumer.assign([TopicPartition(STEADY, 0, 0)])
        while not self.stopping.is_set() or self.consumed < self.produced:
            started = time.monotonic()
            if not self.stopping.is_set():
                for _ in range(10):
                    producer.produce(STEADY, key=b"k", value=str(self.produced).encode(), on_delivery=self._on_delivery)
                    self.produced += 1
                if producer.flush(ANSWER_TIMEOUT_S):
                    self.faults.append(f"records were not acknowledged within {ANSWER_TIMEOUT_S} s")
                    return
            for message in consumer.consume(10, 1.0):
                if message.error():
                    self.faults.append(f"consumer: {message.error()}")
                elif message.value() != str(self.consumed).encode():
                    self.faults.append(f"record {self.consumed} came as {message.value()!r}")
                    return
                else:
                    self.consumed += 1
            self.wait_max_s = max(self.wait_max_s, time.monotonic() - started)
            if self.wait_max_s > 6 * STEADY_WAIT_MAX_S:
                self.faults.append("the steady client hangs")
                return
            time.sleep(0.02)
        consumer.close()

    def _on_error(self, error: object) -> None:
        self.faults.append(f"client error: {error}")

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is not None:
            self.faults.append(f"delivery: {error}")
