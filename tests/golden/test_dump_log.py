"""``kraftlog dump-log`` prints what Kafka's DumpLogSegments prints."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from batch_rows import GOLDEN, describe_bytes, read_rows
from kraftlog.cli.__main__ import main

OUTPUTS = sorted((GOLDEN / "dump-log-segments").glob("*.txt"))
TOPICS = GOLDEN / "topics" / "node-1"
LOGS = GOLDEN / "kraft" / "logs"


@pytest.mark.parametrize("golden", OUTPUTS, ids=lambda path: path.stem)
def test_text_is_kafkas_line_for_line(
    golden: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    command, _, expected = golden.read_bytes().partition(b"\n")
    arguments = command.decode().split()[2:]
    monkeypatch.chdir(TOPICS if (TOPICS / arguments[1]).exists() else LOGS)
    assert main(["dump-log", *arguments]) == 0
    # The golden text went through a reader that took each carriage return for an end of line.
    found = capfdbinary.readouterr().out.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert found.split(b"\n") == expected.split(b"\n")


def test_outputs_are_all_there() -> None:
    assert len(OUTPUTS) == 13


def dump_json(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str | os.PathLike[str]) -> list[dict[str, Any]]:
    assert main(["dump-log", "--json", "--files", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]


def whole(described: dict[str, Any], name: str) -> bytes | None:
    text = described.get(name)
    if f"{name}Base64" in described:
        return base64.b64decode(described[f"{name}Base64"])
    return None if text is None else text.encode()


@pytest.mark.parametrize("partition", ["g-none-0", "g-zstd-0", "g-txn-0", "g-logappend-0", "g-compact-purged-0"])
def test_json_has_every_batch_and_record(partition: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for log in sorted((TOPICS / partition).glob("*.log")):
        expected = GOLDEN / "topics" / "expected" / "node-1" / partition / f"{log.stem}.batches.jsonl.gz"
        rows = list(read_rows(expected))
        batches = dump_json(capfdbinary, log)
        for batch, row in zip(batches, rows, strict=True):
            assert batch["compressCodec"] == row["compression"]
            assert batch["isValid"] == row["valid"]
            for name in (
                "position",
                "size",
                "baseOffset",
                "lastOffset",
                "count",
                "crc",
                "deleteHorizonMs",
                "maxTimestamp",
            ):
                assert batch[name] == row[name], name
        records = [(row, record) for row in rows for record in row["records"]]
        for found, (row, record) in zip(dump_json(capfdbinary, log, "--print-data-log"), records, strict=True):
            for name in ("offset", "timestamp", "sequence"):
                assert found[name] == record[name], name
            headers = [[header["key"], describe_bytes(whole(header, "value"))] for header in found["headers"]]
            assert headers == record["headers"]
            if row["isControl"]:
                assert found["endTxnMarker"] in {"COMMIT", "ABORT"}
            else:
                assert describe_bytes(whole(found, "key")) == record["key"]
                assert describe_bytes(whole(found, "value")) == record["value"]


def test_json_of_the_metadata_log_is_decoded(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    name = "dynamic/10-stopped/node-3004/__cluster_metadata-0/00000000000000000000.log"
    records = dump_json(capfdbinary, LOGS / name, "--cluster-metadata-decoder")
    expected = GOLDEN / "kraft" / "expected" / f"{name}.jsonl.gz"
    rows = [record for batch in read_rows(expected) for record in batch["records"]]
    assert [record["offset"] for record in records] == [row["offset"] for row in rows]
    for found, row in zip(records, rows, strict=True):
        if "metadataRecord" in row:
            assert found["value"]["data"] == row["metadataRecord"]["data"]
            assert found["value"]["version"] == row["metadataRecord"]["version"]
        else:
            assert found["controlType"] in {"LeaderChange", "KRaftVersion", "KRaftVoters"}


def test_index_checks(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    source = TOPICS / "g-none-0"
    for name in ("log", "index", "timeindex"):
        (tmp_path / f"{0:020}.{name}").write_bytes((source / f"{0:020}.{name}").read_bytes())
    index, times = tmp_path / f"{0:020}.index", tmp_path / f"{0:020}.timeindex"
    assert main(["dump-log", "--files", f"{index},{times}", "--index-sanity-check"]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert f"{index} passed sanity check." in out
    assert f"{times} passed sanity check." in out
    assert main(["dump-log", "--files", f"{index},{times}", "--verify-index-only"]) == 0
    assert capfdbinary.readouterr().err == b""
    damaged = bytearray(index.read_bytes())
    damaged[3] += 1
    index.write_bytes(damaged)
    assert main(["dump-log", "--files", str(index), "--verify-index-only"]) == 0
    assert b"Mismatches in :" in capfdbinary.readouterr().err
    index.write_bytes(damaged[:-1])
    assert main(["dump-log", "--files", str(index), "--index-sanity-check"]) == 1
    index.write_bytes(b"")
    assert main(["dump-log", "--files", str(index)]) == 0
    assert f"{index} is empty." in capfdbinary.readouterr().out.decode()


def test_damage_is_named_and_ends_with_status_one(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    data = bytearray((TOPICS / "g-none-0" / f"{0:020}.log").read_bytes())
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(data + bytes(100))
    # Kafka's tool ends at zeros too, after the batches; JSON takes them for space that was allocated in advance.
    assert main(["dump-log", "--files", str(log)]) == 1
    assert f"position {len(data)}".encode() in capfdbinary.readouterr().err
    assert len(dump_json(capfdbinary, log)) == 21
    log.write_bytes(data[:-1])
    assert main(["dump-log", "--files", str(log)]) == 0
    assert b"invalid bytes at the end" in capfdbinary.readouterr().out
    data[8:12] = b"\xff\xff\xff\xff"
    log.write_bytes(data)
    for json_flag in ([], ["--json"]):
        assert main(["dump-log", "--files", str(log), *json_flag]) == 1
        assert b"position 0" in capfdbinary.readouterr().err
    assert main(["dump-log", "--files", str(tmp_path / f"{7:020}.log")]) == 1
    assert b"no such file" in capfdbinary.readouterr().err
