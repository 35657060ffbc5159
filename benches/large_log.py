"""Scans, verifies and dumps a large partition directory, each in a process of its own: throughput and peak memory.

python benches/make_large_log.py /tmp/large/orders-0
python benches/large_log.py /tmp/large/orders-0
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCAN = """
import sys, kraftlog
rows = sum(len(batch) for batch in kraftlog.scan(sys.argv[1], threads=int(sys.argv[2]), binary_type=sys.argv[3]))
print(rows)
"""


def measure(command: list[str]) -> tuple[int, float, float, float]:
    """Exit code, seconds, CPU seconds and peak MB (10^6 bytes, mapped pages of files included) of a command."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    return process.returncode, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def main() -> None:
    """Run all, one line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    size = sum(file.stat().st_size for file in arguments.directory.glob("*.log"))
    print("| what | s | MB/s of the log | CPU s | peak RSS, MB |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=arguments.directory.parent) as scratch:
        scan = [sys.executable, "-c", SCAN, str(arguments.directory)]
        cli = [sys.executable, "-m", "kraftlog.cli"]
        commands = {
            "import kraftlog, nothing read": [sys.executable, "-c", "import kraftlog"],
            "scan, copied, 1 thread": [*scan, "1", "binary"],
            "scan, copied, 2 threads": [*scan, "2", "binary"],
            "scan, views, 1 thread": [*scan, "1", "binary_view"],
            "scan, views, 2 threads": [*scan, "2", "binary_view"],
            "kraftlog log verify": [*cli, "log", "verify", str(arguments.directory)],
            "kraftlog dump-log --parquet": [
                *cli, "dump-log", "--files", str(arguments.directory), "--parquet", f"{scratch}/dump.parquet",
            ],
        }  # fmt: skip
        for name, command in commands.items():
            code, seconds, cpu, peak = measure(command)
            rate = "" if code or name.startswith("import") else f"{size / seconds / 1e6:,.0f}"
            failed = f" (exit code {code})" if code else ""
            print(f"| {name}{failed} | {seconds:.1f} | {rate} | {cpu:.1f} | {peak:.0f} |", flush=True)


if __name__ == "__main__":
    main()
