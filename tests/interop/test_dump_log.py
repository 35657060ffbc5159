"""``kraftlog dump-log`` beside Kafka's DumpLogSegments: the same bytes on stdout, the same findings on stderr."""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from batch_rows import GOLDEN, read_rows
from interop.harness import HERE, Java
from interop.kafka_tools import DUMP
from kraftlog._kraftlog import encode_batch
from kraftlog.cli.__main__ import main
from kraftlog.wire.messages.metadata_records import ClientQuotaRecord
from kraftlog.wire.records import encode_metadata_record

TOPICS = GOLDEN / "topics"
KRAFT = GOLDEN / "kraft" / "logs"
DAMAGED = GOLDEN / "damaged"
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}
# The reason of a record that does not decode is in the words of each.
REASON = re.compile(rb"(Error at (?:offset )?\d+, skipping\.)[^\n]*")


def kafka_dumps(java: Java, commands: Sequence[Sequence[str]]) -> list[tuple[bytes, bytes, int]]:
    """What the real tool prints on stdout and stderr, and its exit code."""
    done = [java.tool(DUMP, *command, check=False) for command in commands]
    return [(completed.stdout.encode(), completed.stderr.encode(), completed.returncode) for completed in done]


def our_dump(command: Sequence[str]) -> tuple[bytes, bytes, int]:
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["dump-log", *command])
    out.flush()
    return out.buffer.getvalue(), err.getvalue().encode(), status


def compare(java: Java, commands: Sequence[Sequence[str]]) -> None:
    different = differences(java, commands)
    assert not different, f"{len(different)} of {len(commands)} differ:\n" + "\n".join(different[:20])


def differences(java: Java, commands: Sequence[Sequence[str]]) -> list[str]:
    """The commands whose output differs, each with the first line that does."""
    different = []
    for command, (out, err, end) in zip(commands, kafka_dumps(java, commands), strict=True):
        found_out, found_err, status = our_dump(command)
        where = " ".join(command).replace(f"{GOLDEN}/", "")
        kafka_lines = REASON.sub(rb"\1", out).split(b"\n")
        our_lines = REASON.sub(rb"\1", found_out).split(b"\n")
        if kafka_lines != our_lines:
            pairs = zip(kafka_lines, our_lines, strict=False)
            first = next((pair for pair in pairs if pair[0] != pair[1]), (b"<end>", b"<end>"))
            counts = f"{len(kafka_lines)} and {len(our_lines)} lines"
            different.append(f"{where}: Kafka {first[0][:300]!r}, ours {first[1][:300]!r}; {counts}; Kafka ended {end}")
        if end != status:
            different.append(f"{where}: Kafka ended with {end}, ours with {status}: {found_err[:300]!r}")
        if end == 0 and "snapshot" not in command[1] and err != found_err:
            different.append(f"{where}: Kafka says {err[:400]!r}, ours {found_err[:400]!r}")
    return different


def golden_commands(root: Path) -> list[list[str]]:
    commands = []
    for path in sorted(root.rglob("*")):
        if path.suffix in {".index", ".timeindex", ".txnindex", ".snapshot"}:
            commands += [["--files", str(path)], ["--files", str(path), "--verify-index-only"]]
        elif path.suffix in {".log", ".checkpoint"}:
            topic = path.parent.name.rpartition("-")[0] or "__cluster_metadata"
            decoder = DECODERS.get(topic)
            commands.append(["--files", str(path), "--print-data-log"])
            if decoder is not None:
                commands.append(["--files", str(path), decoder])
    return commands


@pytest.mark.slow
def test_every_file_of_a_node(java: Java, tmp_path: Path) -> None:
    commands = golden_commands(TOPICS / "node-1")
    assert len(commands) > 100
    compare(java, commands)


@pytest.mark.slow
@pytest.mark.parametrize("node", ["node-2", "node-3", "killed-node-2"])
def test_every_file_of_other_nodes(java: Java, tmp_path: Path, node: str) -> None:
    compare(java, golden_commands(TOPICS / node))


@pytest.mark.slow
def test_every_metadata_log_and_snapshot(java: Java, tmp_path: Path) -> None:
    commands = golden_commands(KRAFT)
    assert len(commands) > 200
    compare(java, commands)


