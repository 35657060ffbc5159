"""One Spark session on loopback for all tests of this folder that do not need one of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kraftlog
from interop.spark.jvm import JVM_FLAGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def connector_jars() -> str:
    """The class path of Spark's own Kafka source, fetched once by `.ci/dev jars`."""
    target = HERE / "target"
    if not (target / ".complete").exists():
        subprocess.run(["sh", str(HERE.parents[2] / ".ci" / "dev"), "jars"], check=True)
    return str(target / "libs" / "*")


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """What Spark's processes have to find: loopback, this interpreter and the package under test.

    All but the flags is set in this process too, whose children the JVM and its Python workers are.
    """
    if shutil.which("java") is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no java on PATH, and the interop tests are never skipped there")
        pytest.skip("no java on PATH: Spark runs on the JVM")
    pytest.importorskip("pyspark", reason="pip install kraftlog[spark]: the tests run a real Spark")
    # The tests' own modules too: functions that a task runs are found by their module's name.
    package = os.pathsep.join([str(Path(kraftlog.__file__).parents[1]), str(Path(__file__).parents[2])])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {**os.environ, "JAVA_TOOL_OPTIONS": JVM_FLAGS}


@pytest.fixture(scope="session")
def quick_spark_home(spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ``SPARK_HOME`` whose Python processes start quickly."""
    from interop.spark.clusters import spark_home

    return str(spark_home(tmp_path_factory.mktemp("spark") / "home"))


@pytest.fixture(scope="session")
def spark(spark_environment: dict[str, str], connector_jars: str, quick_spark_home: str) -> Iterator[SparkSession]:
    """A local session with two threads, the formats of kraftlog registered, and Spark's own ``kafka``.

    The class path of a JVM is fixed when it starts, so the one session of the run has the connector from the start;
    behind Spark's own classes, which are archived.
    """
    from pyspark.sql import SparkSession

    import kraftlog.spark

    given = os.environ.get("SPARK_HOME")
    os.environ.setdefault("SPARK_HOME", quick_spark_home)
    os.environ["SPARK_DIST_CLASSPATH"] = connector_jars
    session = (
        SparkSession.builder.master("local[2]")
        .appName("kraftlog-tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", JVM_FLAGS)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    del os.environ["SPARK_DIST_CLASSPATH"]  # the JVM has it
    if given is None:
        del os.environ["SPARK_HOME"]
    session.sparkContext.setLogLevel("ERROR")
    kraftlog.spark.register(session)
    yield session
    session.stop()
