"""Runs a page of docs/how-to as its reader would: shell blocks in one shell, outputs compared with what it prints.

- A ```` ```sh ```` block runs in the page's own shell, in a new directory; a command that fails ends the test.
- A ```` ```text ```` block is the output of the block before it. ``...`` stands for anything, on a line of its own for
  any lines; blanks count as one. A block of nothing but ``describe`` and ``--dry-run`` commands is repeated until it
  prints that: a cluster needs a moment.
- Ports 9091 to 9096 and 9191 to 9196 of the page are free ones in the test, and Kafka's own tools are on the PATH.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from free_ports import free_port_groups
from interop.harness import Java

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to"
TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-server-start": "kafka.Kafka",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}
PAGE_PORTS = ("909", "919")
PORTS_EACH = 6
# A block that takes longer will not end: beside two other stories the longest took 25 s.
BLOCK_S = 120
REPEAT_S = 40


def free_prefixes() -> list[str]:
    """Numbers that become free ports with any digit behind them."""
    return [str(first // 10) for first in free_port_groups(len(PAGE_PORTS), 10)]


REMARK = re.compile(r"SLF4J: |\[[^\]]+\] (WARN|INFO) org\.apache\.kafka\.")


class Story:
    """A directory, a shell in it and the processes it began."""

    def __init__(self, home: Path, java: Java) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self._prefixes = dict(zip(PAGE_PORTS, free_prefixes(), strict=True))
        self._pids = home / ".pids"
        self._pids.touch()
        tools = home / ".bin"
        tools.mkdir()
        self._script(tools / "kraftlog", f'echo $$ >> {self._pids}\nexec {sys.executable} -m kraftlog "$@"')
        for name, main in TOOLS.items():
            self._script(tools / name, f'echo $$ >> {self._pids}\nexec {shlex.join(java.command(main))} "$@"')
        self._count = 0
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        self._shell = subprocess.Popen(
            ["sh", "-e"], cwd=home, env=environment, stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    @staticmethod
    def _script(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def port(self, page_port: int) -> int:
        """The port that stands for one of the page."""
        return int(self.translated(str(page_port)))

    def translated(self, text: str) -> str:
        """What the page says, with this story's ports."""
        for page, prefix in self._prefixes.items():
            text = re.sub(rf"\b{page}(?=[1-{PORTS_EACH}]\b|\$)", prefix, text)
        return text

    def read(self, page: str, *, until: str | None = None) -> None:
        """Follow a page of docs/how-to, to its end or to a heading."""
        text = (HOW_TO / page).read_text()
        if until is not None:
            assert f"\n## {until}\n" in text, f"{page} has no part {until!r}"
            text = text.partition(f"\n## {until}\n")[0]
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert blocks, f"{page} has nothing to run"
        for index, (kind, content) in enumerate(blocks):
            follows = blocks[index + 1] if index + 1 < len(blocks) else ("", "")
            if kind == "sh":
                self.run(content, follows[1] if follows[0] == "text" else None)

    def run(self, commands: str, expected: str | None = None) -> str:
        """Run a block, and compare its output; returns it."""
        deadline = time.monotonic() + REPEAT_S
        lines = [line for line in commands.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
        is_question = expected is not None and all(" describe" in line or "--dry-run" in line for line in lines)
        while True:
            code, out = self._run_once(self.translated(commands), is_question)
            is_right = code == 0 and (expected is None or self._matches(out, expected))
            if is_right:
                return out
            if not is_question or time.monotonic() > deadline:
                raise AssertionError(
                    f"{commands}ended with {code} and printed\n{out}\nexpected\n{expected}\n{self.tails()}"
                )
            time.sleep(0.1)

    def _run_once(self, commands: str, is_question: bool) -> tuple[int, str]:
        self._count += 1
        block, out, done = (self.home / f".block{self._count}{end}" for end in (".sh", ".out", ".rc"))
        block.write_text(commands)
        mark = f"echo $code > {done}.new; mv {done}.new {done}\n"
        code = f"{{ . {block}\n}} > {out} 2>&1; code=$?; {mark}"
        if is_question:  # its failure is no end
            code = f"code=0; ( . {block} ) > {out} 2>&1 || code=$?; {mark}"
        stdin = self._shell.stdin
        assert stdin is not None
        stdin.write(code)
        stdin.flush()
        deadline = time.monotonic() + BLOCK_S
        while not done.exists():
            if self._shell.poll() is not None:
                return self._shell.returncode or -1, self._said(out)
            assert time.monotonic() < deadline, f"{commands}did not end\n{self.tails()}"
            time.sleep(0.02)
        return int(done.read_text()), self._said(out)

    @staticmethod
    def _said(out: Path) -> str:
        """What was printed, without what the logger of a Java tool remarks, such as that it tried a node in vain."""
        lines = out.read_text(errors="replace").splitlines(keepends=True)
        return "".join(line for line in lines if not REMARK.match(line))

    def _matches(self, out: str, expected: str) -> bool:
        patterns: list[str] = []
        for line in self.translated(expected).splitlines():
            words = [re.escape(part) for part in " ".join(line.split()).split("...")]
            patterns.append(r"(?:.*\n)*?" if line.strip() == "..." else r"[^\n]*".join(words) + "\n")
        text = "".join(" ".join(line.split()) + "\n" for line in out.splitlines())
        return re.fullmatch("".join(patterns), text) is not None

    def tails(self) -> str:
        """The last words of what runs."""
        logs = sorted(self.home.rglob("server.log"))
        return "\n".join(f"-- {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-12:]) for log in logs)

    def close(self) -> None:
        """End the shell and what it began."""
        stdin = self._shell.stdin
        if stdin is not None:
            with suppress(OSError):
                stdin.close()
        with suppress(ProcessLookupError):
            self._shell.kill()
        self._shell.wait()
        for pid in map(int, self._pids.read_text().split()):
            with suppress(OSError):
                # Not a later process of that number.
                if Path(f"/proc/{pid}/cwd").resolve().is_relative_to(self.home.resolve()):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def story(home: Path, java: Java) -> Iterator[Story]:
    """A story whose processes end with the test."""
    told = Story(home, java)
    try:
        yield told
    finally:
        told.close()
