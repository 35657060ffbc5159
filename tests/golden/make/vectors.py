"""Make ``vectors/``: questions by seed, answers by Kafka's classes (``java/Vectors.java``, ``java/Rows.java``).

The same seed gives the same rows, but for compressed batches, whose bytes depend on the version of the codec's library.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golden.make.rows import answers, write_rows
from interop.harness import Java

PROGRAM = str(Path(__file__).parent / "java" / "Vectors.java")
# File -> the verb of Vectors.java.
KINDS = {
    "crc32c": "crc32c",
    "varint": "varint",
    "uuid": "uuid",
    "partitioner": "partitioner",
    "batches": "batches",
    "batches-magic1": "batches",
    "batches-magic0": "batches",
    "control-batches": "control",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TEXT = b"the quick brown fox jumps over the lazy dog "
NOW_MS = 1_700_000_000_000

Row = dict[str, Any]


def write(java: Java, folder: Path, seed: int) -> None:
    """Write all files of ``vectors/`` below ``folder``."""
    for name in KINDS:
        write_rows(folder / f"{name}.jsonl.gz", answered(java, name, questions(name, seed)))


def answered(java: Java, name: str, asked: Sequence[Row]) -> list[Row]:
    """The rows of one file: the questions with the answers of Kafka.

    Args:
        java: Kafka's jars.
        name: A key of ``KINDS``.
        asked: From ``questions``, or the question parts of rows that are there (``question_of``).
    """
    rows = answers(java, PROGRAM, KINDS[name], asked)
    if name not in {"batches", "batches-magic0", "batches-magic1", "control-batches"}:
        return rows
    decoded = answers(java, str(Path(PROGRAM).with_name("Rows.java")), "bytes", [{"hex": row["hex"]} for row in rows])
    return [{**row, **more} for row, more in zip(rows, decoded, strict=True)]


def question_of(name: str, row: Row) -> Row | None:
    """What was asked for a row of a golden file; None where the row does not have all of it.

    A LeaderChangeMessage of version 1 is such a row: Kafka writes it and does not read it.
    """
    answer_fields = {"crc32c": {"crc32c"}, "uuid": {"msb", "lsb", "text", "javaUuid", "reserved", "exception"}}
    if name == "varint":
        keys = {"kind", "decode"} if "decode" in row else {"kind", "value"}
        return {key: row[key] for key in row if key in keys}
    if name == "partitioner":
        return {key: row[key] for key in row if key in {"keyHex", "id"}}
    if name in answer_fields:
        return {key: row[key] for key in row if key not in answer_fields[name]}
    if name != "control-batches":
        asked = {key: row[key] for key in row if key not in {"hex", "decoded"}}
        return {**asked, "empty": row["decoded"][0]} if "emptyHeader" in row else asked
    batch = row["decoded"][0]
    if "records" not in batch:
        return None
    record = batch["records"][0]
    return {
        "control": {
            "type": record["control"]["typeName"],
            "timestamp": record["timestamp"],
            **{key: batch[key] for key in ("baseOffset", "partitionLeaderEpoch", "producerId", "producerEpoch")},
            **{key: record["control"][key] for key in ("coordinatorEpoch", "value") if key in record["control"]},
        }
    }


def questions(name: str, seed: int) -> list[Row]:
    """The questions of one file."""
    chance = random.Random(f"{seed} {name}")
    if name.startswith("batches"):
        magic = int(name.removeprefix("batches-magic") or 2) if "-" in name else 2
        return batch_questions(chance, magic)
    makers = {
        "crc32c": crc_questions,
        "varint": varint_questions,
        "uuid": uuid_questions,
        "partitioner": partitioner_questions,
        "control-batches": control_questions,
    }
    return makers[name](chance)


def crc_questions(chance: random.Random) -> list[Row]:
    """Lengths round every power of two up to 64 KiB, offsets that are no multiple of eight."""
    rows: list[Row] = [{"hex": "", "times": 1, "offset": 0, "length": 0}]
    for exponent in range(17):
        for length in (2**exponent - 1, 2**exponent, 2**exponent + 1):
            part = chance.randbytes(chance.randint(1, 64))
            offset = chance.randrange(16)
            times = (offset + length) // len(part) + 1
            rows.append({"hex": part.hex(), "times": times, "offset": offset, "length": length})
    return rows


def varint_questions(chance: random.Random) -> list[Row]:
    """Values round each change of length, signed both ways, and encodings that are too long or cut."""
    rows: list[Row] = []
    for kind, bits in (("unsignedVarint", 32), ("varint", 32), ("varlong", 64), ("unsignedVarlong", 64)):
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        values = {low, high, 0, 1, -1}
        values.update(sign * ((1 << shift) + step) for shift in range(bits) for step in (-1, 0, 1) for sign in (1, -1))
        values.update(chance.randint(low, high) for _ in range(40))
        rows += [{"kind": kind, "value": value} for value in sorted(values) if low <= value <= high]
    odd = [
        "80",
        "8000",
        "808000",
        "ffffffff0f",
        "ffffffff7f",
        "ffffffffff",
        "80808080808000",
        "ff" * 9 + "01",
        "ff" * 10,
        "",
    ]
    odd += [chance.randbytes(chance.randint(1, 12)).hex() for _ in range(10)]
    rows += [{"kind": kind, "decode": text} for text in odd for kind in ("unsignedVarint", "varint", "varlong")]
    return rows


def uuid_questions(chance: random.Random) -> list[Row]:
    """The reserved ids, random ones, and text that is not one."""
    rows: list[Row] = [{"hex": f"{number:032x}"} for number in (0, 1, 2, (1 << 128) - 1)]
    rows += [{"hex": chance.randbytes(16).hex()} for _ in range(40)]
    good = base64.urlsafe_b64encode(chance.randbytes(16)).decode().rstrip("=")
    odd = [
        "",
        "A",
        good[1:],
        good + "A",
        good + "==",
        good + "AAAA",
        good[:-1] + "!",
        f" {good}",
        good.replace(good[3], "+", 1),
    ]
    return rows + [{"parse": text} for text in odd]


def partitioner_questions(chance: random.Random) -> list[Row]:
    """Keys of every length up to 16 and some longer, and names of groups."""
    lengths = [*range(17), 31, 32, 33, 255, 1000]
    rows: list[Row] = [{"keyHex": chance.randbytes(length).hex()} for length in lengths]
    names = ["", "g", "my-group", "polygenelubricants", "группа", "🙂"]  # the fourth has Java's least hash
    return rows + [{"id": name} for name in [*names, *(f"group-{chance.randrange(10**6)}" for _ in range(20))]]


def batch_questions(chance: random.Random, magic: int) -> list[Row]:
    """Batches of every codec, with nulls, empty values, headers, gaps between offsets and other ends."""
    rows: list[Row] = []
    for codec in CODECS if magic == 2 else CODECS[:4]:
        rows += [
            {"magic": magic, "compression": codec, "input": batch_input(chance, magic, is_first=not number)}
            for number in range(40 if magic == 2 else 12)
        ]
    if magic == 2:
        for _ in range(12):
            base_offset = chance.randrange(10**5)
            empty = {
                "baseOffset": base_offset,
                "lastOffset": base_offset + chance.randrange(100),
                "producerId": chance.randrange(-1, 1000),
                "producerEpoch": chance.randrange(100),
                "baseSequence": chance.randrange(10**5),
                "partitionLeaderEpoch": chance.randrange(30),
                "timestampType": chance.choice(["CreateTime", "LogAppendTime"]),
                "maxTimestamp": NOW_MS + chance.randrange(10**9),
                "isTransactional": chance.random() < 0.5,
                "isControl": chance.random() < 0.5,
            }
            rows.append({"magic": 2, "compression": "none", "emptyHeader": True, "empty": empty})
    return rows


def batch_input(chance: random.Random, magic: int, *, is_first: bool) -> Row:
    """The arguments of MemoryRecordsBuilder; the first batch of a codec has the plainest."""
    base_offset = 0 if is_first else chance.choice([0, 2**31, chance.randrange(10**9)])
    is_idempotent = magic == 2 and not is_first and chance.random() < 0.5
    appended = magic > 0 and not is_first and chance.random() < 0.3
    offset = base_offset
    records = []
    for _ in range(chance.choice([1, 2, 4, 9, 40])):
        timestamp = -1 if magic == 0 else NOW_MS + chance.randrange(-(10**6), 10**6)
        headers = [
            [chance.choice(["", "id", "键", "h-🙂"]), encoded(chance, 10)]
            for _ in range(chance.choice([0, 0, 1, 4]) if magic == 2 else 0)
        ]
        key, value = encoded(chance, 30), encoded(chance, chance.choice([10, 200, 4000]))
        records.append({"offset": offset, "timestamp": timestamp, "key": key, "value": value, "headers": headers})
        offset += 1 if magic < 2 or chance.random() < 0.8 else chance.randint(2, 9)
    last_offset = records[-1]["offset"]
    return {
        "baseOffset": base_offset,
        "timestampType": "LogAppendTime" if appended else "CreateTime",
        "logAppendTime": NOW_MS + chance.randrange(10**9) if appended else -1,
        "partitionLeaderEpoch": chance.randrange(1000) if magic == 2 and not is_first else -1,
        "producerId": chance.randrange(10**6) if is_idempotent else -1,
        "producerEpoch": chance.randrange(10**4) if is_idempotent else -1,
        "baseSequence": chance.randrange(10**6) if is_idempotent else -1,
        "isTransactional": is_idempotent and chance.random() < 0.5,
        "overrideLastOffset": last_offset + chance.randrange(1, 50) if magic == 2 and chance.random() < 0.1 else None,
        "records": records,
    }


def encoded(chance: random.Random, most: int) -> str | None:
    """Base64 of bytes that compress somewhat; null one time in six."""
    if chance.random() < 1 / 6:
        return None
    length = chance.randrange(most)
    start = chance.randrange(len(TEXT))
    data = bytearray((TEXT * (most // len(TEXT) + 2))[start : start + length])
    for _ in range(length // 20):
        data[chance.randrange(length)] = chance.randrange(256)
    return base64.b64encode(data).decode()


def control_questions(chance: random.Random) -> list[Row]:
    """Markers of transactions, and the control records of KRaft."""
    values: list[tuple[str, Row]] = []
    for kind in ("COMMIT", "ABORT") * 3:
        marker = {
            "coordinatorEpoch": chance.randrange(50),
            "producerId": chance.randrange(5000),
            "producerEpoch": chance.randrange(200),
        }
        values.append((kind, marker))
    for count in (0, 1, 3):
        voters = [{"voterId": chance.randrange(5000)} for _ in range(count)]
        message = {"version": 0, "leaderId": chance.randrange(5000), "voters": voters, "grantingVoters": voters[:1]}
        values.append(("LEADER_CHANGE", {"value": message}))
        # Version 1 names the directories of the voters; Kafka 4.3.1 writes it and does not read it.
        named = [{**voter, "voterDirectoryId": "AAAAAAAAAAAAAAAAAAAAAQ"} for voter in voters]
        values.append(
            ("LEADER_CHANGE", {"value": {**message, "version": 1, "voters": named, "grantingVoters": named[:1]}})
        )
        voter_rows = [
            {
                "voterId": 3000 + number,
                "voterDirectoryId": base64.urlsafe_b64encode(chance.randbytes(16)).decode().rstrip("="),
                "endpoints": [{"name": "CONTROLLER", "host": f"host-{number}.example", "port": 9093}],
                "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
            }
            for number in range(count)
        ]
        values.append(("KRAFT_VOTERS", {"value": {"version": 0, "voters": voter_rows}}))
        values.append(
            ("SNAPSHOT_HEADER", {"value": {"version": 0, "lastContainedLogTimestamp": chance.randrange(2**44)}})
        )
        values.append(("SNAPSHOT_FOOTER", {"value": {"version": 0}}))
        values.append(("KRAFT_VERSION", {"value": {"version": 0, "kRaftVersion": chance.randrange(2)}}))
    return [
        {
            "control": {
                "type": kind,
                "baseOffset": chance.randrange(10**5),
                "timestamp": NOW_MS + chance.randrange(10**9),
                "partitionLeaderEpoch": chance.randrange(30),
                **more,
            }
        }
        for kind, more in values
    ]
