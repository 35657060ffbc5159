"""One pass over ranges of a live cluster: a consumer that reads partition after partition up to fixed offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

from kraftlog._kraftlog import ArrowBatch
from kraftlog.client import AsyncConsumer
from kraftlog.client.state.position import PartitionInput
from kraftlog.own_thread import OwnThread
from kraftlog.reading.scan_options import ScanOptions, ScanSource
from kraftlog.types import TopicPartition

__all__ = ["EARLIEST", "ClusterPass"]

# As a start offset: the first one that the partition has when a pass begins.
EARLIEST = -2
# One partition is read at a time: an answer should hold more of it than of one among many.
PARTITION_FETCH_BYTES = 8 << 20
_T = TypeVar("_T")


class ClusterPass:
    """Use it with ``with``; the connections end with it.

    Args:
        settings: Kafka's dotted keys of a consumer; what a bounded read decides itself is set here.
        options: What the rows look like.

    Raises:
        ClientConfigError: A setting is unknown or has no such value.
        ValueError: A column does not exist.
    """

    def __init__(self, settings: Mapping[str, str], options: ScanOptions) -> None:
        self._options = options
        self._ends: dict[TopicPartition, int] = {}
        self._consumer = AsyncConsumer(
            {
                "max.partition.fetch.bytes": PARTITION_FETCH_BYTES,
                **settings,
                # A position that the log does not have, or no longer agrees with, is an error and not another range.
                "auto.offset.reset": "none",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "isolation.level": options.isolation_level,
                "check.crcs": options.check_crc,
                "max.poll.records": min(options.batch_rows, 2**31 - 1),
            },
            columns=options.columns,
            binary_type=options.binary_type,
            timestamp_unit=options.timestamp_unit,
            topic_dictionary=options.topic_dictionary,
            row_options={
                "empty_headers_null": options.empty_headers_null,
                "batch_bytes": options.batch_bytes,
                "from_timestamp": options.from_timestamp,
                "to_timestamp": options.to_timestamp,
            },
        )
        self._thread = OwnThread("kraftlog-read", self._consumer.start, self._consumer.close)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.stop()

    def call(self, work: Callable[[AsyncConsumer], Awaitable[_T]]) -> _T:
        """Run a coroutine of the consumer on its thread."""

        async def run() -> _T:
            return await work(self._consumer)

        return self._thread.call(run, what="read")

    def bounded(self, sources: Sequence[ScanSource]) -> list[ScanSource]:
        """The sources between the offsets that the cluster has now, without those that have nothing to read.

        The end is the high watermark, with read_committed the last stable offset, or the end of the source where that
        is earlier. With ``from_timestamp`` a source begins at the first record that is as late.

        Raises:
            KafkaError: A topic or partition does not exist, or may not be read.
            TimeoutError: No leader answered.
        """
        names = [TopicPartition(source.topic, source.partition) for source in sources]
        ends = self.call(lambda consumer: consumer.end_offsets(names))
        implicit = [name for name, source in zip(names, sources, strict=True) if source.start_offset == EARLIEST]
        starts = self.call(lambda consumer: consumer.beginning_offsets(implicit)) if implicit else {}
        from_timestamp = self._options.from_timestamp
        firsts: Mapping[TopicPartition, Any] = {}
        if from_timestamp is not None and from_timestamp >= 0:
            asked: dict[PartitionInput, int] = dict.fromkeys(names, from_timestamp)
            firsts = self.call(lambda consumer: consumer.offsets_for_times(asked))
        found = []
        for name, source in zip(names, sources, strict=True):
            start = starts.get(name, source.start_offset)
            end = ends[name] if source.end_offset is None else min(ends[name], source.end_offset)
            if name in firsts:
                start = end if firsts[name] is None else max(start, firsts[name].offset)
            if start < end:
                found.append(replace(source, start_offset=start, end_offset=end))
        return found

    def batches(self, sources: Sequence[ScanSource]) -> Iterator[ArrowBatch]:
        """The rows of sources that :meth:`bounded` gave, in their order.

        Raises:
            OffsetOutOfRangeError: The cluster has deleted the first records of a range.
            LogTruncationError: The cluster has lost records of a range while it was read.
            CorruptRecordError: A batch cannot be read.
            KafkaError: A broker refuses.
            TimeoutError: Nothing came for ``request.timeout.ms``, although the partition goes on.
        """
        for source in sources:
            assert source.end_offset is not None
            name, end_offset = TopicPartition(source.topic, source.partition), source.end_offset
            self.call(lambda consumer, name=name, source=source: _begin(consumer, name, source))  # type: ignore[misc]

            async def next_rows(
                consumer: AsyncConsumer, name: TopicPartition = name, end_offset: int = end_offset
            ) -> ArrowBatch | None:
                return await consumer.poll_before(name, end_offset)

            while (batch := self.call(next_rows)) is not None:
                yield batch


async def _begin(consumer: AsyncConsumer, name: TopicPartition, source: ScanSource) -> None:
    consumer.assign([name])
    consumer.decode_until(source.end_offset)
    consumer.resume([name])
    consumer.seek(name, source.start_offset)
