"""Random filters: what engines are handed down never takes a row away that the filter keeps."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kraftlog
from engine_logs import FIRST_TIME, Row, places, rows_of, write_logs
from kraftlog.reading import Scan
from kraftlog.reading.polars_filter import allowed_by

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "offset": st.integers(-3, 520) | st.sampled_from([2**62, -(2**63), 2**63 - 1]),
    "partition": st.integers(-1, 3),
    "topic": st.sampled_from(["orders", "audit", "", "zebra"]),
    "timestamp": st.integers(FIRST_TIME - 5000, FIRST_TIME + 16_000).map(
        lambda ms: dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
    ),
    "timestamp_type": st.integers(-1, 1),
}


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[Any, ...]:
    name = draw(st.sampled_from(sorted(VALUES)))
    if draw(st.integers(0, 3)) == 0:
        return ("in", name, draw(st.lists(VALUES[name], min_size=1, max_size=3)))
    if draw(st.integers(0, 3)) == 0:
        return (
            "between",
            name,
            draw(VALUES[name]),
            draw(VALUES[name]),
            draw(st.sampled_from(["both", "left", "none"])),
        )
    return (draw(st.sampled_from(sorted(OPERATORS))), name, draw(VALUES[name]), draw(st.booleans()))


TREES = st.recursive(
    comparisons(),
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner),
    max_leaves=6,
)


def build(tree: tuple[Any, ...], column: Callable[[str], Any], is_in: Callable[[Any, Any], Any]) -> Any:
    """The tree in the words of a library; Python's own with values for columns."""
    kind = tree[0]
    if kind in {"and", "or"}:
        left, right = (build(branch, column, is_in) for branch in tree[1:])
        return left & right if kind == "and" else left | right
    if kind == "not":
        inner = build(tree[1], column, is_in)
        return not inner if isinstance(inner, bool) else ~inner
    if kind == "in":
        return is_in(column(tree[1]), tree[2])
    if kind == "between":
        _, name, low, high, closed = tree
        above = column(name) >= low if closed != "none" else column(name) > low
        return above & (column(name) <= high if closed == "both" else column(name) < high)
    operator, name, value, is_mirrored = tree
    if is_mirrored:
        mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
        return OPERATORS[mirrored](value, column(name))
    return OPERATORS[operator](column(name), value)


def holds(tree: tuple[Any, ...], row: Row) -> bool:
    return bool(build(tree, row.__getitem__, lambda value, values: value in values))


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Scan:
    columns = ["topic", "partition", "offset", "timestamp", "timestamp_type"]
    return kraftlog.scan(write_logs(tmp_path_factory.mktemp("logs"), batches=6), columns=columns)


@pytest.fixture(scope="module")
def rows(scan: Scan) -> list[Row]:
    return rows_of(scan)


FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(tree=TREES)
def test_polars(scan: Scan, rows: list[Row], tree: tuple[Any, ...]) -> None:
    predicate = build(tree, pl.col, lambda column, values: column.is_in(values))
    expected = places([row for row in rows if holds(tree, row)])
    assert places(scan.polars(threads=1).filter(predicate).collect().to_dicts()) == expected


@FEW
@given(tree=TREES)
def test_pyarrow_datasets(scan: Scan, rows: list[Row], tree: tuple[Any, ...]) -> None:
    expression = build(tree, ds.field, lambda column, values: column.isin(pa.array(values)))
    expected = places([row for row in rows if holds(tree, row)])
    assert places(scan.dataset().to_table(filter=expression).to_pylist()) == expected
    fragments = scan.dataset(splits=3).get_fragments(expression)
    assert (
        places([row for fragment in fragments for row in fragment.to_table(filter=expression).to_pylist()]) == expected
    )


@FEW
@given(low=st.integers(-5, 600), high=st.integers(-5, 600), closed=st.sampled_from(["both", "left", "right", "none"]))
def test_polars_bounds_are_tight(low: int, high: int, closed: Any) -> None:
    allowed = allowed_by(pl.col("offset").is_between(low, high, closed=closed))
    assert allowed.offsets == (low + (closed in {"right", "none"}), high + (closed in {"both", "right"}))
    either = (pl.col("offset") >= low) & (pl.col("offset") < low + 5) | (pl.col("offset") == high)
    assert allowed_by(either).offsets == (min(low, high), max(low + 5, high + 1))
    assert allowed_by(~either).offsets == (None, None)


EXTREMES = [(1 << 63) - 1, (1 << 63) - 2, -(1 << 63), -1, 0, 1 << 62]
YEARS = [dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC)]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    ("name", "value"), [("offset", extreme) for extreme in EXTREMES] + [("timestamp", year) for year in YEARS]
)
def test_polars_at_the_ends_of_the_numbers(scan: Scan, rows: list[Row], operator: str, name: str, value: Any) -> None:
    expected = places([row for row in rows if OPERATORS[operator](row[name], value)])
    found = scan.polars(threads=1).filter(OPERATORS[operator](pl.col(name), value)).collect()
    assert places(found.to_dicts()) == expected
