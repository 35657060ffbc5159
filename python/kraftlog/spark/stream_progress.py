"""Lag in the progress of a streaming query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kraftlog.spark.stream_offsets import PartitionKey, StreamOffset

__all__ = ["StreamLag", "stream_lag"]


@dataclass(frozen=True, slots=True)
class StreamLag:
    """Offsets that were there when a batch was planned, and are behind its end.

    Args:
        partitions: By topic and partition. Offsets are no records: those of compacted and control records count.
    """

    partitions: Mapping[PartitionKey, int]

    @property
    def topics(self) -> dict[str, int]:
        """By topic."""
        lags: dict[str, int] = {}
        for (topic, _), lag in self.partitions.items():
            lags[topic] = lags.get(topic, 0) + lag
        return lags

    @property
    def total(self) -> int:
        """Of all partitions."""
        return sum(self.partitions.values())


def stream_lag(progress: Any) -> StreamLag:
    """The lag in the progress of a query that reads with this source; needs PySpark 4.2 or later.

    Args:
        progress: ``query.lastProgress``, ``event.progress`` of a StreamingQueryListener, or the parsed JSON of one.

    Raises:
        ValueError: The progress has no offsets of this source.
    """
    document = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    lags: dict[PartitionKey, int] = {}
    is_found = False
    for source in document.get("sources", ()):
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        is_found = True
        for key, position in latest.positions.items():
            read = end.positions.get(key)
            # A partition that is newer than the batch is unread from its start, which the progress does not say.
            lag = max(position.offset - (0 if read is None else read.offset), 0)
            lags[key] = lags.get(key, 0) + lag
    if not is_found:
        raise ValueError("no source of the progress has the offsets of the kraftlog source: Spark 4.1, or another one")
    return StreamLag(lags)


def _offset(value: Any) -> StreamOffset | None:
    try:
        document = json.loads(value) if isinstance(value, str) else value
        return StreamOffset.from_json(document)
    except (ValueError, AttributeError):
        return None
