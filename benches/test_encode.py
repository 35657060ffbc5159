"""Encoding record batches: nanoseconds a record, beside the peers in the same run.

Expected: a record of 100 B costs one copy of its value (about 10 ns from cache) and some ten bytes of
variable-length integers, then a checksum at 30-100 GB/s; so 15 to 25 ns from columns. A list of bytes
adds the reading of one Python object per record, about 15 ns.

    python -m pytest benches/test_encode.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from kraftlog._kraftlog import build_profile, encode_batch, encode_columns, encode_values, read_batches

BATCH_VALUE_BYTES = 1_000_000
TIMESTAMP = 1_700_000_000_000
CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

SIZES = pytest.mark.parametrize("size", [100, 1000], ids=["100B", "1000B"])


@pytest.fixture(autouse=True)
def _optimised_build() -> None:
    assert build_profile == "release", "a debug build says nothing about speed"


def values_of(size: int) -> list[bytes]:
    """Half random, half repeated: compresses to a bit more than half."""
    rng = random.Random(size)
    return [rng.randbytes(size // 2) + b"0123456789" * (size // 20) for _ in range(BATCH_VALUE_BYTES // size)]


def run(benchmark: Any, group: str, values: list[bytes], encode: Callable[[], bytes]) -> None:
    benchmark.group = group
    encoded = benchmark(encode)
    benchmark.extra_info.update(bytes=sum(map(len, values)), records=len(values), encoded_bytes=len(encoded))
    assert sum(batch.record_count for batch in read_batches(encoded)) == len(values)


def by_peer(builder_class: Any, values: list[bytes], compression: int = 0) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    append = builder.append
    for offset, value in enumerate(values):
        append(offset, TIMESTAMP, None, value, [])
    return bytes(builder.build())


@SIZES
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_encode_arrow_columns(benchmark: Any, size: int, kind: pa.DataType) -> None:
    values = values_of(size)
    column = pa.array(values, kind)
    timestamps = pa.array([TIMESTAMP + index for index in range(len(values))])
    run(benchmark, f"encode {size} B values", values, lambda: encode_columns(None, column, timestamps))


@SIZES
def test_encode_list_of_bytes(benchmark: Any, size: int) -> None:
    values = values_of(size)
    run(benchmark, f"encode {size} B values", values, lambda: encode_values(values, timestamps=TIMESTAMP))


@SIZES
def test_encode_record_tuples(benchmark: Any, size: int) -> None:
    values = values_of(size)
    records = [(TIMESTAMP, None, value, ()) for value in values]
    run(benchmark, f"encode {size} B values", values, lambda: encode_batch(records))


@SIZES
def test_encode_aiokafka_c_extension(benchmark: Any, size: int) -> None:
    values = values_of(size)
    run(benchmark, f"encode {size} B values", values, lambda: by_peer(AiokafkaBuilder, values))


@SIZES
def test_encode_kafka_python(benchmark: Any, size: int) -> None:
    values = values_of(size)
    run(benchmark, f"encode {size} B values", values, lambda: by_peer(KafkaPythonBuilder, values))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_encode_compressed_list_of_bytes(benchmark: Any, codec: Any) -> None:
    values = values_of(100)
    group = f"encode 100 B values, {codec}"
    run(benchmark, group, values, lambda: encode_values(values, timestamps=TIMESTAMP, compression=codec))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_encode_compressed_aiokafka_c_extension(benchmark: Any, codec: str) -> None:
    values = values_of(100)
    group = f"encode 100 B values, {codec}"
    run(benchmark, group, values, lambda: by_peer(AiokafkaBuilder, values, CODEC_IDS[codec]))


def test_encode_one_small_record(benchmark: Any) -> None:
    """What a raft proposal of one command costs."""
    value = b"x" * 100
    run(benchmark, "encode one record of 100 B", [value], lambda: encode_batch([(TIMESTAMP, None, value, ())]))


def test_encode_one_small_record_aiokafka_c_extension(benchmark: Any) -> None:
    value = b"x" * 100
    run(benchmark, "encode one record of 100 B", [value], lambda: by_peer(AiokafkaBuilder, [value]))
