"""Fixtures of the interop tests: Kafka's jars, a real Kafka, our node, and the tools."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop.harness import HERE, Java, KafkaServer, KraftlogServer, Server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)
            if not getattr(item.module, "IS_CAMPAIGN", False):
                # JVMs and servers on a shared machine: once more, and the summary says "rerun". A campaign that fails
                # has found something: a second one would hide it.
                item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test shows what the servers of the run said last."""
    report = yield
    if report.failed:
        for server in Server.made:
            if server.log_path.exists():
                report.sections.append((f"last words of {server.name} in {server.home}", server.log_tail()))
    return report


@pytest.fixture(scope="session")
def java() -> Iterator[Java]:
    """Kafka's jars: from KAFKA_LIBS, or fetched once by `.ci/dev jars` into tests/interop/target."""
    if shutil.which("java") is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no java on PATH, and the interop tests are never skipped there")
        pytest.skip("no java on PATH: the interop tests run the real Apache Kafka")
    libs = os.environ.get("KAFKA_LIBS")
    if libs is None:
        target = HERE / "target"
        if not (target / ".complete").exists():
            subprocess.run(["sh", str(HERE.parents[1] / ".ci" / "dev"), "jars"], check=True)
        libs = str(target / "libs" / "*")
    if not glob.glob(libs if libs.endswith(".jar") else libs.rstrip("*") + "*.jar"):
        pytest.fail(f"no jars at {libs}: set KAFKA_LIBS='dir/*', or run `.ci/dev jars`")
    java = Java(libs)
    yield java
    java.close()


def make_server(kind: str, home: Path, java: Java, config: dict[str, str] | None = None) -> Server:
    if kind == "kafka":
        return KafkaServer(home, java, config)
    return KraftlogServer(home, config)


@pytest.fixture(scope="session")
def target_kind() -> str:
    """KRAFTLOG_INTEROP_TARGET=kafka runs the same tests against Apache Kafka: a check of the tests themselves."""
    return os.environ.get("KRAFTLOG_INTEROP_TARGET", "kraftlog")


ServerFactory = Callable[..., Server]


@pytest.fixture
def server_factory(tmp_path: Path, java: Java, target_kind: str) -> Iterator[ServerFactory]:
    """Make servers that do not outlive the test: ``server_factory(kind=None, config=None, name="a")``."""
    made: list[Server] = []

    def make(kind: str | None = None, config: dict[str, str] | None = None, name: str = "node") -> Server:
        server = make_server(kind or target_kind, tmp_path / name, java, config)
        made.append(server)
        return server

    yield make
    for server in made:
        server.kill()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, java: Java, target_kind: str) -> Iterator[Server]:
    """A durable node, formatted and started, shared by the tests of a module."""
    server = make_server(target_kind, tmp_path_factory.mktemp("node"), java)
    with server.running():
        yield server
