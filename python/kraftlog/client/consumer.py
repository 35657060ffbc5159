"""``kraftlog.Consumer``: the consumer for code without an event loop; it has a thread of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from kraftlog._kraftlog import ArrowBatch, ConsumerRecord
from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.group_subscription import RebalanceListener
from kraftlog.client.state.position import OffsetAndEpoch, OffsetAndMetadata, OffsetAndTime, PartitionInput
from kraftlog.client.state.topic_selection import PatternInput
from kraftlog.client.transactions import GroupMetadata
from kraftlog.config_input import ConfigInput
from kraftlog.extras import require
from kraftlog.metrics.registry import MetricsSnapshot
from kraftlog.own_thread import OwnThread
from kraftlog.types import TopicPartition

if TYPE_CHECKING:
    import duckdb
    import polars as pl

__all__ = ["Consumer"]


class Consumer:
    """Reads records of any Kafka cluster; use it with ``with``, or call ``close``.

    The connections belong to a thread that goes on fetching between the calls of ``poll``; methods may be called from
    any thread. Arguments and errors are those of :class:`AsyncConsumer`.

    Args:
        config: Kafka's dotted keys, such as ``bootstrap.servers``.
        columns: Columns of the batches, as for :func:`kraftlog.scan`.
        binary_type: Arrow type of keys and values: binary, large_binary or binary_view.
        timestamp_unit: ``ms`` or ``us``.
        topic_dictionary: Topic names as a dictionary column.
        **settings: The same keys with underscores for dots.

    Example:
        >>> import kraftlog
        >>> with kraftlog.Broker() as broker, kraftlog.Consumer(
        ...     bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ... ) as consumer:
        ...     consumer.assign([("orders", 0)])
        ...     batch = consumer.poll(timeout_s=0)
        >>> batch is None
        True
    """

    def __init__(
        self,
        config: Mapping[str, ConfigInput] | None = None,
        *,
        columns: Sequence[str] | None = None,
        binary_type: Literal["binary", "large_binary", "binary_view"] = "binary",
        timestamp_unit: Literal["ms", "us"] = "ms",
        topic_dictionary: bool = False,
        **settings: ConfigInput,
    ) -> None:
        self._async = AsyncConsumer(
            config,
            columns=columns,
            binary_type=binary_type,
            timestamp_unit=timestamp_unit,
            topic_dictionary=topic_dictionary,
            row_options=None,
            **settings,
        )
        self._close_options: dict[str, Any] = {}
        self._thread = OwnThread("kraftlog-consumer", self._async.start, self._end)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._async.note_failure()
        self.close()

    def close(self, *, timeout_s: float = 30.0, leave_group: bool | None = None) -> None:
        """As :meth:`AsyncConsumer.close`; a second call does nothing. A ``poll`` on another thread raises."""
        self._close_options = {"timeout_s": timeout_s, "leave_group": leave_group}
        self._thread.stop()

    async def _end(self) -> None:
        await self._async.close(**self._close_options)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            result = getattr(self._async, name)(*args, **kwargs)
            return await result if hasattr(result, "__await__") else result

        return self._thread.call(run, what="consumer")

    def assign(self, partitions: Collection[PartitionInput]) -> None:
        """As :meth:`AsyncConsumer.assign`."""
        self._call("assign", partitions)

    def subscribe(
        self,
        topics: Collection[str] | None = None,
        *,
        pattern: PatternInput | None = None,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """As :meth:`AsyncConsumer.subscribe`; listeners run on the consumer's thread and must not call it."""
        self._call("subscribe", topics, pattern=pattern, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def unsubscribe(self) -> None:
        """As :meth:`AsyncConsumer.unsubscribe`."""
        self._call("unsubscribe")

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        """As :meth:`AsyncConsumer.enforce_rebalance`."""
        self._call("enforce_rebalance", reason)

    def wakeup(self) -> None:
        """As :meth:`AsyncConsumer.wakeup`; for example, in a signal handler."""
        self._async.wakeup()

    @property
    def subscription(self) -> tuple[str, ...]:
        """As :attr:`AsyncConsumer.subscription`."""
        return self._async.subscription

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        return self._async.assignment

    def seek(self, partition: PartitionInput, offset: int, *, leader_epoch: int | None = None) -> None:
        """As :meth:`AsyncConsumer.seek`."""
        self._call("seek", partition, offset, leader_epoch=leader_epoch)

    def seek_to_beginning(self, partitions: Collection[PartitionInput]) -> None:
        """As :meth:`AsyncConsumer.seek_to_beginning`."""
        self._call("seek_to_beginning", partitions)

    def seek_to_end(self, partitions: Collection[PartitionInput]) -> None:
        """As :meth:`AsyncConsumer.seek_to_end`."""
        self._call("seek_to_end", partitions)

    def position(self, partition: PartitionInput, *, timeout_s: float = 30.0) -> OffsetAndEpoch:
        """As :meth:`AsyncConsumer.position`."""
        found: OffsetAndEpoch = self._call("position", partition, timeout_s=timeout_s)
        return found

    def current_lag(self, partition: PartitionInput) -> int | None:
        """As :meth:`AsyncConsumer.current_lag`."""
        lag: int | None = self._call("current_lag", partition)
        return lag

    def metrics(self) -> MetricsSnapshot:
        """As :meth:`AsyncConsumer.metrics`."""
        return self._async.metrics()

    def pause(self, partitions: Collection[PartitionInput]) -> None:
        """As :meth:`AsyncConsumer.pause`."""
        self._call("pause", partitions)

    def resume(self, partitions: Collection[PartitionInput]) -> None:
        """As :meth:`AsyncConsumer.resume`."""
        self._call("resume", partitions)

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return self._async.paused

    def poll(self, timeout_s: float | None = None) -> ArrowBatch | None:
        """As :meth:`AsyncConsumer.poll`."""
        batch: ArrowBatch | None = self._call("poll", timeout_s)
        return batch

    def poll_records(self, timeout_s: float | None = None) -> list[ConsumerRecord]:
        """As :meth:`AsyncConsumer.poll_records`."""
        records: list[ConsumerRecord] = self._call("poll_records", timeout_s)
        return records

    def batches(self, *, idle_s: float | None = None) -> Iterator[ArrowBatch]:
        """Batches one after the other; ends when none came for ``idle_s`` seconds, never when it is None."""
        while (batch := self.poll(idle_s)) is not None:
            yield batch

    def records(self, *, idle_s: float | None = None) -> Iterator[ConsumerRecord]:
        """Records one after the other, as ``for`` over the consumer itself; ends as ``batches`` does."""
        while found := self.poll_records(idle_s):
            yield from found

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self.records()

    def polars(self, *, idle_s: float = 1.0, rows: int | None = None) -> pl.DataFrame:
        """What comes from here on as a Polars data frame.

        Args:
            idle_s: Ends when nothing came for so many seconds.
            rows: Ends after the batch with which there are so many rows.

        Raises:
            ModuleNotFoundError: polars is not installed; the text names the pip command.
        """
        require("polars", "Consumer.polars()")
        import polars as pl

        frames = [pl.DataFrame(batch) for batch in self._until(idle_s, rows)]
        return pl.concat(frames) if frames else pl.DataFrame()

    def to_duckdb(
        self,
        connection: duckdb.DuckDBPyConnection,
        table: str,
        *,
        idle_s: float = 1.0,
        rows: int | None = None,
    ) -> int:
        """Put what comes from here on into a DuckDB table, which is made from the first batch if it is new.

        Returns:
            The number of rows.

        Raises:
            ModuleNotFoundError: duckdb or pyarrow is not installed; the text names the pip command.
        """
        require("duckdb", "Consumer.to_duckdb()")
        require("arrow", "Consumer.to_duckdb()")
        import pyarrow as pa

        quoted = '"' + table.replace('"', '""') + '"'
        count = 0
        for batch in self._until(idle_s, rows):
            connection.register("kraftlog_batch", pa.table(pa.record_batch(batch)))
            connection.execute(f"CREATE TABLE IF NOT EXISTS {quoted} AS FROM kraftlog_batch LIMIT 0")
            connection.execute(f"INSERT INTO {quoted} FROM kraftlog_batch")
            connection.unregister("kraftlog_batch")
            count += len(batch)
        return count

    def _until(self, idle_s: float, rows: int | None) -> Iterator[ArrowBatch]:
        count = 0
        for batch in self.batches(idle_s=idle_s):
            yield batch
            count += len(batch)
            if rows is not None and count >= rows:
                return

    def offsets_for_times(
        self, timestamps: Mapping[PartitionInput, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        """As :meth:`AsyncConsumer.offsets_for_times`."""
        found: dict[TopicPartition, OffsetAndTime | None] = self._call(
            "offsets_for_times", timestamps, timeout_s=timeout_s
        )
        return found

    def beginning_offsets(
        self, partitions: Collection[PartitionInput], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """As :meth:`AsyncConsumer.beginning_offsets`."""
        found: dict[TopicPartition, int] = self._call("beginning_offsets", partitions, timeout_s=timeout_s)
        return found

    def end_offsets(
        self, partitions: Collection[PartitionInput], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """As :meth:`AsyncConsumer.end_offsets`."""
        found: dict[TopicPartition, int] = self._call("end_offsets", partitions, timeout_s=timeout_s)
        return found

    def list_topics(self, *, timeout_s: float | None = None) -> dict[str, tuple[int, ...]]:
        """As :meth:`AsyncConsumer.list_topics`."""
        found: dict[str, tuple[int, ...]] = self._call("list_topics", timeout_s=timeout_s)
        return found

    def partitions_for(self, topic: str, *, timeout_s: float | None = None) -> list[TopicPartition]:
        """As :meth:`AsyncConsumer.partitions_for`."""
        found: list[TopicPartition] = self._call("partitions_for", topic, timeout_s=timeout_s)
        return found

    def commit(
        self,
        offsets: Mapping[PartitionInput, OffsetAndMetadata | int] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """As :meth:`AsyncConsumer.commit`."""
        self._call("commit", offsets, timeout_s=timeout_s)

    @property
    def group_metadata(self) -> GroupMetadata:
        """As :attr:`AsyncConsumer.group_metadata`."""
        return self._async.group_metadata

    def committed(
        self, partitions: Collection[PartitionInput], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """As :meth:`AsyncConsumer.committed`."""
        found: dict[TopicPartition, OffsetAndMetadata] = self._call("committed", partitions, timeout_s=timeout_s)
        return found
