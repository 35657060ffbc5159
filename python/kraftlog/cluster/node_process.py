"""One node of a cluster as a process: start, kill, pause, resume, stop, and what it printed last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from kraftlog.errors import ClusterError

__all__ = ["STARTED", "NodeProcess"]

# What the last line of a start begins with.
STARTED = "kraftlog cluster member started:"

_TAIL_LINES = 30
_POLL_S = 0.01
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]


class NodeProcess:
    """A node of a ``kraftlog.Cluster``.

    Args:
        node_id: Its node.id.
        home: Directory of the cluster. The node's log directory is below it, beside its properties and its output.
        properties: Its configuration.
        bootstrap_server: Where clients reach it.

    Attributes:
        node_id: Its node.id.
        data_dir: Its log directory.
        output_path: File with all that it printed, over restarts.
        bootstrap_server: ``host:port`` for clients.
        is_paused: Whether SIGSTOP holds it.
    """

    def __init__(self, node_id: int, home: Path, properties: Mapping[str, str], bootstrap_server: str) -> None:
        self.node_id = node_id
        self.data_dir = home / str(node_id)
        self.output_path = home / f"{node_id}.out"
        self.properties_path = home / f"{node_id}.properties"
        self.properties = dict(properties)
        self.bootstrap_server = bootstrap_server
        self.is_paused = False
        self._process: subprocess.Popen[bytes] | None = None
        self._output_start = 0

    @property
    def is_running(self) -> bool:
        """Whether its process lives, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int | None:
        """Of its process; None while it does not run."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def log_tail(self) -> str:
        """The last lines that it printed."""
        try:
            lines = self.output_path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "(no output)"
        return "\n".join(lines[-_TAIL_LINES:])

    def launch(self) -> None:
        """Start the process; does not wait until it serves.

        Raises:
            ClusterError: It runs already.
        """
        if self.is_running:
            raise ClusterError(f"node {self.node_id} runs already")
        self.properties_path.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        # The package may be on the path of this interpreter only.
        path = os.pathsep.join(filter(None, (str(_PACKAGE_PARENT), os.environ.get("PYTHONPATH", ""))))
        with self.output_path.open("ab") as output:
            self._output_start = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kraftlog.cluster.member", str(self.properties_path)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path},
                # Ctrl-C in a terminal reaches the program, which stops its nodes.
                start_new_session=True,
            )
        self.is_paused = False

    def wait_until_started(self, deadline_s: float) -> None:
        """Return when clients can connect.

        Args:
            deadline_s: Of ``time.monotonic()``.

        Raises:
            ClusterError: The process ended, or the time is over; the text has the last lines of its output.
        """
        while not self._has_started():
            if not self.is_running:
                code = self._process.returncode if self._process is not None else None
                raise self.failure(f"ended with status {code} while it started")
            if time.monotonic() > deadline_s:
                raise self.failure("did not start in time")
            time.sleep(_POLL_S)

    def kill(self) -> None:
        """SIGKILL, also while it is paused; nothing is flushed. Does nothing if it does not run."""
        process = self._process
        if process is not None:
            process.kill()
            self._reap(process)

    def terminate(self) -> None:
        """SIGTERM: begin a controlled shutdown; ``wait_until_stopped`` waits for its end."""
        if self.is_paused:
            self.resume()
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait_until_stopped(self, deadline_s: float) -> None:
        """Return when the process has ended.

        Raises:
            ClusterError: The time is over, and the process was killed; or it ended with a failure.
        """
        process = self._process
        if process is None:
            return
        try:
            code = process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failure("did not stop in time and was killed") from None
        self._reap(process)
        if code not in (0, -signal.SIGTERM):
            raise self.failure(f"ended with status {code} after SIGTERM")

    def pause(self) -> None:
        """SIGSTOP: its sockets stay open, and nothing answers.

        Raises:
            ClusterError: It does not run.
        """
        self._running("pause").send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT.

        Raises:
            ClusterError: It does not run.
        """
        self._running("resume").send_signal(signal.SIGCONT)
        self.is_paused = False

    def failure(self, what: str) -> ClusterError:
        """An error with the last lines of the node's output."""
        return ClusterError(f"node {self.node_id} {what}; the end of {self.output_path}:\n{self.log_tail}")

    def _running(self, what: str) -> subprocess.Popen[bytes]:
        if self._process is None or not self.is_running:
            raise ClusterError(f"cannot {what} node {self.node_id}: it does not run")
        return self._process

    def _has_started(self) -> bool:
        with self.output_path.open("rb") as output:
            output.seek(self._output_start)
            return any(line.startswith(STARTED.encode()) for line in output)

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._process = None
        self.is_paused = False
