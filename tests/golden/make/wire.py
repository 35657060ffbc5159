"""Make ``wire/``: messages of every API and version from the facts, in bytes and JSON by Kafka (``java/Wire.java``).

The same seed gives the same files.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golden.make.rows import answers, write_rows
from interop.harness import Java

PROGRAM = str(Path(__file__).parent / "java" / "Wire.java")
FILES = {
    ("header", "kafka-clients"): "headers",
    ("metadata", "kafka-metadata"): "metadata-records",
    ("metadata", "kafka-storage"): "storage-records",
    ("data", "kafka-storage"): "storage-records",
    ("data", "kafka-raft"): "quorum-state",
}
EMBEDDED = {"ConsumerProtocolAssignment", "ConsumerProtocolSubscription", "DefaultPrincipalData"}
TEXTS = ("", "orders", "a", "metadata.version", "with space", "Grüße", "हिन्दी", "🙂", "nul\x00in", "x.y-z_0")
# An empty batch of format v2, for fields of type records.
BATCH = bytes.fromhex("0000000000000000000000310000000002fd31ec4a" + "00" * 12 + "ff" * 14 + "00000000")
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

Row = dict[str, Any]


def in_range(versions: Sequence[int | None] | None, version: int) -> bool:
    """Whether a range of the facts has a version; no range has none."""
    return versions is not None and versions[0] <= version and (versions[1] is None or version <= versions[1])


def file_of(schema: Row) -> str:
    """The file of ``wire/`` that holds a message."""
    if schema["kind"] in {"request", "response"}:
        return f"api/{schema['apiKey']:03}-{schema['name'].removesuffix('Request').removesuffix('Response')}"
    if schema["kind"].startswith("coordinator-"):
        return schema["module"].removeprefix("kafka-") + "-records"
    if (schema["kind"], schema["module"]) in FILES:
        return FILES[schema["kind"], schema["module"]]
    return "embedded" if schema["name"] in EMBEDDED else "control-records"


@dataclass
class Sample:
    """One message in the making: 0 all fields set, 1 nulls and empty arrays, 2 and 3 random, 4 with unknown tags."""

    schema: Row
    version: int
    number: int
    chance: random.Random
    unknown_tags: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_flexible = in_range(self.schema["flexible"], self.version)
        self.structs = dict(self.schema.get("structs", {}))
        self._collect(self.schema["fields"])

    def _collect(self, fields: Sequence[Row]) -> None:
        for fact in fields:
            if "fields" in fact:
                self.structs.setdefault(fact["type"].removeprefix("[]"), fact["fields"])
                self._collect(fact["fields"])

    def json(self) -> Row:
        return self._struct(self.schema["fields"], "")

    def _struct(self, fields: Sequence[Row], path: str) -> Row:
        if self.is_flexible and self.number == 4 and (not path or self.chance.random() < 0.2):
            for tag in sorted(
                self.chance.sample([60, 127, 128, 5000, 16383, 16384, 1000000, 2**31 - 2], self.chance.randint(1, 2))
            ):
                data = self.chance.randbytes(self.chance.randrange(24))
                self.unknown_tags.append({"path": path, "tag": tag, "hex": data.hex()})
        row = {}
        for fact in fields:
            if not in_range(fact["versions"], self.version):
                continue
            is_tagged = in_range(fact.get("tagged"), self.version)
            if is_tagged and (self.number == 1 or (self.number > 1 and self.chance.random() < 0.5)):
                continue
            row[fact["name"]] = self._field(fact, f"{path}.{fact['name']}".lstrip("."))
        return row

    def _field(self, one: Row, path: str) -> Any:
        kind = one["type"]
        is_nullable = in_range(one.get("nullable"), self.version)
        if is_nullable and self.number != 0 and (self.number == 1 or self.chance.random() < 0.3):
            return None
        if not kind.startswith("[]"):
            return self._value(kind, path)
        count = {0: 2, 1: 0}.get(self.number, self.chance.randrange(4))
        # Elements that a map keeps by key must differ.
        items = [self._value(kind[2:], f"{path}[{index}]") for index in range(count)]
        if not any(inner.get("mapKey") for inner in self.structs.get(kind[2:], ())):
            return items
        keys = [inner["name"] for inner in self.structs[kind[2:]] if inner.get("mapKey")]
        texts = [str([item.get(key) for key in keys]) for item in items]
        if len(set(texts)) == len(texts):
            return items
        dropped = tuple(f"{path}[{index}]" for index in range(1, count))
        self.unknown_tags = [tag for tag in self.unknown_tags if not tag["path"].startswith(dropped)]
        return items[:1]

    def _value(self, kind: str, path: str) -> Any:
        chance = self.chance
        if kind in self.structs:
            return self._struct(self.structs[kind], path)
        if kind in INTEGERS:
            bits = INTEGERS[kind]
            edges = [0, 1, -1, 127, (1 << bits - 1) - 1, -(1 << bits - 1)]
            return (
                chance.choice(edges) if chance.random() < 0.4 else chance.randint(-(1 << bits - 1), (1 << bits - 1) - 1)
            )
        if kind in {"uint16", "uint32"}:
            return chance.randrange(1 << int(kind[4:]))
        match kind:
            case "bool":
                return self.number == 0 or chance.random() < 0.5
            case "float64":
                return chance.choice([0.0, 1.5, -0.25, chance.random() * 1e9])
            case "uuid":
                return base64.urlsafe_b64encode(chance.randbytes(16)).decode().rstrip("=")
            case "string":
                return chance.choice(TEXTS) + (str(chance.randrange(10**5)) if chance.random() < 0.5 else "")
            case "bytes":
                return base64.b64encode(chance.randbytes(chance.randrange(1, 30))).decode()
            case "records":
                return base64.b64encode(BATCH).decode()
        raise AssertionError(f"{self.schema['name']}: {path} has the type {kind}")


def questions(facts: Row, seed: int, *, newer: Row | None = None) -> Iterator[tuple[str, Row]]:
    """File and question of every message.

    Args:
        facts: ``protocol-facts``; header versions are in its ``apis``.
        seed: Decides the content.
        newer: Facts of a later Kafka: versions that it still has are left out.
    """
    apis = {api["key"]: api for api in facts["apis"]}
    kept = {schema["name"]: schema["valid"] for schema in newer["schemas"]} if newer is not None else {}
    for schema in sorted(facts["schemas"], key=lambda one: (one.get("apiKey", -1), one["kind"], one["name"])):
        if schema["valid"] is None:
            continue
        low, high = schema["valid"]
        for version in range(low, (low if high is None else high) + 1):
            if in_range(kept.get(schema["name"]), version):
                continue
            is_flexible = in_range(schema["flexible"], version)
            for number in range(5 if is_flexible else 4):
                chance = random.Random(f"{seed} {schema['name']} {version} {number}")
                sample = Sample(schema, version, number, chance)
                row = {
                    "api": schema["name"],
                    "apiKey": schema.get("apiKey", -1),
                    "kind": schema["kind"],
                    "version": version,
                    "flexible": is_flexible,
                    "stable": not (schema.get("latestVersionUnstable") and version == high),
                    "sample": number,
                }
                if schema["kind"] in {"request", "response"}:
                    api = apis[schema["apiKey"]]
                    row["headerVersion"] = api[f"{schema['kind']}HeaderVersions"][version - api["min"]]
                row["json"] = sample.json()
                if sample.unknown_tags:
                    row["unknownTags"] = sample.unknown_tags
                yield file_of(schema), row


def answered(java: Java, asked: Sequence[Row]) -> list[Row]:
    """Whole rows: bytes of the JSON by Kafka, and its JSON of the bytes, which leaves out what need not be said."""
    written = answers(java, PROGRAM, "write", asked)
    rows = [{**row, "hex": found["hex"]} for row, found in zip(asked, written, strict=True)]
    read = answers(java, PROGRAM, "read", rows)
    rows = [{**row, "json": found["json"]} for row, found in zip(rows, read, strict=True)]
    return [{**row, "framedHex": frame(row) + row["hex"]} if frame(row) is not None else row for row in rows]


def frame(row: Row) -> str | None:
    """What stands before the body in a log: record type and version; None where nothing does."""
    if row["kind"] == "metadata":
        # AbstractApiMessageSerde begins with its frame version 1, BytesApiMessageSerde of tiered storage with 0.
        return bytes([0 if is_remote(row) else 1, row["apiKey"], row["version"]]).hex()
    if row["kind"] == "coordinator-key":
        return f"{row['apiKey']:04x}"
    return f"{row['version']:04x}" if row["kind"] == "coordinator-value" else None


def is_remote(row: Row) -> bool:
    """A record of ``__remote_log_metadata``."""
    return row["api"].startswith(("RemoteLogSegment", "RemotePartitionDelete"))


def malformed_questions(rows: Sequence[Row], seed: int) -> Iterator[Row]:
    """Requests and responses cut, with one byte changed, and with five bytes 0xff."""
    for row in rows:
        chance = random.Random(f"{seed} malformed {row['api']} {row['version']}")
        data = bytes.fromhex(row["hex"])
        if not data or row["kind"] not in {"request", "response"} or row["sample"] != 2:
            continue
        place = chance.randrange(len(data))
        ones = data[:place] + b"\xff" * 5 + data[place + 5 :]
        changed = data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
        for mutation, mutated in (
            (f"truncate:{place}", data[:place]),
            (f"set:{place}", changed),
            (f"ff5:{place}", ones),
        ):
            yield {key: row[key] for key in ("api", "apiKey", "kind", "version")} | {
                "mutation": mutation,
                "hex": mutated.hex(),
            }


def malformed(java: Java, asked: Sequence[Row]) -> list[Row]:
    """What Kafka's classes make of damaged bodies."""
    return [{**row, **found} for row, found in zip(asked, answers(java, PROGRAM, "malformed", asked), strict=True)]


def write(java: Java, facts: Row, folder: Path, seed: int) -> None:
    """Write all files of ``wire/`` below ``folder``."""
    rows = write_messages(java, list(questions(facts, seed)), folder)
    write_rows(folder / "malformed.jsonl.gz", malformed(java, list(malformed_questions(rows, seed))))


def write_messages(java: Java, asked: Sequence[tuple[str, Row]], folder: Path) -> list[Row]:
    """Write the rows of questions into their files below ``folder``."""
    rows = answered(java, [row for _, row in asked])
    files: dict[str, list[Row]] = {}
    for (name, _), row in zip(asked, rows, strict=True):
        files.setdefault(name, []).append(row)
    for name, members in files.items():
        write_rows(folder / f"{name}.jsonl.gz", members)
    return rows