def test_flags(java: Java, tmp_path: Path) -> None:
    log = str(TOPICS / "node-1" / "g-txn-0" / f"{5:020}.log")
    none = str(TOPICS / "node-1" / "g-none-0" / f"{0:020}.log")
    index = none.replace(".log", ".index")
    commands = [
        ["--files", log],
        ["--files", log, "--deep-iteration"],
        ["--files", log, "--deep-iteration", "--skip-record-metadata"],
        ["--files", log, "--print-data-log", "--skip-record-metadata"],
        ["--files", log, "--print-data-log", "--max-bytes", "2000"],
        ["--files", log, "--max-bytes", "0"],
        ["--files", f"{none},{log}", "--deep-iteration"],
        ["--files", none, "--value-decoder-class"],
        ["--files", index, "--max-message-size", "100"],
        ["--files", f"{index},{none.replace('.log', '.timeindex')}", "--index-sanity-check"],
        ["--files", str(tmp_path / "odd.file")],
        ["--files", str(tmp_path / f"{3:020}.log")],
        ["--files", str(tmp_path / "odd.log")],
        ["--files", str(tmp_path / f"{3:020}.txnindex")],
    ]
    compare(java, commands)


def test_indexes_that_do_not_fit_their_log(java: Java, tmp_path: Path) -> None:
    commands = []
    for number in range(12):
        folder = tmp_path / f"part-{number}"
        folder.mkdir()
        for suffix in (".log", ".index", ".timeindex"):
            source = TOPICS / "node-1" / "g-none-0" / f"{0:020}{suffix}"
            data = bytearray(source.read_bytes())
            if suffix == ".index":
                data[3 + 8 * (number % 5)] ^= 1 + number
            elif suffix == ".timeindex":
                data[7 + 12 * (number % 4)] ^= 1 + number
                data[11 + 12 * ((number + 1) % 4)] ^= number
            (folder / source.name).write_bytes(data)
        commands.append([str(folder / f"{0:020}{suffix}") for suffix in (".index", ".timeindex")])
    for suffix, zeros in ((".index", 96), (".timeindex", 120)):
        folder = tmp_path / f"zeros{suffix}"
        folder.mkdir()
        for name in (".log", ".index"):
            (folder / f"{0:020}{name}").write_bytes((TOPICS / "node-1" / "g-none-0" / f"{0:020}{name}").read_bytes())
        (folder / f"{0:020}{suffix}").write_bytes(bytes(zeros))
        commands.append([str(folder / f"{0:020}{suffix}")])
    together = [name for names in commands for name in names]
    runs = [["--files", ",".join(names)] for names in [*commands, together]]
    runs += [[*run, flag] for run in runs[:3] for flag in ("--verify-index-only", "--index-sanity-check")]
    compare(java, runs)


@pytest.mark.slow
def test_damaged_segments(java: Java, tmp_path: Path) -> None:
    paths = sorted(DAMAGED.rglob("*.log"))
    assert len(paths) == 680
    commands = [
        ["--files", str(path), "--print-data-log"] for path in paths if path.parent.name not in {"magic-0", "magic-1"}
    ]
    compare(java, commands)


def write_log(folder: Path, records: Sequence[tuple[int, bytes | None, bytes | None]]) -> str:
    folder.mkdir()
    log = folder / f"{0:020}.log"
    rows = [(timestamp, key, value, ()) for timestamp, key, value in records]
    log.write_bytes(encode_batch(rows, base_offset=0))
    return str(log)


def wire_rows(name: str) -> list[dict[str, Any]]:
    return list(read_rows(GOLDEN / "wire" / f"{name}.jsonl.gz"))


