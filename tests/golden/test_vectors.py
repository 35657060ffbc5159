"""Small inputs and outputs of Kafka's classes: checksums, and batches byte for byte."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from batch_rows import GOLDEN, comparable, describe_batch, read_rows
from kraftlog._kraftlog import crc32c, decode_batches, encode_batch, read_batches

VECTORS = GOLDEN / "vectors"
BATCHES = list(read_rows(VECTORS / "batches.jsonl.gz"))
CONTROL = list(read_rows(VECTORS / "control-batches.jsonl.gz"))


def decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def encode(given: dict[str, Any], compression: Any) -> bytes:
    records = [
        (
            record["timestamp"],
            decode(record["key"]),
            decode(record["value"]),
            [(name, decode(value)) for name, value in record["headers"]],
        )
        for record in given["records"]
    ]
    base_offset = given["baseOffset"]
    last_offset = given["overrideLastOffset"]
    return encode_batch(
        records,
        base_offset=base_offset,
        partition_leader_epoch=given["partitionLeaderEpoch"],
        compression=compression,
        timestamp_type=given["timestampType"],
        log_append_time_ms=given["logAppendTime"],
        producer_id=given["producerId"],
        producer_epoch=given["producerEpoch"],
        base_sequence=given["baseSequence"],
        transactional=given["isTransactional"],
        offset_deltas=[record["offset"] - base_offset for record in given["records"]],
        last_offset_delta=None if last_offset is None else last_offset - base_offset,
    )


def describe(data: bytes) -> list[dict[str, Any]]:
    rows = [describe_batch(batch) for batch in read_batches(data)]
    for row in rows:
        del row["position"]
    return rows


@pytest.mark.parametrize("row", BATCHES + CONTROL, ids=lambda row: row["hex"][:40])
def test_batch_of_kafka_decodes_to_expected_rows(row: dict[str, Any]) -> None:
    found = describe(bytes.fromhex(row["hex"]))
    if "kafkaReadError" in row:  # Kafka does not read LeaderChangeMessage 1, so its row has no records
        for batch in found:
            batch["records"] = []
    assert found == [comparable(batch) for batch in row["decoded"]]


@pytest.mark.parametrize(
    "row", [row for row in BATCHES if "input" in row and row["compression"] == "none"], ids=lambda row: row["hex"][:40]
)
def test_uncompressed_batch_encodes_to_the_bytes_of_kafka(row: dict[str, Any]) -> None:
    assert encode(row["input"], "none").hex() == row["hex"]


@pytest.mark.parametrize(
    "row", [row for row in BATCHES if "input" in row and row["compression"] != "none"], ids=lambda row: row["hex"][:40]
)
def test_compressed_batch_encodes_to_what_decodes_as_kafkas(row: dict[str, Any]) -> None:
    of_library = ("size", "batchLength", "crc")
    ours = describe(encode(row["input"], row["compression"]))
    kafkas = [comparable(batch) for batch in row["decoded"]]
    for batch in ours + kafkas:
        for name in of_library:
            del batch[name]
    assert ours == kafkas


@pytest.mark.parametrize("row", CONTROL, ids=lambda row: row["hex"][:40])
def test_control_batch_encodes_to_the_bytes_of_kafka(row: dict[str, Any]) -> None:
    [batch] = read_batches(bytes.fromhex(row["hex"]))
    records = [(timestamp, key, value, headers) for _, timestamp, key, value, headers in batch.records()]
    encoded = encode_batch(
        records,
        base_offset=batch.base_offset,
        partition_leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
    )
    assert encoded.hex() == row["hex"]


@pytest.mark.parametrize("row", [row for row in BATCHES if "emptyHeader" in row], ids=lambda row: row["hex"][:40])
def test_batch_without_records_encodes_to_the_bytes_of_kafka(row: dict[str, Any]) -> None:
    [batch] = row["decoded"]
    encoded = encode_batch(
        [],
        base_offset=batch["baseOffset"],
        partition_leader_epoch=batch["partitionLeaderEpoch"],
        timestamp_type=batch["timestampType"],
        producer_id=batch["producerId"],
        producer_epoch=batch["producerEpoch"],
        base_sequence=batch["baseSequence"],
        transactional=batch["isTransactional"],
        control=batch["isControl"],
        last_offset_delta=batch["lastOffsetDelta"],
        max_timestamp_ms=batch["maxTimestamp"],
    )
    assert encoded.hex() == row["hex"]


LEGACY = [row for magic in (0, 1) for row in read_rows(VECTORS / f"batches-magic{magic}.jsonl.gz")]


@pytest.mark.parametrize("row", LEGACY, ids=lambda row: f"v{row['magic']}-{row['hex'][:40]}")
def test_message_set_before_v2_decodes_to_expected_rows(row: dict[str, Any]) -> None:
    batches = read_batches(bytes.fromhex(row["hex"]))
    assert len(batches) == len(row["decoded"])
    for batch, kafka in zip(batches, row["decoded"], strict=True):
        found = describe_batch(batch)
        for record in found["records"]:
            assert record.pop("headers") == []
        assert found == {**found, **kafka}
        assert found["count"] == len(kafka["records"])
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.partition_leader_epoch) == (-1,) * 4


@pytest.mark.parametrize("binary_type", ["binary", "large_binary", "binary_view"])
def test_message_sets_before_v2_become_columns(binary_type: str) -> None:
    pa = pytest.importorskip("pyarrow")
    timestamp_types = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}
    for row in LEGACY:
        expected = [
            (record["offset"], record["timestamp"], timestamp_types[batch["timestampType"]], -1, -1)
            for batch in row["decoded"]
            for record in batch["records"]
        ]
        columns = ["offset", "timestamp", "timestamp_type", "leader_epoch", "producer_id", "key", "value"]
        found = decode_batches(bytes.fromhex(row["hex"]), columns=columns, binary_type=binary_type)
        table = pa.table(found)
        numbers = [table.column(index).cast(pa.int64()).to_pylist() for index in range(5)]
        assert list(zip(*numbers, strict=True)) == expected
        for name in ("key", "value"):
            wanted = [decode(record[name]) for record in row["input"]["records"]]
            assert table.column(name).to_pylist() == wanted
        [offsets, *_] = numbers
        start, end = offsets[len(offsets) // 3], offsets[-1]
        cut = decode_batches(bytes.fromhex(row["hex"]), columns=["offset"], start_offset=start, end_offset=end)
        assert pa.table(cut).column(0).to_pylist() == [offset for offset in offsets if start <= offset < end]


def test_crc32c_equals_kafkas_in_one_piece_and_in_two() -> None:
    for row in read_rows(VECTORS / "crc32c.jsonl.gz"):
        data = (bytes.fromhex(row["hex"]) * row["times"])[row["offset"] :][: row["length"]]
        assert crc32c(data) == row["crc32c"]
        cut = len(data) // 3
        assert crc32c(memoryview(data)[cut:], crc32c(data[:cut])) == row["crc32c"]
