"""Expected rows of log directories: what Kafka's classes read in their files (Rows.java and Indexes.java in ``java``).

The reads and timestamp searches asked of each segment follow from its rows and the seed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from golden.make.rows import answers, write_rows
from interop.harness import Java

HERE = Path(__file__).parent
ROWS = str(HERE / "java" / "Rows.java")
INDEXES = str(HERE / "java" / "Indexes.java")
READS, SEARCHES = 14, 10
READ_SIZES = (1, 61, 100, 1000, 5000, 20000, 1 << 20)
INDEX_INTERVAL_BYTES = 4096  # Kafka's default of index.interval.bytes

Row = dict[str, Any]


def read_json(path: Path) -> Row:
    """An object of a ``.json`` or ``.json.gz`` file."""
    data = path.read_bytes()
    row: Row = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return row


def write_json(path: Path, row: Any) -> None:
    """Write an object; the same object gives the same bytes."""
    text = (json.dumps(row, indent=1, ensure_ascii=False) + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def rows_of_files(java: Java, files: Sequence[Path]) -> list[list[Row]]:
    """The batch rows of each ``.log`` or ``.checkpoint`` file."""
    return [found["batches"] for found in answers(java, ROWS, "batches", [str(path) for path in files])]


def questions(log: Path, rows: Sequence[Row], interval_bytes: int, chance: random.Random) -> Row:
    """What a segment is asked: reads of its first, last and next offset and others, searches near its timestamps."""
    first = int(log.stem)
    last = rows[-1]["lastOffset"] if rows else first
    offsets = [first, last, last + 1, *(chance.randint(first, last) for _ in range(READS - 3))]
    times = [record["timestamp"] for row in rows for record in row["records"]] or [0]
    near = [chance.choice(times) + chance.choice((0, 0, 1, -1, 17, -17, 456, -1004)) for _ in range(SEARCHES)]
    return {
        "file": str(log),
        "indexIntervalBytes": interval_bytes,
        "reads": [
            {"offset": offset, "maxBytes": chance.choice(READ_SIZES), "minOneMessage": chance.random() < 0.5}
            for offset in offsets
        ],
        "timestampSearches": [
            # Java's long has an end; what precedes the first offset is the whole segment.
            {"timestamp": max(-(2**63), min(time, 2**63 - 1)), "startOffset": chance.randint(first, last)}
            for time in near
        ],
    }


def write_topics(java: Java, topics: Path, intervals: Mapping[str, int], seed: int) -> None:
    """Write ``expected/`` of every partition of every node below ``topics``.

    Args:
        java: Kafka's jars.
        topics: The folder that has a folder per node.
        intervals: By topic, index.interval.bytes where it is not the default.
        seed: Decides what is asked of the segments.
    """
    logs = sorted(topics.glob("*/*/*.log"))
    rows = dict(zip(logs, rows_of_files(java, logs), strict=True))
    for log, batches in rows.items():
        write_rows(_target(topics, log, ".batches.jsonl.gz"), batches)
    asked = [
        questions(
            log,
            rows[log],
            intervals.get(log.parent.name.rpartition("-")[0], INDEX_INTERVAL_BYTES),
            random.Random(f"{seed} {log.relative_to(topics)}"),
        )
        for log in logs
    ]
    for log, answer in zip(logs, answers(java, INDEXES, "segment", asked), strict=True):
        write_json(_target(topics, log, ".index.json.gz"), answer)
    folders = sorted({log.parent for log in logs})
    for folder, answer in zip(folders, partitions(java, folders), strict=True):
        segments = [segment(log, rows[log]) for log in logs if log.parent == folder]
        write_json(topics / "expected" / folder.relative_to(topics) / "partition.json", {"segments": segments} | answer)


def partitions(java: Java, folders: Iterable[Path]) -> list[Row]:
    """Producer snapshots and leader epochs of partition directories."""
    return answers(java, INDEXES, "partition", [str(folder) for folder in folders])


def segment(log: Path, rows: Sequence[Row]) -> Row:
    """The row of a segment in ``partition.json``."""
    data = log.read_bytes()
    return {
        "baseOffset": int(log.stem),
        "logBytes": len(data),
        "batches": len(rows),
        "logSha256": hashlib.sha256(data).hexdigest(),
    }


def _target(topics: Path, log: Path, suffix: str) -> Path:
    return topics / "expected" / log.parent.relative_to(topics) / f"{log.stem}{suffix}"


def write_kraft(java: Java, kraft: Path) -> None:
    """Write ``expected/`` of every metadata log, checkpoint, index and quorum-state below ``kraft / "logs"``."""
    logs = kraft / "logs"
    files = sorted(path for path in logs.rglob("*") if path.suffix in {".log", ".checkpoint"})
    for path, rows in zip(files, rows_of_files(java, files), strict=True):
        write_rows(_beside(kraft, path, f"{path.name}.jsonl.gz"), rows)
    indexed = [path for path in files if path.with_suffix(".index").exists()]
    asked = [{"file": str(path)} for path in indexed]
    for path, answer in zip(indexed, answers(java, INDEXES, "segment", asked), strict=True):
        write_json(_beside(kraft, path, f"{path.stem}.index.json.gz"), answer)
    states = sorted(logs.rglob("quorum-state"))
    for path, answer in zip(states, quorum_states(java, states), strict=True):
        write_json(_beside(kraft, path, "quorum-state.json"), answer)


def quorum_states(java: Java, files: Iterable[Path]) -> list[Row]:
    """What Kafka reads in files ``quorum-state``."""
    return answers(java, INDEXES, "quorum-state", [str(path) for path in files])


def _beside(kraft: Path, path: Path, name: str) -> Path:
    return kraft / "expected" / path.parent.relative_to(kraft / "logs") / name
