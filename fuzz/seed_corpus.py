"""Seeds of the fuzz targets, cut from the golden files: `python fuzz/seed_corpus.py [DIRECTORY]`.

A directory for each target (default fuzz/corpus) with small files named by their content, as libFuzzer wants them.
Nothing of it is committed: the golden files are the source.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
SEED_BYTES_MAX = 16 * 1024
HEADER_SIZE = 61


class Corpus:
    """Writes seeds below one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.counts: dict[str, int] = {}

    def add(self, target: str, data: bytes) -> None:
        """One seed, unless it is too long to mutate well."""
        if len(data) > SEED_BYTES_MAX:
            return
        directory = self._directory / target
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / hashlib.sha256(data).hexdigest()[:20]
        if not path.exists():
            path.write_bytes(data)
            self.counts[target] = self.counts.get(target, 0) + 1


def batches(log: bytes) -> Iterator[bytes]:
    """The whole record batches of a file."""
    at = 0
    while at + HEADER_SIZE <= len(log):
        size = 12 + int.from_bytes(log[at + 8 : at + 12], "big", signed=True)
        if size < HEADER_SIZE or at + size > len(log):
            return
        yield log[at : at + size]
        at += size


def pieces(*parts: bytes) -> bytes:
    """Parts in the form that `kraftlog_fuzz::pieces` cuts."""
    lengths = b"".join(min(len(part), 0xFFFF).to_bytes(2, "big") for part in parts)
    return lengths + b"".join(part[:0xFFFF] for part in parts)


def add_batch(corpus: Corpus, batch: bytes) -> None:
    """A batch for each target that takes one, and its body for its codec."""
    corpus.add("batch_header", batch)
    corpus.add("records", batch)
    for choice in (0, 2, 4, 0x18):
        corpus.add("columns", bytes([choice]) + batch)
    for choice in (1, 3):
        corpus.add("json_dump", bytes([choice]) + batch)
    if len(batch) < HEADER_SIZE:
        return
    codec = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}.get(batch[22] & 7)
    if codec and batch[16] == 2:
        corpus.add(f"codec_{codec}", bytes(2) + batch[HEADER_SIZE:])


def add_log(corpus: Corpus, log: bytes) -> None:
    """The start of a segment for the targets that walk one."""
    few = b""
    for batch in batches(log):
        if len(few) + len(batch) > SEED_BYTES_MAX // 2:
            break
        few += batch
    for start in (few, log):
        corpus.add("segment_recover", b"\1" + start)
        corpus.add("segment_recover", b"\0" + start)
        corpus.add("fetched_records", b"\1" + start)
        corpus.add("fetched_records", b"\6" + start)
        corpus.add("json_dump", b"\3" + start)
        corpus.add("partition_scan", b"\4" + pieces(start, start, b"", b""))


def add_partition(corpus: Corpus, directory: Path) -> None:
    """Every sidecar of a partition directory for its target, and all together for `log_open`."""

    def first(pattern: str) -> bytes:
        found = sorted(directory.glob(pattern))
        return found[0].read_bytes()[:2048] if found else b""

    for suffix, target, prefix in (
        ("*.index", "offset_index", bytes(8)),
        ("*.timeindex", "time_index", bytes(8)),
        ("*.txnindex", "transaction_index", b""),
        ("*.snapshot", "producer_snapshot", b""),
        ("leader-epoch-checkpoint", "epoch_checkpoint", b""),
        ("partition.metadata", "partition_metadata", b""),
    ):
        for path in directory.glob(suffix):
            corpus.add(target, prefix + path.read_bytes()[:4096])
    logs = [path.read_bytes() for path in sorted(directory.glob("*.log"))]
    heads = []
    for log in logs:
        head = b""
        for batch in batches(log):
            if len(head) + len(batch) > SEED_BYTES_MAX // 3:
                break
            head += batch
        heads.append(head)
    sidecars = [first(pattern) for pattern in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")]
    sidecars += [first("leader-epoch-checkpoint"), first("partition.metadata")]
    for choice in (0x3E, 0x3F, 0x00, 0x01):
        corpus.add("log_open", bytes([choice]) + pieces(heads[0] if heads else b"", b"", *sidecars))
    corpus.add("partition_scan", b"\4" + pieces(heads[0] if heads else b"", b"", *sidecars[:2]))


def legacy_sets() -> Iterator[bytes]:
    """The vectors of the formats before record batches."""
    for magic in (0, 1):
        with gzip.open(GOLDEN / "vectors" / f"batches-magic{magic}.jsonl.gz", "rt") as rows:
            for row in rows:
                yield bytes.fromhex(json.loads(row)["hex"])


def add_requests(corpus: Corpus) -> None:
    """Produce and Fetch of the versions that the data path reads, with and without the header."""
    for name, key, first, count in (("000-Produce", 0, 9, 5), ("001-Fetch", 1, 12, 7)):
        with gzip.open(GOLDEN / "wire" / "api" / f"{name}.jsonl.gz", "rt") as rows:
            for row in map(json.loads, rows):
                if row["kind"] == "request" and row["version"] >= first:
                    body = bytes.fromhex(row["hex"])
                    header = key.to_bytes(2, "big") + row["version"].to_bytes(2, "big") + bytes(4) + b"\0\2me\0"
                    corpus.add("request_parsers", bytes([(row["version"] - first) % count]) + body)
                    corpus.add("request_parsers", b"\0" + header + body)


def main() -> None:
    """Fill the corpus."""
    corpus = Corpus(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "fuzz" / "corpus")
    logs = sorted([*GOLDEN.rglob("*.log"), *GOLDEN.rglob("*.checkpoint")])
    for path in logs:
        log = path.read_bytes()
        add_log(corpus, log)
        for index, batch in enumerate(batches(log)):
            if index % 7 == 0 or len(log) < SEED_BYTES_MAX:
                add_batch(corpus, batch)
    for directory in sorted({path.parent for path in logs if path.name.endswith(".log")}):
        add_partition(corpus, directory)
    for name in ("batches", "control-batches"):
        with gzip.open(GOLDEN / "vectors" / f"{name}.jsonl.gz", "rt") as rows:
            for row in rows:
                add_batch(corpus, bytes.fromhex(json.loads(row)["hex"]))
    for message_set in legacy_sets():
        corpus.add("legacy", message_set)
        corpus.add("segment_recover", b"\1" + message_set)
        corpus.add("json_dump", b"\3" + message_set)
    add_requests(corpus)
    for kind in range(6):
        text = base64.b64encode(bytes(range(90))).replace(b"A", b"\n")
        corpus.add("arrow_encode", bytes([kind, kind % 5, 0, 2 + kind]) + text + b"\n\0\nlast")
    for target, count in sorted(corpus.counts.items()):
        print(f"{target:20} {count:5} seeds")


if __name__ == "__main__":
    main()
