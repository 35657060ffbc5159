"""Servers under test as processes of their own: our node, and the real Apache Kafka, behind one face.

A port is chosen beforehand and given to the configuration, so that a restart keeps the address its clients know.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from free_ports import free_port
from interop.tool_host import ToolHost

HERE = Path(__file__).resolve().parent
RUNNER = str(HERE / "java" / "RunTools.java")
KAFKA_VERSION = "4.3.1"
CLUSTER_ID = "interop-AAAAAAAAAAAAAw"
FIRST_COMPILER_ONLY = "-XX:TieredStopAtLevel=1"
# Short-lived JVMs: the first compiler only, one collector thread, shared class data.
JVM_FLAGS = (FIRST_COMPILER_ONLY, "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")
# Who owns the sockets of clients of the nodes under test: native or python.
DATA_PATH = os.environ.get("KRAFTLOG_TEST_DATA_PATH", "native")
JVM_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def class_archive(libs: str) -> Path:
    """Where the archived classes of a class path "dir/*" are, if there are any; see class_archive.py."""
    return Path(libs).parent.parent / "classes.jsa"


def compiled(libs: str, main: str) -> list[str]:
    """Class path and main class of a program; of a Java source, what class_archive.py made of it, if that is newer."""
    source, classes = Path(main), class_archive(libs).with_suffix("")
    class_file = classes / f"{source.stem}.class"
    if source.suffix == ".java" and class_file.exists() and class_file.stat().st_mtime > source.stat().st_mtime:
        return ["-cp", f"{libs}:{classes}", source.stem]
    return ["-cp", libs, main]


class Java:
    """Kafka's jars and what is run from them.

    Args:
        libs: A class path, "dir/*".
    """

    def __init__(self, libs: str) -> None:
        self.libs = libs
        archive = class_archive(libs)
        self._archive = (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()
        self._host = ToolHost(["java", *JVM_FLAGS, *self._archive, JVM_LOG_LEVEL, *compiled(libs, RUNNER)])

    def close(self) -> None:
        """End the JVM of ``tool``."""
        self._host.close()

    def command(self, main: str, *args: str, flags: Sequence[str] = JVM_FLAGS) -> list[str]:
        # A JVM with both compilers is to be measured, and starts as its users start it.
        archive = self._archive if FIRST_COMPILER_ONLY in flags else ()
        return ["java", *flags, *archive, JVM_LOG_LEVEL, *compiled(self.libs, main), *map(str, args)]

    def tool(
        self, main: str, *args: str, timeout: float = 120, check: bool = True, text_input: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """As ``run``, in the JVM that all tools of this test process share: some milliseconds instead of seconds.

        At least one test runs each tool by ``run``, as its user does.
        """
        return self._checked(self._host.run(main, args, text_input=text_input, timeout_s=timeout), check=check)

    def run(
        self,
        main: str,
        *args: str,
        timeout: float = 120,
        check: bool = True,
        text_input: str | None = None,
        flags: Sequence[str] = JVM_FLAGS,
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's tools to its end in a JVM of its own; fails with its own words."""
        command = self.command(main, *args, flags=flags)
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, input=text_input)
        done.args = [main, *args]
        return self._checked(done, check=check)

    @staticmethod
    def _checked(done: subprocess.CompletedProcess[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        if check and done.returncode != 0:
            raise AssertionError(
                f"{' '.join(map(str, done.args))} ended with {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done


class Server:
    """A server with its own data directory and a fixed pair of ports; start, stop, kill -9, start again."""

    name = "server"
    ready_timeout_s = 60.0
    made: ClassVar[deque[Server]] = deque(maxlen=3)  # the newest ones, for the report of a failed test

    def __init__(self, home: Path, config: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.home.mkdir(parents=True, exist_ok=True)
        self.data_dir = home / "data"
        self.port = free_port()
        self.controller_port = free_port()
        self.config = dict(config or {})
        self.process: subprocess.Popen[bytes] | None = None
        Server.made.append(self)

    # What a subclass says: how to format, how to run.
    def format_command(self) -> list[str]:
        raise NotImplementedError

    def start_command(self) -> list[str]:
        raise NotImplementedError

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def properties_path(self) -> Path:
        return self.home / f"{self.name}.properties"

    @property
    def log_path(self) -> Path:
        return self.home / f"{self.name}.out"

    def properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.data_dir),
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            **self.config,
        }

    def write_properties(self) -> Path:
        text = "".join(f"{key}={value}\n" for key, value in self.properties().items())
        self.properties_path.write_text(text)
        return self.properties_path

    def run_format(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.format_command(), capture_output=True, text=True, timeout=120, check=False)

    def format(self) -> None:
        self.write_properties()
        done = self.run_format()
        if done.returncode != 0:
            raise AssertionError(f"{self.name}: format ended with {done.returncode}\n{done.stdout}{done.stderr}")

    def launch(self) -> None:
        """Start the process on what is in the data directory, formatted first when it is new; does not wait."""
        if self.process is not None:
            raise AssertionError(f"{self.name} runs already")
        if not (self.data_dir / "meta.properties").exists():
            self.format()
        self.write_properties()
        with self.log_path.open("ab") as out:
            self.process = subprocess.Popen(self.start_command(), stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def start(self) -> None:
        """Launch, and return when clients may connect."""
        self.launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when a launched server answers clients."""
        deadline = time.monotonic() + self.ready_timeout_s
        while not self.answers():
            if self.process is None or self.process.poll() is not None:
                code = self.process.returncode if self.process else None
                self.process = None
                raise AssertionError(f"{self.name} ended with {code} while starting\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{self.name} did not answer within {self.ready_timeout_s} s\n{self.log_tail()}")
            time.sleep(0.02)

    def answers(self) -> bool:
        """Whether an ApiVersions v0 request gets its answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as link:
                link.sendall(bytes.fromhex("0000000e 0012 0000 0000002a 0004 74657374".replace(" ", "")))
                head = link.recv(8)
                return len(head) == 8 and head[4:] == b"\x00\x00\x00\x2a"
        except OSError:
            return False

    def stop(self, timeout: float = 60) -> None:
        """SIGTERM, and wait; anything but a clean end is an error."""
        if self.process is None:
            return
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{self.name} did not stop within {timeout} s of SIGTERM\n{self.log_tail()}") from None
        if code not in (0, 143, -signal.SIGTERM):
            raise AssertionError(f"{self.name} ended with {code} after SIGTERM\n{self.log_tail()}")

    def kill(self) -> None:
        """Kill -9, nothing flushed."""
        if self.process is None:
            return
        process, self.process = self.process, None
        process.kill()
        process.wait()

    def restart(self, *, kill: bool = False) -> None:
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def log_tail(self, lines: int = 60) -> str:
        if not self.log_path.exists():
            return "(no output)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def errors_logged(self) -> list[str]:
        """Lines that a healthy run does not have."""
        bad = re.compile(r"\b(ERROR|FATAL|CRITICAL|Traceback|panicked)\b")
        return [line for line in self.log_path.read_text(errors="replace").splitlines() if bad.search(line)]

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        self.start()
        try:
            yield self
        finally:
            self.kill()

    def partition_dirs(self) -> list[Path]:
        return sorted(path for path in self.data_dir.iterdir() if re.fullmatch(r".+-\d+", path.name) and path.is_dir())


class KafkaServer(Server):
    """Apache Kafka, combined broker and controller."""

    name = f"kafka-{KAFKA_VERSION}"
    ready_timeout_s = 90.0

    def __init__(
        self,
        home: Path,
        java: Java,
        config: Mapping[str, str] | None = None,
        *,
        heap: str = "512m",
        fast_start: bool = True,
    ) -> None:
        super().__init__(home, config)
        self.java = java
        self.heap = heap
        self.fast_start = fast_start  # cheap compiler and collector; not for benches

    def run_format(self) -> subprocess.CompletedProcess[str]:
        args = ("format", "--standalone", "-t", CLUSTER_ID, "-c", str(self.properties_path))
        run = self.java.tool if self.fast_start else self.java.run  # a bench has no other JVM beside the server's
        return run("kafka.tools.StorageTool", *args, check=False)

    def start_command(self) -> list[str]:
        flags = [f"-Xmx{self.heap}", "-Xshare:auto"]
        if self.fast_start:
            flags += ["-XX:+UseSerialGC", FIRST_COMPILER_ONLY]
        else:
            flags += ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]  # as kafka-server-start runs it
        return self.java.command("kafka.Kafka", str(self.properties_path), flags=flags)


class KraftlogServer(Server):
    """Our node, as a user starts it."""

    name = "kraftlog"
    format_arguments: Sequence[str] = ()

    def properties(self) -> dict[str, str]:
        return {"kraftlog.data.path": DATA_PATH, **super().properties()}

    def format_command(self) -> list[str]:
        args = [
            "storage",
            "format",
            "--standalone",
            *self.format_arguments,
            "-t",
            CLUSTER_ID,
            "-c",
            str(self.properties_path),
        ]
        return [sys.executable, "-m", "kraftlog", *args]

    def start_command(self) -> list[str]:
        return [sys.executable, "-m", "kraftlog", "server-start", str(self.properties_path)]


def copy_of(source: Server, target: Server) -> None:
    """Give a stopped server's data directory to another one."""
    if source.process is not None:
        raise AssertionError("stop it before its directory is copied")
    if target.data_dir.exists():
        shutil.rmtree(target.data_dir)
    shutil.copytree(source.data_dir, target.data_dir, ignore=shutil.ignore_patterns(".lock"))
    # A voter is found at the address its VotersRecord holds, so the copy keeps the original's ports.
    target.port, target.controller_port = source.port, source.controller_port


@dataclass
class Tally:
    """What a test measured; printed at the end of the session."""

    rows: list[dict[str, object]] = field(default_factory=list)

    def add(self, **row: object) -> None:
        self.rows.append(row)
        print(json.dumps(row), flush=True)


def environment_flag(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0", "false")
