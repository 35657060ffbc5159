"""Every compression level against Kafka's own streams: Kafka reads what we write, and it is about as small as Kafka's.

LZ4 is the same library and the same framing, so the bytes are equal. Other libraries, or other frames, are compared
by size.
"""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest

from interop.harness import HERE, Java
from kraftlog._kraftlog import encode_batch, read_batches

PROGRAM = str(HERE / "java" / "RecordFiles.java")
HEADER_SIZE = 61
LEVELS = {
    "gzip": [-1, *range(1, 10)],
    "lz4": list(range(1, 18)),
    "zstd": [-131072, -1000, -50, -5, -1, *range(23)],
    "snappy": [0],  # the program ignores it, as we do
}
# kraftlog's bytes per byte of Kafka's. The deflate of zlib-rs does less at level 1 than that of zlib. kraftlog's
# zstd frame contains the size of the content, which Kafka's stream does not.
SIZE_RATIO_MAX = {"gzip": 1.01, "zstd": 1.01, "snappy": 1.02}
SIZE_RATIO_MAX_OF_GZIP_1 = 1.25

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def make_records() -> list[Record]:
    chosen = random.Random(20240601)
    words = ["".join(chosen.choices("abcdefghijklmnopqrstuvwxyz", k=chosen.randint(2, 9))) for _ in range(900)]
    records: list[Record] = []
    for index in range(1500):
        text = " ".join(chosen.choices(words, k=chosen.randint(5, 30)))
        value = json.dumps({"id": index, "user": chosen.randint(0, 9999), "text": text}).encode()
        records.append((1_700_000_000_000 + index, b"key-%d" % index, value, []))
    # More than a block that does not compress, and one that is nothing but zeros.
    records.append((1_700_000_002_000, None, chosen.randbytes(150_000), []))
    records.append((1_700_000_002_001, b"", bytes(100_000), []))
    return records


@pytest.mark.slow
@pytest.mark.parametrize("codec", LEVELS)
def test_every_level_is_read_by_kafka_and_as_small_as_kafkas(codec: str, java: Java, tmp_path: Path) -> None:
    records = make_records()
    plain = tmp_path / "plain"
    plain.write_bytes(encode_batch(records)[HEADER_SIZE:])
    said = java.tool(PROGRAM, "compress", codec, str(plain), *map(str, LEVELS[codec])).stdout
    kafkas = {int(level): base64.b64decode(data) for level, data in map(str.split, said.splitlines())}
    assert list(kafkas) == LEVELS[codec]
    ours = {}
    file = tmp_path / f"{0:020}.log"
    with file.open("wb") as log:
        for index, level in enumerate(LEVELS[codec]):
            given = None if codec == "snappy" else level
            batch = encode_batch(records, base_offset=index * len(records), compression=codec, compression_level=given)
            log.write(batch)
            ours[level] = batch[HEADER_SIZE:]
    for level, theirs in kafkas.items():
        if codec == "lz4":
            assert ours[level] == theirs, level
        else:
            most = SIZE_RATIO_MAX_OF_GZIP_1 if (codec, level) == ("gzip", 1) else SIZE_RATIO_MAX[codec]
            assert len(ours[level]) <= most * len(theirs), level
    if codec == "snappy":
        assert ours[0][:16] == kafkas[0][:16]

    expected = [[value for _, _, value, _ in records]] * len(LEVELS[codec])
    read = [json.loads(line) for line in java.tool(PROGRAM, "read", str(file)).stdout.splitlines()]
    assert [[base64.b64decode(record[3]) for record in batch["records"]] for batch in read] == expected
    assert [[record[3] for record in batch.records()] for batch in read_batches(file.read_bytes())] == expected


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_kafkas_levels_are_the_ones_we_take(codec: str) -> None:
    lowest, highest = min(LEVELS[codec]), max(LEVELS[codec])
    for level in (lowest - 1, highest + 1, *([0] if codec in ("gzip", "lz4") else [])):
        with pytest.raises(ValueError, match=f"{codec} has no compression level {level}"):
            encode_batch([(0, None, b"x", [])], compression=codec, compression_level=level)
