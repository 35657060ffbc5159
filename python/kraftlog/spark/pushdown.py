"""Filters that Spark hands down: what of them planning and reading can use.

What is used in full is not handed back; of a bound that only narrows what is read, Spark filters the rows again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from kraftlog.spark.columns import find_column
from kraftlog.spark.options import SourceOptions
from kraftlog.spark.plan import Narrowing

__all__ = ["take_filters"]

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
# Columns that can be null: whether they are is for Spark to see.
_NULLABLE = frozenset({"key", "value", "headers", "keyLength", "valueLength", "compression"})


def take_filters(filters: Sequence[Filter], options: SourceOptions) -> tuple[Narrowing, SourceOptions, list[Filter]]:
    """What to read by conditions that all have to hold.

    Args:
        filters: As Spark gives them to ``pushFilters``.
        options: Time bounds of the filters are added to its own.

    Returns:
        What to plan and to read, the options with their times, and the filters that Spark has to apply itself.
    """
    narrowing = Narrowing()
    left: list[Filter] = []
    for filter_ in filters:
        taken = _take(filter_, narrowing, options)
        if taken is None:
            left.append(filter_)
            continue
        narrowing, options, is_done = taken
        if not is_done:
            left.append(filter_)
    return narrowing, options, left


def _take(one: Filter, narrowing: Narrowing, options: SourceOptions) -> tuple[Narrowing, SourceOptions, bool] | None:
    """The filter taken in, and whether it needs no other look; None when it is of no use."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    if len(attribute) != 1:
        return None
    try:
        column = find_column(attribute[0]).name
    except ValueError:
        return None
    if isinstance(one, IsNotNull):
        return None if column in _NULLABLE else (narrowing, options, True)
    if column in {"topic", "partition"}:
        test = _test(one, str if column == "topic" else int)
        if test is None:
            return None
        if column == "topic":
            narrowing = replace(narrowing, topic_tests=(*narrowing.topic_tests, test))
        else:
            narrowing = replace(narrowing, partition_tests=(*narrowing.partition_tests, test))
        return narrowing, options, True
    if column == "offset":
        bounds = _bounds(one, _integer)
        if bounds is None:
            return None
        narrowing = replace(
            narrowing,
            start_offset=_largest(narrowing.start_offset, bounds[0]),
            end_offset=_smallest(narrowing.end_offset, bounds[1]),
        )
        return narrowing, options, not isinstance(one, In)
    if column == "timestamp":
        return _take_time(one, narrowing, options)
    if column == "key":
        return _take_key(one, narrowing, options)
    return None


@dataclass(frozen=True, slots=True)
class _Test:
    """One condition on a topic or a partition number."""

    operator: str
    values: tuple[Any, ...]

    def __call__(self, value: Any) -> bool:
        if self.operator == "in":
            return value in self.values
        (bound,) = self.values
        return bool(
            {
                ">": value > bound,
                ">=": value >= bound,
                "<": value < bound,
                "<=": value <= bound,
            }[self.operator]
        )


_OPERATORS = {GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}


def _test(one: Filter, kind: type) -> _Test | None:
    values = _values(one)
    if values is None or not all(type(value) is kind for value in values):
        return None
    return _Test(_OPERATORS.get(type(one), "in"), values)


def _values(one: Filter) -> tuple[Any, ...] | None:
    """What a filter compares with; a null in a list matches nothing."""
    if isinstance(one, In):
        return tuple(value for value in one.value if value is not None)
    if isinstance(one, EqualTo) or type(one) in _OPERATORS:
        return (one.value,)
    return None


def _bounds(one: Filter, to_steps: Callable[[Any], tuple[int, int] | None]) -> tuple[int | None, int | None] | None:
    """Inclusive start and exclusive end of the whole numbers that can match.

    Args:
        one: The filter.
        to_steps: The largest whole number at or before a value, and the least at or after it; None for what is none.
    """
    values = _values(one)
    if values is None:
        return None
    steps = [to_steps(value) for value in values]
    known = [step for step in steps if step is not None]
    if len(known) < len(steps):
        return None
    if not known:
        return 0, 0
    floor, ceiling = known[0]
    if isinstance(one, GreaterThan):
        return floor + 1, None
    if isinstance(one, GreaterThanOrEqual):
        return ceiling, None
    if isinstance(one, LessThan):
        return None, ceiling
    if isinstance(one, LessThanOrEqual):
        return None, floor + 1
    return min(step[1] for step in known), max(step[0] for step in known) + 1


def _integer(value: Any) -> tuple[int, int] | None:
    return (value, value) if type(value) is int else None


def _millisecond(value: Any) -> tuple[int, int] | None:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    micros = (value - _EPOCH) // dt.timedelta(microseconds=1)
    return micros // 1000, -(-micros // 1000)


def _take_time(
    one: Filter, narrowing: Narrowing, options: SourceOptions
) -> tuple[Narrowing, SourceOptions, bool] | None:
    bounds = _bounds(one, _millisecond)
    if bounds is None:
        return None
    options = replace(
        options,
        from_timestamp=_largest(options.from_timestamp, bounds[0]),
        to_timestamp=_smallest(options.to_timestamp, bounds[1]),
    )
    return narrowing, options, False


def _take_key(
    one: Filter, narrowing: Narrowing, options: SourceOptions
) -> tuple[Narrowing, SourceOptions, bool] | None:
    if not isinstance(one, EqualTo | In):
        return None
    values = _values(one)
    if values is None or not all(isinstance(value, bytes | bytearray) for value in values):
        return None
    keys = frozenset(map(bytes, values))
    if narrowing.keys is not None:
        keys &= narrowing.keys
    return replace(narrowing, keys=keys), options, True


def _largest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _smallest(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
