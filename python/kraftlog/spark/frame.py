"""What the smaller formats have in common: columns by name and type, projected by a schema or an option."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from kraftlog.spark.options import BATCH_OPTIONS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FrameColumns", "frame_options", "record_batches"]

# Rows of decoded records in one Arrow batch: they are Python objects until then.
_ROWS = 4096


class FrameColumns:
    """The columns of a format.

    Args:
        types: Spark's words for the type of each, as ``simpleString`` has them, by name in order.
        further: Names of columns that have to be asked for.
    """

    def __init__(self, types: Mapping[str, str], further: Sequence[str] = ()) -> None:
        self._types = dict(types)
        self._names = {name.lower(): name for name in types}
        self._default = tuple(name for name in types if name not in further)

    def ddl(self, names: Sequence[str] | None) -> str:
        """The schema of these columns, or of those that are given without asking.

        Raises:
            ValueError: As :meth:`find`.
        """
        chosen = self._default if names is None else names
        return ", ".join(
            f"`{name}` {self._types[found]}" for name, found in zip(chosen, self.find(chosen), strict=True)
        )

    def find(self, names: Iterable[str]) -> list[str]:
        """Our spelling of names, whose case does not matter.

        Raises:
            ValueError: A name that is no column, or a column named twice; lists those that there are.
        """
        found: list[str] = []
        for name in names:
            own = self._names.get(name.lower())
            if own is None:
                message = f"no column {name!r}: there are {', '.join(self._types)}"
                raise ValueError(message)
            if own in found:
                message = f"column {own} is named twice"
                raise ValueError(message)
            found.append(own)
        return found

    def check(self, schema: Any, asked: Sequence[str] | None) -> list[str]:
        """Our names of the columns of a schema that Spark or Sail hands over.

        Raises:
            ValueError: As :meth:`find`; a column of another type; other columns than the option ``columns`` names.
        """
        names = list(schema.names)
        found = self.find(names)
        if asked is not None and list(asked) != names:
            message = f"option columns names {', '.join(asked)}, the schema {', '.join(names)}: give one of them"
            raise ValueError(message)
        if isinstance(schema, StructType):
            for field, own in zip(schema.fields, found, strict=True):
                if field.dataType.simpleString() != self._types[own]:
                    message = f"column {field.name} is {self._types[own]}, not {field.dataType.simpleString()}"
                    raise ValueError(message)
                if not field.nullable:
                    message = f"column {field.name} can be null as far as Spark is concerned: leave NOT NULL out"
                    raise ValueError(message)
        return found


def frame_options(*without: str) -> tuple[str, ...]:
    """The options of a batch query but those that only mean something to records, and ``without``."""
    records = {
        "includeHeaders",
        "controlRecords",
        "verifyCrc",
        "fromTimestamp",
        "toTimestamp",
        "pushdown",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
    }
    return tuple(name for name in BATCH_OPTIONS if name not in records and name not in without)


def record_batches(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], schema: Any) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches.

    Args:
        rows: A value for each of ``columns`` and perhaps for others; times are microseconds.
        columns: Our names of the columns.
        schema: Names and types of the columns: Spark's, or a ``pyarrow.Schema`` from Sail.
    """
    import pyarrow as pa

    if isinstance(schema, StructType):
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(schema, timezone="UTC")
    source = iter(rows)
    while part := list(islice(source, _ROWS)):
        arrays = [
            pa.array([row[name] for row in part], field.type) for name, field in zip(columns, schema, strict=True)
        ]
        if arrays:
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:
            yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(part), pa.struct([])))
