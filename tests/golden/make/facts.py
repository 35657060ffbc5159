"""Make ``protocol-facts.json.gz`` from Kafka's jars: the message schemas inside them, and the tables of its classes.

Everything is the same in each run. The schemas are read here, the tables by ``java/Facts.java``.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from interop.harness import Java

PROGRAM = str(Path(__file__).parent / "java" / "Facts.java")
HEADERS = str(Path(__file__).parent / "java" / "Headers.java")

_SCHEMA = re.compile(r"(?:common/)?(?:message|metadata)/\w+\.json")
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)

Row = dict[str, Any]


def make(java: Java) -> Row:
    """The whole table.

    Args:
        java: Kafka's jars.
    """
    tables: Row = json.loads(java.tool(PROGRAM).stdout)
    return {**tables, "schemas": schemas(java.libs)}


def make_old(java: Java) -> Row:
    """The table of Kafka 3.9.1, which has the schemas of the clients alone."""
    return {"errors": [], "schemas": schemas(java.libs)}


def headers(java: Java) -> list[Row]:
    """The header versions of each API."""
    rows: list[Row] = json.loads(java.tool(HEADERS).stdout)
    return rows


def write(table: Row, target: Path) -> None:
    """Write a table as the committed file has it."""
    text = json.dumps(table, separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), mtime=0))


def schemas(libs: str) -> list[Row]:
    """The message schemas of all jars of a class path, by jar and name."""
    found = []
    for jar in sorted(Path(libs.removesuffix("/*")).glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(archive.namelist()):
                if _SCHEMA.fullmatch(name):
                    raw = json.loads(_COMMENT.sub("", archive.read(name).decode()))
                    found.append(schema(raw, module=re.sub(r"-[\d.]+$", "", jar.stem)))
    return found


def versions(text: str | None) -> list[int | None] | None:
    """``3+`` -> [3, None], ``0-4`` -> [0, 4], ``2`` -> [2, 2], ``none`` -> None."""
    if text is None or text == "none":
        return None
    low, _, high = text.partition("-")
    return [int(low[:-1]), None] if text.endswith("+") else [int(low), int(high or low)]


def schema(raw: Row, *, module: str) -> Row:
    """One message, without prose."""
    row: Row = {"name": raw["name"], "kind": raw["type"], "module": module}
    if "apiKey" in raw:
        row["apiKey"] = raw["apiKey"]
    row["valid"] = versions(raw["validVersions"])
    if raw.get("deprecatedVersions"):
        row["deprecated"] = versions(raw["deprecatedVersions"])
    row["flexible"] = versions(raw.get("flexibleVersions"))
    for key in ("latestVersionUnstable", "listeners"):
        if raw.get(key):
            row[key] = raw[key]
    if raw.get("commonStructs"):
        row["structs"] = {struct["name"]: fields(struct["fields"]) for struct in raw["commonStructs"]}
    row["fields"] = fields(raw.get("fields", []))
    return row


def fields(raw_fields: list[Row]) -> list[Row]:
    """The fields of a message or struct, in the order of the schema."""
    rows = []
    for raw in raw_fields:
        row: Row = {
            "name": raw["name"][:1].lower() + raw["name"][1:],
            "type": raw["type"],
            "versions": versions(raw.get("versions", raw.get("taggedVersions"))),
        }
        for key, source in (
            ("nullable", "nullableVersions"),
            ("tagged", "taggedVersions"),
            ("flexible", "flexibleVersions"),
        ):
            if source in raw:
                row[key] = versions(raw[source])
        for key in ("tag", "default", "entityType"):
            if key in raw:
                row[key] = raw[key]
        row.update({key: True for key in ("ignorable", "mapKey", "zeroCopy") if raw.get(key)})
        if "fields" in raw:
            row["fields"] = fields(raw.get("fields", []))
        rows.append(row)
    return rows
