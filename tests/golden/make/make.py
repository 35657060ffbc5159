"""Make kinds of golden files again with the classes of Apache Kafka 4.3.1.

    python tests/golden/make/make.py KIND... --output DIR [--seed N] [--libs 'DIR/*'] [--old-libs 'DIR/*']

KIND is facts, vectors, wire, damaged, dump-log-segments, topics, kraft, metrics or wire-3.9.1; `all` is each of them.
``.ci/dev jars`` fetches the jars, ``.ci/dev jars-old`` those of Kafka 3.9.1 for wire-3.9.1.
``tests/golden/README.md`` says which fields are the same in each run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS))

from golden.make import damage, dump_log, facts, kraft, metrics, topics, vectors, wire  # noqa: E402
from golden.make.rows import read_rows  # noqa: E402
from interop.harness import Java  # noqa: E402

GOLDEN = TESTS / "golden"
KINDS = ("facts", "vectors", "wire", "damaged", "dump-log-segments", "topics", "kraft", "metrics", "wire-3.9.1")
OLD_LIBS = GOLDEN / "make" / "kafka-3.9.1" / "target" / "libs"
SEED = 20240601


def damage_sources(folder: Path = GOLDEN / "damaged") -> dict[str, tuple[int, bytes]]:
    """The sound segments that the committed damaged ones were made of."""
    clean = [row for row in read_rows(folder / "expected.jsonl") if row["case"] == "clean"]
    return {row["source"]: (row["segmentBaseOffset"], (folder / row["file"]).read_bytes()) for row in clean}


def committed_facts() -> dict[str, Any]:
    """The table of the protocol of Kafka 4.3.1."""
    facts_table: dict[str, Any] = json.loads(gzip.decompress((GOLDEN / "protocol-facts.json.gz").read_bytes()))
    return facts_table


def make(kind: str, java: Java, old_java: Java, output: Path, seed: int) -> None:
    """Make one kind of files below ``output``.

    Args:
        kind: One of ``KINDS``.
        java: The jars of Kafka 4.3.1.
        old_java: Those of kafka-clients 3.9.1.
        output: A folder.
        seed: Decides the content.
    """
    match kind:
        case "facts":
            facts.write(facts.make(java), output / "protocol-facts.json.gz")
        case "vectors":
            vectors.write(java, output / "vectors", seed)
        case "wire":
            wire.write(java, committed_facts(), output / "wire", seed)
        case "damaged":
            damage.write(java, damage_sources(), output / "damaged", seed)
        case "dump-log-segments":
            dump_log.write(java, GOLDEN, output / "dump-log-segments")
        case "topics":
            topics.write(java, output, seed)
        case "kraft":
            kraft.write(java, output, seed)
        case "metrics":
            metrics.write(java, output / "metrics", seed)
        case "wire-3.9.1":
            table = facts.make_old(old_java)
            facts.write(table, output / "protocol-facts-3.9.1.json.gz")
            asked = wire.questions({**table, "apis": facts.headers(old_java)}, seed, newer=committed_facts())
            wire.write_messages(old_java, list(asked), output / "wire-3.9.1")
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
    parser.add_argument(
        "--old-libs",
        default=str(OLD_LIBS / "*"),
        help="those of kafka-clients 3.9.1 (default: those of .ci/dev jars-old)",
    )
    args = parser.parse_args(arguments)
    kinds = KINDS if "all" in args.kinds else args.kinds
    if "wire-3.9.1" in kinds and not list(Path(args.old_libs).parent.glob("kafka-clients-3.9*.jar")):
        parser.error(f"no kafka-clients 3.9.1 in {args.old_libs}: run .ci/dev jars-old")
    if args.output.exists() and any(args.output.iterdir()):
        parser.error(f"{args.output} is not empty")
    args.output.mkdir(parents=True, exist_ok=True)
    java, old_java = Java(args.libs), Java(args.old_libs)
    try:
        for kind in kinds:
            make(kind, java, old_java, args.output, args.seed)
            print(f"{kind}: made below {args.output}")
    finally:
        java.close()
        old_java.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
