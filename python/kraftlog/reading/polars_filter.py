"""What a predicate of Polars leaves of offsets, timestamps, topics and partitions.

Polars takes expressions apart (``meta.pop``) without naming the operation that held the parts together. So an operation
is guessed: it is built again from the parts, and counts only if Polars calls the two expressions equal. What is not
recognised leaves everything, and the predicate is applied to the rows all the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import polars as pl

from kraftlog.reading.bounds import Bounds

__all__ = ["Allowed", "allowed_by"]

Interval: TypeAlias = tuple[int | None, int | None]
Closed: TypeAlias = Literal["both", "left", "right", "none"]

_ALL: Interval = (None, None)
_COMPARISONS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.eq,
    operator.ge,
    operator.gt,
    operator.le,
    operator.lt,
    pl.Expr.eq_missing,
)
_MIRRORED = {operator.ge: operator.le, operator.gt: operator.lt, operator.le: operator.ge, operator.lt: operator.gt}
_CLOSED: tuple[Closed, ...] = ("both", "left", "right", "none")


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may pass a predicate.

    Args:
        offsets: First and exclusive end; None for no bound.
        timestamps: The same, in the unit of the column.
        partitions: Whether rows of a topic and partition may; None when all may.
    """

    offsets: Interval = _ALL
    timestamps: Interval = _ALL
    partitions: Callable[[str, int], bool] | None = None

    def bounds(self, unit: str) -> Bounds:
        """For a scan whose timestamps have this unit, ``ms`` or ``us``."""
        first, end = self.timestamps
        factor = 1000 if unit == "us" else 1
        return Bounds(
            start_offset=self.offsets[0],
            end_offset=self.offsets[1],
            # Whole milliseconds that are no earlier: what is before them is before the bound too.
            from_timestamp=None if first is None else -(-first // factor),
            to_timestamp=None if end is None else -(-end // factor),
        )

    def __and__(self, other: Allowed) -> Allowed:
        return Allowed(
            _common(self.offsets, other.offsets),
            _common(self.timestamps, other.timestamps),
            _both(self.partitions, other.partitions, lambda one, two: one and two),
        )

    def __or__(self, other: Allowed) -> Allowed:
        either = None
        if self.partitions is not None and other.partitions is not None:
            either = _both(self.partitions, other.partitions, lambda one, two: one or two)
        return Allowed(_hull(self.offsets, other.offsets), _hull(self.timestamps, other.timestamps), either)


def allowed_by(predicate: pl.Expr) -> Allowed:
    """What may pass; more than what does pass, never less."""
    parts = predicate.meta.pop()[::-1]
    if len(parts) == 2:
        left, right = parts
        if predicate.meta.eq(left & right):
            return allowed_by(left) & allowed_by(right)
        if predicate.meta.eq(left | right):
            return allowed_by(left) | allowed_by(right)
        for compare in _COMPARISONS:
            if predicate.meta.eq(compare(left, right)):
                return _comparison(left, right, compare)
        if predicate.meta.eq(left.is_in(right)) and left.meta.is_column() and right.meta.is_literal():
            return _membership(left.meta.output_name(), pl.select(right).to_series())
    if len(parts) == 3 and parts[0].meta.is_column():
        column, low, high = parts
        for closed in _CLOSED:
            if predicate.meta.eq(column.is_between(low, high, closed=closed)):
                above = operator.ge if closed in {"both", "left"} else operator.gt
                below = operator.le if closed in {"both", "right"} else operator.lt
                return _comparison(column, low, above) & _comparison(column, high, below)
    return Allowed()


def _comparison(left: pl.Expr, right: pl.Expr, compare: Callable[[Any, Any], Any]) -> Allowed:
    if right.meta.is_column():
        left, right, compare = right, left, _MIRRORED.get(compare, compare)
    if not (left.meta.is_column() and right.meta.is_literal()):
        return Allowed()
    name, literal = left.meta.output_name(), pl.select(right).to_series()
    if len(literal) != 1 or literal[0] is None:
        return Allowed()
    if compare is pl.Expr.eq_missing:
        compare = operator.eq
    if name in {"topic", "partition"} and isinstance(literal[0], str if name == "topic" else int):
        wanted = literal[0]
        return Allowed(partitions=lambda topic, number: bool(compare(topic if name == "topic" else number, wanted)))
    value = _number(name, literal)
    if value is None:
        return Allowed()
    intervals: dict[Callable[[Any, Any], Any], Interval] = {
        operator.eq: (value, value + 1),
        operator.ge: (value, None),
        operator.gt: (value + 1, None),
        operator.le: (None, value + 1),
        operator.lt: (None, value),
    }
    return _within(name, intervals[compare])


def _membership(name: str, values: pl.Series) -> Allowed:
    if isinstance(values.dtype, pl.List) and len(values) == 1:
        values = values.explode()
    values = values.drop_nulls()
    if name in {"topic", "partition"} and (values.dtype == pl.String if name == "topic" else values.dtype.is_integer()):
        wanted = set(values.to_list())
        return Allowed(partitions=lambda topic, number: (topic if name == "topic" else number) in wanted)
    if values.is_empty():
        return Allowed()
    least, most = _number(name, values.sort().head(1)), _number(name, values.sort().tail(1))
    return Allowed() if least is None or most is None else _within(name, (least, most + 1))


def _number(name: str, literal: pl.Series) -> int | None:
    """A literal that stands beside an offset or a timestamp, which Polars has given the unit of the column."""
    if name == "offset" and literal.dtype.is_integer():
        return int(literal[0])
    if name == "timestamp" and isinstance(literal.dtype, pl.Datetime) and literal.dtype.time_unit in {"ms", "us"}:
        return int(literal.to_physical()[0])
    return None


def _within(name: str, interval: Interval) -> Allowed:
    return Allowed(offsets=interval) if name == "offset" else Allowed(timestamps=interval)


def _common(one: Interval, other: Interval) -> Interval:
    firsts = [first for first in (one[0], other[0]) if first is not None]
    ends = [end for end in (one[1], other[1]) if end is not None]
    return max(firsts, default=None), min(ends, default=None)


def _hull(one: Interval, other: Interval) -> Interval:
    first = None if one[0] is None or other[0] is None else min(one[0], other[0])
    end = None if one[1] is None or other[1] is None else max(one[1], other[1])
    return first, end


def _both(
    one: Callable[[str, int], bool] | None,
    other: Callable[[str, int], bool] | None,
    join: Callable[[bool, bool], bool],
) -> Callable[[str, int], bool] | None:
    if one is None or other is None:
        return one or other
    return lambda topic, number: join(one(topic, number), other(topic, number))
