"""Rows of golden files: one JSON object per line, asked of a Java program that reads and writes such lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from interop.harness import Java

Row = dict[str, Any]


def answers(java: Java, program: str, verb: str, questions: Sequence[Row | str]) -> list[Row]:
    """What the program answers, one row per question, in their order.

    Args:
        java: Kafka's jars.
        program: A Java source file of this folder.
        verb: Its first argument.
        questions: JSON objects, or lines such as paths.

    Raises:
        AssertionError: The program failed, or gave another number of lines.
    """
    lines = [question if isinstance(question, str) else json.dumps(question) for question in questions]
    text = java.tool(program, verb, text_input="\n".join(lines), timeout=300).stdout
    rows = [json.loads(line) for line in text.splitlines() if line]
    assert len(rows) == len(lines), f"{program} {verb}: {len(lines)} questions, {len(rows)} answers"
    return rows


def read_rows(path: Path) -> list[Row]:
    """The rows of a ``.jsonl`` or ``.jsonl.gz`` file."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [json.loads(line) for line in text.split("\n") if line]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows; the same rows give the same bytes."""
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())
