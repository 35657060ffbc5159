"""Delivery states of ranges of offsets, and how newer ones replace older ones.

Source: ``org.apache.kafka.coordinator.share.PersisterStateBatchCombiner``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

__all__ = ["RecordState", "StateBatch", "combine"]


class RecordState(IntEnum):
    """States of a record in a share partition; 3 is reserved by Kafka for archiving."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        """Whether the record is never delivered again."""
        return self in {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}


@dataclass(frozen=True, slots=True)
class StateBatch:
    """A range of offsets, both inclusive, with one state and delivery count."""

    first: int
    last: int
    state: int
    delivery_count: int


def combine(current: Iterable[StateBatch], newer: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """One state for each offset from ``start_offset`` on; neighbours with equal states are joined.

    Of two states of an offset the newer one has the higher delivery count, or the same count and a higher state:
    nothing leads back from a final state.

    Args:
        current: What is known.
        newer: What is reported now; batches may overlap.
        start_offset: What lies below is dropped; -1 keeps everything.
    """
    batches = sorted(
        (
            StateBatch(max(batch.first, start_offset), batch.last, batch.state, batch.delivery_count)
            for batch in (*current, *newer)
            if batch.last >= start_offset
        ),
        key=lambda batch: batch.first,
    )
    points = sorted({point for batch in batches for point in (batch.first, batch.last + 1)})
    found: list[StateBatch] = []
    active: list[tuple[int, int, int]] = []
    position = 0
    for first, end in pairwise(points):
        while position < len(batches) and batches[position].first <= first:
            batch = batches[position]
            heapq.heappush(active, (-batch.delivery_count, -batch.state, batch.last))
            position += 1
        while active and active[0][2] < first:
            heapq.heappop(active)
        if not active:
            continue
        count, state = -active[0][0], -active[0][1]
        before = found[-1] if found else None
        if before is not None and (before.last + 1, before.state, before.delivery_count) == (first, state, count):
            found[-1] = StateBatch(before.first, end - 1, state, count)
        else:
            found.append(StateBatch(first, end - 1, state, count))
    return tuple(found)
