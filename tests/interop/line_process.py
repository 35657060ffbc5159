"""A Python script as a process that answers a line of JSON on its input with one on its output."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

__all__ = ["LineProcess"]


class LineProcess:
    """The process; its first line says that it is ready.

    Args:
        script: Path of the script.
        arguments: Of the script.
    """

    def __init__(self, script, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read_first_line(self):
        """What it says once it is ready."""
        return json.loads(self.process.stdout.readline())

    def send(self, do, **arguments):
        """Ask for something; ``receive`` returns the answer."""
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def receive(self):
        """The answer to the oldest question that has none."""
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"{answer['error']}: {answer['text']}")
        return answer["answer"]

    def ask(self, do, **arguments):
        """Ask, and wait for the answer."""
        self.send(do, **arguments)
        return self.receive()

    def kill(self):
        """End it as SIGKILL does."""
        self.process.kill()
        self.process.wait()

    def close(self):
        """End its input, and wait for its end."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process.wait(30)
