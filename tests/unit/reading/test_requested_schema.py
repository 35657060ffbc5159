"""``requested_schema``: the same data in the Arrow types that a consumer asks for, where they can be given."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arro3.core
import nanoarrow
import pyarrow as pa
import pytest

import kraftlog
from engine_logs import write_logs
from kraftlog._kraftlog import decode_batches, decode_cells, encode_batch
from kraftlog.errors import LogError
from kraftlog.reading import Scan

SMALL_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
LARGE_HEADERS = pa.large_list(pa.struct([pa.field("key", pa.large_string()), pa.field("value", pa.large_binary())]))
VIEW_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string_view()), pa.field("value", pa.binary_view())]))


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_logs(tmp_path_factory.mktemp("logs"))


def read(scan: Scan, schema: pa.Schema) -> pa.Table:
    """What the stream itself gives: pyarrow would cast the rest."""
    return pa.table(Stream(scan, schema))


class Stream:
    """Passes a request on, and leaves what comes as it is."""

    def __init__(self, scan: Any, schema: pa.Schema) -> None:
        self._scan, self._schema = scan, schema

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._scan.__arrow_c_stream__(self._schema.__arrow_c_schema__())


def requests() -> Iterator[Any]:
    for key_type in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield pytest.param({"key": key_type, "value": key_type}, id=f"both {key_type}")
    yield pytest.param({"key": pa.large_binary(), "value": pa.binary_view()}, id="large and view")
    yield pytest.param({"key": pa.binary_view(), "value": pa.binary()}, id="view and small")
    for text in (pa.string(), pa.large_string(), pa.string_view()):
        yield pytest.param({"topic": text, "compression": text}, id=str(text))
        for keys in (pa.int8(), pa.int32(), pa.uint16(), pa.int64()):
            dictionary = pa.dictionary(keys, text)
            yield pytest.param({"topic": dictionary, "compression": dictionary}, id=str(dictionary))
    for unit in ("ms", "us", "ns"):
        yield pytest.param({"timestamp": pa.timestamp(unit, "UTC")}, id=f"timestamp {unit}")
    yield pytest.param({"timestamp": pa.timestamp("us", "Europe/Berlin")}, id="zone")
    yield pytest.param({"headers": LARGE_HEADERS}, id="large headers")
    yield pytest.param({"headers": VIEW_HEADERS}, id="headers of views")


@pytest.mark.parametrize(
    "options", [{}, {"topic_dictionary": True, "binary_type": "binary_view", "threads": 2}], ids=str
)
@pytest.mark.parametrize("types", list(requests()))
def test_types_that_can_be_given(log_dir: Path, types: dict[str, pa.DataType], options: dict[str, Any]) -> None:
    columns = ["key", "value", "topic", "offset", "timestamp", "headers", "compression"]
    scan = kraftlog.scan(log_dir, columns=columns, **options)
    ours = pa.schema(scan)
    wanted = pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in ours])
    table = read(scan, wanted)
    assert table.schema == wanted
    table.validate(full=True)
    assert table.to_pylist() == pa.table(scan).cast(pa.schema(kraftlog.scan(log_dir, columns=columns))).to_pylist()
    assert scan.narrowed(topic_dictionary=False).column_names == columns


def test_types_that_cannot_be_given_stay_as_they_are(log_dir: Path) -> None:
    scan = kraftlog.scan(log_dir)
    ours = pa.schema(scan)
    others = {
        "key": pa.string(),  # bytes need not be text
        "value": pa.binary_view(),  # this one can
        "partition": pa.int64(),
        "offset": pa.string(),
        "timestamp": pa.timestamp("s", "UTC"),
        "timestamp_type": pa.dictionary(pa.int8(), pa.int32()),
        "headers": pa.map_(pa.string(), pa.binary()),
        "topic": pa.binary(),
    }
    wanted = pa.schema([pa.field(field.name, others[field.name]) for field in ours])
    table = read(scan, wanted)
    assert table.schema == ours.set(ours.get_field_index("value"), pa.field("value", pa.binary_view()))
    assert table.to_pylist() == pa.table(scan).to_pylist()
    no_zone = pa.schema([pa.field("timestamp", pa.timestamp("ms"))])
    assert read(kraftlog.scan(log_dir, columns=["timestamp"]), no_zone).schema.types == [pa.timestamp("ms", "UTC")]


@pytest.mark.parametrize(
    "names", [["offset"], ["offset", "key"], ["key", "offset", "value"], ["key", "other"]], ids=str
)
def test_other_columns_are_another_schema(log_dir: Path, names: list[str]) -> None:
    scan = kraftlog.scan(log_dir, columns=["key", "offset"])
    with pytest.raises(ValueError, match="requested_schema has the columns"):
        read(scan, pa.schema([pa.field(name, pa.binary()) for name in names]))


def test_libraries_that_ask(log_dir: Path) -> None:
    scan = kraftlog.scan(log_dir, columns=["topic", "value"])
    wanted = pa.schema([("topic", pa.string_view()), ("value", pa.binary_view())])
    assert pa.table(scan, schema=wanted).schema == wanted
    assert pa.RecordBatchReader.from_stream(scan, schema=wanted).schema == wanted
    assert pa.table(nanoarrow.ArrayStream(scan, wanted)).schema == wanted
    assert arro3.core.Table.from_arrow(scan).num_rows == pa.table(scan).num_rows


def test_batches_and_arrays_take_requests_too(log_dir: Path) -> None:
    scan = kraftlog.scan(log_dir, columns=["topic", "value"])
    batch = next(iter(scan))
    wanted = pa.schema([("topic", pa.dictionary(pa.int16(), pa.string())), ("value", pa.large_binary())])
    assert pa.record_batch(batch, schema=wanted).schema == wanted
    assert pa.record_batch(batch, schema=wanted).to_pylist() == pa.record_batch(batch).to_pylist()
    data = encode_batch([(1000, b"k", b"v", [("h", b"x")])])
    nested, _, _ = decode_cells(pa.array([data, None], pa.binary()), columns=["value", "headers"])
    item = pa.struct([pa.field("value", pa.large_binary()), pa.field("headers", SMALL_HEADERS)])
    assert pa.array(nested, type=pa.large_list(item)).to_pylist() == pa.array(nested).to_pylist()
    kept = nested.__arrow_c_array__(pa.int8().__arrow_c_schema__())  # impossible, and ignored
    assert pa.Array._import_from_c_capsule(*kept).type == pa.array(nested).type


def test_times_beyond_nanoseconds_are_an_error() -> None:
    year_9999 = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)
    data = encode_batch([(int(year_9999.timestamp() * 1000), b"k", b"v", [])])
    batch = decode_batches(data, columns=["timestamp"])
    assert pa.record_batch(batch).to_pylist() == [{"timestamp": year_9999}]
    with pytest.raises(LogError, match="does not fit into nanoseconds"):
        batch.__arrow_c_array__(pa.schema([("timestamp", pa.timestamp("ns", "UTC"))]).__arrow_c_schema__())


def test_requests_that_are_none(log_dir: Path) -> None:
    scan = kraftlog.scan(log_dir, columns=["topic"])
    with pytest.raises(TypeError):
        scan.__arrow_c_stream__("topic: string")
    capsule = pa.schema(scan).__arrow_c_schema__()
    pa.Schema._import_from_c_capsule(capsule)  # which empties it
    with pytest.raises(ValueError, match="somebody took it out"):
        scan.__arrow_c_stream__(capsule)
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        scan.__arrow_c_stream__(scan.__arrow_c_stream__())
