"""What a filter of pyarrow leaves of offsets, timestamps and partitions, as Arrow itself tells.

pyarrow gives no way to look into an expression. But Arrow can say whether a filter can be true where something is known
of its fields, which is how it leaves out files of a partitioned data set: of a fragment that promises ``offset < 100``
nothing is left by ``offset >= 200 and value = x``. That question, asked of halves, finds each bound in some sixty steps
of 40 microseconds. Where Arrow cannot tell, it says yes, so that a bound never takes a row away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from kraftlog.reading.arrow_scan import ArrowScan
from kraftlog.reading.bounds import Bounds

__all__ = ["columns_of_filter", "narrowed_by"]

_OFFSET_MAX = 2**63 - 1
_MS_MAX = 2**63 // 1000 - 1


def narrowed_by(scan: ArrowScan, expression: ds.Expression | None, schema: pa.Schema, **options: Any) -> ArrowScan:
    """The scan without what the filter excludes by its offset, timestamp, topic and partition.

    Args:
        scan: What to read without a filter.
        expression: The filter, which has to be applied to the rows all the same; None for none.
        schema: Of the columns that the filter may name.
        options: Further fields of :class:`ScanOptions` to replace.
    """
    if expression is None:
        return scan.narrowed(**options)
    question = _Question(expression, schema)
    bounds = _offset_bounds(question) | _timestamp_bounds(question)
    named = [name for name in ("topic", "partition") if name in schema.names]

    def is_wanted(topic: str, partition: int) -> bool:
        values = {"topic": topic, "partition": partition}
        facts = [ds.field(name) == pa.scalar(values[name], question.schema.field(name).type) for name in named]
        return not facts or question.may_hold(facts[0] if len(facts) == 1 else facts[0] & facts[1])

    return scan.narrowed(Bounds(**bounds), partitions=is_wanted, **options)


def columns_of_filter(expression: ds.Expression, schema: pa.Schema) -> list[str]:
    """Names of the columns that the filter looks at: those without which it cannot be bound.

    Raises:
        pyarrow.ArrowInvalid: It names a column that is not in ``schema``, or compares what cannot be compared.
    """
    _bind(expression, schema)
    needed = []
    for name in schema.names:
        try:
            _bind(expression, pa.schema([field for field in schema if field.name != name]))
        except pa.ArrowInvalid:
            needed.append(name)
    return needed


class _Question:
    """Whether a filter may hold where a fact is known."""

    def __init__(self, expression: ds.Expression, schema: pa.Schema) -> None:
        self._expression = expression
        # Facts of a dictionary are not used by Arrow, and neither are those of views.
        self.schema = pa.schema(
            [pa.field("topic", pa.string()) if field.name == "topic" else field for field in schema]
        )

    def may_hold(self, fact: ds.Expression) -> bool:
        try:
            return bool(_bind(self._expression, self.schema, fact))
        except pa.ArrowException:  # compares the topic as another type, say: then nothing is known
            return True


def _bind(expression: ds.Expression, schema: pa.Schema, fact: ds.Expression | None = None) -> list[ds.Fragment]:
    """The fragment of which ``fact`` is known, unless the filter leaves nothing of it. No file is looked at."""
    file_format, file_system = ds.IpcFileFormat(), LocalFileSystem()
    fragment = file_format.make_fragment("nothing", filesystem=file_system, partition_expression=fact)
    return list(ds.FileSystemDataset([fragment], schema, file_format, file_system).get_fragments(filter=expression))


def _offset_bounds(question: _Question) -> dict[str, int]:
    if "offset" not in question.schema.names:
        return {}
    first, end = _bounds(question, "offset", 0, _OFFSET_MAX, lambda offset: pa.scalar(offset, pa.int64()))
    return _given(start_offset=first, end_offset=end)


def _timestamp_bounds(question: _Question) -> dict[str, int]:
    if "timestamp" not in question.schema.names:
        return {}
    unit = question.schema.field("timestamp").type

    def literal(milliseconds: int) -> pa.Scalar:
        return pa.scalar(milliseconds * (1000 if unit.unit == "us" else 1), unit)

    first, end = _bounds(question, "timestamp", -_MS_MAX, _MS_MAX, literal)
    # In microseconds what is beyond the range is given as its last value.
    return _given(from_timestamp=first, to_timestamp=end)


def _bounds(
    question: _Question, name: str, least: int, most: int, literal: Callable[[int], pa.Scalar]
) -> tuple[int | None, int | None]:
    """The first value and the exclusive end that the filter leaves; None where it says nothing."""
    field = ds.field(name)
    first = end = None
    if not question.may_hold(field < literal(least + 1)):
        first = _turn(least + 1, most, lambda value: question.may_hold(field < literal(value))) - 1
    if not question.may_hold(field >= literal(most)):
        end = _turn(least, most, lambda value: not question.may_hold(field >= literal(value)))
    return first, end


def _turn(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The least value from ``low`` on of which ``holds`` says yes, ``high`` when there is none before."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _given(**bounds: int | None) -> dict[str, int]:
    return {name: bound for name, bound in bounds.items() if bound is not None}
