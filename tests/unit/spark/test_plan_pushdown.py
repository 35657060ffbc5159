"""Filters that Spark hands down: the rows are those that Spark would keep, and what is not exact goes back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from kraftlog.spark.options import SourceOptions
from kraftlog.spark.plan import plan_tasks, read_range
from partition_files import write_log

pytest.importorskip("pyspark", reason="pip install kraftlog[spark]: filters are PySpark's classes")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kraftlog.spark.pushdown import take_filters

COLUMNS = ["topic", "partition", "offset", "timestamp", "key"]


def at(milliseconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=milliseconds)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pushdown")
    for name in ("a-0", "a-1", "a-2", "b-0"):
        write_log(path / name, end=60, segment=30)
    return path


def holds(one: Filter, row: dict[str, Any]) -> bool:
    """What Spark would say of a row."""
    value = row[one.attribute[0]]
    if isinstance(one, In):
        return value in [other for other in one.value if other is not None]
    tests = {
        EqualTo: lambda: value == one.value,
        GreaterThan: lambda: value > one.value,
        GreaterThanOrEqual: lambda: value >= one.value,
        LessThan: lambda: value < one.value,
        LessThanOrEqual: lambda: value <= one.value,
        IsNotNull: lambda: value is not None,
    }
    return bool(tests[type(one)]())


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([EqualTo(("partition",), 1)], 0),
        ([In(("partition",), (2, None, 7))], 0),
        ([GreaterThan(("partition",), 0), LessThan(("partition",), 2), IsNotNull(("partition",))], 0),
        ([EqualTo(("topic",), "a"), LessThanOrEqual(("partition",), 0)], 0),
        ([GreaterThanOrEqual(("topic",), "b")], 0),
        ([In(("topic",), ("b", "c"))], 0),
        ([EqualTo(("offset",), 31)], 0),
        ([GreaterThan(("offset",), 31), LessThanOrEqual(("offset",), 33)], 0),
        ([GreaterThanOrEqual(("offset",), 29), LessThan(("offset",), 31), EqualTo(("partition",), 0)], 0),
        ([LessThan(("offset",), 3), GreaterThan(("offset",), 9)], 0),
        ([In(("offset",), (3, 59, 40, None))], 1),
        ([In(("offset",), (None,))], 1),
        ([EqualTo(("timestamp",), at(1031))], 1),
        ([GreaterThan(("timestamp",), at(1031)), LessThan(("timestamp",), at(1034.001))], 2),
        ([GreaterThanOrEqual(("timestamp",), at(1030.5)), LessThanOrEqual(("timestamp",), at(1034.999))], 2),
        ([In(("timestamp",), (at(1001), at(1044)))], 1),
        ([EqualTo(("key",), b"k000031")], 0),
        ([In(("key",), (b"k000031", b"k000059", None, b"x")), EqualTo(("topic",), "a")], 0),
        ([EqualTo(("key",), b"k000031"), EqualTo(("key",), b"k000032")], 0),
        ([IsNotNull(("key",))], 1),
    ],
)
def test_rows_are_those_that_the_filters_keep(log_dir: Path, filters: list[Filter], left: int) -> None:
    given = SourceOptions.parse({"path": str(log_dir)})

    def rows(tasks: Any, options: SourceOptions, **more: Any) -> list[dict[str, Any]]:
        return [
            row for task in tasks for batch in read_range(task, options, COLUMNS, **more) for row in batch.to_pylist()
        ]

    everything = rows(plan_tasks(given), given)
    assert len(everything) == 240
    narrowing, options, rest = take_filters(filters, given)
    assert len(rest) == left
    found = rows(plan_tasks(options, narrowing), options, keys=narrowing.keys)
    expected = [row for row in everything if all(holds(filter_, row) for filter_ in filters)]
    # Spark applies what it is given back.
    assert [row for row in found if all(holds(condition, row) for condition in rest)] == expected
    if not any(isinstance(condition, IsNotNull) for condition in rest):
        assert len(found) < len(everything)


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("partition",), 1)),
        EqualNullSafe(("partition",), 1),
        IsNull(("key",)),
        IsNotNull(("value",)),
        StringStartsWith(("topic",), "a"),
        EqualTo(("partition",), None),
        EqualTo(("partition",), True),
        EqualTo(("partition",), 1.5),
        EqualTo(("offset",), 1.0),
        EqualTo(("topic",), b"a"),
        EqualTo(("timestamp",), dt.datetime(2020, 1, 1)),  # noqa: DTZ001 - without a zone, on purpose
        EqualTo(("key",), "k"),
        GreaterThan(("key",), b"k"),
        EqualTo(("value",), b"v"),
        EqualTo(("headers", "key"), "h"),
        EqualTo(("missing",), 1),
    ],
)
def test_what_cannot_be_used_goes_back(one: Filter) -> None:
    given = SourceOptions.parse({"path": "logs"})
    narrowing, options, rest = take_filters([one], given)
    assert rest == [one]
    assert options == given
    assert narrowing.apply({("a", 0): (3, 9)}) == {("a", 0): (3, 9)}
    assert narrowing.keys is None


def test_filters_add_to_the_times_of_the_options() -> None:
    given = SourceOptions.parse({"path": "logs", "fromTimestamp": "1000", "toTimestamp": "2000"})
    bounds = [GreaterThan(("timestamp",), at(500)), LessThan(("timestamp",), at(1500))]
    _, options, _ = take_filters(bounds, given)
    assert (options.from_timestamp, options.to_timestamp) == (1000, 1500)


def test_keys_are_found_though_the_column_is_not_wanted(log_dir: Path) -> None:
    given = SourceOptions.parse({"path": str(log_dir), "subscribe": "b"})
    (task,) = plan_tasks(given)
    rows = [batch.to_pydict() for batch in read_range(task, given, ["Offset"], keys=frozenset([b"k000007"]))]
    assert rows == [{"Offset": [7]}]
