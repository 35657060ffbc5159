"""``option("kafka.bootstrap.servers", ...)``: rows to any broker through confluent-kafka, of batches and streams.

The client takes records one by one, so that a row costs some Python here, unlike everywhere else in this package.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kraftlog.errors import KraftlogError
from kraftlog.extras import require
from kraftlog.spark.write_columns import check_produce_columns
from kraftlog.spark.write_options import ProduceOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["ProduceError", "ProduceOptions", "ProduceStreamWriter", "ProduceWriter", "RowsProduced"]

# What makes retries of the client neither lose nor double a record, and what gives a key the partition that Kafka's
# own producers give it.
DEFAULTS: Final[Mapping[str, str]] = {
    "enable.idempotence": "true",
    "acks": "all",
    "partitioner": "murmur2_random",
}
ROWS_BETWEEN_POLLS: Final = 1024
# The client itself gives a record up after delivery.timeout.ms; this is how long its threads may need on top.
FLUSH_MARGIN_S: Final = 10.0
DELIVERY_TIMEOUT_MS: Final = 300_000


class ProduceError(KraftlogError):
    """A record was not delivered, or its topic is not there."""


@dataclass(frozen=True)
class RowsProduced(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed
    """How many records a task delivered."""

    rows: int


class ProduceWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed
    """Produces the rows of a batch query. A task that is run again produces its rows again (at least once).

    Raises:
        ValueError: A column or an option is wrong.
        ModuleNotFoundError: confluent-kafka is missing.
    """

    def __init__(self, schema: StructType, options: ProduceOptions) -> None:
        _import_client()
        self._columns = check_produce_columns(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsProduced:
        """Produce the rows of a task; it ends when the broker has acknowledged all of them.

        Raises:
            ProduceError: A record was not delivered; names topic, partition and row.
        """
        return RowsProduced(produce_rows(iterator, self._columns, self._options))


class ProduceStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not typed
    """Produces each micro-batch. One that is run again is produced again (at least once), as by Spark's own sink."""

    def __init__(self, schema: StructType, options: ProduceOptions) -> None:
        _import_client()
        self._columns = check_produce_columns(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsProduced:
        """As :meth:`ProduceWriter.write`."""
        return RowsProduced(produce_rows(iterator, self._columns, self._options))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: each task has waited for its acknowledgements."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing can be done: what was produced stays, and the batch is produced again when the query restarts."""


def produce_rows(batches: Iterator[pa.RecordBatch], columns: Sequence[str], options: ProduceOptions) -> int:
    """Produce rows and wait until each is acknowledged.

    Args:
        batches: With at least the columns.
        columns: Those that are produced.
        options: Of the client.

    Returns:
        How many.

    Raises:
        ProduceError: A record was not delivered, a topic is unknown or null, or no broker answers.
        ValueError: The client does not know an option.
    """
    delivery = _Delivery(options)
    for batch in batches:
        delivery.produce(batch, columns)
    delivery.finish()
    return delivery.rows


class _Delivery:
    """One producer, the topics that it has seen, and the first record that failed."""

    def __init__(self, options: ProduceOptions) -> None:
        self.rows = 0
        self._options = options
        self._client = _import_client()
        # Only failures are reported one by one: that nothing is left in the queue at the end says that the rest
        # arrived.
        config = {**DEFAULTS, **options.config, "delivery.report.only.error": True}
        try:
            self._producer: Any = self._client.Producer(config, logger=_silent())
        except self._client.KafkaException as error:
            message = f"options kafka.*: {error.args[0].str()}"
            raise ValueError(message) from None
        timeout_ms = options.config.get("delivery.timeout.ms") or options.config.get("message.timeout.ms")
        self._timeout_s = int(timeout_ms or DELIVERY_TIMEOUT_MS) / 1000 + FLUSH_MARGIN_S
        self._partitions: dict[str, int] = {}
        self._failure: str | None = None

    def produce(self, batch: pa.RecordBatch, columns: Sequence[str]) -> None:
        """Hand the rows of an Arrow batch to the client, which sends them meanwhile."""
        nothing: Sequence[None] = [None] * batch.num_rows
        values = {name: batch.column(name).to_pylist() for name in columns}
        topics = [self._options.topic] * batch.num_rows if self._options.topic else values["topic"]
        for topic in set(topics):
            self._check_topic(topic)
        rows = zip(
            topics,
            values.get("key", nothing),
            values["value"],
            values.get("partition", nothing),
            values.get("headers", nothing),
            strict=True,
        )
        for number, row in enumerate(rows, start=self.rows):
            self._produce_row(number, *row)
            if number % ROWS_BETWEEN_POLLS == 0:
                self._producer.poll(0)
                self._check()
        self.rows += batch.num_rows

    def _produce_row(self, number: int, topic: str, key: Any, value: Any, partition: int | None, headers: Any) -> None:
        arguments: dict[str, Any] = {}
        if partition is not None:
            if not 0 <= partition < self._partitions[topic]:
                message = (
                    f"row {number} of the task: topic {topic} has no partition {partition}, it has "
                    f"{self._partitions[topic]} partitions"
                )
                raise ProduceError(message)
            arguments["partition"] = partition
        if headers:
            arguments["headers"] = [(header["key"], header["value"]) for header in headers]
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._report, **arguments)
            except BufferError:
                # The queue is full: wait until the broker has taken something of it.
                self._producer.poll(0.1)
                self._check()
            except self._client.KafkaException as error:
                message = f"row {number} of the task, topic {topic}: {error.args[0].str()}"
                raise ProduceError(message) from None
            else:
                return

    def finish(self) -> None:
        """Wait until the broker has acknowledged every record."""
        waiting = self._producer.flush(self._timeout_s)
        self._check()
        if waiting:
            message = f"{waiting} records were not acknowledged within {self._timeout_s:.0f} s"
            raise ProduceError(message)

    def _report(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            partition = message.partition()
            where = f"partition {partition}" if partition >= 0 else "no partition chosen yet"
            self._failure = (
                f"a record was not delivered to topic {message.topic()}, {where}: {error.str()} (key "
                f"{_shown(message.key())}, value of {len(message.value() or b'')} bytes)"
            )

    def _check(self) -> None:
        if self._failure is not None:
            self._producer.purge()
            raise ProduceError(self._failure)

    def _check_topic(self, topic: str | None) -> None:
        """Wait until the broker knows a topic: it may be one that it makes on demand."""
        if topic is None:
            raise ProduceError("null topic present in the data. Use the topic option for setting a topic.")
        if topic in self._partitions:
            return
        servers = self._options.config["bootstrap.servers"]
        deadline = time.monotonic() + self._options.max_block_ms / 1000
        reason = "no broker answered"
        while (left := deadline - time.monotonic()) > 0:
            try:
                found = self._producer.list_topics(topic, timeout=max(left, 0.1)).topics[topic]
            except self._client.KafkaException as error:
                reason = f"no broker answered: {error.args[0].str()}"
            else:
                if found.error is None:
                    self._partitions[topic] = len(found.partitions)
                    return
                reason = found.error.str()
            time.sleep(min(0.1, max(0.0, deadline - time.monotonic())))
        message = (
            f"topic {topic} is not present in the metadata of {servers} after {self._options.max_block_ms} ms "
            f"(kafka.max.block.ms): {reason}"
        )
        raise ProduceError(message)


def _import_client() -> Any:
    require("produce", "producing to a broker")
    import confluent_kafka

    return confluent_kafka


def _silent() -> Any:
    """A logger for the client, whose words about lost connections go to logging and not to stderr."""
    import logging

    return logging.getLogger("kraftlog.spark.produce")


def _shown(key: bytes | None) -> str:
    limit = 60
    return "null" if key is None else repr(key[:limit])
