"""The Spark source under Sail, a Spark Connect server without a JVM: the rows of our own scan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kraftlog
from batch_rows import GOLDEN
from engine_logs import damage, write_logs

TOPICS = GOLDEN / "topics" / "node-1"
TESTS = Path(__file__).parents[1]
# Sail 0.7.2 knows PySpark up to 4.2; `.ci/dev jars` puts its client here, beside the PySpark of the other tests.
CLIENT = Path(os.environ.get("KRAFTLOG_SAIL_CLIENT", TESTS / "interop" / "target" / "sail"))
SPARK_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type")
ORDER = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]

Query = dict[str, Any]
Answer = Callable[..., dict[str, pa.Table | str]]


@pytest.fixture(scope="module")
def ask() -> Answer:
    """Answers of a Sail server to queries by name: a table, or the text of an error."""
    if not (CLIENT / "pyspark").is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"CI has no pyspark-client in {CLIENT}, and the interop tests are never skipped there")
        pytest.skip(f"no pyspark-client in {CLIENT}: .ci/dev jars puts it there")
    pytest.importorskip("pysail", reason="pip install pysail")

    def ask(out: Path, queries: list[Query]) -> dict[str, pa.Table | str]:
        package = str(Path(kraftlog.__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CLIENT), package, str(TESTS)])}
        environment.pop("SPARK_HOME", None)
        task = json.dumps({"path": str(out), "queries": queries})
        child = [sys.executable, str(TESTS / "interop" / "sail_queries.py")]
        done = subprocess.run(
            child, input=task, env=environment, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answers: dict[str, pa.Table | str] = {}
        for query in queries:
            error, name = out / f"{query['name']}.error", query["name"]
            answers[name] = error.read_text() if error.exists() else pa.ipc.open_file(out / f"{name}.arrow").read_all()
        return answers

    return ask


def run_with_client(arguments: list[str], directory: Path, said: str = "") -> str:
    """What a Python with the client of Sail prints."""
    package = str(Path(kraftlog.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CLIENT), package, str(TESTS)])}
    environment.pop("SPARK_HOME", None)
    child = [sys.executable, *arguments]
    done = subprocess.run(
        child, input=said, env=environment, cwd=directory, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def expected(path: Path, columns: tuple[str, ...] = SPARK_COLUMNS, **options: Any) -> pa.Table:
    scan = kraftlog.scan(path, columns=columns, timestamp_unit="us", end="high_watermark", **options)
    return pa.table(scan).rename_columns(
        ["timestampType" if column == "timestamp_type" else column for column in columns]
    )


def assert_same_rows(answer: pa.Table | str, table: pa.Table) -> None:
    assert isinstance(answer, pa.Table), answer
    assert answer.schema.names == table.schema.names
    # Sail's timestamps may have lost the zone, whose instants they still are.
    answer = pa.table(
        [pc.cast(answer[name], table.schema.field(name).type) for name in table.schema.names], table.schema
    )
    assert answer.sort_by(ORDER).equals(table.sort_by(ORDER))


@pytest.mark.slow
def test_rows_of_kafka_topics(ask: Answer, tmp_path: Path) -> None:
    """All topics that a Kafka broker wrote: each codec, compacted, transactional, with epochs, after DeleteRecords."""
    path = {"path": str(TOPICS)}
    schema = "offset bigint, topic string, value binary, partition int, timestamp timestamp"
    answers = ask(
        tmp_path,
        [
            {"name": "all", "options": path},
            {"name": "headers", "options": {**path, "includeHeaders": "true", "subscribe": "g-none,g-txn"}},
            {"name": "committed", "options": {**path, "kafka.isolation.level": "read_committed"}},
            {"name": "projected", "options": path, "schema": schema},
            {"name": "named", "options": {**path, "columns": "offset,topic,partition,keyLength"}},
            {"name": "selected", "options": path, "columns": ["topic", "partition", "offset"]},
            {
                "name": "filtered",
                "options": path,
                "where": "topic = 'g-zstd' AND offset BETWEEN 10 AND 19 AND timestamp < timestamp'2100-01-01 00:00:00'",
            },
            {
                "name": "pushed",
                "options": {**path, "pushdown": "true"},
                "where": "topic = 'g-zstd' AND partition = 0 AND offset >= 10 AND offset < 20",
            },
            {"name": "counted", "options": path, "columns": ["count(*) AS count"]},
            {"name": "ranges", "options": {**path, "subscribe": "g-zstd", "startingOffsets": '{"g-zstd":{"0":30}}'}},
            {"name": "unknown option", "options": {**path, "pth": "x"}},
            {"name": "no directory", "options": {"path": str(tmp_path / "nowhere")}},
            {"name": "no column", "options": path, "schema": "nothing int"},
        ],
    )
    whole = expected(TOPICS)
    assert whole.num_rows > 1000
    assert_same_rows(answers["all"], whole)
    headers = answers["headers"]
    assert isinstance(headers, pa.Table)
    some = expected(TOPICS, (*SPARK_COLUMNS, "headers"), topics=["g-none", "g-txn"])
    given = [row["headers"] or [] for row in headers.sort_by(ORDER).to_pylist()]
    assert given == some.sort_by(ORDER)["headers"].to_pylist()
    assert any(given)
    assert_same_rows(answers["committed"], expected(TOPICS, isolation_level="read_committed"))
    assert_same_rows(answers["projected"], whole.select(["offset", "topic", "value", "partition", "timestamp"]))
    lengths = expected(TOPICS, ("offset", "topic", "partition", "key_length")).rename_columns(
        {"key_length": "keyLength"}
    )
    assert_same_rows(answers["named"], lengths)
    assert_same_rows(answers["selected"], whole.select(["topic", "partition", "offset"]))
    one = whole.filter(pc.equal(whole["topic"], "g-zstd"))
    between = pc.and_(pc.greater_equal(one["offset"], 10), pc.less_equal(one["offset"], 19))
    assert_same_rows(answers["filtered"], one.filter(between))
    assert_same_rows(answers["pushed"], one.filter(between))
    counted = answers["counted"]
    assert isinstance(counted, pa.Table)
    assert counted["count"].to_pylist() == [whole.num_rows]
    assert_same_rows(answers["ranges"], one.filter(pc.greater_equal(one["offset"], 30)))
    assert "unknown option pth" in str(answers["unknown option"])
    assert "nowhere" in str(answers["no directory"])
    assert "no column 'nothing'" in str(answers["no column"])


def test_damage_is_an_error_that_names_the_place(ask: Answer, tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "logs")
    path, position, base_offset = damage(logs, "orders-1", 2)
    options = {"path": str(logs), "endOffset": "logEnd"}
    answers = ask(
        tmp_path,
        [
            {"name": "damaged", "options": options, "columns": ["value"]},
            {"name": "other topic", "options": {**options, "subscribe": "audit"}, "columns": ["count(*) AS count"]},
            {"name": "skipped", "options": {**options, "failOnDataLoss": "false"}, "columns": ["count(*) AS count"]},
        ],
    )
    error = str(answers["damaged"])
    assert str(path) in error
    assert f"position {position}" in error
    assert str(base_offset) in error
    assert "orders-1" in error
    assert answers["other topic"].column("count").to_pylist() == [480]  # type: ignore[union-attr]
    assert answers["skipped"].column("count").to_pylist() == [3 * 480 - 40]  # type: ignore[union-attr]


def test_examples_of_the_page(ask: Answer, tmp_path: Path) -> None:
    write_logs(tmp_path / "kafka-logs")
    printed = run_with_client([str(TESTS / "engine_pages.py"), "sail"], tmp_path)
    # From offset 100 on: 383 records of partition 0, 388 of partition 1. Then bytes of values by topic.
    for text in ("|  383|", "|  388|", "30720", "13788"):
        assert text in printed, printed
