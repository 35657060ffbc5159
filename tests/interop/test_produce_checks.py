"""Produced batches, good and odd, through Kafka's request check and LogValidator and through our leader's append."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lz4.frame
import pytest

from batch_rows import describe_batch
from interop.harness import HERE, Java
from kraftlog import _kraftlog
from kraftlog._kraftlog import crc32c, encode_batch, read_batches
from kraftlog.errors import KafkaError
from memory_path import memory_path

PROGRAM = str(HERE / "java" / "ProduceChecks.java")
NOW = 1_700_000_000_000
EPOCH = 5
CASES = 1500
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADER_SIZE = 61
HOUR = 3_600_000


@dataclass
class Case:
    """A batch and the topic that it is produced to."""

    what: str
    data: bytes
    codec: str
    level: int | None
    timestamp_type: str
    before_max: int
    after_max: int
    compacted: bool

    def line(self) -> str:
        level = "-" if self.level is None else self.level
        fields = (self.codec, level, self.timestamp_type, self.before_max, self.after_max)
        return " ".join(map(str, (*fields, str(self.compacted).lower(), NOW, 0, EPOCH, self.data.hex())))


def with_crc(batch: bytes) -> bytes:
    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]


def put(batch: bytes, at: int, value: int, size: int) -> bytes:
    data = (value & ((1 << 8 * size) - 1)).to_bytes(size, "big")
    return with_crc(batch[:at] + data + batch[at + size :])


def get(batch: bytes, at: int, size: int) -> int:
    return int.from_bytes(batch[at : at + size], "big", signed=True)


def resized(batch: bytes) -> bytes:
    return with_crc(batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:])


# What is done to a sound batch. All but the last few are followed by a right checksum.
DEFECTS = {
    "count+1": lambda b, _: put(b, 57, get(b, 57, 4) + 1, 4),
    "count-1": lambda b, _: put(b, 57, get(b, 57, 4) - 1, 4),
    "count -1": lambda b, _: put(b, 57, -1, 4),
    "count and delta +1": lambda b, _: put(put(b, 57, get(b, 57, 4) + 1, 4), 23, get(b, 23, 4) + 1, 4),
    "count and delta -1": lambda b, _: put(put(b, 57, get(b, 57, 4) - 1, 4), 23, get(b, 23, 4) - 1, 4),
    "last delta+1": lambda b, _: put(b, 23, get(b, 23, 4) + 1, 4),
    "last delta -1": lambda b, _: put(b, 23, -1, 4),
    "base offset": lambda b, r: put(b, 0, r.choice((1, 77, -1, 1 << 40)), 8),
    "control": lambda b, _: put(b, 21, get(b, 21, 2) | 0x20, 2),
    "transactional, no producer": lambda b, _: put(b, 21, get(b, 21, 2) | 0x10, 2),
    "horizon bit": lambda b, _: put(b, 21, get(b, 21, 2) | 0x40, 2),
    "unknown bits": lambda b, r: put(b, 21, get(b, 21, 2) | r.choice((0x80, 0x100, -0x8000)), 2),
    "append time": lambda b, _: put(b, 21, get(b, 21, 2) | 0x08, 2),
    "codec": lambda b, r: put(b, 21, (get(b, 21, 2) & ~7) | r.randrange(8), 2),
    "producer, no sequence": lambda b, _: put(put(b, 43, 9, 8), 51, 0, 2),
    "producer, no epoch": lambda b, _: put(put(b, 43, 9, 8), 53, 0, 4),
    "producer": lambda b, _: put(put(put(b, 43, 9, 8), 51, 3, 2), 53, 0, 4),
    "max timestamp": lambda b, r: put(b, 35, r.choice((-1, 0, NOW + 12 * HOUR, -(1 << 63))), 8),
    "base timestamp": lambda b, r: put(b, 27, r.choice((-1, 0, NOW - 1, (1 << 63) - 1, -(1 << 63))), 8),
    "byte of the body": lambda b, r: put(b, r.randrange(HEADER_SIZE, len(b)), r.randrange(256), 1),
    "body cut": lambda b, r: resized(b[: r.randrange(HEADER_SIZE, len(b))]),
    "body longer": lambda b, r: resized(b + r.randbytes(r.randrange(1, 5))),
    "leader epoch": lambda b, _: put(b, 12, 77, 4),
    "magic": lambda b, r: put(b, 16, r.choice((0, 1, 3, 127, -1)), 1),
    "checksum": lambda b, _: b[:17] + bytes([b[17] ^ 1]) + b[18:],
    "cut": lambda b, r: b[: r.randrange(len(b))],
    "twice": lambda b, _: b + b,
    "rest": lambda b, r: b + b[: r.randrange(1, len(b))],
}
TIMES = (
    -1,
    -1,
    0,
    NOW,
    NOW,
    NOW - 10,
    NOW + 10,
    NOW + HOUR,
    NOW + HOUR + 1,
    NOW - (1 << 40),
    -5,
    -(1 << 63),
    (1 << 63) - 1,
)


def make_case(chosen: random.Random) -> Case:
    sane = chosen.random() < 0.6
    times = (NOW, NOW - 1, NOW - 70, -1) if sane else TIMES
    count = chosen.randrange(1, 6)
    records = [
        (
            chosen.choice(times),
            None if chosen.random() < 0.1 else chosen.randbytes(3),
            None if chosen.random() < 0.1 else b"value" * chosen.randrange(40),
            [("name", chosen.choice((None, b"x")))] * chosen.choice((0, 0, 1, 3)),
        )
        for _ in range(count)
    ]
    what = "sound"
    source = chosen.choice(CODECS)
    if chosen.random() < 0.08:
        what = "offset deltas"
        deltas = sorted(chosen.sample(range(count + 3), count))
        batch = encode_batch(records, compression=source, offset_deltas=deltas)
        batch = put(batch, 23, count - 1, 4)
    else:
        batch = encode_batch(records, compression=source)
    if what == "sound" and chosen.random() < 0.5:
        what = chosen.choice(list(DEFECTS))
        batch = DEFECTS[what](batch, chosen)
    target = chosen.choice(("producer", "producer", *CODECS))
    levels = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-5, 20)}
    return Case(
        what=f"{what} {source}->{target}",
        data=batch,
        codec=target,
        level=chosen.randint(*levels[target]) if target in levels and chosen.random() < 0.5 else None,
        timestamp_type=chosen.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        before_max=chosen.choice(((1 << 63) - 1, (1 << 63) - 1, HOUR)),
        after_max=chosen.choice((HOUR, HOUR, (1 << 63) - 1, 5)),
        compacted=chosen.random() < 0.15,
    )


def ours(case: Case, folder: Path) -> tuple[str, bytes | int, list[int]]:
    config = _kraftlog.LogConfig(
        compression_type=case.codec,
        compression_level=case.level,
        timestamp_type=case.timestamp_type,
        timestamp_before_max_ms=case.before_max,
        timestamp_after_max_ms=case.after_max,
        cleanup_policy="compact" if case.compacted else "delete",
    )
    log = _kraftlog.Log.open(folder, config=config, now_ms=NOW)
    try:
        log.append_as_leader(case.data, leader_epoch=EPOCH, now_ms=NOW)
        written = log.read(0, max_bytes=1 << 30, end_offset=log.log_end_offset).read()
    except KafkaError as error:
        return "error", error.code, [index for index, _ in getattr(error, "record_errors", ())]
    finally:
        log.close()
    return "ok", written, []


def comparable(data: bytes) -> list[dict[str, object]]:
    rows = [describe_batch(batch) for batch in read_batches(data)]
    for row in rows:
        del row["size"], row["batchLength"], row["crc"]
    return rows


UNKNOWN_SERVER_ERROR = -1
INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD = 32, 76, 87
# What we refuse on purpose although Kafka would write it, and so perhaps before another fault is seen.
STRICTER = ("offset deltas", "producer, no epoch", "transactional, no producer")
# Damage of what is compressed: two libraries may see it in another place.
DAMAGE = ("byte of the body", "body cut", "body longer", "codec")


def difference(case: Case, kafka: list[str], found: tuple[str, bytes | int, list[int]]) -> str | None:
    """What makes our answer another one than Kafka's, unless it is meant to be."""
    kind, value, indexes = found
    if kafka[0] == "ok":
        if kind == "ok":
            assert isinstance(value, bytes)
            same = bytes.fromhex(kafka[1])
            return None if value == same or comparable(value) == comparable(same) else "other batches"
        return None if case.what.startswith(STRICTER) and value == INVALID_RECORD else f"we refuse: {value}"
    code = int(kafka[1])
    if code == UNKNOWN_SERVER_ERROR:
        # Kafka fails where it should refuse, or where it could have gone on: a base offset other than 0 in a compressed
        # batch, negative timestamps in one that is built anew.
        return None if kind == "ok" or value in (INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE) else f"-1, ours {value}"
    if kind == "ok":
        return f"Kafka refuses: {code}"
    refused = [] if kafka[2] == "-" else [int(index) for index in kafka[2].split(",")]
    if (value, indexes) == (code, refused):
        return None
    return None if case.what.startswith(STRICTER + DAMAGE) and value == INVALID_RECORD else f"{code}, ours {value}"


