"""Every frame that Kafka wrote: bytes to message to the same JSON, and back to the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import wire_oracle
from kraftlog._kraftlog import decode_prefix
from kraftlog.errors import RemoteProtocolError
from kraftlog.wire import records
from kraftlog.wire.json import message_from_json, message_to_json
from wire_facts import GOLDEN, all_versions, golden_files, message_classes, rows

# Malformed bodies that Kafka reads and kraftlog refuses, with the reason. The bounds that only kraftlog has (elements,
# unknown tagged fields) are beyond what these rows hold, so every one of them ends as Kafka's does.
STRICTER: dict[tuple[str, int, str], str] = {}


def short(path: Path) -> str:
    return path.relative_to(GOLDEN).as_posix().removesuffix(".jsonl.gz")


@pytest.mark.parametrize("path", golden_files(), ids=short)
def test_golden_row_round_trips(path):
    versions = {(version.name, version.version): version for version in all_versions()}
    count = 0
    for row in rows(path):
        cls, version, data = message_classes()[row["api"]], row["version"], bytes.fromhex(row["hex"])
        message = cls.decode(data, version)
        assert message_to_json(message, version) == row["json"]
        assert message.encode(version) == data
        oracle = versions[row["api"], version]
        assert wire_oracle.decode(oracle, data) == message
        assert wire_oracle.encode(oracle, message) == data
        if not row.get("unknownTags"):
            assert message_from_json(cls, row["json"], version) == message
        count += 1
    assert count


def test_metadata_record_framed_bytes_round_trip():
    for row in rows(GOLDEN / "wire/metadata-records.jsonl.gz"):
        framed = bytes.fromhex(row["framedHex"])
        record, version = records.decode_metadata_record(framed)
        assert (type(record).__name__, version) == (row["api"], row["version"])
        assert records.encode_metadata_record(record, version) == framed


@pytest.mark.parametrize("coordinator", ["group", "transaction", "share"])
def test_coordinator_record_framed_bytes_round_trip(coordinator):
    for row in rows(GOLDEN / f"wire/{coordinator}-coordinator-records.jsonl.gz"):
        framed = bytes.fromhex(row["framedHex"])
        if row["kind"] == "coordinator-key":
            kind, message = records.decode_coordinator_key(coordinator, framed)
            assert message is not None
            assert kind == row["apiKey"]
            assert records.encode_coordinator_key(message) == framed
        else:
            version, message = records.decode_coordinator_value(coordinator, row["apiKey"], framed)
            assert version == row["version"]
            assert records.encode_coordinator_value(message, version) == framed
        assert type(message).__name__ == row["api"]


def test_malformed_row_ends_as_kafkas_does():
    wrong = []
    for row in rows(GOLDEN / "wire/malformed.jsonl.gz"):
        data = bytes.fromhex(row["hex"])
        try:
            message, position = decode_prefix(message_classes()[row["api"]], data, row["version"])
            ended = ("ok", len(data) - position, message.encode(row["version"]).hex())
        except RemoteProtocolError:
            ended = ("error", None, None)
        expected = (row["result"], row.get("remaining"), row.get("reserialized"))
        if ended != expected and (row["api"], row["version"], row["mutation"]) not in STRICTER:
            wrong.append((row["api"], row["version"], row["mutation"], expected, ended))
    assert not wrong, wrong[:5]
