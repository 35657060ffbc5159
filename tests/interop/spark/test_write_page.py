"""The code of docs/how-to/spark-writing.md, run from top to bottom against our node."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kraftlog
from interop.harness import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "spark-writing.md"


def code_blocks() -> list[str]:
    """Indented code of the page, one string each; continued list items are not code."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE.read_text(), re.MULTILINE)
    return ["".join(line[4:] if line.strip() else "\n" for line in block.splitlines(keepends=True)) for block in blocks]


def rows_of(server: Server) -> dict[int, list[tuple[int, bytes, bytes]]]:
    """(offset, key, value) by partition of the topic of the page, from the files of a stopped server."""
    found = {}
    for partition in (0, 1):
        batches = kraftlog.open_log(server.data_dir / f"orders-{partition}").scan(columns=["offset", "key", "value"])
        import pyarrow as pa

        columns = pa.table(batches).to_pydict()
        found[partition] = list(zip(columns["offset"], columns["key"], columns["value"], strict=True))
    return found


@pytest.mark.slow
def test_the_page_does_what_it_says(spark: SparkSession, server_factory: Callable[..., Server], tmp_path: Path) -> None:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, NewTopic

    source, target = server_factory("kraftlog", name="source"), server_factory("kraftlog", name="target")
    for server in (source, target):
        server.start()
        admin = AdminClient({"bootstrap.servers": server.bootstrap}, logger=_quiet())
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
        if server is source:
            producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap}, logger=_quiet())
            for n in range(30):
                producer.produce("orders", b"value %d" % n, b"key %d" % n, partition=n % 2)
            assert producer.flush(30) == 0
            del producer
        del admin
        server.stop()
    frame = spark.sql("SELECT CAST(id AS STRING) AS key, 'loaded' AS value, now() AS timestamp FROM range(100)")
    frame.write.parquet(str(tmp_path / "orders.parquet"))
    places = {
        "/var/kafka-logs": str(target.data_dir),
        "kafka-backup": str(source.data_dir),
        "orders.parquet": str(tmp_path / "orders.parquet"),
        "broker:9092": target.bootstrap,
        '"checkpoint"': f'"{tmp_path / "checkpoint"}"',
    }
    blocks = code_blocks()
    for name, place in places.items():
        blocks = [block.replace(name, place) for block in blocks]
    setup, load, restore, finish, produce = blocks
    names: dict[str, Any] = {"spark": spark}
    for block in (setup, restore):
        exec(compile(block, str(PAGE), "exec"), names)
    restored = rows_of(target)
    assert restored == rows_of(source)
    assert sum(map(len, restored.values())) == 30
    for block in (load, finish):
        exec(compile(block, str(PAGE), "exec"), names)
    loaded = rows_of(target)
    assert {partition: rows[: len(restored[partition])] for partition, rows in loaded.items()} == restored
    assert sum(map(len, loaded.values())) == 130
    target.start()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()
    names["stream"] = stream
    exec(compile(produce, str(PAGE), "exec"), names)
    query = names["query"]
    try:
        deadline = time.monotonic() + 120
        while query.lastProgress is None:
            assert query.exception() is None, query.exception()
            assert time.monotonic() < deadline, query.status
            time.sleep(0.1)
    finally:
        query.stop()
    target.stop()
    produced = rows_of(target)
    assert {partition: rows[: len(loaded[partition])] for partition, rows in produced.items()} == loaded
    # 100 rows of the batch, and at least one micro-batch of 50.
    assert sum(map(len, produced.values())) >= 130 + 100 + 50
    for rows in produced.values():
        assert [offset for offset, *_ in rows] == list(range(len(rows)))


def _quiet() -> Any:
    """Clients that outlive their server say so, to nobody."""
    import logging

    logger = logging.getLogger("tests.quiet")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
