"""The driver's Python is in an environment that is not activated: ``python3`` of the PATH is another one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from partition_files import write_log

HOW_TO = Path(__file__).resolve().parents[3] / "docs" / "how-to"
LINES = """
from kraftlog.spark import decode_batches, map_batches, prepare, scan
from pyspark.sql.functions import inline

cells = spark.read.format("binaryFile").load("kafka-logs/orders-0/*.log").select("content")
print("cells", cells.select(inline(decode_batches("content", columns=["offset"]))).count())
print("prepared", prepare(scan(spark, "kafka-logs").select("key", "value"), partitions=2).count())
print("mapped", map_batches(spark, "kafka-logs", lambda batches: batches, "offset bigint", columns=["offset"]).count())
"""


def foreign_python(folder: Path) -> Path:
    """A ``python3`` without any package, first on a PATH."""
    folder.mkdir()
    for name in ("python3", "python"):
        script = folder / name
        script.write_text('#!/bin/sh\necho "the python3 of the PATH was started" >&2\nexit 1\n')
        script.chmod(0o755)
    return folder


@pytest.mark.slow
def test_the_page_and_the_functions_run_from_an_environment_that_is_not_activated(
    spark_environment: dict[str, str], quick_spark_home: str, tmp_path: Path
) -> None:
    write_log(tmp_path / "kafka-logs" / "orders-0", end=100, segment=50)
    (page,) = re.findall(r"^```python\n(.*?)^```", (HOW_TO / "spark-reading.md").read_text(), re.MULTILINE | re.DOTALL)[
        :1
    ]
    (tmp_path / "job.py").write_text(page + textwrap.dedent(LINES))
    environment = {name: value for name, value in spark_environment.items() if name != "PYSPARK_PYTHON"}
    environment["PATH"] = f"{foreign_python(tmp_path / 'bin')}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "job.py"],
        cwd=tmp_path,
        env={**environment, "SPARK_HOME": quick_spark_home},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "\n50 8\n" in done.stdout
    assert "cells 100\nprepared 100\nmapped 100\n" in done.stdout