def lz4_frames(body: bytes) -> Iterator[tuple[str, bytes]]:
    """The body as one LZ4 frame with every combination of the flags, and damaged in a checksum."""
    for linked, content, block, size in itertools.product((False, True), repeat=4):
        flags = f"linked {linked}, content checksum {content}, block checksums {block}, content size {size}"
        frame = lz4.frame.compress(
            body,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=linked,
            content_checksum=content,
            block_checksum=block,
            store_size=size,
        )
        yield flags, frame
        yield flags + ", last byte", frame[:-1] + bytes([frame[-1] ^ 1])
        yield flags + ", byte before the end mark", with_flip(frame, len(frame) - 9)
        for at in range(4, 15 if size else 7):
            yield flags + f", header byte {at}", with_flip(frame, at)


def with_flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """Each case is a log that is flushed when it is closed."""
    with memory_path(tmp_path) as path:
        yield path


def test_leader_accepts_the_lz4_frames_that_kafka_accepts(java: Java, memory: Path) -> None:
    plain = encode_batch([(NOW, b"key", random.Random(3).randbytes(200) * 700, [])], compression="none")
    cases = [
        Case(
            what=what,
            data=resized(put(plain, 21, 3, 2)[:HEADER_SIZE] + frame),
            codec="producer",
            level=None,
            timestamp_type="CreateTime",
            before_max=(1 << 63) - 1,
            after_max=HOUR,
            compacted=False,
        )
        for what, frame in lz4_frames(plain[HEADER_SIZE:])
    ]
    answers = java.tool(PROGRAM, text_input="".join(f"{case.line()}\n" for case in cases)).stdout.splitlines()
    expected = {case.what: line.startswith("ok ") for case, line in zip(cases, answers, strict=True)}
    found = {}
    for index, case in enumerate(cases):
        folder = memory / str(index) / "checked-0"
        folder.parent.mkdir()
        found[case.what] = ours(case, folder)[0] == "ok"
    assert found == expected
    assert Counter(expected.values())[True] > len(cases) // 20
    assert not any(is_accepted for what, is_accepted in expected.items() if what.startswith("linked True"))


@pytest.mark.parametrize("seed", [1, 2])
def test_produced_batches_fare_as_with_kafkas_validator(seed: int, java: Java, memory: Path) -> None:
    chosen = random.Random(seed)
    cases = [make_case(chosen) for _ in range(CASES)]
    said = java.tool(PROGRAM, text_input="".join(f"{case.line()}\n" for case in cases)).stdout
    answers = [line.split(" ") for line in said.splitlines()]
    assert len(answers) == CASES
    outcomes: Counter[str] = Counter()
    differences = []
    for index, (case, kafka) in enumerate(zip(cases, answers, strict=True)):
        folder = memory / str(index) / "checked-0"
        folder.parent.mkdir()
        found = ours(case, folder)
        outcomes["written" if found[0] == "ok" else str(found[1])] += 1
        wrong = difference(case, kafka, found)
        if wrong:
            differences.append((case.what, wrong, case.line()))
    assert not differences
    assert outcomes["written"] > CASES // 3
    assert all(outcomes[str(code)] > CASES // 100 for code in (2, INVALID_TIMESTAMP, INVALID_RECORD))
