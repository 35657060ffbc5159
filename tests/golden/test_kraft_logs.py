"""Every metadata log and checkpoint that Kafka wrote: decoded to the expected values, encoded again to the same bytes,
replayed to the same image that Kafka's own checkpoints hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from batch_rows import GOLDEN, describe_batch, read_rows
from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.controller.image import MetadataImage
from kraftlog.storage.bootstrap import read_bootstrap
from kraftlog.storage.election_store import ElectionStore
from kraftlog.storage.meta_properties import MetaProperties, read_meta_properties
from kraftlog.storage.snapshot_file import SnapshotId, read_snapshot
from kraftlog.wire.json import message_to_json
from kraftlog.wire.records import (
    decode_control_record,
    decode_metadata_record,
    encode_control_record,
    encode_metadata_record,
)

LOGS = GOLDEN / "kraft" / "logs"
EXPECTED = GOLDEN / "kraft" / "expected"
FILES = sorted(path for path in LOGS.rglob("*") if path.suffix in {".log", ".checkpoint"})
STORIES = sorted({path.relative_to(LOGS).parts[0] for path in FILES})
METADATA_DIRECTORIES = sorted(LOGS.glob("*/*/node-*/__cluster_metadata-0"))


def files_of(story):
    return [path for path in FILES if path.relative_to(LOGS).parts[0] == story]


def expected_of(path):
    relative = path.relative_to(LOGS)
    return EXPECTED / relative.with_name(relative.name + ".jsonl.gz")


@pytest.mark.parametrize("story", STORIES)
def test_records_decode_to_what_kafka_decoded_and_encode_to_the_same_bytes(story):
    seen = 0
    for path in files_of(story):
        rows = list(read_rows(expected_of(path)))
        batches = read_batches(path.read_bytes())
        assert len(batches) == len(rows), path
        for batch, row in zip(batches, rows, strict=True):
            for record, expected in zip(batch.records(), row["records"], strict=True):
                check_record(record, expected, path)
                seen += 1
    assert seen


def check_record(record, expected, path):
    offset, _, key, value, _ = record
    assert offset == expected["offset"], path
    if "control" in expected:
        kind, message = decode_control_record(key, value)
        assert kind == expected["control"]["type"]
        assert message_to_json(message, 0) == expected["control"]["value"], (path, offset)
        assert encode_control_record(message, kind=kind) == (key, value)
        return
    message, version = decode_metadata_record(value)
    row = expected["metadataRecord"]
    assert (message.API_KEY, version) == (row["apiKey"], row["version"])
    assert message_to_json(message, version) == row["data"], (path, offset)
    assert encode_metadata_record(message, version) == value


@pytest.mark.parametrize("story", STORIES)
def test_batches_have_the_expected_headers_and_are_written_again_byte_for_byte(story):
    for path in files_of(story):
        data = path.read_bytes()
        for batch, row in zip(read_batches(data), read_rows(expected_of(path)), strict=True):
            described = describe_batch(batch)
            assert {name: row[name] for name in described if name in row and name != "records"} == {
                name: value for name, value in described.items() if name in row and name != "records"
            }
            again = encode_batch(
                [(timestamp, key, value, headers) for _, timestamp, key, value, headers in batch.records()],
                base_offset=batch.base_offset,
                partition_leader_epoch=batch.partition_leader_epoch,
                control=batch.is_control,
            )
            assert again == data[batch.position : batch.position + batch.size_bytes], (path, batch.position)


def image_of(values):
    image = MetadataImage()
    for value in values:
        image.replay(decode_metadata_record(value)[0])
    return image


def content(image):
    return (
        {topic.topic_id: topic for topic in image.topics},
        image.cluster,
        image.configs,
        image.security,
        image.producer_ids,
        image.features,
    )


def test_image_after_replaying_a_log_equals_kafkas_checkpoint_at_that_offset():
    compared = 0
    for directory in METADATA_DIRECTORIES:
        snapshots = {
            SnapshotId.parse(path.name).end_offset: image_of(read_snapshot(path).values)
            for path in directory.glob("*.checkpoint")
        }
        logs = sorted(directory.glob("*.log"))
        start = int(logs[0].stem) if logs else 0
        image = snapshots[start].copy() if start else MetadataImage()
        for path in logs:
            for batch in read_batches(path.read_bytes()):
                for offset, _, _, value, _ in batch.records():
                    if offset > start and offset in snapshots:
                        assert content(image) == content(snapshots[offset]), (directory, offset)
                        compared += 1
                    if not batch.is_control:
                        image.replay(decode_metadata_record(value)[0])
        assert not image.is_in_transaction
    assert compared > 30


def test_image_written_as_records_and_replayed_is_the_same():
    for path in [file for file in FILES if file.suffix == ".checkpoint"]:
        image = image_of(read_snapshot(path).values)
        again = image_of(encode_metadata_record(record, version) for record, version in image.to_records())
        assert content(again) == content(image), path


def test_snapshot_records_are_those_kafka_wrote():
    """Order apart: Kafka's follows its hash maps."""
    compared = 0
    for path in FILES:
        if path.suffix != ".checkpoint" or path.name == "bootstrap.checkpoint":
            continue
        values = read_snapshot(path).values
        ours = [encode_metadata_record(record, version) for record, version in image_of(values).to_records()]
        assert sorted(ours) == sorted(values), path
        compared += bool(values)
    assert compared > 10


def test_bootstrap_metadata_names_its_metadata_version():
    levels = {
        path.parent.relative_to(LOGS).parts[0]: read_bootstrap(path.parent).metadata_version.name
        for path in FILES
        if path.name == "bootstrap.checkpoint"
    }
    assert levels == {"dynamic": "4.3-IV0", "standalone": "4.3-IV0", "static": "4.3-IV0", "upgrade-from-3.9": "3.9-IV0"}


@pytest.mark.spec("DISK-13")
def test_quorum_state_reads_to_the_expected_values():
    for directory in METADATA_DIRECTORIES:
        expected = EXPECTED / directory.relative_to(LOGS) / "quorum-state.json"
        state = ElectionStore(directory).read()
        if not expected.exists():
            assert state is None
            continue
        data = next(iter(read_rows_of_json(expected)))
        assert state.epoch == data["leaderEpoch"]
        assert (state.leader_id if state.leader_id is not None else -1) == data["leaderId"]
        assert (state.voted_key.node_id if state.voted_key is not None else -1) == data["votedId"]


def read_rows_of_json(path: Path):
    import json

    data = json.loads(path.read_text())
    return [data.get("data", data)]


@pytest.mark.spec("BOOT-18")
def test_meta_properties_read():
    for path in LOGS.rglob("meta.properties"):
        properties = read_meta_properties(path.parent)
        assert isinstance(properties, MetaProperties)
        assert properties.version == 1
        assert f"node-{properties.node_id}" == path.parent.name
        assert properties.directory_id is not None
