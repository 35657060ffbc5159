"""The columns that the writers take, checked on the driver; words and rules are those of Spark's own Kafka sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["check_produce_columns", "check_segment_columns"]

_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TEXT_OR_BYTES: Final = (StringType(), BinaryType())
_TYPES: Final[Mapping[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": (_HEADERS,),
    "partition": (IntegerType(),),
}
_SEGMENT_TYPES: Final[Mapping[str, tuple[DataType, ...]]] = {
    **_TYPES,
    "timestamp": (TimestampType(), LongType()),
    "timestampType": (IntegerType(),),
    "offset": (LongType(),),
    "leaderEpoch": (IntegerType(),),
}


def check_produce_columns(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """The columns that are produced, by name. Others are left out, as Spark's own Kafka sink does.

    Raises:
        ValueError: A column is missing, there twice, or of another type.
    """
    _check(schema, topic, _TYPES)
    return tuple(field.name for field in schema.fields if field.name in _TYPES)


def check_segment_columns(schema: StructType, topic: str | None, partition: int | None) -> None:
    """Raises ValueError when rows of this schema are no records: a column is missing, unknown or of another type."""
    _check(schema, topic, _SEGMENT_TYPES)
    names = set(schema.fieldNames())
    unknown = sorted(names - set(_SEGMENT_TYPES))
    if unknown:
        message = f"column {', '.join(unknown)} cannot be written: records have {', '.join(_SEGMENT_TYPES)}"
        raise ValueError(message)
    if partition is None and "partition" not in names:
        raise ValueError(
            "partition option or column required: kraftlog.spark.prepare(df, partitions=n) gives each row the "
            "partition that Kafka gives its key and brings the rows of a partition together"
        )


def _check(schema: StructType, topic: str | None, types: Mapping[str, tuple[DataType, ...]]) -> None:
    names = schema.fieldNames()
    for name in types:
        if names.count(name) > 1:
            message = f"column {name} is there {names.count(name)} times"
            raise ValueError(message)
    if topic is None and "topic" not in names:
        raise ValueError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in names:
        raise ValueError("Required attribute 'value' not found")
    for field in schema.fields:
        allowed = types.get(field.name)
        if allowed and not any(_same(field.dataType, data_type) for data_type in allowed):
            wanted = " or ".join(data_type.simpleString() for data_type in allowed)
            given = field.dataType.simpleString()
            message = f"{field.name} attribute unsupported type {given}. {field.name} must be a {wanted}"
            raise ValueError(message)


def _same(given: DataType, wanted: DataType) -> bool:
    """Equal but for what may be null; a string of any collation is one."""
    if isinstance(wanted, StringType):
        return isinstance(given, StringType)
    return bool(given.simpleString() == wanted.simpleString())
