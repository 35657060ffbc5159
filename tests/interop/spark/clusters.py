"""Spark as processes of its own on loopback: a standalone cluster, a Connect server, and a Python without kraftlog.

Everything that is started here is in a process group of its own, which is killed when the test ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyspark

from interop.spark.jvm import JVM_FLAGS

OURS = ("kraftlog", "pyspark_kraftlog", "__editable__")


def python_without_kraftlog(directory: Path) -> Path:
    """An interpreter with every package of this one except kraftlog, installed there as a wheel or as a source tree."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    packages = directory / "packages"
    packages.mkdir()
    for source in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in os.scandir(source):
            if not entry.name.lower().startswith(OURS) and not entry.name.endswith(".pth"):
                (packages / entry.name).symlink_to(entry.path)
    (site,) = (directory / "lib").glob("python*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n")
    python = directory / "bin" / "python"
    done = subprocess.run(
        [python, "-c", "import pyarrow, pyspark, kraftlog"],
        capture_output=True,
        text=True,
        env=without_path(),
        check=False,
    )
    assert "No module named 'kraftlog'" in done.stderr, done.stderr
    return python


def without_path(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name != "PYTHONPATH"}


def spark_home(directory: Path) -> Path:
    """pyspark's files under another roof: what Spark writes beside them does not go into the installed package.

    Without ``pyspark.zip``, which each Python process would compile anew: a second of CPU time. They find the installed
    pyspark instead. Spark waits ten seconds for a Python process that plans a stream, which on a busy machine is not
    enough for that second. Not for executors whose Python has no pyspark.
    """
    installed = Path(pyspark.__file__).parent
    archives = directory / "python" / "lib"
    archives.mkdir(parents=True)
    for entry in installed.iterdir():
        if entry.name != "python":
            (directory / entry.name).symlink_to(entry)
    for archive in (installed / "python" / "lib").glob("py4j-*"):
        (archives / archive.name).symlink_to(archive)
    return directory


class SparkProcesses:
    """Starts Spark's own main classes and ends them.

    Args:
        directory: For logs and everything that Spark writes.
        python: The interpreter of executors and of what plans on their behalf.
    """

    def __init__(self, directory: Path, python: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.home = spark_home(directory / "home")
        (directory / "tmp").mkdir()
        self.environment = {
            **without_path(),
            "JAVA_TOOL_OPTIONS": JVM_FLAGS,
            "PYSPARK_PYTHON": str(python),
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(directory / "tmp"),
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, main: str, *args: str, ready: str, timeout: float = 240) -> str:
        """Runs a main class until its log has ``ready``, whose first group is given back."""
        log = self.directory / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [self.home / "bin" / "spark-class", main, *args],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                cwd=self.directory,
                start_new_session=True,
            )
        self._running.append(process)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = re.search(ready, log.read_text(errors="replace"))
            if found:
                return found.group(1)
            if process.poll() is not None:
                break
            time.sleep(0.1)
        message = f"{main} did not say {ready!r}:\n{log.read_text(errors='replace')[-3000:]}"
        raise AssertionError(message)

    def standalone(self) -> str:
        """A master and a worker with two cores; the master's URL."""
        deploy = "org.apache.spark.deploy"
        common = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        url = self.start("master", f"{deploy}.master.Master", *common, ready=r"Starting Spark master at (spark://\S+)")
        work = ("--cores", "2", "--memory", "1400m", "--work-dir", str(self.directory / "work"))
        self.start("worker", f"{deploy}.worker.Worker", *common, *work, url, ready=r"(Successfully registered)")
        return url

    def connect_server(self, *conf: str) -> str:
        """A Spark Connect server; its URL."""
        settings = ("spark.connect.grpc.binding.port=0", "spark.connect.grpc.binding.address=127.0.0.1", *conf)
        args = [part for setting in (*SETTINGS, *settings) for part in ("--conf", setting)]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        port = self.start(
            "connect",
            "org.apache.spark.deploy.SparkSubmit",
            *("--master", "local[2]", *args, "--class", server, "spark-internal"),
            ready=r"server started at: \S+?:(\d+)",
        )
        return f"sc://127.0.0.1:{port}"

    def drive(self, script: Path, *args: str, timeout: float = 600) -> str:
        """Runs a driver in this interpreter; what it printed."""
        process = subprocess.Popen(
            [sys.executable, script, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            cwd=self.directory,
            start_new_session=True,
        )
        self._running.append(process)  # type: ignore[arg-type]
        out, _ = process.communicate(timeout=timeout)
        assert process.returncode == 0, out[-6000:]
        return out

    def stop(self) -> None:
        for process in reversed(self._running):
            with contextlib.suppress(ProcessLookupError):  # the group has ended with its leader
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


SETTINGS: Sequence[str] = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.ui.enabled=false",
    "spark.ui.showConsoleProgress=false",
    "spark.executor.cores=1",
    "spark.executor.memory=512m",
    "spark.sql.shuffle.partitions=2",
    "spark.sql.session.timeZone=UTC",
)


@contextlib.contextmanager
def spark_processes(directory: Path, python: Path) -> Iterator[SparkProcesses]:
    processes = SparkProcesses(directory, python)
    try:
        yield processes
    finally:
        processes.stop()
