"""Instructions of the main loops, counted by callgrind, beside those that `benches/instructions.json` holds.

Counts do not depend on what else the machine does, so a loop that became longer shows where times would drown in
noise. Callgrind offers AVX2, BMI2 and PCLMULQDQ but no AVX-512: that path is what is counted. Inputs are fixed, and
two runs of one binary differ by less than 0.1 %; another compiler or library moves a count by some percent.

    sh .ci/dev instructions              measure, print the differences, fail above the tolerance
    sh .ci/dev instructions --write      and keep the new counts
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COUNTS = Path(__file__).with_suffix(".json")
TOLERANCE_PERCENT = 3.0


CRATES = ("kraftlog-log", "kraftlog-path")


def build(crate: str) -> Path:
    """The bench program of a crate in the release profile."""
    command = ["cargo", "bench", "--locked", "--no-run", "-p", crate, "--bench", "instructions"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stderr
    found = re.search(r"\(([^()]*instructions-[0-9a-f]+)\)", said)
    if found is None:
        raise SystemExit(f"cargo names no program:\n{said}")
    return ROOT / found[1]


def count(program: Path, case: str) -> int:
    """Instructions inside `measured`, which the program calls once."""
    with tempfile.TemporaryDirectory() as directory:
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*measured*"]
        command += [f"--callgrind-out-file={directory}/out", str(program), case]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    found = re.search(r"Collected : (\d+)", said)
    if found is None:
        raise SystemExit(f"callgrind counted nothing:\n{said}")
    return int(found[1])


def main() -> int:
    """Measure, compare, and print one line a case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="keep the counts in instructions.json")
    parser.add_argument("--case", action="append", help="part of the name of the cases to run; all without it")
    arguments = parser.parse_args()
    listed = []
    for crate in CRATES:
        program = build(crate)
        said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        listed += [(program, *line.split("\t")) for line in said.splitlines()]
    kept: dict[str, float] = json.loads(COUNTS.read_text())["instructions"] if COUNTS.exists() else {}
    counts: dict[str, float] = {}
    worse = []
    for program, divisor, name in listed:
        if arguments.case and not any(part in name for part in arguments.case):
            continue
        counts[name] = round(count(program, name) / int(divisor), 2)
        change = 100 * (counts[name] / kept[name] - 1) if name in kept else 0.0
        print(f"{counts[name]:12.2f}  {change:+6.1f} %  {name}", flush=True)
        if change > TOLERANCE_PERCENT:
            worse.append(name)
    if arguments.write:
        rustc = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.strip()
        text = {
            "unit": "instructions a record; a KiB for codecs and checksums; a request for Produce and Fetch",
            "path": "AVX2, BMI2, PCLMULQDQ (what callgrind offers); release profile",
            "rustc": rustc,
            "tolerance_percent": TOLERANCE_PERCENT,
            "instructions": kept | counts,
        }
        COUNTS.write_text(json.dumps(text, indent=2) + "\n")
        return 0
    for name in worse:
        print(f"more than {TOLERANCE_PERCENT} % above the kept count: {name}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
