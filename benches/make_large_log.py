"""Makes a large partition directory fast: batches are encoded once and written with new offsets and times.

    python benches/make_large_log.py DIRECTORY [--gb 5] [--codecs none,lz4,zstd]

Offset and epoch are outside the checksum of a batch, so only the base timestamp would need another one; it stays. The
directory gets segments of 1 GiB with their indexes, as the engine writes them on opening.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

from kraftlog._kraftlog import Log, LogConfig, encode_values

NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 1 << 30
BATCHES = 24
BATCH_RECORDS = 1000
VALUE_BYTES = 100


def records() -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Values and keys of each of the batches that come again and again."""
    rng = random.Random(1)
    words = [bytes(rng.randrange(97, 123) for _ in range(8)) for _ in range(512)]
    for _ in range(BATCHES):
        values = [b" ".join(rng.choices(words, k=VALUE_BYTES // 9 + 1))[:VALUE_BYTES] for _ in range(BATCH_RECORDS)]
        keys = [b"k%08d" % rng.randrange(1_000_000) for _ in range(BATCH_RECORDS)]
        yield values, keys


def make(directory: Path, total_bytes: int, codecs: list[str]) -> int:
    """Write the segments; the number of records."""
    templates = []
    for number, (values, keys) in enumerate(records()):
        times = [NOW_MS + record for record in range(BATCH_RECORDS)]
        codec: str = codecs[number % len(codecs)]
        templates.append(bytearray(encode_values(values, keys=keys, timestamps=times, compression=codec)))  # type: ignore[arg-type]
    directory.mkdir(parents=True)
    written = offset = 0
    while written < total_bytes:
        with (directory / f"{offset:020}.log").open("wb") as file:
            size = 0
            while size < SEGMENT_BYTES - (1 << 20) and written < total_bytes:
                parts = []
                for template in templates:
                    struct.pack_into(">q", template, 0, offset)
                    struct.pack_into(">i", template, 12, 1)
                    parts.append(bytes(template))
                    offset += BATCH_RECORDS
                size += (took := os.writev(file.fileno(), parts))
                written += took
    return offset


def main() -> None:
    """Make the directory, and open it once as after an unclean stop, which writes its indexes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--gb", type=float, default=5, help="size in GB (10^9 bytes)")
    parser.add_argument("--codecs", default="none,lz4,zstd", help="codecs of the batches, in turns")
    arguments = parser.parse_args()
    count = make(arguments.directory, int(arguments.gb * 1e9), arguments.codecs.split(","))
    config = LogConfig(segment_bytes=SEGMENT_BYTES, max_message_bytes=2 << 20)
    log = Log.open(arguments.directory, config=config, now_ms=NOW_MS, clean_shutdown=False)
    assert log.log_end_offset == count
    print(f"{count} records, {log.size_bytes} bytes in {arguments.directory}")
    log.close()


if __name__ == "__main__":
    main()
