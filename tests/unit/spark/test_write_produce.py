"""The producing writers without a broker: options, columns, and what is said when nobody answers."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Mapping

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from kraftlog.spark.write import batch_writer, stream_writer
from kraftlog.spark.write_produce import ProduceError, ProduceOptions, ProduceStreamWriter, ProduceWriter, produce_rows

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9"}
SCHEMA = StructType().add("key", StringType()).add("value", BinaryType())
ROWS = pa.record_batch({"key": pa.array(["a"]), "value": pa.array([b"v"])})


def test_the_servers_choose_the_producing_writer() -> None:
    assert isinstance(batch_writer(SCHEMA, {**SERVERS, "topic": "t"}, overwrite=False), ProduceWriter)
    options = {**SERVERS, "topic": "t", "checkpointLocation": "somewhere"}
    assert isinstance(stream_writer(SCHEMA, options, overwrite=False), ProduceStreamWriter)


def test_kafka_options_are_the_clients() -> None:
    options = ProduceOptions.parse({**SERVERS, "Kafka.Linger.Ms": "7", "kafka.max.block.ms": "5", "TOPIC": "t"})
    assert options == ProduceOptions(
        config={"bootstrap.servers": "127.0.0.1:9", "linger.ms": "7"}, topic="t", max_block_ms=5
    )


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (SCHEMA, {}, "topic option required when no 'topic' attribute is present"),
        (StructType().add("key", StringType()), {"topic": "t"}, "Required attribute 'value' not found"),
        (StructType().add("value", IntegerType()), {"topic": "t"}, "value attribute unsupported type int"),
        (
            StructType(list(SCHEMA.fields)).add("partition", StringType()),
            {"topic": "t"},
            "partition attribute unsupported type string",
        ),
        (
            SCHEMA,
            {"topic": "t", "compression.type": "lz4"},
            r"unknown option compression\.type: to produce to a broker",
        ),
        (SCHEMA, {"topic": "t", "kafka.key.serializer": "x"}, r"option kafka\.key\.serializer is not supported"),
        (SCHEMA, {"topic": "t", "kafka.bootstrap.servers": ""}, r"option kafka\.bootstrap\.servers is missing"),
    ],
)
def test_columns_and_options_are_refused_by_name(schema: StructType, options: Mapping[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        batch_writer(schema, {**SERVERS, **options}, overwrite=False)


def test_modes_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(ValueError, match="mode overwrite is not supported when rows are produced"):
        batch_writer(SCHEMA, {**SERVERS, "topic": "t"}, overwrite=True)
    with pytest.raises(ValueError, match="output mode complete is not supported"):
        stream_writer(SCHEMA, {**SERVERS, "topic": "t"}, overwrite=True)


def test_a_missing_client_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ImportError, match=r"pip install 'kraftlog\[produce\]'"):
        batch_writer(SCHEMA, {**SERVERS, "topic": "t"}, overwrite=False)


def test_an_unknown_property_of_the_client_is_named() -> None:
    options = ProduceOptions.parse({**SERVERS, "topic": "t", "kafka.no.such": "x"})
    with pytest.raises(ValueError, match=r'options kafka\.\*: No such configuration property: "no\.such"'):
        produce_rows(iter([ROWS]), ("key", "value"), options)


def test_brokers_that_do_not_answer_fail_the_task_in_time() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{nobody.getsockname()[1]}"
        options = ProduceOptions.parse({"kafka.bootstrap.servers": servers, "topic": "t", "kafka.max.block.ms": "700"})
        began = time.monotonic()
        with pytest.raises(ProduceError, match=f"topic t is not present in the metadata of {servers} after 700 ms"):
            produce_rows(iter([ROWS]), ("key", "value"), options)
        assert time.monotonic() - began < 10


def test_rows_without_a_topic_fail_the_task() -> None:
    rows = ROWS.append_column("topic", pa.array([None], pa.string()))
    with pytest.raises(ProduceError, match="null topic present in the data"):
        produce_rows(iter([rows]), ("topic", "key", "value"), ProduceOptions.parse(SERVERS))


def test_no_rows_need_no_broker() -> None:
    assert produce_rows(iter([]), ("key", "value"), ProduceOptions.parse({**SERVERS, "topic": "t"})) == 0
