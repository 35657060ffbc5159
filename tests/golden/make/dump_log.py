"""Make ``dump-log-segments/``: what Kafka's DumpLogSegments prints of files of ``topics/node-1`` and ``kraft/logs``.

The same files give the same text. Each output begins with its command, relative to the folder.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from interop.harness import Java

TOOL = "org.apache.kafka.tools.DumpLogSegments"


def command_of(output: bytes) -> list[str]:
    """The arguments in the first line of an output."""
    return output.partition(b"\n")[0].decode().removeprefix("$ DumpLogSegments").split()


def dumped(java: Java, golden: Path, arguments: list[str]) -> bytes:
    """An output: the command, and what the tool prints.

    Args:
        java: Kafka's jars.
        golden: The folder of the golden files.
        arguments: Of the tool, with paths below ``topics/node-1`` or ``kraft/logs``.
    """
    folder = next(
        path for path in (golden / "topics" / "node-1", golden / "kraft" / "logs") if (path / arguments[1]).exists()
    )
    command = java.command(TOOL, "--files", str(folder / arguments[1]), *arguments[2:])
    printed = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"}).stdout
    # Records hold carriage returns; the committed files have line feeds in their place, as a text file is read.
    printed = printed.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    first = f"$ DumpLogSegments --files {arguments[1]} {' '.join(arguments[2:])}\n"
    return first.encode() + printed.replace(f"{folder}/".encode(), b"")


def write(java: Java, golden: Path, folder: Path) -> None:
    """Write each output of ``golden`` anew into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((golden / "dump-log-segments").glob("*.txt")):
        (folder / path.name).write_bytes(dumped(java, golden, command_of(path.read_bytes())))
