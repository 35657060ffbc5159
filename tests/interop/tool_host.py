"""A JVM that runs Kafka's command line tools one after the other: starting one for each costs more than it does."""

from __future__ import annotations

import base64
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path


class ToolHost:
    """Runs main classes of a class path; see RunTools.java for what each finds as in a process of its own.

    The JVM begins with the first run. One in which a tool hung, or left threads behind, is not used again.

    Args:
        command: What starts RunTools on that class path.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(
        self, main: str, args: Sequence[str], *, text_input: str = "", timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end.

        Args:
            main: A class, or the path of a Java source file with one.
            args: As on a command line.
            text_input: What the tool finds on its stdin.
            timeout_s: Seconds after which it is given up; the first run's include the start of the JVM.

        Raises:
            subprocess.TimeoutExpired: The tool did not end in time.
            AssertionError: The JVM ended with it, as it does when a tool calls System.exit.
        """
        words = [text_input, main, *args]
        request = b"\t".join(base64.b64encode(word.encode()) for word in words) + b"\n"
        deadline = time.monotonic() + timeout_s
        with self._lock:
            process = self._running()
            try:
                answer = self._ask(process, request, deadline)
            except TimeoutError:
                self._stop()
                raise subprocess.TimeoutExpired([main, *args], timeout_s) from None
            except (EOFError, BrokenPipeError):
                code, said = process.wait(), self._last_words()
                self._stop()
                raise AssertionError(
                    f"the JVM of the tools ended with {code} while it ran {main} {' '.join(args)}; a tool that calls"
                    f" System.exit needs a process of its own (Java.run)\n{said}"
                ) from None
            except BaseException:  # the test ended in the middle: nobody waits for this answer
                self._stop()
                raise
            code_text, *parts = answer.decode("ascii").split("\t")
            out, err, left = (base64.b64decode(part).decode() for part in parts)
            if left:
                self._stop()
        return subprocess.CompletedProcess([main, *args], int(code_text), out, err)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        self._folder = tempfile.TemporaryDirectory(prefix="kraftlog-tools-")
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, self._folder.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
            )
        return self._process

    @property
    def _log_path(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "stderr"

    def _last_words(self) -> str:
        return self._log_path.read_text(errors="replace")[-4000:]

    @staticmethod
    def _ask(process: subprocess.Popen[bytes], request: bytes, deadline: float) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        view = memoryview(request)
        while view:
            view = view[process.stdin.write(view) :]
        source = process.stdout.fileno()
        poll = select.poll()
        poll.register(source, select.POLLIN | select.POLLHUP)
        answer = bytearray()
        while not answer.endswith(b"\n"):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                raise TimeoutError
            data = os.read(source, 1 << 20)
            if not data:
                raise EOFError
            answer += data
        return bytes(answer[:-1])

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    def close(self) -> None:
        """End the JVM."""
        with self._lock:
            self._stop()
