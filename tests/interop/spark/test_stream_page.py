"""The example of docs/how-to/spark-streaming.md runs as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from growing_logs import GrowingLogs
from kraftlog.spark.options import STREAM_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "spark-streaming.md"


def test_the_example_runs(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = GrowingLogs(tmp_path / "kafka-logs")
    for topic in ("orders-eu", "orders-us", "payments"):
        logs.add(topic)
        logs.append(topic, count=20)
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    code, count = re.subn(
        '"(kafka-logs|orders-stream|orders-checkpoint)"', lambda match: f'"{tmp_path / match[1]}"', found[1]
    )
    assert count == 3
    exec(compile(code, str(PAGE), "exec"), {})
    assert "{'orders-eu': 0, 'orders-us': 0}" in capsys.readouterr().out
    rows = spark.read.parquet(str(tmp_path / "orders-stream")).groupBy("topic").count().collect()
    assert sorted(map(tuple, rows)) == [("orders-eu", 20), ("orders-us", 20)]
    logs.close()


def test_the_options_of_the_page_are_known() -> None:
    named = re.findall(r"^\| `([^|]*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    options = {option for cell in named for option in cell.split("`, `")}
    assert {"maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"} <= options
    assert options <= set(STREAM_OPTIONS)
