"""Make ``topics/`` and the story ``standalone`` of ``kraft/`` with a Kafka that runs: one node, stopped cleanly.

Keys, values, headers and the timestamps of producers follow from the seed. Producer ids, ids of topics and of the
directory, the timestamps of the broker and of markers, and with them checksums, differ from run to run.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from golden.make import expected
from interop.harness import Java, KafkaServer

HERE = Path(__file__).parent
WORKLOAD = str(HERE / "java" / "Workload.java")
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
    intervals = {
        name: int(configs["index.interval.bytes"])
        for name, configs in told["topics"].items()
        if "index.interval.bytes" in configs
    }
    expected.write_topics(java, folder / "topics", intervals, seed)
    expected.write_kraft(java, folder / "kraft")


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
