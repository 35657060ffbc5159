"""Our answers against those of Apache Kafka 4.3.1 to the same bytes, on the same metadata."""

from __future__ import annotations

import json

import pytest

from kraftlog.wire.frame import decode_request, decode_response, encode_response

from .conftest import GOLDEN

ASKED = {"DescribeCluster", "DescribeConfigs", "DescribeTopicPartitions", "Metadata"}


def captures():
    with (GOLDEN / "kraft" / "captures.jsonl").open() as lines:
        for line in lines:
            row = json.loads(line)
            if row.get("api") in ASKED and row["outcome"] == "ok":
                yield pytest.param(row, id=f"{row['api']}-{row['listener']}-v{row['version']}-{row['requestJson']}")


@pytest.mark.parametrize("row", list(captures()))
def test_answer_is_kafkas(golden_node, row):
    listener = "CONTROLLER" if row["listener"] == "controller" else "PLAINTEXT"
    header, request = decode_request(bytes.fromhex(row["requestHex"]))
    response = golden_node.ask(request, row["version"], listener=listener)
    frame = b"".join(encode_response(row["apiKey"], row["version"], header.correlation_id, response))
    expected = decode_response(row["apiKey"], row["version"], bytes.fromhex(row["responseHex"]))[1]
    ours = decode_response(row["apiKey"], row["version"], frame[4:])[1]
    if hasattr(ours, "topics"):
        assert sorted(ours.topics, key=lambda t: t.name) == sorted(expected.topics, key=lambda t: t.name)
    if row["requestJson"].get("topics", ()) is not None:
        assert ours == expected
        assert frame[4:].hex() == row["responseHex"]
