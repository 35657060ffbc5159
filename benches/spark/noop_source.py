"""A data source that gives one Arrow batch again and again: what the way into Spark costs by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

BATCH_ROWS = 16384


class NoopSource(DataSource):
    """Options rows (of all tasks), tasks and valueBytes; the column value."""

    @classmethod
    def name(cls) -> str:
        return "noop-values"

    def schema(self) -> str:
        return "value binary"

    def reader(self, schema: Any) -> NoopReader:
        return NoopReader(int(self.options["rows"]), int(self.options["tasks"]), int(self.options["valueBytes"]))


class NoopReader(DataSourceReader):
    def __init__(self, rows: int, tasks: int, value_bytes: int) -> None:
        self.rows, self.tasks, self.value_bytes = rows, tasks, value_bytes

    def partitions(self) -> list[InputPartition]:
        each, more = divmod(self.rows, self.tasks)
        return [InputPartition(each + (task < more)) for task in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        # The same bounds of a batch as those of our scans.
        size = min(BATCH_ROWS, (8 << 20) // self.value_bytes)
        batch = pa.record_batch({"value": pa.array([b"x" * self.value_bytes] * size, pa.binary())})
        left = partition.value
        while left > 0:
            yield batch if left >= size else batch.slice(0, left)
            left -= size
