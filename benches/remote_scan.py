"""What ranges cost beside files: MB/s, CPU seconds and requests for each GB, of one log in several places.

    python benches/remote_scan.py [--mib 128]

The log is uncompressed, with batches of 64 KiB and values of 1000 B, in segments of 32 MiB; key, value, offset and
timestamp are read with checksums. The S3 server is moto in a process of its own, whose CPU is not counted; it holds
objects in memory and copies them for each range, so that its figures are those of a slow store.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec

import kraftlog
from kraftlog._kraftlog import encode_batch
from kraftlog.reading import Scan, fetch_counts

SERVER = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server._server.port, flush=True)
sys.stdin.read()
"""
COLUMNS = ("key", "value", "offset", "timestamp")


def write_log(directory: Path, mib: int) -> None:
    """Segments of 32 MiB, each batch in the index."""
    directory.mkdir(parents=True)
    value, offset, left = bytes(1000), 0, mib << 20
    while left > 0:
        base, data, index = offset, bytearray(), bytearray()
        while len(data) < min(32 << 20, left):
            index += struct.pack(">II", offset + 63 - base, len(data))
            data += encode_batch([(offset + at, b"key", value, []) for at in range(64)], base_offset=offset)
            offset += 64
        left -= len(data)
        (directory / f"{base:020}.log").write_bytes(data)
        (directory / f"{base:020}.index").write_bytes(index)


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(name: str, make: Callable[[], Scan], size_bytes: int, runs: int) -> None:
    walls, cpus, requests = [], [], 0
    for _ in range(runs):
        before, wall, cpu = fetch_counts(), time.perf_counter(), cpu_s()
        for _batch in make():
            pass
        walls.append(time.perf_counter() - wall)
        cpus.append(cpu_s() - cpu)
        counts = fetch_counts() - before
        requests = counts.lists + counts.reads + counts.checks
    gigabytes = size_bytes / 1e9
    print(
        f"| {name} | {size_bytes / 1e6 / min(walls):.0f} | {statistics.median(cpus) / gigabytes:.2f} "
        f"| {requests / gigabytes:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        root = Path(home) / "kafka-logs"
        write_log(root / "orders-0", given.mib)
        size_bytes = sum(path.stat().st_size for path in root.rglob("*.log"))
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
            options: dict[str, Any] = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": endpoint}}
            store = fsspec.filesystem("s3", **options)
            store.mkdir("logs")
            store.put(f"{root}/", "logs/kafka-logs/", recursive=True)
            from pyarrow.fs import S3FileSystem

            arrow = S3FileSystem(
                access_key="k",
                secret_key="s",
                endpoint_override=endpoint.removeprefix("http://"),
                scheme="http",
                region="us-east-1",
            )
            url = "s3://logs/kafka-logs"
            places: list[tuple[str, Any, dict[str, Any]]] = [
                ("files, by `pread`", root, {}),
                ("the same as `file://`, by ranges", f"file://{root}", {}),
                ("moto, s3fs", url, {"storage_options": options}),
                ("moto, pyarrow.fs", url, {"filesystem": arrow}),
            ]
            print("| place | MB/s, best | CPU s/GB, median | requests/GB |\n|---|---|---|---|")
            for threads in (1, 2):
                for name, place, arguments in places:

                    def make(place: Any = place, arguments: Any = arguments, threads: int = threads) -> Scan:
                        return kraftlog.scan(place, columns=COLUMNS, threads=threads, **arguments)

                    measure(f"{name}, {threads} threads", make, size_bytes, given.runs)
        finally:
            server.communicate("")


if __name__ == "__main__":
    main()
