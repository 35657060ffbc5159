"""Batches that wait for their producer."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from kraftlog._kraftlog import EncodedBatch, encode_batch, produced_batches, read_batches

NOISE = random.Random(7).randbytes(5000)


def batches_of(values, **options):
    rows = pa.record_batch({"value": pa.array(values, pa.binary())})
    return produced_batches(rows, partition_count=1, now_ms=5, **options)


def test_sealed_batch_has_the_producer_and_a_right_checksum():
    [(partition, count, batch)] = batches_of([b"one", b"two"])
    with pytest.raises(BufferError, match="not sealed"):
        memoryview(batch)
    batch.seal(9, 3, 70, is_transactional=True)
    [found] = read_batches(batch)
    assert (partition, count, len(batch)) == (0, 2, found.size_bytes)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (9, 3, 70)
    assert found.is_transactional
    with pytest.raises(ValueError, match="sealed already"):
        batch.seal()


def test_batch_without_a_producer_equals_that_of_single_records():
    [(_, _, batch)] = batches_of([b"one", b"two"], compression="zstd")
    batch.seal()
    expected = encode_batch([(5, None, b"one", ()), (5, None, b"two", ())], compression="zstd")
    assert bytes(memoryview(batch)) != b""
    assert [value for _, _, _, value, _ in read_batches(batch)[0].records()] == [b"one", b"two"]
    assert len(batch) <= len(expected)


def test_bytes_that_are_no_batch_cannot_be_sealed():
    with pytest.raises(ValueError, match="at least 61 bytes"):
        EncodedBatch(b"short").seal()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batch_that_does_not_get_smaller_is_not_compressed_nor_larger_than_its_bound(codec):
    """Snappy and LZ4 made a full batch larger than max.message.bytes, and the broker refused it."""
    batches = batches_of([NOISE] * 3 + [b"a" * 5000] * 3, compression=codec, batch_bytes=5100)
    found = []
    for _, _, batch in batches:
        batch.seal()
        assert len(batch) <= 5100
        found += read_batches(batch)
    assert [batch.compression for batch in found] == ["none"] * 3 + [codec] * 3


def test_batches_of_a_partition_keep_the_order_of_their_rows():
    rows = pa.record_batch(
        {
            "value": pa.array([b"%d" % number for number in range(3000)], pa.binary()),
            "partition": pa.array([number % 3 for number in range(3000)], pa.int32()),
        }
    )
    found = {}
    for partition, count, batch in produced_batches(rows, partition_count=3, now_ms=5, batch_bytes=2000):
        batch.seal()
        [read] = read_batches(batch)
        values = [value for _, _, _, value, _ in read.records()]
        assert len(values) == count
        found.setdefault(partition, []).extend(values)
    assert found == {start: [b"%d" % number for number in range(start, 3000, 3)] for start in range(3)}
