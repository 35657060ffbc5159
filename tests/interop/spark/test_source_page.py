"""The examples of docs/how-to/spark-reading.md run as they stand, but for their paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kraftlog
from partition_files import damage, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "spark-reading.md"


def test_the_examples_of_the_page_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_dir = tmp_path / "kafka-logs"
    write_log(log_dir / "orders-0", end=100, segment=50)
    text = PAGE.read_text().replace("kafka-logs", str(log_dir)).replace('"lost"', repr(str(tmp_path / "lost")))
    examples = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    names: dict[str, Any] = {}
    exec(compile(examples[0], str(PAGE), "exec"), names)
    shown = capsys.readouterr().out
    spark.catalog.dropTempView("orders")
    assert "|        0|           20000|" in shown
    assert "\n50 8\n" in shown
    assert "|        0|          0|         99|     100|" in shown
    damage(log_dir / "orders-0" / f"{50:020}.log", 150)
    exec(compile(examples[1], str(PAGE), "exec"), names)
    assert capsys.readouterr().out == "90\n"
    assert spark.read.json(str(tmp_path / "lost")).count() == 1
    with kraftlog.Broker() as broker:
        broker.create_topic("orders", partitions=3)
        with kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(180):
                producer.send("orders", b"%d" % number, partition=number % 3)
        exec(compile(examples[2].replace("localhost:9092", broker.bootstrap_servers), str(PAGE), "exec"), names)
        assert names["live"].count() == 10 + 60 + 60
