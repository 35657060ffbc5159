"""The examples of docs/how-to/spark-frames.md run as they stand, but for their paths."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from batch_rows import GOLDEN
from partition_files import write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "spark-frames.md"
CONTROLLER = GOLDEN / "kraft" / "logs" / "static" / "05-dynamic"


@pytest.mark.slow
def test_the_examples_of_the_page_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_dir = tmp_path / "kafka-logs"
    write_log(log_dir / "orders-0", end=100, segment=50)
    for partition in (0, 1):
        shutil.copytree(
            GOLDEN / "topics" / "node-1" / f"__consumer_offsets-{partition}",
            log_dir / f"__consumer_offsets-{partition}",
        )
    controller = min(CONTROLLER.glob("*/__cluster_metadata-0")).parent
    text = PAGE.read_text()
    for name, place in (("kafka-logs", log_dir), ("controller", controller), ("orders-by-task", tmp_path / "parquet")):
        text = re.sub(rf'"{name}(?=["/])', f'"{place}', text)
    examples = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    names: dict[str, Any] = {}
    shown = []
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
        shown.append(capsys.readouterr().out)
    assert "|orders|       none|             100|" in shown[0]
    assert "\n0\n" in shown[0]  # no batch is damaged
    assert "committedOffset" in shown[0]
    assert "|      100|" in shown[1]
    assert "\n100 " in shown[1]
    assert shown[1].endswith("\n100\n")
    assert shown[2] == "100\n"
