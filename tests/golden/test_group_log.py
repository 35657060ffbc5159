"""``__consumer_offsets`` as Kafka 4.3.1 wrote it: every record decodes, encodes to the same bytes, and adds up."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from group_fixture import make_group_shard
from kraftlog._kraftlog import read_batches
from kraftlog.runtime.coordinator.record_codec import GroupRecordReader, decode_group_record, encode_records
from kraftlog.wire.messages.group_coordinator_records import OffsetCommitKey

TOPICS = Path(__file__).parent / "topics"
SEGMENTS = sorted(TOPICS.glob("*/__consumer_offsets-*/*.log"))


def expected_offsets(segment: Path):
    """Committed offsets by (group, topic, partition), from what Kafka's own classes decoded."""
    offsets, pending = {}, {}
    folder = TOPICS / "expected" / segment.parts[-3] / segment.parts[-2]
    with gzip.open(folder / f"{segment.stem}.batches.jsonl.gz", "rt") as lines:
        for batch in map(json.loads, lines):
            if batch["isControl"]:
                for record in batch["records"]:
                    held = pending.pop(batch["producerId"], [])
                    if "COMMIT" in json.dumps(record["control"]).upper():
                        offsets.update(held)
                continue
            found = [
                ((row["key"]["group"], row["key"]["topic"], row["key"]["partition"]), row["value"])
                for row in (record.get("coordinatorRecord") for record in batch["records"])
                if row is not None and row["name"] == "OffsetCommit"
            ]
            if batch["isTransactional"]:
                pending.setdefault(batch["producerId"], []).extend(found)
            else:
                offsets.update(found)
    return {key: value["offset"] for key, value in offsets.items() if value is not None}


@pytest.mark.parametrize("segment", SEGMENTS, ids=lambda path: "/".join(path.parts[-3:]))
def test_group_records_round_trip(segment):
    for batch in read_batches(segment.read_bytes()):
        if batch.is_control:
            continue
        for _, _, key, value, _ in batch.records():
            (record,) = decode_group_record(key, value)
            assert encode_records([record]) == [(key, value)]


@pytest.mark.parametrize("segment", SEGMENTS, ids=lambda path: "/".join(path.parts[-3:]))
def test_replayed_offsets_are_kafkas(segment):
    records, next_offset = GroupRecordReader().read(segment.read_bytes())
    shard = make_group_shard()
    for record in records:
        shard.replay(record, now_ms=0)
    expected = expected_offsets(segment)
    groups = {key[0] for key in expected} | {r.key.group for r in records if isinstance(r.key, OffsetCommitKey)}
    found = {
        (group, topic, index): committed.offset
        for group in groups
        for (topic, index), committed in shard.committed(group).items()
    }
    assert found == expected
    assert next_offset is not None
