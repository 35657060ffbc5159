"""Make ``topics/`` and the story ``standalone`` of ``kraft/`` with a Kafka that runs: one node, stopped cleanly.

Keys, values, headers and the timestamps of producers follow from the seed. Producer ids, ids of topics and of the
directory, the timestamps of the broker and of markers, and with them checksums, differ from run to run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from golden.make.rows import answers, write_rows
from interop.harness import Java, KafkaServer

HERE = Path(__file__).parent
WORKLOAD = str(HERE / "java" / "Workload.java")
ROWS = str(HERE / "java" / "Rows.java")
NODE = "node-1"
# Index files of a running node are preallocated; these ones are closed, but those of the metadata log are left out, as
# in the committed files. The lock is empty.
LEFT_OUT = (".lock", "*.deleted")


def write(java: Java, folder: Path, seed: int) -> None:
    """Run Kafka, fill it, stop it, and write its directories with the expected rows below ``folder``."""
    with tempfile.TemporaryDirectory(prefix="golden-") as home:
        server = KafkaServer(Path(home) / "kafka", java, {"metadata.log.segment.ms": "5000"})
        server.start()
        try:
            # A JVM of its own: the clients' threads end with it.
            told: dict[str, Any] = json.loads(java.run(WORKLOAD, server.bootstrap, str(seed)).stdout)
            server.stop()
        finally:
            server.kill()
        copy(server.data_dir, folder)
    (folder / "topics" / "workload.json").write_text(
        json.dumps({"seed": told["seed"], "topics": told["topics"]}, indent=1) + "\n"
    )
    (folder / "topics" / "consumers.json").write_text(json.dumps(told["consumers"], indent=1) + "\n")
    describe(java, folder / "topics", Path(NODE), "{stem}.batches.jsonl.gz")
    describe(java, folder / "kraft", Path("logs") / "standalone" / "stopped" / NODE, "{name}.jsonl.gz")


def copy(data_dir: Path, folder: Path) -> None:
    """Split a node's directory into what belongs to ``topics`` and to ``kraft``."""
    ignored = shutil.ignore_patterns("__cluster_metadata-0", *LEFT_OUT)
    shutil.copytree(data_dir, folder / "topics" / NODE, ignore=ignored)
    kraft = folder / "kraft" / "logs" / "standalone" / "stopped" / NODE
    metadata = data_dir / "__cluster_metadata-0"
    shutil.copytree(metadata, kraft / metadata.name, ignore=shutil.ignore_patterns("*index", *LEFT_OUT))
    for name in ("meta.properties", "bootstrap.checkpoint"):
        if (data_dir / name).exists():
            shutil.copy(data_dir / name, kraft)


def describe(java: Java, root: Path, part: Path, name: str) -> None:
    """Write the rows of every segment and checkpoint below ``root / part`` to ``root / expected``.

    Args:
        java: Kafka's jars.
        root: ``topics`` or ``kraft``.
        part: The node's folder below it.
        name: Of the file of rows, by stem or name of the log file.
    """
    files = sorted(path for path in (root / part).rglob("*") if path.suffix in {".log", ".checkpoint"})
    expected = root / "expected" / part.relative_to("logs") if part.parts[0] == "logs" else root / "expected" / part
    segments: dict[Path, list[dict[str, Any]]] = {}
    for path, found in zip(files, answers(java, ROWS, "batches", [str(path) for path in files]), strict=True):
        target = expected / path.parent.relative_to(root / part)
        write_rows(target / name.format(stem=path.stem, name=path.name), found["batches"])
        if path.suffix == ".log":
            segments.setdefault(target, []).append(
                {
                    "baseOffset": int(path.stem),
                    "logBytes": path.stat().st_size,
                    "batches": len(found["batches"]),
                    "logSha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                }
            )
    for target, rows in segments.items():
        (target / "partition.json").write_text(json.dumps({"segments": rows}, indent=1) + "\n")
