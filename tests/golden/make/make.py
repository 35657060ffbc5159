"""Make kinds of golden files again with the classes of Apache Kafka 4.3.1.

    python tests/golden/make/make.py KIND... --output DIR [--seed N] [--libs 'DIR/*']

KIND is facts, vectors, wire, damaged, dump-log-segments or topics; `all` is each of them. ``.ci/dev jars`` fetches the
jars. ``tests/golden/README.md`` says which fields are the same in each run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS))

from golden.make import damage, dump_log, facts, topics, vectors, wire  # noqa: E402
from golden.make.rows import read_rows  # noqa: E402
from interop.harness import Java  # noqa: E402

GOLDEN = TESTS / "golden"
KINDS = ("facts", "vectors", "wire", "damaged", "dump-log-segments", "topics")
SEED = 20240601


def damage_sources(folder: Path = GOLDEN / "damaged") -> dict[str, tuple[int, bytes]]:
    """The sound segments that the committed damaged ones were made of."""
    clean = [row for row in read_rows(folder / "expected.jsonl") if row["case"] == "clean"]
    return {row["source"]: (row["segmentBaseOffset"], (folder / row["file"]).read_bytes()) for row in clean}


def make(kind: str, java: Java, output: Path, seed: int) -> None:
    """Make one kind of files below ``output``."""
    match kind:
        case "facts":
            facts.write(java, output / "protocol-facts.json.gz")
        case "vectors":
            vectors.write(java, output / "vectors", seed)
        case "wire":
            table = json.loads(gzip.decompress((GOLDEN / "protocol-facts.json.gz").read_bytes()))
            wire.write(java, table, output / "wire", seed)
        case "damaged":
            damage.write(java, damage_sources(), output / "damaged", seed)
        case "dump-log-segments":
            dump_log.write(java, GOLDEN, output / "dump-log-segments")
        case "topics":
            topics.write(java, output, seed)
        case _:
            raise AssertionError(kind)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make golden files anew with Apache Kafka's classes.")
    parser.add_argument("kinds", nargs="+", choices=(*KINDS, "all"), metavar="KIND", help=", ".join((*KINDS, "all")))
    parser.add_argument("--output", type=Path, required=True, help="a new or empty folder")
    parser.add_argument("--seed", type=int, default=SEED, help="decides the content (default: %(default)s)")
    default = os.environ.get("KAFKA_LIBS", str(TESTS / "interop" / "target" / "libs" / "*"))
    parser.add_argument(
        "--libs", default=default, help="class path of Kafka's jars (default: KAFKA_LIBS, or those of .ci/dev jars)"
    )
    args = parser.parse_args(arguments)
    if args.output.exists() and any(args.output.iterdir()):
        parser.error(f"{args.output} is not empty")
    args.output.mkdir(parents=True, exist_ok=True)
    java = Java(args.libs)
    try:
        for kind in KINDS if "all" in args.kinds else args.kinds:
            make(kind, java, args.output, args.seed)
            print(f"{kind}: made below {args.output}")
    finally:
        java.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
