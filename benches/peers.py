"""Programs that decode record batches in other languages: Kafka's own classes and the kafka-protocol Rust crate.

Both talk the same way over pipes: ``load PATH`` reads a file, an empty line has it decoded `TIMES` times.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TIMES = 5
HERE = Path(__file__).parent


def java_command() -> list[str] | None:
    """Kafka's MemoryRecords, where ``KAFKA_LIBS`` names its jars."""
    libs = os.environ.get("KAFKA_LIBS")
    if libs is None:
        return None
    return ["java", "-Xmx512m", "-cp", libs, str(HERE / "java" / "DecodeRecords.java"), str(TIMES)]


def rust_command() -> list[str] | None:
    """The kafka-protocol crate, where `sh .ci/dev bench-peers` built it."""
    program = HERE.parent / "target" / "rust-peers" / "release" / "rust-peers"
    return [str(program), str(TIMES)] if program.exists() else None


class Peer:
    """A running program."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, line: str) -> int:
        """Send a line; the number of records that it is answered with."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
