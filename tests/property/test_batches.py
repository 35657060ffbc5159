"""For every input: batches decode to what was encoded, and no bytes crash the reader."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftlog._kraftlog import encode_batch, encode_columns, encode_values, read_batches
from kraftlog.errors import CorruptRecordError

settings.register_profile("no_deadline", deadline=None)  # a shared machine says nothing about one example
settings.load_profile("no_deadline")

CODECS = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])
TIMESTAMPS = st.integers(-(2**63), 2**63 - 1) | st.integers(1_600_000_000_000, 1_600_000_100_000)
NULLABLE = st.none() | st.binary(max_size=300) | st.binary(max_size=7).map(lambda word: word * 40_000)
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=50)), max_size=4)
RECORDS = st.lists(st.tuples(TIMESTAMPS, NULLABLE, NULLABLE, HEADERS), min_size=1, max_size=20)


@given(RECORDS, CODECS, st.integers(0, 2**62))
def test_batch_decodes_to_the_records_encoded(records, codec, base_offset):
    [batch] = read_batches(encode_batch(records, base_offset=base_offset, compression=codec))
    assert batch.records() == [(base_offset + index, *record) for index, record in enumerate(records)]
    assert (batch.base_offset, batch.last_offset) == (base_offset, base_offset + len(records) - 1)
    assert batch.max_timestamp == max(-1, *(record[0] for record in records))


@given(st.lists(st.tuples(TIMESTAMPS, NULLABLE, NULLABLE), max_size=20), st.integers(61, 2000) | st.none())
def test_columns_lists_and_records_encode_to_the_same_bytes(rows, batch_bytes_max):
    timestamps, keys, values = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    from_list = encode_values(values, timestamps=timestamps, keys=keys, batch_bytes_max=batch_bytes_max)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        columns = pa.array(keys, kind), pa.array(values, kind), pa.array(timestamps, pa.int64())
        assert encode_columns(*columns, batch_bytes_max=batch_bytes_max) == from_list
    if batch_bytes_max is None:
        assert encode_batch([(*row, []) for row in rows]) == from_list
    batches = read_batches(from_list)
    assert [record[1:4] for batch in batches for record in batch.records()] == rows
    assert all(batch.record_count == 1 or batch.size_bytes <= batch_bytes_max for batch in batches if batch_bytes_max)


@given(RECORDS, CODECS, st.data())
@settings(max_examples=200)
def test_damaged_batch_is_refused_or_cut_short_but_never_crashes(records, codec, data):
    batch = bytearray(encode_batch(records, compression=codec))
    position = data.draw(st.integers(0, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    if position < 8 or position in range(12, 16):
        assert len(read_batches(batch)) == 1  # the checksum covers neither base offset nor leader epoch
    elif position in range(8, 12) and int.from_bytes(batch[8:12], "big") < 2**31 and len(batch) < read_size(batch):
        assert read_batches(batch) == []  # a greater length makes it a cut batch
    else:
        with pytest.raises(CorruptRecordError, match="buffer position 0: "):
            read_batches(batch)
    for found in unchecked(batch):
        try:
            found.records()
        except CorruptRecordError:
            assert position >= 8


def read_size(batch):
    return 12 + int.from_bytes(batch[8:12], "big")


def unchecked(data):
    try:
        return read_batches(data, check_crc=False)
    except CorruptRecordError:
        return []


@given(st.binary(max_size=300))
@example(b"\0" * 300)
def test_random_bytes_give_batches_or_an_error(data):
    for batch in unchecked(data):
        assert batch.position + batch.size_bytes <= len(data)


@given(st.binary(max_size=400), CODECS)
def test_random_body_behind_a_good_header_gives_records_or_an_error(body, codec):
    header = bytearray(encode_batch([(0, None, b"v", [])] * 3, compression=codec)[:61])
    header[8:12] = (49 + len(body)).to_bytes(4, "big")
    [batch] = read_batches(header + body, check_crc=False)
    try:
        records = batch.records()
    except CorruptRecordError:
        return
    assert len(records) == 3


def test_slice_of_arrow_array_is_encoded_from_its_offset():
    values = pa.array([b"skipped", b"a", None, b"b"])[1:]
    assert encode_columns(None, values, 5) == encode_values([b"a", None, b"b"], timestamps=5)


def test_memoryview_that_is_not_contiguous_is_refused():
    with pytest.raises(BufferError):
        read_batches(memoryview(b"abcdef" * 30)[::2])


@pytest.mark.parametrize(
    ("keywords", "reason"),
    [
        ({"compression": "brotli"}, "brotli"),
        ({"compression": "zstd", "compression_level": 23}, "level 23"),
        ({"timestamp_type": "Never"}, "Never"),
        ({"offset_deltas": [1, 1]}, "grow"),
        ({"offset_deltas": [1]}, "length"),
        ({"offset_deltas": [1, 2, 3]}, "length"),
    ],
)
def test_encode_batch_bad_argument_is_a_value_error(keywords, reason):
    with pytest.raises(ValueError, match=reason):
        encode_batch([(0, None, b"v", [])] * 2, **keywords)


def test_encode_batch_unknown_keyword_is_a_type_error():
    with pytest.raises(TypeError, match="colour"):
        encode_batch([], colour="red")
    with pytest.raises(TypeError, match="offset_deltas"):
        encode_values([], offset_deltas=[])
