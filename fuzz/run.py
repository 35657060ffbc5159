"""Run fuzz targets in turn, each until it has used its CPU time: `python fuzz/run.py [--seconds N] TARGET...`.

Prints one JSON line a target: CPU seconds of the program, executions, edges covered, size of the corpus, and the inputs
it left in fuzz/artifacts. Build the programs with `sh fuzz/build.sh` first and the seeds with `seed_corpus.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ASAN_OPTIONS = "detect_leaks=0:allocator_may_return_null=1"
STATUS = re.compile(rb"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)")


def targets() -> list[str]:
    """Every target there is."""
    return sorted(path.stem for path in (HERE / "fuzz_targets").glob("*.rs"))


def cpu_seconds() -> float:
    """What all children that ended have used so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(program: Path, target: str, seconds: float) -> dict[str, object]:
    """One target: started again until its CPU time is used up, or it found something."""
    corpus = HERE / "corpus" / target
    artifacts = HERE / "artifacts" / target
    for directory in (corpus, artifacts):
        directory.mkdir(parents=True, exist_ok=True)
    before = set(artifacts.iterdir())
    start, began = cpu_seconds(), time.monotonic()
    executions = edges = features = kept = 0
    found: set[Path] = set()
    while (used := cpu_seconds() - start) < seconds and not found:
        done = subprocess.run(
            [
                str(program),
                f"-max_total_time={max(5, int(seconds - used) + 1)}",
                f"-artifact_prefix={artifacts}/",
                "-max_len=20000",
                "-timeout=20",
                "-rss_limit_mb=4096",
                "-malloc_limit_mb=2200",
                "-print_final_stats=1",
                "-verbosity=1",
                str(corpus),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "ASAN_OPTIONS": ASAN_OPTIONS},
        )
        found = set(artifacts.iterdir()) - before
        status = STATUS.findall(done.stderr)
        if status:
            executions += int(status[-1][0])
            edges, features, kept = (int(number) for number in status[-1][1:])
        if found or (done.returncode and not status):
            (artifacts / "last-output.txt").write_bytes(done.stderr[-20000:])
            if not found:
                said = done.stderr[-2000:].decode(errors="replace")
                raise RuntimeError(f"{target} ended with {done.returncode} and found nothing:\n{said}")
    return {
        "target": target,
        "cpu_s": round(cpu_seconds() - start),
        "wall_s": round(time.monotonic() - began),
        "executions": executions,
        "edges": edges,
        "features": features,
        "corpus": kept,
        "found": sorted(path.name for path in found),
    }


def main() -> int:
    """Exit code 1 when a target found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="*", help="targets; all when none is named")
    parser.add_argument("--seconds", type=float, default=600, help="CPU seconds for each (default 600)")
    parser.add_argument("--programs", type=Path, default=HERE / "target/x86_64-unknown-linux-gnu/release")
    arguments = parser.parse_args()
    clean = True
    for target in arguments.target or targets():
        result = run(arguments.programs / target, target, arguments.seconds)
        clean = clean and not result["found"]
        print(json.dumps(result), flush=True)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