def coordinator_records(name: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Each value under a key of its type, keys without a value, and what is unknown or cut short."""
    rows = wire_rows(name)
    keys = {row["apiKey"]: bytes.fromhex(row["framedHex"]) for row in rows if row["kind"] == "coordinator-key"}
    records: list[tuple[int, bytes | None, bytes | None]] = [
        (1, bytes.fromhex(row["framedHex"]), None) for row in rows if row["kind"] == "coordinator-key"
    ]
    values = [(row["apiKey"], bytes.fromhex(row["framedHex"])) for row in rows if row["kind"] == "coordinator-value"]
    records += [(2, keys[kind], value) for kind, value in values]
    records += [(3, keys[kind], value[:-1]) for kind, value in values if len(value) > 3]
    records += [(4, b"\x7f\x00", b"x"), (4, b"\x00", b"x"), (4, keys[0][:-1], None), (4, keys[0], b"\x7f\x00\x00")]
    return records


def remote_records() -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (1, b"key", bytes([1, row["apiKey"], row["version"]]) + bytes.fromhex(row["hex"]))
        for row in wire_rows("storage-records")
        if row["apiKey"] >= 0 and row["api"].startswith("Remote")
    ]


def test_every_record_type_of_kafkas_own_topics(java: Java, tmp_path: Path) -> None:
    metadata = [(1, None, bytes.fromhex(row["framedHex"])) for row in wire_rows("metadata-records")]
    broken: list[tuple[int, bytes | None, bytes | None]] = [
        (2, None, value) for value in (b"", b"\x01", b"\x02\x00\x00", b"\x01\x7f\x00", b"\x01\x02\x63")
    ]
    doubles = [
        0.0,
        -0.0,
        1.0,
        0.001,
        0.00099,
        1e7,
        9999999.0,
        123456789.5,
        1e-10,
        2.5e300,
        math.inf,
        -math.inf,
        math.nan,
    ]
    quotas = [
        (3, None, encode_metadata_record(ClientQuotaRecord(entity=(), key="rate", value=value, remove=False), 0))
        for value in doubles
    ]
    commands = [
        ["--files", write_log(tmp_path / "metadata", [*metadata, *broken, *quotas]), "--cluster-metadata-decoder"],
        ["--files", write_log(tmp_path / "remote", remote_records()), "--remote-log-metadata-decoder"],
    ]
    for name, flag in (
        ("group-coordinator-records", "--offsets-decoder"),
        ("transaction-coordinator-records", "--transaction-log-decoder"),
        ("share-coordinator-records", "--share-group-state-decoder"),
    ):
        commands.append(["--files", write_log(tmp_path / name, coordinator_records(name)), flag])
        commands.append([*commands[-1], "--skip-record-metadata"])
    compare(java, commands)


def test_older_message_formats(java: Java, tmp_path: Path) -> None:
    commands = []
    for number, formats in enumerate((["0"], ["1"], ["0", "1", "2"], ["2", "1"])):
        folder = tmp_path / f"part-{number}"
        folder.mkdir()
        log = folder / f"{100 * number:020}.log"
        java.tool(str(HERE / "java" / "RecordFiles.java"), "write", str(log), str(100 * number), str(number), *formats)
        forms = ([], ["--deep-iteration"], ["--print-data-log"], ["--print-data-log", "--skip-record-metadata"])
        commands += [["--files", str(log), *flags] for flags in forms]
    compare(java, commands)


def test_damage_to_older_message_formats(java: Java, tmp_path: Path) -> None:
    """Inside a compressed set we refuse all of its messages where Kafka shows those before the bad one: else alike."""
    commands = []
    for number, formats in enumerate((["0"], ["1"], ["1", "0"])):
        log = tmp_path / f"{number:020}.log"
        java.tool(str(HERE / "java" / "RecordFiles.java"), "write", str(log), str(number), str(number), *formats)
        data = log.read_bytes()
        for position in range(60, len(data), max(len(data) // 12, 1)):
            folder = tmp_path / f"part-{number}-{position}"
            folder.mkdir()
            changed = bytearray(data)
            changed[position] ^= 0x40
            (folder / log.name).write_bytes(changed)
            commands.append(["--files", str(folder / log.name), "--print-data-log"])
    same = 0
    for command, (out, _, _) in zip(commands, kafka_dumps(java, commands), strict=True):
        found, _, status = our_dump(command)
        if found == out:
            same += 1
        else:
            assert status == 1
            assert out.startswith(found), command
    assert same > len(commands) * 3 // 4
