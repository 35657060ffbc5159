"""``producer-metrics``, ``producer-topic-metrics`` and those by node: what a producer does.

Source: ``SenderMetricsRegistry``, ``SenderMetrics`` and ``KafkaProducerMetrics`` of Kafka 4.3.1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from kraftlog.metrics.client_requests import ClientRequests
from kraftlog.metrics.rated import RatedCounters, SpentTimes, mean_and_maximum
from kraftlog.metrics.registry import MetricGroup, Metrics, Reading
from kraftlog.metrics.sensor import SampledSensor

__all__ = ["ProducerMetrics", "ProducerState"]

# API keys by name.
_KINDS = {
    "produce": ((0,), "Produce requests that were answered"),
    "metadata": ((3,), "Requests for metadata that were answered"),
}
_RECORDS = {
    "record-send": "Records sent, once for each batch",
    "record-retry": "Records sent again",
    "record-error": "Records that were not delivered",
}
_OF_TOPIC = {**_RECORDS, "byte": "Bytes of batches sent"}
# Calls whose time is added up, and what each does.
_CALLS = {
    "flush": "flush",
    "txn-init": "init_transactions",
    "txn-send-offsets": "send_offsets_to_transaction",
    "txn-commit": "commit_transaction",
    "txn-abort": "abort_transaction",
    "bufferpool-wait": "waiting for buffer.memory",
}


class ProducerState(NamedTuple):
    """A producer at one moment.

    Attributes:
        buffer_bytes: ``buffer.memory``.
        used_bytes: Those of records that are not acknowledged.
        requests_in_flight: Produce requests without an answer.
        waiting: Calls that wait for ``buffer.memory``.
    """

    buffer_bytes: int
    used_bytes: int
    requests_in_flight: int
    waiting: int


class ProducerMetrics:
    """Measures one producer; called on its event loop, once per batch or request, never per record.

    Args:
        counters: As for :class:`ClientRequests`.
        state: The producer; called on the thread of a reader.
        clock_ns: Monotonic clock.

    Attributes:
        requests: For the connections.
        timed: Gives a block whose time is that of a call: flush, txn-init and so on.
        snapshot: All metrics now; may be called on any thread.
    """

    def __init__(
        self,
        counters: Callable[[], tuple[int, ...]],
        state: Callable[[], ProducerState],
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._state = state
        self.requests = ClientRequests(counters, _KINDS, clock_ns=clock_ns)
        now_ms = self.requests.now_ms()
        self._records = RatedCounters(_RECORDS, now_ms)
        self._by_topic: dict[str, RatedCounters] = {}
        self._batch_bytes = SampledSensor()
        self._records_per_request = SampledSensor()
        self._queue_ms = SampledSensor()
        self._spent = SpentTimes(_CALLS, clock_ns)
        self.timed = self._spent.timed
        metrics = Metrics()
        for name, read in (
            ("producer-metrics", self._read_producer),
            ("producer-node-metrics", self.requests.read_nodes),
            ("producer-topic-metrics", self._read_topics),
        ):
            metrics.register(MetricGroup("kafka.producer", name, read))
        self.snapshot = metrics.snapshot

    # Events

    def on_request(self, record_count: int) -> None:
        """A request with so many records is sent."""
        self._records_per_request.record(record_count, self.requests.now_ms())

    def on_batch(self, topic: str, record_count: int, byte_count: int, queued_s: float | None) -> None:
        """A batch is sent.

        Args:
            topic: Where to.
            record_count: Its records.
            byte_count: Its bytes.
            queued_s: How long it waited; None when it is sent again.
        """
        now_ms = self.requests.now_ms()
        if queued_s is None:
            self._count(topic, "record-retry", record_count, now_ms)
            return
        self._count(topic, "record-send", record_count, now_ms)
        self._of_topic(topic, now_ms).add("byte", byte_count, now_ms)
        self._batch_bytes.record(byte_count, now_ms)
        self._queue_ms.record(queued_s * 1000, now_ms)

    def on_failure(self, topic: str, record_count: int) -> None:
        """Records were not delivered."""
        self._count(topic, "record-error", record_count, self.requests.now_ms())

    def _count(self, topic: str, name: str, count: int, now_ms: int) -> None:
        self._records.add(name, count, now_ms)
        self._of_topic(topic, now_ms).add(name, count, now_ms)

    def _of_topic(self, topic: str, now_ms: int) -> RatedCounters:
        found = self._by_topic.get(topic)
        if found is None:
            found = RatedCounters(_OF_TOPIC, now_ms)
            # Replaced as a whole: a reader on another thread may be going through it.
            self._by_topic = {**self._by_topic, topic: found}
        return found

    # Reading

    def _read_producer(self) -> list[Reading]:
        now_ms = self.requests.now_ms()
        state, of = self._state(), self.requests.by_kind
        produce = of["produce"]
        free_bytes = max(state.buffer_bytes - state.used_bytes, 0)
        return [
            *self._records.read(now_ms),
            *mean_and_maximum("batch-size", self._batch_bytes, "bytes of a batch", now_ms),
            *mean_and_maximum("record-queue-time", self._queue_ms, "time that a batch waited (ms)", now_ms),
            *mean_and_maximum("request-latency", produce.latency_ms, "time to the answer to a produce (ms)", now_ms),
            *mean_and_maximum("produce-throttle-time", produce.throttle_ms, "wait that a quota asked for (ms)", now_ms),
            Reading("records-per-request-avg", self._records_per_request.average(now_ms), "Mean records of a request"),
            Reading("requests-in-flight", state.requests_in_flight, "Produce requests without an answer"),
            Reading("buffer-total-bytes", state.buffer_bytes, "buffer.memory"),
            Reading("buffer-available-bytes", free_bytes, "What is left of buffer.memory"),
            Reading("waiting-threads", state.waiting, "Calls that wait for buffer.memory"),
            Reading("metadata-age", of["metadata"].seconds_since(now_ms), "Seconds since metadata came"),
            *self._spent.read(),
            *self.requests.read(),
        ]

    def _read_topics(self) -> list[Reading]:
        now_ms = self.requests.now_ms()
        return [
            reading
            for topic, counters in self._by_topic.items()
            for reading in counters.read(now_ms, (("topic", topic),))
        ]
